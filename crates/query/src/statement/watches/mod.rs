//! `CREATE WATCH`, `DROP WATCH` and `SHOW WATCHES`, and the watch as its runner sees it.
//!
//! The database stores definitions in [`NOTES`] notes, each watch in one of them by its name.
//! Events of a watch are not part of this crate: its runner evaluates it by [`Session::look`].
//!
//! Invariants: a watch could be followed when it was created. A session that manages its table may
//! create or drop it; a session that may read some of the table sees it in the list. Concurrency:
//! changes are serialised in a process, and only the owner of a database makes them.

mod look;
mod plan;

pub use look::Look;

use super::{blocking, parse, show as shown};
use crate::answer::{Answer, ObjectKind as MadeKind, Outcome};
use crate::columns::time_type;
use crate::error::{Error, Result};
use crate::names::unknown_table;
use crate::parsed::StatementKind;
use crate::rewrites::lengths;
use crate::session::{Query, Session};
use crate::syntax::{AboutWatch, CreateWatch, EventTarget, Since, WatchKind};
use arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampNanosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use headwater_watch::{Definition, decode_definitions, encode_definitions, rights_of};
use parking_lot::Mutex;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Number of notes with watches: one is large enough for a thousand watches of the usual length.
const NOTES: u8 = 16;
/// Maximum number of watches of a database.
const WATCHES_MAX: usize = 10_000;
/// Maximum clock skew of rows: later rows do not count for a table's watermark.
const AHEAD_NS: i64 = 3_600_000_000_000;

/// A watch: its statement, and the target of its events.
#[derive(Clone, Debug)]
pub struct Watch {
    definition: Definition,
    statement: CreateWatch,
}

impl Watch {
    /// Parses a definition.
    ///
    /// # Errors
    /// `corrupt` when its statement does not create a watch.
    pub fn read(definition: Definition) -> Result<Watch> {
        match parse(&definition.statement, None)?.kind {
            StatementKind::Watches(AboutWatch::Create(made)) => Ok(Watch {
                definition,
                statement: *made,
            }),
            _ => Err(Error::corrupt(format!(
                "the definition of watch `{}` does not create a watch",
                definition.name
            ))),
        }
    }

    /// The stored definition.
    #[must_use]
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// The address to which its events are sent.
    #[must_use]
    pub fn hook(&self) -> Option<&str> {
        match &self.statement.options.target {
            Some(EventTarget::Hook(address)) => Some(address),
            _ => None,
        }
    }

    /// The topic to which its events are published.
    #[must_use]
    pub fn topic(&self) -> Option<&str> {
        match &self.statement.options.target {
            Some(EventTarget::Topic(topic)) => Some(topic),
            _ => None,
        }
    }

    /// Lateness after which a row's changes are reported as corrections.
    #[must_use]
    pub fn lateness_ns(&self) -> i64 {
        self.statement.options.lateness_ns
    }

    /// Whether the watch reports streams without rows.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        matches!(self.statement.kind, WatchKind::Absence { .. })
    }
}

/// The wall clock.
fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let ns = since
        .ok()
        .and_then(|since| i64::try_from(since.as_nanos()).ok());
    ns.unwrap_or(0)
}

fn note_name(number: u8) -> String {
    format!("watches.{number:x}")
}

/// The note of a watch.
fn note_of(name: &str) -> String {
    let sum = name.bytes().fold(0u8, u8::wrapping_add);
    note_name(sum % NOTES)
}

fn decoded(name: &str, note: Option<Vec<u8>>) -> Result<Vec<Definition>> {
    let Some(note) = note else {
        return Ok(Vec::new());
    };
    decode_definitions(&note)
        .map_err(|why| Error::corrupt(format!("the note `{name}` is damaged: {why}")))
}

impl Query {
    /// The watches of the database, by name.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn watches(&self) -> Result<Vec<Definition>> {
        let mut all = Vec::new();
        for number in 0..NOTES {
            let name = note_name(number);
            all.extend(decoded(&name, self.source().note(&name)?)?);
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }
}

static CHANGING: Mutex<()> = Mutex::new(());

/// Changes the watches of one note.
async fn change(
    session: &Session,
    name: String,
    work: impl FnOnce(&mut Vec<Definition>, &Query) -> Result<()> + Send + 'static,
) -> Result<()> {
    let (db, query) = (session.query.database()?.clone(), session.query.clone());
    blocking(move || {
        let _one_at_a_time = CHANGING.lock();
        let note = note_of(&name);
        let mut all = decoded(&note, db.note(&note)?)?;
        work(&mut all, &query)?;
        let bytes = encode_definitions(&all);
        db.set_note(&note, Some(bytes.as_slice()).filter(|_| !all.is_empty()))?;
        Ok(())
    })
    .await
}

pub(super) async fn run(session: &Session, about: AboutWatch, text: String) -> Result<Answer> {
    match about {
        AboutWatch::Show => list(session).await,
        AboutWatch::Create(made) => create(session, *made, text).await,
        AboutWatch::Drop { name, if_exists } => drop(session, name, if_exists).await,
    }
}

fn manages(session: &Session, table: &str, what: &str) -> Result<()> {
    if session.access.manages(table) || session.access.all() {
        return Ok(());
    }
    Err(Error::forbidden(format!(
        "this session may not {what} watches of table `{table}`"
    ))
    .with_hint("creating a watch needs the rights to manage and to read its table"))
}

