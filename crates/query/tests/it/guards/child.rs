//! A test in a process of its own under a limit of address space: memory that is denied aborts a
//! process, and no test sees that of its own.

use headwater_query::{Error, Limits, Parameters, Query, Session, Threads, Unrestricted};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Lake, SECOND};
use headwater::{Batch, StreamName, Value};

/// Set in the process that a test has started.
const INSIDE: &str = "HEADWATER_TEST_INSIDE";
/// Address space of the process: threads' stacks and the allocator's arenas reserve far more of it
/// than they use.
const ADDRESS_SPACE_KIB: u64 = 4 << 20;

/// What a server allows by default.
pub(super) fn limits() -> Limits {
    Limits {
        memory: 128 << 20,
        all_memory: 256 << 20,
        time: Some(Duration::from_secs(4)),
        ..Limits::default()
    }
}

/// What may be resident: the engine's memory, that of all statements, and what `docs/sql.md` says
/// beyond them.
pub(super) fn resident_max() -> u64 {
    (64 << 20) + limits().all_memory as u64 + (512 << 20)
}

/// Runs `work` in a process of its own; `test` is the whole name of the test that this is called
/// from.
pub(super) fn run(test: &str, work: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some_and(|name| name == test) {
        return work();
    }
    let own = std::env::current_exe().unwrap();
    let output = Command::new("sh")
        .arg("-c")
        .arg(format!(
            "ulimit -c 0; ulimit -v {ADDRESS_SPACE_KIB} && exec \"$0\" \"$@\""
        ))
        .arg(own)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, test)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines
            .get(lines.len().saturating_sub(60)..)
            .unwrap()
            .join("\n")
    };
    assert!(
        output.status.success(),
        "{test}: the process ended with {}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1 passed"), "{test} was not run: {said}");
    print!("{said}");
}

/// Bytes that are, or were at most, resident in this process.
pub(super) fn resident(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let kib = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// A table of some thousands of rows with a field of each type.
pub(super) fn lake(rows: i64) -> Lake {
    let lake = Lake::with(limits(), |options| options);
    for tag in ["a", "b"] {
        let mut batch = Batch::new();
        let stream = batch.stream(&StreamName::new("t", [("tag", tag)]));
        for n in 0..rows {
            let values = [
                ("i", Value::I64(n * 7_919 % 1_000 - 300)),
                ("f", Value::F64(n as f64 / 3.0)),
                ("s", Value::String(format!("text {} of {tag}", n % 97))),
                ("b", Value::Bool(n % 3 == 0)),
            ];
            stream.row(n * SECOND, values).unwrap();
        }
        lake.db.commit(batch).unwrap();
    }
    lake
}

/// Statements on threads of their own, watched: one that goes on for minutes past its limit ends
/// the process.
pub(super) struct Watched {
    threads: Threads,
    pub(super) session: Session,
    since: Arc<AtomicU64>,
}

impl Watched {
    pub(super) fn new(query: &Query) -> Watched {
        Watched::of(query.session(Arc::new(Unrestricted)))
    }

    pub(super) fn of(session: Session) -> Watched {
        let since = Arc::new(AtomicU64::new(0));
        let watched = Arc::clone(&since);
        let begun = Instant::now();
        std::thread::spawn(move || {
            let mut seen = (0, begun);
            loop {
                std::thread::sleep(Duration::from_secs(5));
                let now = watched.load(Ordering::SeqCst);
                if seen.0 != now || now.is_multiple_of(2) {
                    seen = (now, Instant::now());
                } else if seen.1.elapsed() > Duration::from_secs(240) {
                    eprintln!("the statement does not end");
                    std::process::abort();
                }
            }
        });
        Watched {
            threads: Threads::new(2).unwrap(),
            session,
            since,
        }
    }

    /// Runs a statement to its end; the rows of its answer.
    pub(super) async fn run(&self, sql: &str) -> Result<usize, Error> {
        self.since.fetch_add(1, Ordering::SeqCst);
        let (session, text) = (self.session.clone(), sql.to_owned());
        let run = async move { session.run(&text, Parameters::none()).await };
        let answer = self.threads.answer(run).await;
        let rows = match answer {
            Ok(mut answer) => {
                let mut rows = Ok(0);
                while let Some(batch) = futures_util::StreamExt::next(&mut answer.rows).await {
                    match batch {
                        Ok(batch) => rows = rows.map(|n| n + batch.num_rows()),
                        Err(error) => rows = Err(Error::from(error)),
                    }
                }
                rows
            }
            Err(error) => Err(error),
        };
        self.since.fetch_add(1, Ordering::SeqCst);
        rows
    }
}
