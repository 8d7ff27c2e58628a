//! `headwater serve` as a process: where it says it listens, how it ends, what it says when it
//! cannot start.

use crate::support::{Bench, Ran, program, text};
use headwater_testing::{installed, or_skip};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::{Deref, DerefMut};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A process that ends with the test that began it.
pub(crate) struct Process(Child);

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A server process on a free port.
pub(crate) struct Served {
    pub(crate) child: Process,
    /// Where it listens: `127.0.0.1:PORT`.
    pub(crate) addr: String,
}

/// A server process with TLS.
pub(crate) struct TlsServer {
    pub(crate) served: Served,
    pub(crate) url: String,
    /// Its certificate, which signs itself.
    pub(crate) cert: PathBuf,
    /// The certificate of another server.
    pub(crate) other: PathBuf,
}

impl Served {
    pub(crate) fn start(db: &Path, arguments: &[&str]) -> Served {
        Served::start_at(db, "127.0.0.1:0", arguments)
    }

    /// As [`Served::start`], at an address.
    pub(crate) fn start_at(db: &Path, addr: &str, arguments: &[&str]) -> Served {
        Served::start_by(program(), db, addr, arguments)
    }

    /// As [`Served::start_at`], by a command that may have an environment of its own.
    pub(crate) fn start_by(
        mut program: Command,
        db: &Path,
        addr: &str,
        arguments: &[&str],
    ) -> Served {
        let child = program
            .arg("serve")
            .arg("--db")
            .arg(db)
            .args(["--http-addr", addr, "--shards", "2"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Served::of(child)
    }

    /// A server with TLS for `localhost`.
    pub(crate) fn start_with_tls(bench: &Bench) -> TlsServer {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned).to_vec();
        let made = rcgen::generate_simple_self_signed(names.clone()).unwrap();
        let cert = bench.file("cert.pem", made.cert.pem());
        let key = bench.file("key.pem", made.signing_key.serialize_pem());
        let other = rcgen::generate_simple_self_signed(names).unwrap();
        let arguments = ["--tls-cert", text(&cert), "--tls-key", text(&key)];
        let served = Served::start(&bench.db(), &arguments);
        TlsServer {
            url: format!("https://{}", served.addr),
            served,
            cert,
            other: bench.file("other.pem", other.cert.pem()),
        }
    }

    /// One that was begun.
    fn of(child: Child) -> Served {
        let mut child = Process(child);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let line = line.trim_end();
        let addr = line
            .strip_prefix("http://")
            .or_else(|| line.strip_prefix("https://"))
            .map(str::to_owned);
        let Some(addr) = addr else {
            let mut said = String::new();
            child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut said)
                .unwrap();
            panic!("it did not start: {said}");
        };
        Served {
            child,
            addr: addr.trim_end_matches('/').to_owned(),
        }
    }

    /// One request over a connection of its own; the whole answer.
    pub(crate) fn request(&self, method: &str, path: &str, headers: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.addr).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Ends it by a signal; what it left behind.
    pub(crate) fn end(mut self, signal: &str) -> Ran {
        self.signal(signal);
        let mut stderr = String::new();
        let mut said = self.child.stderr.take().unwrap();
        said.read_to_string(&mut stderr).unwrap();
        let status = self.child.wait().unwrap();
        Ran {
            code: status.code().unwrap_or(-1),
            stdout: String::new(),
            stderr,
        }
    }
}

#[test]
fn it_serves_until_a_signal_and_leaves_a_closed_database() {
    let bench = Bench::new();
    for signal in ["-TERM", "-INT"] {
        let served = Served::start(&bench.db(), &["--log-format", "json"]);
        assert!(
            served
                .request("GET", "/ready", "", "")
                .starts_with("HTTP/1.1 200")
        );
        // The directory is taken while it runs, and the process is named.
        let id = served.child.id().to_string();
        let second = program()
            .args([
                "serve",
                "--http-addr",
                "127.0.0.1:0",
                "--db",
                text(&bench.db()),
            ])
            .output()
            .unwrap();
        assert_eq!(second.status.code(), Some(1));
        let said = String::from_utf8(second.stderr).unwrap();
        assert!(said.contains(&id), "{said}");
        let ran = served.end(signal);
        assert_eq!(ran.code, 0, "{ran:?}");
        let lines: Vec<_> = ran
            .stderr
            .lines()
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line)
                    .unwrap_or_else(|e| panic!("{e}: {line}"))
            })
            .collect();
        let last = lines.last().unwrap();
        assert_eq!(last["message"], "stopped: the database is closed");
    }
    bench.run("check", &[]).ok();
}