async fn create(session: &Session, statement: CreateWatch, text: String) -> Result<Answer> {
    session.query.database()?;
    let mut watch = Watch {
        definition: Definition {
            id: RandomState::new().build_hasher().finish(),
            name: statement.name.clone(),
            owner: session.access.token(),
            created_ns: now_ns(),
            since_ns: i64::MIN,
            table: String::new(),
            rights: rights_of(session.access.key().as_deref()),
            statement: text,
        },
        statement,
    };
    watch.definition.table = look::table_of(session, &watch).await?;
    let definition = &mut watch.definition;
    manages(session, &definition.table, "make")?;
    definition.since_ns = match watch.statement.options.since {
        _ if matches!(watch.statement.kind, WatchKind::Absence { .. }) => i64::MIN,
        Since::Beginning => i64::MIN,
        Since::At(at) => at,
        Since::Now => {
            let until_ns = definition.created_ns.saturating_add(AHEAD_NS);
            let newest = look::newest(session, &definition.table, until_ns).await?;
            newest.map_or(i64::MIN, |newest| newest.saturating_add(1))
        }
    };
    let tolerates = watch.statement.if_not_exists;
    let definition = watch.definition;
    change(session, definition.name.clone(), move |all, query| {
        let exists = all.iter().any(|known| known.name == definition.name);
        match (exists, tolerates) {
            (true, true) => return Ok(()),
            (true, false) => {
                return Err(Error::watch_exists(format!(
                    "watch `{}` already exists",
                    definition.name
                ))
                .with_hint("DROP WATCH removes it and its events"));
            }
            _ => {}
        }
        if query.watches()?.len() >= WATCHES_MAX {
            return Err(Error::too_large(format!(
                "there are {WATCHES_MAX} watches, which is the maximum: drop some first"
            )));
        }
        all.push(definition);
        Ok(())
    })
    .await?;
    Ok(Answer::without_rows(Outcome::Created(MadeKind::Watch)))
}

async fn drop(session: &Session, name: String, if_exists: bool) -> Result<Answer> {
    let own = session.clone();
    change(session, name.clone(), move |all, _| {
        let known = all.iter().position(|known| known.name == name);
        let seen = known.and_then(|at| Some((at, all.get(at)?)));
        match seen.filter(|(_, known)| own.access.reads_some_of(&known.table) || own.access.all()) {
            Some((at, known)) => {
                manages(&own, &known.table, "drop")?;
                all.remove(at);
                Ok(())
            }
            None if if_exists => Ok(()),
            None => Err(Error::unknown_watch(format!("there is no watch `{name}`"))
                .with_hint("SHOW WATCHES lists them")),
        }
    })
    .await?;
    Ok(Answer::without_rows(Outcome::Dropped(MadeKind::Watch)))
}

pub(super) fn schema() -> SchemaRef {
    let text = |name: &str, absent| Field::new(name, DataType::Utf8, absent);
    Arc::new(Schema::new(vec![
        text("watch_name", false),
        text("table_name", false),
        Field::new("created", time_type(), false),
        text("target", true),
        text("definition", false),
    ]))
}

/// The watches of tables of which the session may read some data.
async fn list(session: &Session) -> Result<Answer> {
    let query = session.query.clone();
    let mut all = blocking(move || query.watches()).await?;
    all.retain(|known| session.access.reads_some_of(&known.table));
    let all: Vec<Watch> = all.into_iter().map(Watch::read).collect::<Result<_>>()?;
    let internal = |e: arrow::error::ArrowError| Error::internal(e.to_string());
    let texts = |of: &dyn Fn(&Watch) -> Option<String>| -> ArrayRef {
        Arc::new(StringArray::from_iter(all.iter().map(of)))
    };
    let created = all.iter().map(|watch| watch.definition.created_ns);
    let created: TimestampNanosecondArray = created.map(Some).collect();
    let columns = vec![
        texts(&|watch| Some(watch.definition.name.clone())),
        texts(&|watch| Some(watch.definition.table.clone())),
        cast(&created, &time_type()).map_err(internal)?,
        texts(&|watch| watch.hook().or(watch.topic()).map(str::to_owned)),
        texts(&|watch| Some(watch.definition.statement.clone())),
    ];
    shown::answer(RecordBatch::try_new(schema(), columns).map_err(internal)?)
}

/// Duration without a row.
fn length_ns(text: &str) -> Result<i64> {
    lengths::nanoseconds(text).ok_or_else(|| {
        Error::invalid_value(format!("FOR: expected a length of time, found '{text}'"))
            .with_hint("for example: FOR INTERVAL '5 minutes'; a month has no fixed length")
    })
}

/// The columns that distinguish streams without rows: the named ones, or all tags.
fn groups(session: &Session, table: &str, per: Option<&[String]>) -> Result<Vec<String>> {
    let tables = session.query.tables(&session.access)?;
    let known = tables.into_iter().find(|known| known.name == table);
    let known = known.ok_or_else(|| unknown_table(table))?;
    let tags = known.columns.into_iter();
    let tags: Vec<String> = tags
        .filter(|column| column.kind == crate::session::ColumnKind::Tag)
        .map(|column| column.name)
        .collect();
    let Some(per) = per else { return Ok(tags) };
    match per.iter().find(|wanted| !tags.contains(wanted)) {
        None => Ok(per.to_vec()),
        Some(other) => Err(Error::unknown_column(format!(
            "PER {other}: table `{table}` has no tag with this name"
        ))),
    }
}
