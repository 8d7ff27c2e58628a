//! Statements that are made to end the server, against one that is a process of its own and may
//! take only so much of its address space. After each of them somebody else must be answered
//! through every door.

use super::raw::{Client, bind, execute, lines, message, parse, sync, texts};
use crate::support::client;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Set for the process that is the server: where its database is.
const SERVER: &str = "HEADWATER_TEST_BOMBED";
/// What it may take of its address space, in KiB.
const ADDRESSES: u64 = 5_000_000;

/// The server, when this program was started to be one; as a test there is nothing to do.
#[test]
fn the_process_that_is_bombed() {
    let Ok(dir) = std::env::var(SERVER) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_stack_size(8 << 20)
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut settings = headwater_server::Settings::new(dir);
        settings.http_addr.set_port(0);
        settings.postgres_addr = Some("127.0.0.1:0".parse().unwrap());
        settings.sql_timeout = Duration::from_secs(20);
        let server = headwater_server::Server::start(settings).await.unwrap();
        let postgres = server.postgres_addr().unwrap();
        println!("\nlistening {} {postgres}", server.local_addr());
        let (stop, stopped) = tokio::sync::watch::channel(false);
        // It ends with whoever started it.
        std::thread::spawn(move || {
            let mut line = String::new();
            drop(std::io::stdin().read_line(&mut line));
            stop.send_replace(true);
        });
        server.run(stopped).await.unwrap();
    });
}