/// Makes a folder and what is in it such that nobody may write there, or again that its owner may.
fn set_writable(dir: &Path, is_writable: bool) {
    use std::os::unix::fs::PermissionsExt;
    let mode = if is_writable { 0o755 } else { 0o555 };
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode)).unwrap();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            set_writable(&path, is_writable);
        } else {
            let mode = if is_writable { 0o644 } else { 0o444 };
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
    }
}

#[test]
fn a_medium_that_cannot_be_written_is_served_with_read_only() {
    let bench = Bench::new();
    let csv = bench.file("pump.csv", "time,id,rpm\n1,p1,1.5\n2,p1,2.5\n");
    bench
        .run(
            "import",
            &[
                "--table",
                "pump",
                "--time",
                "time:ns",
                "--tag",
                "id",
                text(&csv),
            ],
        )
        .ok();
    set_writable(&bench.db(), false);
    // Root may write everywhere, unless that right is given up.
    let is_bound = std::fs::write(bench.db().join("probe"), "").is_err();
    let start = |arguments: &[&str]| {
        let mut command = match is_bound {
            true => program(),
            false => {
                let mut setpriv = Command::new("setpriv");
                let rights = "-dac_override,-dac_read_search,-fowner";
                setpriv
                    .arg(format!("--bounding-set={rights}"))
                    .arg(format!("--inh-caps={rights}"))
                    .arg(program().get_program());
                setpriv
            }
        };
        command
            .args([
                "serve",
                "--http-addr",
                "127.0.0.1:0",
                "--db",
                text(&bench.db()),
            ])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    };
    if !is_bound && or_skip(installed("setpriv")).is_none() {
        return;
    }
    let refused = start(&[]).unwrap().wait_with_output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("--read-only"), "{said}");
    let served = Served::of(start(&["--read-only"]).unwrap());
    let answer = served.request("GET", "/api/v1/count?table=pump", "", "");
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains('2'),
        "{answer}"
    );
    let written = served.request("POST", "/write", "", "pump,id=p1 rpm=2 5");
    assert!(written.contains("E_READ_ONLY"), "{written}");
    let ended = served.end("-TERM");
    set_writable(&bench.db(), true);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(!bench.db().join("lock.new").exists());
    bench.run("check", &[]).ok();
    // What cannot be there at all is said as ever.
    let missing = program()
        .args(["serve", "--http-addr", "127.0.0.1:0", "--read-only"])
        .args(["--db", text(&bench.path("nothing"))])
        .output()
        .unwrap();
    let said = String::from_utf8(missing.stderr).unwrap();
    assert!(
        missing.status.code() == Some(1) && said.contains("no database here"),
        "{said}"
    );
    assert!(!bench.path("nothing").exists());
}

#[test]
fn messages_in_a_file_have_no_colours() {
    let bench = Bench::new();
    let served = Served::start(&bench.db(), &["--log-requests", "all"]);
    served.request("GET", "/nowhere", "", "");
    let ran = served.end("-TERM");
    assert!(ran.stderr.contains("the database is open"), "{ran:?}");
    assert!(!ran.stderr.contains('\u{1b}'), "{ran:?}");
}

#[test]
fn a_port_that_is_taken_is_told_with_what_to_do() {
    let bench = Bench::new();
    let served = Served::start(&bench.db(), &[]);
    let second = program()
        .args(["serve", "--db", text(&bench.path("other"))])
        .args(["--http-addr", &served.addr])
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(
        said.contains(&served.addr) && said.contains("--http-addr 127.0.0.1:0"),
        "{said}"
    );
    // Nothing was made for it.
    assert!(!bench.path("other").exists());
    assert_eq!(served.end("-TERM").code, 0);
}

