//! Prosody as an XMPP server for tests, on free loopback ports, with publish-subscribe.

use headwater_testing::{free_port, installed, or_skip, until};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The account that owns all nodes; passwords are the names of accounts.
pub(crate) const OWNER: &str = "owner";

/// A running server; killed when dropped.
pub(crate) struct Prosody {
    /// Where TLS is begun by STARTTLS, or not at all.
    pub(crate) port: u16,
    /// Where there is TLS from the first byte on.
    pub(crate) tls_port: u16,
    dir: TempDir,
    child: Option<Child>,
}

/// Whether there is a server to test with; where not, that is told.
pub(crate) fn has_prosody() -> bool {
    or_skip(installed("prosody")).is_some()
}

impl Prosody {
    /// One of the domain `localhost` that has these accounts beside the owner's.
    pub(crate) fn start(accounts: &[&str]) -> Prosody {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(path("cert.pem"), certified.cert.pem()).unwrap();
        std::fs::write(path("key.pem"), certified.signing_key.serialize_pem()).unwrap();
        std::fs::create_dir_all(path("data/localhost/accounts")).unwrap();
        for account in accounts.iter().chain([&OWNER]) {
            let file = path(&format!("data/localhost/accounts/{account}.dat"));
            let text = format!("return {{ [\"password\"] = \"{account}\" }};");
            std::fs::write(file, text).unwrap();
            std::fs::write(path(&format!("{account}.password")), format!("{account}\n")).unwrap();
        }
        let (port, tls_port) = (free_port(), free_port());
        let text = format!(
            "run_as_root = true\ndata_path = \"{data}\"\npidfile = \"{pid}\"\nlog = {{ info = \"{log}\" }}\n\
             interfaces = {{ \"127.0.0.1\" }}\nc2s_ports = {{ {port} }}\nc2s_direct_tls_ports = {{ {tls_port} }}\ns2s_ports = {{ }}\n\
             ssl = {{ certificate = \"{cert}\", key = \"{key}\" }}\nc2s_direct_tls_ssl = ssl\nuse_dane = false\n\
             modules_enabled = {{ \"saslauth\", \"tls\", \"disco\", \"ping\", \"roster\" }}\nmodules_disabled = {{ \"s2s\", \"offline\" }}\n\
             authentication = \"internal_plain\"\nstorage = \"internal\"\nc2s_require_encryption = false\n\
             VirtualHost \"localhost\"\nComponent \"pubsub.localhost\" \"pubsub\"\nadmins = {{ \"{OWNER}@localhost\" }}\n",
            data = path("data"),
            pid = path("pid"),
            log = path("log"),
            cert = path("cert.pem"),
            key = path("key.pem"),
        );
        std::fs::write(path("prosody.cfg.lua"), text).unwrap();
        let mut server = Prosody {
            port,
            tls_port,
            dir,
            child: None,
        };
        server.begin();
        server
    }

    /// A file of its folder: `cert.pem`, or `NAME.password` of an account.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts it again on the same ports.
    pub(crate) fn begin(&mut self) {
        let child = Command::new("/usr/bin/prosody")
            .arg("--config")
            .arg(self.file("prosody.cfg.lua"))
            .arg("-F")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.child = Some(child);
        until("the XMPP server answers", || {
            let answers = |port| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
            answers(self.port) && answers(self.tls_port)
        });
    }

    /// Ends it, so that it says so to its clients, or at once.
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
}

impl Drop for Prosody {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking()
            && let Ok(log) = std::fs::read_to_string(self.file("log"))
        {
            eprintln!("the server's log:\n{log}");
        }
    }
}