struct Bombed {
    process: Child,
    http: SocketAddr,
    postgres: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Bombed {
    fn start() -> Bombed {
        let dir = tempfile::tempdir().unwrap();
        let mut process = Command::new("sh")
            .args(["-c", &format!("ulimit -v {ADDRESSES}; exec \"$0\" \"$@\"")])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("postgres::bombs::the_process_that_is_bombed")
            .env(SERVER, dir.path().join("db"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let told = lines
            .find_map(|line| line.strip_prefix("listening ").map(str::to_owned))
            .unwrap();
        // The process is a test, which says after a minute that it still runs, and ends if nobody
        // can hear that.
        std::thread::spawn(move || lines.for_each(drop));
        let (http, postgres) = told.split_once(' ').unwrap();
        Bombed {
            process,
            http: http.parse().unwrap(),
            postgres: postgres.parse().unwrap(),
            _dir: dir,
        }
    }

    fn session(&self) -> Client {
        let mut client = Client::connect(self.postgres);
        client.begin(&[("user", "ann")]);
        client.ready();
        client
    }

    /// What became of a statement over HTTP.
    fn http(&self, sql: &str) -> String {
        let asked = client()
            .post(format!("http://{}/api/v1/sql", self.http))
            .send(sql);
        match asked {
            Ok(mut answer) => {
                let status = answer.status().as_u16();
                let text = answer.body_mut().read_to_string().unwrap_or_default();
                format!("{status} {}", &text.chars().take(200).collect::<String>())
            }
            Err(error) => format!("broke off: {error}"),
        }
    }

    /// Somebody else is answered, through every door.
    fn answers(&mut self, after: &str) {
        let begun = Instant::now();
        let health = client()
            .get(format!("http://{}/health", self.http))
            .call()
            .map(|answer| answer.status().as_u16());
        assert_eq!(health.ok(), Some(200), "after {after}");
        let health = begun.elapsed();
        assert!(
            self.http("SELECT 1 AS n").starts_with("200"),
            "after {after}"
        );
        let http = begun.elapsed();
        assert_eq!(self.session().rows("SELECT 1"), ["1"], "after {after}");
        assert!(self.process.try_wait().unwrap().is_none(), "after {after}");
        println!(
            "{after}: health {} ms, HTTP {} ms, PostgreSQL {} ms; {}",
            health.as_millis(),
            (http - health).as_millis(),
            (begun.elapsed() - http).as_millis(),
            self.memory()
        );
    }

    fn memory(&self) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let lines = status.unwrap_or_default();
        let lines = lines.lines().filter(|line| {
            line.starts_with("VmHWM") || line.starts_with("VmRSS") || line.starts_with("VmPeak")
        });
        lines.collect::<Vec<_>>().join(" ").replace('\t', " ")
    }
}

impl Drop for Bombed {
    fn drop(&mut self) {
        // It may have ended by itself, which the test has told.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Statements that each ended a server once, or could.
fn bombs() -> Vec<String> {
    let chain =
        |head: &str, link: &str, tail: &str, n: usize| format!("{head}{}{tail}", link.repeat(n));
    let nest = |open: &str, close: &str, n: usize| {
        format!("SELECT {}1{}", open.repeat(n), close.repeat(n))
    };
    let mut with = vec!["c0 AS (SELECT 1 AS x)".to_owned()];
    for i in 1..=21 {
        let before = i - 1;
        with.push(format!(
            "c{i} AS (SELECT a.x FROM c{before} a, c{before} b)"
        ));
    }
    let mut doubled = "(SELECT 'x' AS a)".to_owned();
    for _ in 0..30 {
        doubled = format!("(SELECT a || a AS a FROM {doubled})");
    }
    let names: Vec<String> = (0..25).map(|i| format!("a{i}")).collect();
    let names = names.join(", ");
    let ones = vec!["1"; 25].join(", ");
    let windows: Vec<String> = (0..3_000)
        .map(|i| format!("sum(1) OVER (ORDER BY {i})"))
        .collect();
    vec![
        chain("", "EXPLAIN ", "SELECT 1", 2_000),
        chain("SELECT ", "INTERVAL ", "'1 s'", 500),
        chain("SELECT ", "INTERVAL ", "'1 s'", 5_000),
        chain("SELECT now()", " AT TIME ZONE 'UTC'", "", 5_000),
        chain("SELECT 1", "+1", "", 20_000),
        chain("SELECT 1", "+1", "", 500),
        chain("SELECT true", " AND true", "", 20_000),
        chain("SELECT 'a'", " || 'a'", "", 50_000),
        chain("SELECT 1", "::int", "", 30_000),
        chain("SELECT 1::int", "[]", "", 100_000),
        chain("SELECT 1", " IS NULL", "", 20_000),
        chain("SELECT ", "NOT ", "true", 100_000),
        chain("SELECT ", "- ", "1", 100_000),
        chain("SELECT 1", " UNION ALL SELECT 1", "", 20_000),
        chain("SELECT 1", ";;;;;;;;", "", 100_000),
        chain("SELECT 1", ", *", "", 300_000),
        chain("SELECT 1", ", 1", "", 300_000),
        nest("ARRAY[", "]", 47),
        nest("ARRAY[", "]", 48),
        nest("ARRAY[", "]", 49),
        nest("ARRAY[", "]", 20_000),
        nest("abs(", ")", 40),
        nest("(", ")", 100_000),
        nest("CASE WHEN true THEN ", " END", 10_000),
        nest("(SELECT ", ")", 10_000),
        nest("CAST(", " AS INT)", 48),
        format!("SELECT {}", "ARRAY[".repeat(40)),
        format!(
            "SELECT arrow_cast(1, '{}Int8{}')",
            "List(".repeat(2_000),
            ")".repeat(2_000)
        ),
        format!(
            "SELECT arrow_cast(1, '{}Int8{}')",
            "List(".repeat(80_000),
            ")".repeat(80_000)
        ),
        format!("WITH {} SELECT count(*) FROM c21", with.join(", ")),
        format!("SELECT length(a) FROM {doubled} WHERE a > 'x'"),
        format!("SELECT 1 FROM (VALUES ({ones})) t({names}) GROUP BY CUBE ({names})"),
        format!("SELECT {}", windows.join(", ")),
        "x".repeat((1 << 20) - 1),
        "(".repeat((1 << 20) - 1),
        "'".repeat((1 << 20) - 1),
        "/*".repeat((1 << 19) - 1),
    ]
}

#[test]
fn no_statement_ends_the_server_or_shuts_others_out() {
    let mut server = Bombed::start();
    server.answers("the start");
    for bomb in bombs() {
        let head: String = bomb.chars().take(50).collect();
        let head = format!("{head}… ({} bytes)", bomb.len());
        let begun = Instant::now();
        let http = server.http(&bomb);
        let by_http = begun.elapsed();
        let mut session = server.session();
        session.send(&[message(b'Q', &texts(&[&bomb]))]);
        // Looked at while the other one works.
        server.answers(&head);
        let simple = lines(&session.until_ready());
        let extended = [
            parse("", &bomb, &[]),
            bind("", "", 0, &[]),
            execute("", 0),
            sync(),
        ];
        session.send(&extended);
        let extended = lines(&session.until_ready());
        println!(
            "{head}: HTTP {http} in {} ms; simple {:?}; extended {:?}",
            by_http.as_millis(),
            simple
                .iter()
                .map(|l| l.chars().take(60).collect::<String>())
                .collect::<Vec<_>>(),
            extended
                .iter()
                .map(|l| l.chars().take(60).collect::<String>())
                .collect::<Vec<_>>()
        );
        assert!(
            !http.starts_with("500") && !http.contains("DataFusion"),
            "{head}: {http}"
        );
        for told in [&simple, &extended] {
            assert_eq!(told.last().map(String::as_str), Some("Z I"), "{head}");
            assert!(
                !told.iter().any(|l| l.starts_with("E XX000")),
                "{head}: {told:?}"
            );
        }
        server.answers(&head);
    }
}

#[test]
fn a_statement_that_grows_as_it_is_rewritten_is_told_by_what_was_written() {
    let server = Bombed::start();
    let ones = |count| format!("SELECT 1{}", ", 1".repeat(count));
    for (sql, told) in [
        // Columns that are alike get names, which makes them eight times as long.
        (ones(60_000), "the statement has 180008 bytes, and "),
        (ones(300_000), "more than 200000 columns"),
    ] {
        let mut session = server.session();
        let simple = session.query(&sql);
        let extended = session.exchange(&[
            parse("", &sql, &[]),
            bind("", "", 0, &[]),
            execute("", 0),
            sync(),
        ]);
        for lines in [simple, extended] {
            assert_eq!(lines.len(), 2, "{lines:?}");
            assert!(lines[0].starts_with("E 54000 "), "{lines:?}");
            assert!(lines[0].contains(told), "{lines:?}");
        }
        assert_eq!(session.rows("SELECT 1"), ["1"]);
    }
}

#[test]
fn many_bombs_at_once_leave_the_server_to_others() {
    let mut server = Bombed::start();
    let bombs = bombs();
    let running: Vec<_> = (0..30)
        .map(|n| {
            let (addr, bomb) = (server.postgres, bombs[n % bombs.len()].clone());
            std::thread::spawn(move || {
                let mut client = Client::connect(addr);
                client.begin(&[("user", "eve")]);
                client.ready();
                client.send(&[message(b'Q', &texts(&[&bomb]))]);
                if n % 3 == 0 {
                    // Gone in the middle.
                    return;
                }
                assert!(!client.until_ready().is_empty());
            })
        })
        .collect();
    server.answers("the beginning of thirty");
    for bomb in running {
        bomb.join().unwrap();
    }
    server.answers("thirty");
}
