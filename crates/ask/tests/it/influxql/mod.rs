//! What statements of InfluxQL answer.

mod answered;
mod casts;
mod fills;
mod into;
mod looking_back;
mod model;
mod names;
mod order;
mod parts;
mod removing;
mod samples;
mod united;
mod within;

use headwater::{Batch, Database, Options, StreamName, Timestamp, Value};
use headwater_ask::{Access, Budget, CancelToken, Deadline, Unrestricted, influxql};
use serde_json::{Value as Json, json};

/// A database, and `now()` of its statements in seconds.
pub(crate) struct World {
    pub(crate) db: Database,
    _directory: tempfile::TempDir,
    pub(crate) now: i64,
}

/// Rows of `table,tag=value,…`, by seconds.
pub(crate) type Rows<'a> = &'a [(i64, &'a [(&'a str, Value)])];

impl World {
    pub(crate) fn new() -> World {
        let directory = tempfile::tempdir().unwrap();
        World {
            db: Database::open(Options::new(directory.path().join("db"))).unwrap(),
            _directory: directory,
            now: 1_000_000,
        }
    }

    pub(crate) fn write(&self, stream: &str, rows: Rows<'_>) {
        let mut parts = stream.split(',');
        let table = parts.next().unwrap();
        let tags = parts.map(|tag| tag.split_once('=').unwrap());
        let stream = StreamName::new(table, tags);
        let mut batch = Batch::new();
        for (second, values) in rows {
            let values = values.iter().map(|(name, value)| (*name, value.clone()));
            let into = batch.stream(&stream);
            into.row(second * 1_000_000_000, values).unwrap();
        }
        self.db.commit(batch).unwrap();
    }

    /// The results of a text, times in seconds.
    pub(crate) fn results(&self, text: &str) -> Vec<Json> {
        let snapshot = self.db.snapshot().unwrap();
        let budget = Budget::new(Deadline::NEVER, CancelToken::default());
        let now = Timestamp::from_nanos(self.now * 1_000_000_000);
        let asker = influxql::Evaluator::new(&snapshot, &Unrestricted, &budget, now);
        let answers = asker
            .evaluate(text)
            .unwrap_or_else(|e| panic!("{text}: {e}"));
        let form = influxql::Form {
            epoch: influxql::Epoch::Unit(1_000_000_000),
            chunk_rows: None,
        };
        let body: Json = serde_json::from_slice(&influxql::json(&answers, form)).unwrap();
        body["results"].as_array().unwrap().clone()
    }

    /// The series of one statement.
    pub(crate) fn series(&self, text: &str) -> Json {
        let result = self.results(text).remove(0);
        assert!(result["error"].is_null(), "{text}: {result}");
        result["series"].clone()
    }

    /// The rows of a statement that answers one series; none without any.
    pub(crate) fn rows(&self, text: &str) -> Json {
        let series = self.series(text);
        let list = series.as_array().unwrap();
        assert!(list.len() < 2, "{text}: {series}");
        list.first().map_or(json!([]), |one| one["values"].clone())
    }

    /// What a statement is told that cannot be carried out.
    pub(crate) fn error(&self, text: &str) -> String {
        let result = self.results(text).remove(0);
        let error = result["error"].as_str();
        error
            .unwrap_or_else(|| panic!("{text}: {result}"))
            .to_owned()
    }

    /// The results of statements that may change the database, for somebody.
    pub(crate) fn change_as(&self, access: &dyn Access, text: &str) -> Vec<Json> {
        let snapshot = self.db.snapshot().unwrap();
        let budget = Budget::new(Deadline::NEVER, CancelToken::default());
        let now = Timestamp::from_nanos(self.now * 1_000_000_000);
        let asker =
            influxql::Evaluator::new(&snapshot, access, &budget, now).with_changes(&self.db);
        let answers = asker
            .evaluate(text)
            .unwrap_or_else(|e| panic!("{text}: {e}"));
        let form = influxql::Form {
            epoch: influxql::Epoch::Unit(1_000_000_000),
            chunk_rows: None,
        };
        let body: Json = serde_json::from_slice(&influxql::json(&answers, form)).unwrap();
        body["results"].as_array().unwrap().clone()
    }

    /// The series that a question answers behind statements that change something.
    pub(crate) fn changed(&self, text: &str, question: &str) -> Json {
        let mut results = self.change_as(&Unrestricted, &format!("{text}; {question}"));
        let last = results.pop().unwrap();
        for result in results {
            assert!(result["error"].is_null(), "{text}: {result}");
        }
        assert!(last["error"].is_null(), "{text}: {last}");
        last["series"].clone()
    }

    /// What a statement that changes something is told.
    pub(crate) fn refused(&self, text: &str) -> String {
        let result = self.change_as(&Unrestricted, text).remove(0);
        let error = result["error"].as_str();
        error
            .unwrap_or_else(|| panic!("{text}: {result}"))
            .to_owned()
    }

    pub(crate) fn check(&self, cases: &[(&str, Json)]) {
        for (statement, expected) in cases {
            assert_eq!(self.rows(statement), *expected, "{statement}");
        }
    }
}

pub(crate) fn f(value: f64) -> Value {
    Value::F64(value)
}

pub(crate) fn i(value: i64) -> Value {
    Value::I64(value)
}

pub(crate) fn t(text: &str) -> Value {
    Value::String(text.to_owned())
}
