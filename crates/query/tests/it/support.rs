//! A database in a temporary folder, asked in SQL; answers as text.

use headwater::io::{ManualClock, NoThreads};
use headwater::{Batch, Database, Env, Options, StreamName};
use headwater_query::arrow::array::{Array, RecordBatch};
use headwater_query::arrow::util::display::{ArrayFormatter, FormatOptions};
use headwater_query::{Access, Error, Limits, Outcome, Parameters, Query, Session, Unrestricted};
use std::sync::Arc;

pub(crate) const SECOND: i64 = 1_000_000_000;

pub(crate) struct Lake {
    pub(crate) db: Database,
    pub(crate) query: Query,
    pub(crate) session: Session,
    _dir: tempfile::TempDir,
}

impl Lake {
    pub(crate) fn new() -> Lake {
        Lake::with(Limits::default(), |options| options)
    }

    pub(crate) fn with(limits: Limits, options: impl FnOnce(Options) -> Options) -> Lake {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(options(Options::new(dir.path().join("db")))).unwrap();
        let query = Query::new(db.clone(), limits);
        Lake {
            session: query.session(Arc::new(Unrestricted)),
            query,
            db,
            _dir: dir,
        }
    }

    /// One by another clock, that does by itself only what it is told to.
    pub(crate) fn of(clock: Arc<ManualClock>) -> Lake {
        let dir = tempfile::tempdir().unwrap();
        let env = Env {
            clock,
            threads: Arc::new(NoThreads),
            ..Env::system()
        };
        let db = Database::open_in(env, Options::new(dir.path().join("db"))).unwrap();
        let query = Query::new(db.clone(), Limits::default());
        Lake {
            session: query.session(Arc::new(Unrestricted)),
            query,
            db,
            _dir: dir,
        }
    }

    /// Two pumps at two sites and one without a site: a row a second, 100 each, half of it in
    /// segments.
    pub(crate) fn pumps() -> Lake {
        let lake = Lake::new();
        for half in [0..50i64, 50..100] {
            let mut batch = Batch::new();
            for (id, site) in [("a", Some("north")), ("b", Some("south")), ("c", None)] {
                let tags = [("id", Some(id)), ("site", site)];
                let tags = tags.into_iter().filter_map(|(k, v)| Some((k, v?)));
                let name = StreamName::new("pump", tags);
                let rows = batch.stream(&name);
                for i in half.clone() {
                    let mut values = vec![
                        ("temp", (i as f64 / 2.0).into()),
                        ("rpm", (i * 10).into()),
                        ("on", (i % 2 == 0).into()),
                    ];
                    if i % 10 == 0 {
                        values.push(("note", headwater::Value::String(format!("at {i}"))));
                    }
                    rows.row(i * SECOND, values).unwrap();
                }
            }
            lake.db.commit(batch).unwrap();
            if half.start == 0 {
                lake.db.flush().unwrap();
            }
        }
        lake
    }

    pub(crate) fn as_(&self, access: impl Access + 'static) -> Session {
        self.query.session(Arc::new(access))
    }

    pub(crate) async fn rows(&self, sql: &str) -> Vec<String> {
        rows(&self.session, sql).await
    }

    pub(crate) async fn error(&self, sql: &str) -> Error {
        error(&self.session, sql).await
    }

    pub(crate) async fn outcome(&self, sql: &str) -> Outcome {
        outcome(&self.session, sql).await
    }
}

/// One runtime per test; its threads for blocking work read.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

pub(crate) async fn batches(session: &Session, sql: &str) -> Result<Vec<RecordBatch>, Error> {
    session.run(sql, Parameters::none()).await?.collect().await
}

/// Rows as text, values apart by a bar.
pub(crate) fn text(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("-");
    let mut out = Vec::new();
    for batch in batches {
        let columns: Vec<ArrayFormatter<'_>> = batch
            .columns()
            .iter()
            .map(|c| ArrayFormatter::try_new(c.as_ref() as &dyn Array, &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let values: Vec<String> = columns.iter().map(|c| c.value(row).to_string()).collect();
            out.push(values.join("|"));
        }
    }
    out
}

pub(crate) async fn rows(session: &Session, sql: &str) -> Vec<String> {
    match batches(session, sql).await {
        Ok(batches) => text(&batches),
        Err(error) => panic!("{sql}: {}: {error}", error.code),
    }
}

pub(crate) async fn error(session: &Session, sql: &str) -> Error {
    match batches(session, sql).await {
        Ok(batches) => panic!("{sql} gave {:?}", text(&batches)),
        Err(error) => error,
    }
}

pub(crate) async fn outcome(session: &Session, sql: &str) -> Outcome {
    match session.run(sql, Parameters::none()).await {
        Ok(answer) => answer.outcome,
        Err(error) => panic!("{sql}: {}: {error}", error.code),
    }
}
