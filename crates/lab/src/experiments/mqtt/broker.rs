//! Mosquitto as a process of its own.

use crate::harness::Failure;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// A running broker; killed when dropped.
pub(super) struct Broker {
    pub(super) port: u16,
    child: Child,
}

impl Broker {
    /// Starts a broker on a free port, configured as docs/mqtt.md advises, but without persistence.
    pub(super) fn start(dir: &Path) -> Result<Broker, Failure> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut text = format!(
            "listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nlog_type none\n\
             max_queued_messages 0\nmax_inflight_messages 1000\nset_tcp_nodelay true\n"
        );
        if rustix::process::geteuid().is_root() {
            text.push_str("user root\n");
        }
        let file = dir.join("mosquitto.conf");
        std::fs::write(&file, text)?;
        let child = Command::new("mosquitto")
            .arg("-c")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("mosquitto: {error}; apt-get install mosquitto"))?;
        let broker = Broker { port, child };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if start.elapsed() > PATIENCE {
                return Err("mosquitto does not answer".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(broker)
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("lab: ending mosquitto: {error}");
        }
    }
}
