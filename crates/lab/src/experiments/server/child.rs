//! The server as a process of its own, and its resources by the kernel's count.

use crate::harness::Failure;
use headwater_server::Settings;
use headwater_server::settings::{Broker, DispatchNode, NodeRole, Subscription};
use headwater_wire::message::{MessageRules, PayloadForm, TopicPattern};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Arguments of the process. Not for people.
#[derive(clap::Args)]
pub(crate) struct ChildArguments {
    #[arg(long)]
    db: PathBuf,
    /// Takes messages from a broker on this port.
    #[arg(long)]
    mqtt_port: Option<u16>,
    /// Role among other nodes: `edge`, `cloud` or `dispatcher`.
    #[arg(long, default_value = "single")]
    role: String,
    /// A node that a dispatcher sends queries to.
    #[arg(long)]
    node: Vec<String>,
    /// Interval at which an edge sends newest values.
    #[arg(long)]
    live_seconds: Option<u64>,
}

/// The child's part: serves until SIGTERM, and prints its address once it answers.
pub(crate) fn run_child(arguments: &ChildArguments) -> Result<(), Failure> {
    let mut settings = Settings::new(&arguments.db);
    settings.http_addr.set_port(0);
    settings.connections_max = 20_000;
    let mut roles = NodeRole::ALL.into_iter();
    let role = roles.find(|role| role.name() == arguments.role);
    settings.sync.role = role.ok_or("no such role")?;
    settings.sync.live = arguments.live_seconds.map(Duration::from_secs);
    let nodes = arguments.node.iter().map(|url| DispatchNode {
        url: url.clone(),
        public_url: url.clone(),
    });
    settings.dispatch.nodes = nodes.collect();
    if let Some(port) = arguments.mqtt_port {
        settings.mqtt.login.broker = Some(Broker {
            tls: false,
            host: "127.0.0.1".to_owned(),
            port,
        });
        settings.mqtt.login.client_id = "lab".to_owned();
        let topic = TopicPattern::parse("plant/{site}/{device}/{field}")?;
        let mut rules = MessageRules::new(topic, PayloadForm::Value);
        rules.table = Some("machines".to_owned());
        settings.mqtt.subscriptions = vec![Subscription::new(rules)];
    }
    headwater_server::serve(settings, |url| println!("{url}"))?;
    Ok(())
}

/// A running server. Killed when dropped, if it was not stopped.
pub(crate) struct Server {
    child: Child,
    pub(crate) addr: SocketAddr,
}

/// Resources that a server used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResourceUsage {
    pub(crate) cpu_seconds: f64,
    pub(crate) peak_bytes: u64,
    pub(crate) resident_bytes: u64,
}

impl Server {
    /// Starts one and waits until it answers.
    pub(crate) fn start(db: &Path) -> Result<Server, Failure> {
        Server::start_with(db, &[])
    }

    /// As [`Server::start`], with more arguments.
    pub(crate) fn start_with(db: &Path, arguments: &[&str]) -> Result<Server, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("server-child")
            .arg("--db")
            .arg(db)
            .args(arguments);
        Server::await_start(command)
    }

    /// Starts the command `headwater` with its default settings.
    pub(crate) fn start_command(binary: &Path, db: &Path) -> Result<Server, Failure> {
        let mut command = Command::new(binary);
        command.arg("serve").arg("--db").arg(db);
        command.args(["--http-addr", "127.0.0.1:0"]);
        Server::await_start(command)
    }

    fn await_start(mut command: Command) -> Result<Server, Failure> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let addr = line.trim().strip_prefix("http://");
        let addr = addr.and_then(|a| a.trim_end_matches('/').parse().ok());
        match addr {
            Some(addr) => Ok(Server { child, addr }),
            None => {
                child.kill()?;
                child.wait()?;
                Err(format!("the server did not start: {line}").into())
            }
        }
    }

    /// CPU time over all threads, and the memory that is resident and that was at most, until now.
    pub(crate) fn used(&self) -> Result<ResourceUsage, Failure> {
        used_of(self.child.id())
    }

    /// Number of its open files and sockets.
    pub(crate) fn open_files(&self) -> Result<usize, Failure> {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.child.id()))?;
        Ok(files.count())
    }

    /// Stops the server in an orderly way and waits for its end. Returns its total CPU time.
    pub(crate) fn stop(mut self) -> Result<f64, Failure> {
        let pid = i32::try_from(self.child.id())?;
        let pid = rustix::process::Pid::from_raw(pid).ok_or("no process")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        // A process that has ended still reports its resources until it is reaped.
        let ended = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(rustix::process::WaitId::Pid(pid), ended)?;
        let used = self.used()?;
        let status = self.child.wait()?;
        if !status.success() {
            return Err(format!("the server ended with {status}").into());
        }
        Ok(used.cpu_seconds)
    }
}

/// CPU time over all threads of a process, and the most memory that was resident, until now.
pub(crate) fn used_of(process: u32) -> Result<ResourceUsage, Failure> {
    let read = |what: &str| std::fs::read_to_string(format!("/proc/{process}/{what}"));
    // The name of the program, in parentheses, may contain spaces; user and system time are the
    // 12th and 13th word after it.
    let stat = read("stat")?;
    let words: Vec<&str> = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().collect())
        .unwrap_or_default();
    let ticks: f64 = words
        .get(11..13)
        .unwrap_or_default()
        .iter()
        .filter_map(|w| w.parse::<f64>().ok())
        .sum();
    let status = read("status")?;
    let bytes = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name));
        let kib = line.and_then(|p| p.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    };
    Ok(ResourceUsage {
        // Linux reports 100 ticks a second to programs, whatever its internal rate.
        cpu_seconds: ticks / 100.0,
        peak_bytes: bytes("VmHWM:"),
        resident_bytes: bytes("VmRSS:"),
    })
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait()
            && let Err(error) = self.child.kill().and_then(|()| self.child.wait())
        {
            eprintln!("lab: ending the server: {error}");
        }
    }
}
