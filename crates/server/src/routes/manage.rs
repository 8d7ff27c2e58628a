//! `POST /api/v1/manage`: administration of tables, on a server that has the database open: declare
//! and change tables, delete, drop, compact. Requests and answers: docs/http/managing.md.
//!
//! Invariants: a command does the same as its counterpart on a directory; a client that may not
//! manage a table does not learn about the table. Omitting a parameter never deletes everything.
//! Concurrency: one compaction at a time; it continues when its client disconnects. Failure: an
//! error of the engine is answered with its message, without a change.

use super::{Needs, Route};
use crate::access::Access;
use crate::access::rules::Action;
use crate::app::App;
use crate::error::ApiError;
use crate::request::{self, answer, no_snapshot};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use headwater::{
    ClosedRange, DeleteSpec, Duplicates, EndedSnapshot, ErrorKind, FastTier, FieldSpec, FieldType,
    Options, SnapshotInfo, TableChange, TableInfo, TableSpec, Timestamp,
};
use headwater_wire::durations::{format_duration_ns, parse_duration_ns};
use headwater_wire::instant::format_instant;
use headwater_wire::query::parse_removal_at;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Longest body.
const BODY_BYTES_MAX: usize = 1 << 20;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::post("/api/v1/manage", Needs::Manage, manage)]
}

/// Command in the body of a request.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum ManageCommand {
    ShowTables {
        table: Option<String>,
    },
    CreateTable(Described),
    AlterTable(Described),
    DropTable {
        table: String,
    },
    Delete {
        table: String,
        #[serde(default)]
        tags: BTreeMap<String, String>,
        from: Option<String>,
        to: Option<String>,
        #[serde(default)]
        all_time: bool,
    },
    DropStreams {
        table: String,
        tags: BTreeMap<String, String>,
    },
    Compact,
    /// Changes the fast tier; without a folder, removes it.
    MoveTier {
        fast: Option<PathBuf>,
        /// Parts on the fast tier; `None` = the log, and rows that exceed memory.
        parts: Option<String>,
    },
    ShowSnapshots,
    CreateSnapshot {
        name: String,
    },
    DropSnapshot {
        name: String,
    },
}

/// Table, or its intended definition.
#[derive(Debug, Deserialize)]
struct Described {
    table: String,
    /// Names and types, in the order of the table.
    #[serde(default)]
    fields: Vec<(String, String)>,
    duplicates: Option<String>,
    leaf_events: Option<u32>,
    /// A duration, or `forever`.
    retention: Option<String>,
    raw_for: Option<String>,
}

async fn manage(
    State(app): State<Arc<App>>,
    access: Access,
    request: Request,
) -> Result<Response, ApiError> {
    let body = axum::body::to_bytes(request.into_body(), BODY_BYTES_MAX).await;
    let body = body.map_err(|error| {
        let message = format!("the body: {error}; at most {BODY_BYTES_MAX} bytes are accepted");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "E_LIMIT_BODY", message)
    })?;
    let command: ManageCommand = serde_json::from_slice(&body).map_err(|error| {
        invalid(format!(
            "{error}: expected an object such as {{\"op\":\"drop_table\",\"table\":\"weather\"}}"
        ))
    })?;
    may(&access, &command)?;
    let done = app
        .blocking(move |app| execute(app, &access, command))
        .await?
        .to_string();
    Ok(answer(request::JSON, done))
}

/// Checks access before any look-up, so that the answer does not depend on existence.
fn may(access: &Access, command: &ManageCommand) -> Result<(), ApiError> {
    let pairs = |tags: &BTreeMap<String, String>| -> Vec<(String, String)> {
        let pairs = tags.iter().map(|(tag, value)| (tag.clone(), value.clone()));
        pairs.collect()
    };
    let allowed = match command {
        // The answer lists only tables that may be managed.
        ManageCommand::ShowTables { .. } => true,
        ManageCommand::CreateTable(described) | ManageCommand::AlterTable(described) => {
            access.may(Action::Manage, &described.table, &[])
        }
        ManageCommand::DropTable { table } => access.may(Action::Manage, table, &[]),
        ManageCommand::Delete { table, tags, .. } | ManageCommand::DropStreams { table, tags } => {
            access.may(Action::Manage, table, &pairs(tags))
        }
        // A snapshot is of all tables.
        ManageCommand::Compact
        | ManageCommand::MoveTier { .. }
        | ManageCommand::ShowSnapshots
        | ManageCommand::CreateSnapshot { .. }
        | ManageCommand::DropSnapshot { .. } => access.all(Action::Manage),
    };
    if allowed {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::FORBIDDEN,
        "E_ACCESS",
        "this token may not do this operation: none of its rules allows managing all that it \
         changes; use a token with such a rule (`headwater token create`)",
    ))
}