#[test]
fn tokens_are_made_and_revoked_beside_a_running_server() {
    let bench = Bench::new();
    let served = Served::start(&bench.db(), &[]);
    let token = |arguments: &[&str]| {
        let output = program()
            .arg("token")
            .args(arguments)
            .args(["--db", text(&bench.db())])
            .output()
            .unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), out, err)
    };
    let status = |headers: &str| {
        let answer = served.request("GET", "/metrics", headers, "");
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(status(""), "200");
    let (code, made, _) = token(&["create", "--name", "board", "--read", "weather,origin=E*"]);
    assert_eq!(code, Some(0));
    let made = made.trim_end();
    assert!(made.starts_with("hw_") && made.len() == 67, "{made}");
    // It follows the file within a second.
    served.signal("-HUP");
    while status("") != "401" {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let header = format!("Authorization: Bearer {made}\r\n");
    assert_eq!(status(&header), "200");

    let (code, listed, _) = token(&["list"]);
    assert_eq!(code, Some(0));
    assert!(listed.contains("board") && listed.contains("read weather,origin=E*"));
    assert!(!listed.contains(made));
    let (code, _, said) = token(&["create", "--name", "board"]);
    assert_eq!((code, said.contains("board")), (Some(1), true));
    let (code, _, said) = token(&["create", "--name", "x", "--read", "t,x"]);
    assert_eq!(
        (code, said.contains("tag=value")),
        (Some(2), true),
        "{said}"
    );
    assert_eq!(token(&["revoke", "board"]).0, Some(0));
    assert_eq!(token(&["revoke", "board"]).0, Some(1));
    while status(&header) != "401" {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(served.end("-TERM").code, 0);
}

#[test]
fn config_tells_every_value_and_where_it_came_from() {
    let bench = Bench::new();
    let file = bench.file(
        "headwater.toml",
        "memory_budget = \"32MiB\"\n[log]\nformat = \"json\"\n",
    );
    let config = |arguments: &[&str], variable: (&str, &str)| {
        let output = program()
            .args(["config", "--db", "x", "--config", text(&file)])
            .args(arguments)
            .env(variable.0, variable.1)
            .output()
            .unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        (
            output.status.code(),
            out,
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, out, _) = config(
        &["--format", "json", "--allow-open", "--shards", "2"],
        ("HEADWATER_LOG_LEVEL", "debug"),
    );
    assert_eq!(code, Some(0));
    let lines: serde_json::Value = serde_json::from_str(&out).unwrap();
    for (key, value, source) in [
        ("memory_budget", "32MiB", text(&file)),
        ("log.format", "json", text(&file)),
        ("log.level", "debug", "HEADWATER_LOG_LEVEL"),
        ("allow_open", "true", "--allow-open"),
        ("shards", "2", "--shards"),
        ("http_addr", "127.0.0.1:7373", "default"),
        ("max_future", "1h", "default"),
    ] {
        let line = lines.as_array().unwrap().iter().find(|l| l["key"] == key);
        let line = line.unwrap();
        assert_eq!(
            (&line["value"], &line["source"]),
            (&value.into(), &source.into())
        );
    }
    for (arguments, variable, part) in [
        (vec!["--shards", "0"], ("X", ""), "1 to 64"),
        (
            vec![],
            ("HEADWATER_SHARD", "1"),
            "did you mean `HEADWATER_SHARDS`?",
        ),
        (vec!["--memory-buget", "1"], ("X", ""), "--memory-budget"),
    ] {
        let (code, _, said) = config(&arguments, variable);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn systemd_is_told_when_it_answers_and_when_it_stops() {
    let bench = Bench::new();
    let path = bench.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    // A server that ends before it is ready tells nothing.
    socket
        .set_read_timeout(Some(std::time::Duration::from_secs(30)))
        .unwrap();
    let child = program()
        .args([
            "serve",
            "--db",
            text(&bench.db()),
            "--http-addr",
            "127.0.0.1:0",
        ])
        .env("NOTIFY_SOCKET", &path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let told = || {
        let mut text = [0; 64];
        let length = socket.recv(&mut text).unwrap();
        String::from_utf8(text[..length].to_vec()).unwrap()
    };
    assert_eq!(told(), "READY=1");
    let served = Served {
        child: Process(child),
        addr: String::new(),
    };
    assert_eq!(served.end("-TERM").code, 0);
    assert_eq!(told(), "STOPPING=1");
}

/// What `make run` serves.
#[test]
fn the_sample_data_are_imported_by_their_script() {
    let bench = Bench::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/import-samples");
    let output = Command::new(script)
        .args([env!("CARGO_BIN_EXE_headwater"), text(&bench.db())])
        // A folder that is not there is no mistake.
        .arg(bench.path("more"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let stat = bench.run("stat", &["--format", "json"]).ok().json();
    assert_eq!(stat["events"], 26_115);
    assert_eq!(stat["streams"], 3);
}

#[test]
fn simulated_sensors_send_to_a_running_server() {
    let bench = Bench::new();
    let served = Served::start(&bench.db(), &[]);
    let url = format!("http://{}", served.addr);
    let demo = |arguments: &[&str]| {
        let output = program()
            .args(["demo", "--live"])
            .args(arguments)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, said) = demo(&[
        "--url",
        &url,
        "--for",
        "1s",
        "--sensors",
        "3",
        "--history",
        "2m",
    ]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("simulated"), "{said}");
    let answer = served.request("GET", "/api/v1/streams?table=simulated", "", "");
    assert!(answer.contains("\"total\":3"), "{answer}");
    assert!(
        answer.contains("sensor=s03") && answer.contains("temperature"),
        "{answer}"
    );
    assert_eq!(served.end("-TERM").code, 0);
    // Nobody listens there any more.
    let (code, said) = demo(&["--url", &url, "--for", "1s"]);
    assert_eq!(
        (code, said.contains("headwater serve")),
        (Some(1), true),
        "{said}"
    );
    for wrong in [
        &["--url", "localhost:7373"][..],
        &["--url", "http://localhost:7373", "--ca", "ca.pem"],
        &["--url", "https://localhost:7373", "--ca", "/nowhere/ca.pem"],
    ] {
        assert_eq!(demo(wrong).0, Some(2), "{wrong:?}");
    }
    assert_eq!(
        program().arg("demo").output().unwrap().status.code(),
        Some(2)
    );
}

#[test]
fn the_demo_sends_over_tls_to_a_server_it_can_verify_and_to_no_other() {
    let bench = Bench::new();
    let TlsServer {
        served,
        url,
        cert,
        other,
    } = Served::start_with_tls(&bench);
    let demo = |ca: &Path| {
        let output = program()
            .args(["demo", "--live", "--for", "1s", "--sensors", "3"])
            .args(["--history", "2m", "--url", &url, "--ca", text(ca)])
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, said) = demo(&other);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("--ca") && !said.contains("again"), "{said}");
    let (code, said) = demo(&cert);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(served.end("-TERM").code, 0);
    let last = bench.run("last", &["simulated"]).ok();
    assert!(last.stdout.contains("temperature"), "{last:?}");
}

#[test]
fn an_idle_server_of_an_empty_database_is_small() {
    let bench = Bench::new();
    let served = Served::start(&bench.db(), &[]);
    assert!(
        served
            .request("GET", "/metrics", "", "")
            .contains("\nprocess_resident_memory_bytes ")
    );
    // What it holds itself. The pages of its own file are not counted: they are many in a program
    // that is not optimised, and the lab looks at those of one that is.
    let status = std::fs::read_to_string(format!("/proc/{}/status", served.child.id())).unwrap();
    let held: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB"))
        .and_then(|kib| kib.parse().ok())
        .unwrap();
    assert!(held < 20 * 1024, "{held} KiB");
    assert_eq!(served.end("-TERM").code, 0);
}
