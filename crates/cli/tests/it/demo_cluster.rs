//! The fleet of `make cluster`, by its script: it comes up, its dispatcher answers with what all
//! edges have, and it ends with its processes.

use crate::support::{Bench, text};
use headwater_testing::{free_port, until};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The script and what it prints.
struct Script {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Script {
    fn start(bench: &Bench, addr: &str) -> Script {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/cluster");
        let mut command = Command::new(script);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"HEADWATER_") {
                command.env_remove(name);
            }
        }
        // Should this test end first, the fleet ends by itself.
        command
            .args([
                env!("CARGO_BIN_EXE_headwater"),
                text(&bench.path("fleet")),
                addr,
                "600",
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Script { child, lines }
    }

    /// Addresses of the nodes of a kind, until the script says that all are there.
    fn nodes(&self) -> Vec<(String, String)> {
        let mut nodes = Vec::new();
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(180));
            let line = line.expect("the script says that everything is there");
            let mut words = line.split_whitespace();
            let kind = words.next().unwrap_or_default().to_owned();
            if let Some(url) = words.find(|word| word.starts_with("http://")) {
                nodes.push((kind.clone(), url.trim_end_matches('/').to_owned()));
            }
            if kind == "dispatcher" {
                return nodes;
            }
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // As Ctrl-C does: it ends its processes.
        let id = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &id]).status();
        let _ = self.child.wait();
    }
}

/// Rows before an instant; nothing while that is not answered.
fn rows(url: &str, before: u64) -> Option<u64> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(60)))
        .build()
        .into();
    let statement = format!("SELECT count(*) FROM simulated WHERE time < to_timestamp({before})");
    let sent = agent
        .post(format!("{url}/api/v1/sql"))
        .header("x-headwater-relay", "true")
        .send(statement);
    let mut answer = sent.ok()?;
    let body = answer.body_mut().read_to_string().ok()?;
    let body: serde_json::Value = serde_json::from_str(&body).ok()?;
    body["rows"][0][0].as_u64()
}

#[test]
fn the_demonstration_comes_up_answers_with_all_edges_and_ends() {
    let bench = Bench::new();
    let addr = format!("127.0.0.1:{}", free_port());
    let script = Script::start(&bench, &addr);
    let nodes = script.nodes();
    let of = |kind: &str| -> Vec<&String> {
        let of_kind = nodes.iter().filter(|(of, _)| of == kind);
        of_kind.map(|(_, url)| url).collect()
    };
    assert_eq!((of("cloud").len(), of("edge").len()), (2, 8), "{nodes:?}");
    // An edge sends the hour before at once: of its first half nothing is late any more.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let before = (now.as_secs() - 2_400) / 64 * 64;
    let url = format!("http://{addr}");
    let mut found = Vec::new();
    until("the dispatcher answers with what all edges have", || {
        let at_edges: Vec<Option<u64>> = of("edge").into_iter().map(|e| rows(e, before)).collect();
        let sum: Option<u64> = at_edges.iter().copied().sum();
        found = vec![sum, rows(&url, before)];
        let have_rows = at_edges
            .iter()
            .all(|rows| rows.is_some_and(|rows| rows > 0));
        have_rows && found[0].is_some() && found[0] == found[1]
    });
    // It ends with all of its processes, whose addresses are free then.
    drop(script);
    until("nobody listens any more", || {
        let gone = |(_, url): &(String, String)| {
            std::net::TcpStream::connect(url.trim_start_matches("http://")).is_err()
        };
        nodes.iter().all(gone)
    });
}