fn execute(app: &App, access: &Access, command: ManageCommand) -> Result<Value, ApiError> {
    let db = &app.db();
    Ok(match command {
        ManageCommand::ShowTables { table } => shown_to(app, access, table.as_deref())?,
        ManageCommand::CreateTable(described) => {
            let mut spec = TableSpec::new(described.table.clone());
            spec.duplicates = duplicates(&described)?.unwrap_or(Duplicates::Last);
            spec.leaf_events = described.leaf_events;
            spec.fields = fields(&described)?;
            spec.retention = life(described.retention.as_deref())?.flatten();
            spec.raw_for = life(described.raw_for.as_deref())?.flatten();
            shown(&db.create_table(&spec)?)
        }
        ManageCommand::AlterTable(described) => {
            let change = TableChange {
                duplicates: duplicates(&described)?,
                leaf_events: described.leaf_events,
                retention: life(described.retention.as_deref())?,
                raw_for: life(described.raw_for.as_deref())?,
                add_fields: fields(&described)?,
                ..TableChange::default()
            };
            if change == TableChange::default() {
                return Err(invalid("there is nothing to change".to_owned()));
            }
            shown(&db.alter_table(&described.table, &change)?)
        }
        ManageCommand::DropTable { table } => {
            db.drop_table(&table)?;
            json!({ "dropped": table })
        }
        ManageCommand::Delete {
            table,
            tags,
            from,
            to,
            all_time,
        } => {
            let range = chosen(app, from.as_deref(), to.as_deref(), all_time)?;
            let tags = tags.into_iter().collect();
            let spec = DeleteSpec { table, tags, range };
            // The delete reports an absent table.
            let streams = match db.snapshot()?.streams_in(&spec.table, &spec.tags, range) {
                Err(error) if error.kind() == ErrorKind::NotFound => 0,
                streams => streams?,
            };
            db.delete(&spec)?;
            json!({ "streams": streams })
        }
        ManageCommand::DropStreams { table, tags } => {
            if tags.is_empty() {
                return Err(invalid("the streams are missing: give `tags`".to_owned()));
            }
            let tags: Vec<(String, String)> = tags.into_iter().collect();
            json!({ "streams": db.drop_streams(&table, &tags)? })
        }
        ManageCommand::Compact => compacted(app)?,
        ManageCommand::MoveTier { fast, parts } => moved(app, fast, parts.as_deref())?,
        ManageCommand::ShowSnapshots => shown_snapshots(&db.snapshots(), &db.ended_snapshots()),
        ManageCommand::CreateSnapshot { name } => shown_snapshot(&db.create_snapshot(&name)?),
        ManageCommand::DropSnapshot { name } => {
            db.drop_snapshot(&name)
                .map_err(|error| match error.kind() {
                    ErrorKind::NotFound => no_snapshot(&name),
                    _ => error.into(),
                })?;
            json!({ "dropped": name })
        }
    })
}

/// Named snapshots, and snapshots that ended by themselves, as this route and `headwater snapshot
/// list` show them.
#[must_use]
pub fn shown_snapshots(snapshots: &[SnapshotInfo], ended: &[EndedSnapshot]) -> Value {
    json!({
        "snapshots": snapshots.iter().map(shown_snapshot).collect::<Vec<_>>(),
        "ended": ended.iter().map(ended_snapshot).collect::<Vec<_>>(),
    })
}

fn shown_snapshot(info: &SnapshotInfo) -> Value {
    json!({
        "name": info.name,
        "created": format_instant(info.created),
        "ends": info.ends.map(format_instant),
        "tables": info.tables,
        "streams": info.streams,
        "events": info.events,
        "bytes": info.bytes,
        "kept_bytes": info.kept_bytes,
        "own_bytes": info.own_bytes,
    })
}

fn ended_snapshot(ended: &EndedSnapshot) -> Value {
    json!({
        "name": ended.name,
        "created": format_instant(ended.created),
        "ended": format_instant(ended.ended),
        "reason": ended.why.reason(),
    })
}

/// Tables that the client may manage, or the requested one of them.
fn shown_to(app: &App, access: &Access, table: Option<&str>) -> Result<Value, ApiError> {
    let mut tables = app.db().tables();
    tables.retain(|info| {
        table.is_none_or(|name| name == info.name) && access.may(Action::Manage, &info.name, &[])
    });
    if let (Some(name), true) = (table, tables.is_empty()) {
        return Err(request::not_found("table", &name));
    }
    tables.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(json!({ "tables": tables.iter().map(shown).collect::<Vec<_>>() }))
}

/// Range of a delete, which the request must state explicitly.
fn chosen(
    app: &App,
    from: Option<&str>,
    to: Option<&str>,
    all_time: bool,
) -> Result<ClosedRange, ApiError> {
    if from.is_none() && to.is_none() && !all_time {
        return Err(invalid(
            "the range of time is missing: give `from`, `to` or both, or `\"all_time\":true`"
                .to_owned(),
        ));
    }
    range(from, to, app.shell.env().clock.now())
}

