//! A shell around the tiny role, on free loopback ports, and clients for it.

use crate::role::{Adder, AdderError, Tally};
use headwater_io::Env;
use headwater_shell::access::rules::AccessRule;
use headwater_shell::access::tokens::{NewToken, TokenFile};
use headwater_shell::{Listener, ShellSettings};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub(crate) struct Running {
    pub(crate) addr: SocketAddr,
    pub(crate) listener_addr: SocketAddr,
    pub(crate) tally: Arc<Tally>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<Result<(), AdderError>>>,
    dir: TempDir,
}

impl Running {
    /// Starts one; `prepare` makes its settings, and may make tokens before it starts.
    pub(crate) fn start(prepare: impl FnOnce(&mut ShellSettings, &TokenFile)) -> Running {
        let dir = tempfile::tempdir().unwrap();
        let tokens = TokenFile::of_database(dir.path());
        let mut settings = ShellSettings::default();
        prepare(&mut settings, &tokens);
        let tally = Arc::new(Tally::default());
        let (stop, stopped) = watch::channel(false);
        let (tell, told) = std::sync::mpsc::channel();
        let shared = Arc::clone(&tally);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let door_addr = door.local_addr().unwrap();
                let doors = [door_addr];
                let listener = Listener::bind(settings, Env::system(), tokens, &doors);
                let bound = listener.await.unwrap().shell(|registry| {
                    registry.register("added", "Numbers added", shared.added.clone());
                });
                tell.send((bound.local_addr(), door_addr)).unwrap();
                bound.serve(Adder::new(&shared, door), stopped).await
            })
        });
        let (addr, listener_addr) = told.recv().unwrap();
        Running {
            addr,
            listener_addr,
            tally,
            stop,
            thread: Some(thread),
            dir,
        }
    }

    /// The file of its tokens.
    pub(crate) fn tokens(&self) -> TokenFile {
        TokenFile::of_database(self.dir.path())
    }

    /// Asks by GET; status and body.
    pub(crate) fn get(&self, path: &str, token: Option<&str>) -> (u16, String) {
        let mut request = client().get(format!("http://{}{path}", self.addr));
        if let Some(token) = token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let mut answer = request.call().unwrap();
        let body = answer.body_mut().read_to_string().unwrap();
        (answer.status().as_u16(), body)
    }

    /// Asks by POST; status and body.
    pub(crate) fn post(&self, path: &str, token: Option<&str>, body: &str) -> (u16, String) {
        let mut request = client().post(format!("http://{}{path}", self.addr));
        if let Some(token) = token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let mut answer = request.send(body).unwrap();
        let body = answer.body_mut().read_to_string().unwrap();
        (answer.status().as_u16(), body)
    }

    /// Tells it to stop, and does not wait.
    pub(crate) fn begin_to_stop(&self) {
        self.stop.send_replace(true);
    }

    /// Stops it, and gives what its end gave.
    pub(crate) fn stopped(mut self) -> Result<(), AdderError> {
        self.begin_to_stop();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.begin_to_stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
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

/// Makes a token with these rules.
pub(crate) fn token(file: &TokenFile, name: &str, rules: &[&str]) -> String {
    let rules: Vec<AccessRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let new = NewToken {
        name: name.to_owned(),
        rules,
        expires: None,
    };
    file.create(new).unwrap()
}

/// The code of a refusal.
pub(crate) fn code(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap();
    body["code"].as_str().unwrap().to_owned()
}
