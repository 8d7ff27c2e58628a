//! `CREATE SNAPSHOT`, `DROP SNAPSHOT` and `SHOW SNAPSHOTS`.
//!
//! Invariants: a snapshot includes all tables, so only a session with all rights creates, drops or
//! lists them; a session that reads one sees only the tables that it may see.

use super::{blocking, show};
use crate::answer::{Answer, ObjectKind, Outcome};
use crate::columns::time_type;
use crate::error::{Error, Result};
use crate::session::Session;
use crate::syntax::About;
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use headwater::{ErrorKind, SnapshotInfo};
use std::sync::Arc;

fn unknown(name: &str) -> Error {
    let error = Error::unknown_snapshot(format!("there is no snapshot `{name}`"));
    error.with_hint("SHOW SNAPSHOTS lists them")
}

pub(super) async fn run(session: &Session, about: About) -> Result<Answer> {
    if !session.access.all() {
        return Err(Error::forbidden(
            "snapshots are of all tables: creating, dropping and listing them needs all rights",
        ));
    }
    match about {
        About::Show => list(session).await,
        About::Create {
            name,
            if_not_exists,
        } => {
            let db = session.query.database()?.clone();
            blocking(move || {
                if db.snapshots().iter().any(|s| s.name == name) {
                    return match if_not_exists {
                        true => Ok(()),
                        false => Err(Error::snapshot_exists(format!(
                            "snapshot `{name}` already exists"
                        ))),
                    };
                }
                db.create_snapshot(&name)?;
                Ok(())
            })
            .await?;
            Ok(Answer::without_rows(Outcome::Created(ObjectKind::Snapshot)))
        }
        About::Drop { name, if_exists } => {
            let db = session.query.database()?.clone();
            blocking(move || match db.drop_snapshot(&name) {
                Err(e) if e.kind() == ErrorKind::NotFound && if_exists => Ok(()),
                Err(e) if e.kind() == ErrorKind::NotFound => Err(unknown(&name)),
                dropped => Ok(dropped?),
            })
            .await?;
            Ok(Answer::without_rows(Outcome::Dropped(ObjectKind::Snapshot)))
        }
    }
}

pub(super) fn schema() -> SchemaRef {
    let number = |name: &str| Field::new(name, DataType::Int64, false);
    Arc::new(Schema::new(vec![
        Field::new("snapshot_name", DataType::Utf8, false),
        Field::new("created", time_type(), false),
        Field::new("ends", time_type(), true),
        number("tables"),
        number("streams"),
        number("events"),
        number("bytes"),
        number("kept_bytes"),
        number("own_bytes"),
    ]))
}

/// The snapshots, the oldest first.
async fn list(session: &Session) -> Result<Answer> {
    let query = session.query.clone();
    let all = blocking(move || Ok(query.source().snapshots())).await?;
    let internal = |e: arrow::error::ArrowError| Error::internal(e.to_string());
    let times = |of: &dyn Fn(&SnapshotInfo) -> Option<i64>| -> Result<ArrayRef> {
        let times: TimestampNanosecondArray = all.iter().map(of).collect();
        cast(&times, &time_type()).map_err(internal)
    };
    let numbers = |of: &dyn Fn(&SnapshotInfo) -> u64| -> ArrayRef {
        let clamped = |info: &SnapshotInfo| i64::try_from(of(info)).unwrap_or(i64::MAX);
        Arc::new(Int64Array::from_iter_values(all.iter().map(clamped)))
    };
    let names = all.iter().map(|info| info.name.as_str());
    let columns = vec![
        Arc::new(StringArray::from_iter_values(names)) as ArrayRef,
        times(&|info| Some(info.created.as_nanos()))?,
        times(&|info| info.ends.map(|end| end.as_nanos()))?,
        numbers(&|info| info.tables),
        numbers(&|info| info.streams),
        numbers(&|info| info.events),
        numbers(&|info| info.bytes),
        numbers(&|info| info.kept_bytes),
        numbers(&|info| info.own_bytes),
    ];
    show::answer(RecordBatch::try_new(schema(), columns).map_err(internal)?)
}
