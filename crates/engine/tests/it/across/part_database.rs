//! Databases of the tests over several parts: in memory, with small leaves and partitions, so that
//! few rows fill many.

use crate::support::{Dice, small_options};
use headwater_engine::{Database, DeleteSpec, Duplicates, FieldSpec, Options, TableSpec};
use headwater_io::{Env, ManualClock, MemoryFiles, NoThreads, SeededChance};
use headwater_types::{ClosedRange, FieldType, StreamName};
use std::sync::Arc;

pub(super) const SECOND: i64 = 1_000_000_000;
pub(super) const MINUTE: i64 = 60 * SECOND;

pub(super) struct PartDatabase {
    env: Env,
    options: Options,
    /// Always there but for a moment.
    db: Option<Database>,
}

impl PartDatabase {
    pub(super) fn new(seed: u64, clock: &Arc<ManualClock>) -> PartDatabase {
        let env = Env {
            files: Arc::new(MemoryFiles::new()),
            clock: Arc::clone(clock) as _,
            chance: Arc::new(SeededChance::new(seed)),
            threads: Arc::new(NoThreads),
            ..Env::memory()
        };
        let options = Options {
            bucket_events: 4,
            partition_target_bytes: 12 << 10,
            partition_bytes_max: 24 << 10,
            ..small_options()
        };
        let db = Some(Database::open_in(env.clone(), options.clone()).unwrap());
        PartDatabase { env, options, db }
    }

    pub(super) fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    pub(super) fn reopen(&mut self) {
        self.db.take().unwrap().close().unwrap();
        let db = Database::open_in(self.env.clone(), self.options.clone());
        self.db = Some(db.unwrap());
    }

    /// Drops a stream, if it is there.
    pub(super) fn drop_stream(&self, stream: &StreamName) {
        if self.db().snapshot().unwrap().handle(stream).is_ok() {
            let names = [stream.clone()];
            self.db()
                .drop_named_streams(stream.table(), &names)
                .unwrap();
        }
    }
}

/// A table with `v`, `n`, what is called `c`, and more fields.
pub(super) fn table_spec(table: &str, c: &[(FieldType, &str)], more: &[&str]) -> TableSpec {
    let mut all = vec![("v", FieldType::F64), ("n", FieldType::I64)];
    all.extend(c.iter().map(|(of, name)| (*name, *of)));
    all.extend(more.iter().map(|name| (*name, FieldType::F64)));
    let fields = all.into_iter().map(|(name, field_type)| FieldSpec {
        name: name.to_owned(),
        field_type,
    });
    TableSpec {
        duplicates: match table {
            "keeps" => Duplicates::Keep,
            _ => Duplicates::Last,
        },
        fields: fields.collect(),
        ..TableSpec::new(table)
    }
}

/// A deletion of up to five of the last minutes of a stream.
pub(super) fn some_delete(dice: &mut Dice, stream: &StreamName, newest: i64) -> DeleteSpec {
    let last = newest - dice.below(30 * MINUTE as u64) as i64;
    let first = last - dice.below(5 * MINUTE as u64) as i64;
    DeleteSpec {
        table: stream.table().to_owned(),
        tags: stream.tags().to_vec(),
        range: ClosedRange::nanos(first, last),
    }
}

/// Instants of everything that was written, late rows included.
pub(super) fn span_until(newest: i64) -> ClosedRange {
    let first = Env::MEMORY_START.as_nanos() - 30 * MINUTE;
    ClosedRange::nanos(first, newest + MINUTE)
}
