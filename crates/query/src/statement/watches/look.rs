//! Evaluation of watches.
//!
//! Invariants: the matches from the watch's beginning on equal those of the same statement run over
//! all rows; earlier rows that conditions need are read, however old they are. The table's
//! watermark is read before the rows, so that the answer has all rows up to there. Concurrency: an
//! evaluation uses one snapshot, except for the table's watermark. Failure: as a statement of the
//! session; `unknown_table` when its table was dropped.

use super::plan::{followed, tracked};
use super::{AHEAD_NS, Watch, groups, length_ns};
use crate::error::{Error, Result};
use crate::parameters::Parameters;
use crate::parsed::StatementKind;
use crate::pattern::{Tracking, read_track};
use crate::session::Session;
use crate::statement::{parse, select, views};
use crate::syntax::WatchKind;
use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::logical_expr::LogicalPlan;
use headwater::Timestamp;
use headwater_columnar::{Cells, TimeText};
use headwater_watch::{Begin, Bounds, Key, Match, Position, Round};
use headwater_wire::instant::format_instant;
use headwater_wire::json::push_str;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::Arc;

/// Cached state of earlier evaluations of a watch, without which an evaluation takes longer.
#[derive(Debug, Default)]
pub struct Look {
    /// Time before the watch's beginning from which rows are read.
    back_ns: i64,
    /// The first rows of partitions with few rows.
    firsts: HashMap<String, i64>,
}

impl Session {
    /// Evaluates a watch: all matches from the beginning of its state on, and its table's
    /// watermark.
    ///
    /// # Errors
    /// As [`Session::run`] of its statement.
    pub async fn look(
        &self,
        watch: &Watch,
        begin: &Begin,
        now_ns: i64,
        is_quiet: bool,
        look: &mut Look,
    ) -> Result<(Bounds, Round)> {
        match &watch.statement.kind {
            WatchKind::Pattern(query) => {
                let table = &watch.definition.table;
                let until_ns = now_ns.max(begin.watermark_ns).saturating_add(AHEAD_NS);
                let newest = newest(self, table, until_ns).await?;
                let found = patterns(self, query, table, begin, look).await?;
                let bounds = Bounds {
                    within_ns: found.0,
                    corrections_ns: corrections(watch),
                    absence: false,
                };
                let round = Round {
                    now_ns,
                    watermark_ns: newest.map_or(i64::MIN, |newest| {
                        newest.saturating_sub(watch.lateness_ns())
                    }),
                    is_quiet,
                    matches: found.1,
                    newest: BTreeMap::new(),
                };
                Ok((bounds, round))
            }
            WatchKind::Absence {
                table,
                condition,
                length,
                per,
            } => {
                let for_ns = length_ns(length)?.saturating_add(watch.lateness_ns());
                let request = AbsenceRequest {
                    table,
                    condition: condition.as_deref(),
                    per: per.as_deref(),
                    until_ns: now_ns.saturating_add(AHEAD_NS),
                };
                absences(self, &request, now_ns, for_ns).await
            }
        }
    }
}

/// Duration of corrections; rows within the allowed lateness are not corrections.
fn corrections(watch: &Watch) -> i64 {
    let options = &watch.statement.options;
    options.corrections_ns.max(options.lateness_ns)
}

/// The table of a watch, if the watch can be followed.
pub(super) async fn table_of(session: &Session, watch: &Watch) -> Result<String> {
    match &watch.statement.kind {
        WatchKind::Absence {
            table,
            condition,
            length,
            per,
        } => {
            length_ns(length)?;
            let request = AbsenceRequest {
                table,
                condition: condition.as_deref(),
                per: per.as_deref(),
                until_ns: i64::MAX,
            };
            let (columns, sql) = request.sql(session)?;
            let described = session.prepare(&sql, &[]).await?;
            assert_eq!(
                described.schema().fields().len(),
                columns.len() + 1,
                "each group is one row"
            );
            Ok(table.clone())
        }
        WatchKind::Pattern(query) => {
            let (own, query) = (session.clone(), query.clone());
            let planned = async move {
                let (_, logical) = logical(&own, &query).await?;
                Ok(followed(&logical)?.table)
            };
            session.planned(true, planned).await
        }
    }
}