fn compacted(app: &App) -> Result<Value, ApiError> {
    let Some(_only) = app.compacting.try_lock() else {
        let message = "a compaction is already running";
        let busy = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "E_BUSY", message);
        return Err(busy.retry_after(1));
    };
    let before = app.opened_db.stats()?.disk_bytes;
    app.opened_db.compact()?;
    Ok(json!({ "bytes_before": before, "bytes": app.opened_db.stats()?.disk_bytes }))
}

/// Moves the parts of the fast tier while the database is open, and reports their location.
fn moved(app: &App, fast: Option<PathBuf>, parts: Option<&str>) -> Result<Value, ApiError> {
    let wanted = match (fast, parts) {
        (None, None) => None,
        (None, Some(_)) => {
            return Err(invalid(
                "parts: `fast` is missing; give both, or neither to use no tier".to_owned(),
            ));
        }
        (Some(folder), _) if !folder.is_absolute() => {
            return Err(invalid(format!(
                "fast: expected an absolute path of a directory on this server, such as /mnt/nvme/headwater, found `{}`",
                folder.display()
            )));
        }
        (Some(folder), parts) => {
            let parts = parts.map_or(Ok(Options::new(&folder).fast_parts), str::parse);
            let parts = parts.map_err(|error: headwater::Error| invalid(error.to_string()))?;
            Some(FastTier { folder, parts })
        }
    };
    app.opened_db.move_tier(wanted.as_ref())?;
    let now = app.opened_db.fast_tier();
    Ok(json!({
        "fast": now.as_ref().map(|tier| tier.folder.display().to_string()),
        "parts": now.as_ref().map(|tier| tier.parts.to_string()),
    }))
}

fn invalid(message: String) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "E_INVALID", message)
}

fn duplicates(described: &Described) -> Result<Option<Duplicates>, ApiError> {
    match described.duplicates.as_deref() {
        None => Ok(None),
        Some("last") => Ok(Some(Duplicates::Last)),
        Some("keep") => Ok(Some(Duplicates::Keep)),
        Some(other) => Err(invalid(format!(
            "duplicates: expected last or keep, found `{other}`"
        ))),
    }
}

fn fields(described: &Described) -> Result<Vec<FieldSpec>, ApiError> {
    let fields = described.fields.iter().map(|(name, type_name)| {
        let field_type = FieldType::from_name(type_name).ok_or_else(|| {
            invalid(format!(
                "field `{name}`: expected the type f64, i64, u64, bool, string or bytes, found `{type_name}`"
            ))
        })?;
        Ok(FieldSpec {
            name: name.clone(),
            field_type,
        })
    });
    fields.collect()
}

/// `None` = absent; `Some(None)` = forever.
fn life(text: Option<&str>) -> Result<Option<Option<Duration>>, ApiError> {
    match text {
        None => Ok(None),
        Some("forever") => Ok(Some(None)),
        Some(text) => {
            let ns = parse_duration_ns(text)
                .map_err(|error| invalid(format!("`{text}`: {error}; or `forever`")))?;
            Ok(Some(Some(Duration::from_nanos(ns.unsigned_abs()))))
        }
    }
}

fn range(from: Option<&str>, to: Option<&str>, now: Timestamp) -> Result<ClosedRange, ApiError> {
    let read = |text: Option<&str>| {
        text.map(|text| {
            parse_removal_at(text, now).map_err(|error| invalid(format!("`{text}`: {error}")))
        })
        .transpose()
    };
    let from = read(from)?.unwrap_or(Timestamp::MIN);
    Ok(match read(to)? {
        Some(to) => ClosedRange::half_open(from, to),
        None => ClosedRange::new(from, Timestamp::MAX),
    })
}

/// Table as `headwater table show` shows it.
fn shown(info: &TableInfo) -> Value {
    let life = |life: Option<Duration>| {
        life.map(|life| format_duration_ns(i64::try_from(life.as_nanos()).unwrap_or(i64::MAX)))
    };
    let fields = info
        .fields
        .iter()
        .map(|field| json!({ "name": field.name, "type": field.field_type.name() }));
    json!({
        "name": info.name,
        "duplicates": match info.duplicates {
            Duplicates::Last => "last",
            Duplicates::Keep => "keep",
        },
        "leaf_events": info.leaf_events,
        "streams": info.streams,
        "retention": life(info.retention),
        "cut": info.cut.map(format_instant),
        "raw_for": life(info.raw_for),
        "aged_to": info.aged_to.map(format_instant),
        "tags": info.tags,
        "fields": fields.collect::<Vec<_>>(),
    })
}
