//! The table of doors (`tests/doors/cases.json`) at every door of the server, and at the library's.
//!
//! A route, a form of payload or a form of `COPY` that is added without its column here fails
//! `every_door_has_its_column`, or does not compile.

mod http;
#[cfg(feature = "mqtt")]
mod messages;
#[cfg(feature = "sql")]
mod statements;

use crate::support::Running;
use headwater::{Batch, Database, StreamName, StreamRows, Timestamp, Value};
use headwater_testing::doors::{Cell, FrontEnd, Need, Outcome, Request, State, contents_of, walk};
use tempfile::TempDir;

/// The state of a server that is ended.
fn state_of(server: Running) -> State {
    let dir = server.ended();
    contents_of(&dir.path().join("db"))
}

/// The library, with batches whose good rows are kept, or of which all rows are taken or none.
struct Library {
    dir: TempDir,
    db: Database,
    is_whole: bool,
}

impl FrontEnd for Library {
    fn name(&self) -> &'static str {
        if self.is_whole {
            "library, all or none"
        } else {
            "library"
        }
    }

    fn unmet_needs(&self) -> &'static [Need] {
        &[Need::NoTimes]
    }

    fn is_whole(&self) -> bool {
        self.is_whole
    }

    fn send(&mut self, request: &Request) -> Outcome {
        let mut batch = Batch::new();
        for row in &request.rows {
            let mut rows = StreamRows::new(StreamName::new(row.table.clone(), row.tags.clone()));
            let time = Timestamp::from_nanos(row.unix_ns().unwrap());
            let values = row.fields.iter().map(|(name, cell)| {
                let value = match cell {
                    Cell::F64(value) => Value::F64(*value),
                    Cell::I64(value) => Value::I64(*value),
                    Cell::U64(value) => Value::U64(*value),
                    Cell::Bool(value) => Value::Bool(*value),
                    Cell::Text(value) => Value::String(value.clone()),
                };
                (name.as_str(), value)
            });
            rows.row(time.as_nanos(), values).unwrap();
            batch.push(rows);
        }
        if self.is_whole {
            batch.require_all();
        }
        let written = self.db.commit(batch).unwrap();
        Outcome {
            refused: written.refused.len(),
            codes: Some(written.refused.iter().map(|r| r.code.to_string()).collect()),
            replaced: Some(written.replaced),
        }
    }

    fn stored(self: Box<Self>) -> State {
        let Library { dir, db, .. } = *self;
        db.close().unwrap();
        drop(db);
        contents_of(dir.path())
    }
}

#[test]
fn the_library_takes_rows_as_every_door_does() {
    for is_whole in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut options = headwater::Options::new(dir.path());
        options.max_future = Some(std::time::Duration::from_secs(3_600));
        let db = Database::open(options).unwrap();
        let walked = walk(Box::new(Library { dir, db, is_whole }));
        assert!(walked >= 20, "{walked}");
    }
}

/// The routes through which rows come in, by their columns of the table.
const ROUTES: [&str; 5] = [
    "/api/put",
    "/api/v1/prom/write",
    "/api/v2/write",
    "/api/v3/write_lp",
    "/write",
];

#[test]
fn every_door_has_its_column() {
    let writing = headwater_server::endpoints().into_iter();
    let writing = writing.filter(|e| e.needs == headwater_server::Needs::Write);
    let mut writing: Vec<_> = writing.map(|e| e.path).collect();
    writing.sort_unstable();
    assert_eq!(
        writing, ROUTES,
        "a route that takes rows needs a column here"
    );
    for path in ROUTES {
        assert!(http::PATHS.iter().any(|p| p.starts_with(path)), "{path}");
    }
}
