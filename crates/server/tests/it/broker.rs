//! Mosquitto as a broker for tests, on a free loopback port, and its clients.
//!
//! Where it is not installed, tests that need it say so and pass, unless `TEST_CLIENTS=required`,
//! which CI sets.

use super::wait::until;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A running broker; killed when dropped.
pub(crate) struct Broker {
    pub(crate) port: u16,
    dir: TempDir,
    child: Option<Child>,
}

/// Whether there is a broker to test with.
pub(crate) fn is_installed() -> bool {
    let found = ["mosquitto", "mosquitto_pub"].iter().all(|program| {
        let help = Command::new(program)
            .arg("--help")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        help.is_ok()
    });
    if !found {
        assert_ne!(
            std::env::var("TEST_CLIENTS").as_deref(),
            Ok("required"),
            "mosquitto and mosquitto-clients are not installed"
        );
        eprintln!("skipped: mosquitto and mosquitto_pub are not installed");
    }
    found
}

impl Broker {
    /// One that anybody may use, and that keeps sessions over a restart.
    pub(crate) fn start() -> Broker {
        Broker::start_with(|_, _| "allow_anonymous true\n".to_owned())
    }

    /// One with settings for its listener, made from its folder and port.
    pub(crate) fn start_with(settings: impl FnOnce(&Path, u16) -> String) -> Broker {
        let dir = tempfile::tempdir().unwrap();
        // Free now; nothing else on this machine takes ports from the same range so fast.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let folder = dir.path().display();
        let mut text = format!(
            "listener {port} 127.0.0.1\npersistence true\npersistence_location {folder}/\nautosave_interval 1\nlog_dest file {folder}/log\n\
             max_queued_messages 0\nmax_inflight_messages 1000\nset_tcp_nodelay true\n"
        );
        // A broker that root starts would become another user, who may not write here.
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
    pub(crate) fn begin(&mut self) {
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
    pub(crate) fn end(&mut self, at_once: bool) {
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
    pub(crate) fn publish(&self, topic: &str, payload: &str) {
        self.client(topic, &["-m", payload], "");
    }

    /// Sends a message for each line.
    pub(crate) fn publish_lines(&self, topic: &str, lines: &str) {
        self.client(topic, &["-l"], lines);
    }

    /// Runs `mosquitto_pub` with QoS 1.
    pub(crate) fn client(&self, topic: &str, arguments: &[&str], input: &str) {
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
