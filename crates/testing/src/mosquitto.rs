//! Mosquitto as an MQTT broker for tests, on a free loopback port, and its clients.

use crate::{free_port, installed, or_skip, until};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A running broker; killed when dropped.
#[derive(Debug)]
pub struct Broker {
    /// Where it listens.
    pub port: u16,
    dir: TempDir,
    child: Option<Child>,
}

/// Whether there is a broker to test with; if not, that is reported as by [`or_skip`].
pub fn has_broker() -> bool {
    let found = installed("mosquitto").and_then(|_| installed("mosquitto_pub"));
    or_skip(found).is_some()
}

impl Broker {
    /// One that anybody may use, and that keeps sessions over a restart.
    pub fn start() -> Broker {
        Broker::start_with(|_, _| "allow_anonymous true\n".to_owned())
    }

    /// One with settings for its listener, made from its folder and port.
    pub fn start_with(settings: impl FnOnce(&Path, u16) -> String) -> Broker {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let folder = dir.path().display();
        let mut text = format!(
            "listener {port} 127.0.0.1\npersistence true\npersistence_location {folder}/\nautosave_interval 1\nlog_dest file {folder}/log\n\
             max_queued_messages 0\nmax_inflight_messages 1000\nset_tcp_nodelay true\n"
        );
        // A broker that root starts would become another user, which may not write here.
        if rustix::process::geteuid().is_root() {
            text.push_str("user root\n");
        }
        text.push_str(&settings(dir.path(), port));
        std::fs::write(dir.path().join("conf"), text).unwrap();
        let mut broker = Broker {
            port,
            dir,
            child: None,
        };
        broker.begin();
        broker
    }

    /// Starts it again on the same port.
    pub fn begin(&mut self) {
        let child = Command::new("mosquitto")
            .arg("-c")
            .arg(self.dir.path().join("conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.child = Some(child);
        until("the broker answers", || {
            std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    /// Ends it, so that it stores its sessions, or at once.
    pub fn end(&mut self, at_once: bool) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        if at_once {
            child.kill().unwrap();
        } else {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        }
        child.wait().unwrap();
    }

    /// Sends one message, and waits until the broker has it.
    pub fn publish(&self, topic: &str, payload: &str) {
        self.client(topic, &["-m", payload], "");
    }

    /// Sends a message for each line.
    pub fn publish_lines(&self, topic: &str, lines: &str) {
        self.client(topic, &["-l"], lines);
    }

    /// Runs `mosquitto_pub` with QoS 1.
    pub fn client(&self, topic: &str, arguments: &[&str], input: &str) {
        let mut child = Command::new("mosquitto_pub")
            .args([
                "-V",
                "mqttv5",
                "-h",
                "localhost",
                "-p",
                &self.port.to_string(),
            ])
            .args(["-q", "1", "-t", topic])
            .args(arguments)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        let status = child.wait().unwrap();
        assert!(status.success(), "mosquitto_pub: {status}");
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking()
            && let Ok(log) = std::fs::read_to_string(self.dir.path().join("log"))
        {
            eprintln!("the broker's log:\n{log}");
        }
    }
}