/// The logical plan of a query, with the statement that runs it.
async fn logical(session: &Session, query: &str) -> Result<(crate::session::Running, LogicalPlan)> {
    let parsed = parse(query, None)?;
    let StatementKind::Select(mut statement) = parsed.kind else {
        return Err(Error::unsupported("a watch needs a SELECT or an ABSENCE"));
    };
    let running = session.begin()?;
    views::expand_statement(session, &running, &mut statement).await?;
    let logical = parsed.labels.relabel(running.resolve(statement).await?)?;
    select::check(&logical)?;
    Ok((running, logical))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn instant(ns: i64) -> String {
    format!("'{}'", format_instant(Timestamp::from_nanos(ns)))
}

/// The newest row of a table up to a time.
pub(super) async fn newest(session: &Session, table: &str, until_ns: i64) -> Result<Option<i64>> {
    let (table, until) = (quoted(table), instant(until_ns));
    let sql = format!("SELECT max(time) FROM {table} WHERE time <= {until}");
    let answer = run_nested(session, &sql).await?;
    let mut newest = None;
    for batch in answer.collect().await? {
        if let Some(column) = batch.columns().first() {
            newest = newest.max(times(column)?.into_iter().flatten().max());
        }
    }
    Ok(newest)
}

/// Runs a statement that is part of the evaluation.
fn run_nested<'a>(session: &'a Session, sql: &'a str) -> AnswerFuture<'a> {
    Box::pin(session.run(sql, Parameters::none()))
}

type AnswerFuture<'a> = Pin<Box<dyn Future<Output = Result<crate::answer::Answer>> + Send + 'a>>;

fn times(column: &arrow::array::ArrayRef) -> Result<Vec<Option<i64>>> {
    let times = cast(column, &DataType::Int64).map_err(|e| Error::internal(e.to_string()))?;
    Ok(times.as_primitive::<Int64Type>().iter().collect())
}

/// All matches of a query, and the maximum duration of a match.
async fn patterns(
    session: &Session,
    query: &str,
    table: &str,
    begin: &Begin,
    look: &mut Look,
) -> Result<(i64, Vec<Match>)> {
    loop {
        let (own, text, known) = (session.clone(), query.to_owned(), table.to_owned());
        let (from, back_ns) = (begin.clone(), look.back_ns);
        let planned = async move {
            let (running, logical) = logical(&own, &text).await?;
            let of = followed(&logical)?;
            if of.table != known {
                return Err(Error::unknown_table(format!(
                    "the watch was created for table `{known}`, but its statement now reads `{}`",
                    of.table
                ))
                .with_hint("drop the watch and create it again"));
            }
            let tracking = Arc::new(Tracking {
                lower_ns: lower(&from, back_ns.max(of.within_ns)),
                begin: from,
                short: Mutex::new(Vec::new()),
            });
            let logical = tracked(&logical, &tracking)?;
            let plan = own.plan(&running, logical).await?;
            let answer = own.rows(&running, plan, crate::answer::Outcome::Select)?;
            Ok((of.within_ns, tracking, answer))
        };
        let (within_ns, tracking, answer) = session.planned(true, planned).await?;
        let names: Vec<String> = answer
            .schema
            .fields()
            .iter()
            .map(|f| f.name().clone())
            .collect();
        let mut found = Vec::new();
        for batch in answer.collect().await? {
            read(&batch, &names, &mut found)?;
        }
        let short = std::mem::take(&mut *tracking.short.lock());
        let lower_ns = tracking.lower_ns;
        let goes_back = |(partition, _): &(String, i64)| {
            look.firsts
                .get(partition)
                .is_none_or(|first| *first < lower_ns)
        };
        if !short.iter().any(goes_back) {
            return Ok((within_ns, found));
        }
        // A condition needs rows before the first row that was read. A partition without earlier
        // rows reports its first row once; from then on, that row is early enough.
        look.back_ns = look.back_ns.max(within_ns).saturating_mul(4);
        if lower(begin, look.back_ns) == i64::MIN || look.back_ns > BACK_MAX_NS {
            look.back_ns = i64::MAX;
            look.firsts.extend(short);
        }
    }
}

/// Rows up to this long before the beginning are searched step by step; then all rows are read.
const BACK_MAX_NS: i64 = 1 << 60;

fn lower(begin: &Begin, back_ns: i64) -> i64 {
    match begin.settled_ns == i64::MIN || back_ns == i64::MAX {
        true => i64::MIN,
        false => begin.settled_ns.saturating_sub(back_ns),
    }
}

/// The matches of a batch: the last column has their positions.
fn read(batch: &RecordBatch, names: &[String], found: &mut Vec<Match>) -> Result<()> {
    let Some((track, columns)) = batch.columns().split_last() else {
        return Err(Error::internal("matches without columns"));
    };
    let track = cast(track, &DataType::Utf8).map_err(|e| Error::internal(e.to_string()))?;
    let track = track.as_string::<i32>();
    let cells = cells(columns)?;
    for row in 0..batch.num_rows() {
        let answered = object(names.iter().zip(&cells), row);
        let one = read_track(track.value(row), answered);
        found.push(one.ok_or_else(|| Error::internal("a match that is not told apart"))?);
    }
    Ok(())
}

fn cells(columns: &[arrow::array::ArrayRef]) -> Result<Vec<Cells>> {
    let cells = columns.iter().map(Cells::of);
    let cells: std::result::Result<_, _> = cells.collect();
    cells.map_err(|e| Error::internal(e.to_string()))
}

/// A row as a JSON object.
fn object<'a>(columns: impl Iterator<Item = (&'a String, &'a Cells)>, row: usize) -> String {
    let mut out = b"{".to_vec();
    for (name, cells) in columns {
        if out.len() > 1 {
            out.push(b',');
        }
        push_str(&mut out, name);
        out.push(b':');
        cells.push_json(&mut out, row, TimeText::Rfc3339);
    }
    out.push(b'}');
    String::from_utf8_lossy(&out).into_owned()
}

