//! A server in this process, on a free loopback port, and a client for it.

use headwater_server::{Server, Settings};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::watch;

/// A running server; stopped in order when dropped.
pub(crate) struct Running {
    pub(crate) addr: SocketAddr,
    /// Where clients of PostgreSQL come in, if `postgres_addr` is set.
    #[cfg(feature = "sql")]
    pub(crate) postgres: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    dir: TempDir,
}

impl Running {
    /// Starts one over an empty database.
    pub(crate) fn start() -> Running {
        Running::start_with(|_| {})
    }

    /// Starts one over an empty database, with some settings changed.
    pub(crate) fn start_with(change: impl FnOnce(&mut Settings)) -> Running {
        Running::start_in(tempfile::tempdir().unwrap(), change)
    }

    /// Stops it in order, and starts one over the same database.
    pub(crate) fn restarted(mut self, change: impl FnOnce(&mut Settings)) -> Running {
        self.stop();
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap());
        Running::start_in(dir, change)
    }

    /// Starts one in a folder, whose database may be there.
    pub(crate) fn start_in(dir: TempDir, change: impl FnOnce(&mut Settings)) -> Running {
        let mut settings = Settings::new(dir.path().join("db"));
        settings.http_addr.set_port(0);
        change(&mut settings);
        let (stop, stopped) = watch::channel(false);
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let server = Server::start(settings).await.unwrap();
                #[cfg(feature = "sql")]
                let postgres = server.postgres_addr();
                #[cfg(not(feature = "sql"))]
                let postgres: Option<SocketAddr> = None;
                tell.send((server.local_addr(), postgres)).unwrap();
                server.run(stopped).await.unwrap();
            });
        });
        let (addr, _postgres) = told.recv().unwrap();
        Running {
            addr,
            #[cfg(feature = "sql")]
            postgres: _postgres,
            stop,
            thread: Some(thread),
            dir,
        }
    }

    /// An URL of this server.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// Stops it in order, and opens its database to look at it.
    pub(crate) fn stopped<T>(mut self, look: impl FnOnce(&headwater::Database) -> T) -> T {
        self.stop();
        look(&headwater::Database::open(headwater::Options::new(self.db())).unwrap())
    }

    /// Stops it, and keeps its folder.
    pub(crate) fn ended(mut self) -> TempDir {
        self.stop();
        std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap())
    }

    fn stop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.unwrap();
            }
        }
    }

    /// The directory of its database.
    pub(crate) fn db(&self) -> PathBuf {
        self.dir.path().join("db")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A client that gives answers of any status as answers.
pub(crate) fn client() -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(60)))
        .build()
        .into()
}

/// The body of an answer as JSON.
pub(crate) fn json(answer: &mut ureq::http::Response<ureq::Body>) -> serde_json::Value {
    answer.body_mut().read_json().unwrap()
}