/// Streams whose newest rows are read.
struct AbsenceRequest<'a> {
    table: &'a str,
    condition: Option<&'a str>,
    per: Option<&'a [String]>,
    until_ns: i64,
}

impl AbsenceRequest<'_> {
    /// The columns that distinguish groups, and the statement that selects their newest rows.
    fn sql(&self, session: &Session) -> Result<(Vec<String>, String)> {
        let columns = groups(session, self.table, self.per)?;
        let named: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
        let (list, table) = (named.join(", "), quoted(self.table));
        let until = instant(self.until_ns);
        let condition = self
            .condition
            .map(|condition| format!("({condition}) AND "));
        let condition = condition.unwrap_or_default();
        let sql = match named.is_empty() {
            true => format!("SELECT max(time) FROM {table} WHERE {condition}time <= {until}"),
            false => format!(
                "SELECT {list}, max(time) FROM {table} WHERE {condition}time <= {until} GROUP BY {list}"
            ),
        };
        Ok((columns, sql))
    }
}

/// The groups without rows for the duration of the watch.
async fn absences(
    session: &Session,
    request: &AbsenceRequest<'_>,
    now_ns: i64,
    for_ns: i64,
) -> Result<(Bounds, Round)> {
    let (mut names, sql) = request.sql(session)?;
    names.push("newest".to_owned());
    let answer = session.run(&sql, Parameters::none()).await?;
    let (mut matches, mut newest) = (Vec::new(), BTreeMap::new());
    for batch in answer.collect().await? {
        let Some((last, groups)) = batch.columns().split_last() else {
            return Err(Error::internal("groups without columns"));
        };
        let (all, group) = (cells(batch.columns())?, cells(groups)?);
        for (row, time) in times(last)?.into_iter().enumerate() {
            // A table without rows is one group without rows.
            let Some(time_ns) = time else { break };
            let mut partition = b"[".to_vec();
            for cells in &group {
                if partition.len() > 1 {
                    partition.push(b',');
                }
                cells.push_json(&mut partition, row, TimeText::Rfc3339);
            }
            partition.push(b']');
            let partition = String::from_utf8_lossy(&partition).into_owned();
            newest.insert(partition.clone(), time_ns);
            let first = Position { time_ns, skip: 0 };
            matches.push(Match {
                key: Key { partition, first },
                last_ns: time_ns,
                decided_ns: time_ns.saturating_add(for_ns),
                next: first,
                row: object(names.iter().zip(&all), row),
            });
        }
    }
    let bounds = Bounds {
        within_ns: for_ns,
        corrections_ns: 0,
        absence: true,
    };
    let round = Round {
        now_ns,
        watermark_ns: now_ns,
        is_quiet: false,
        matches,
        newest,
    };
    Ok((bounds, round))
}
