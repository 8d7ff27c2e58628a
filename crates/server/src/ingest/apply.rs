//! One body: unpacked, parsed, and written to the database.

use super::{IngestContext, Limits, Refusals, WriteRequest, unpack};
use crate::access::Access;
use crate::error::ApiError;
use crate::live::News;
use axum::http::StatusCode;
use headwater::{Batch, Error, ErrorKind, Refused, Ticket};
use headwater_ask::{Names, Space};
use headwater_wire::ParsedBatch;
use headwater_wire::lineprotocol::{LineParser, Precision};

/// A text that is written as one batch. Values take up at most four times their text in memory, so
/// a part stays far below the largest batch.
pub(crate) const PART_BYTES: usize = 2 << 20;

/// 1971: devices did not measure in that year, but a timestamp in a smaller unit than stated falls
/// before it.
const IMPLAUSIBLE_BEFORE_NS: i64 = 365 * 86_400 * 1_000_000_000;

/// Part in flight, and the values to deliver to listeners when the part is durable.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) ticket: Ticket,
    pub(crate) news: Option<News>,
}

/// Outcome of a body, which is acknowledged when all its parts are.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) parts: Vec<Pending>,
    /// Lines stored.
    pub(crate) stored: u64,
    /// Values of the stored lines.
    pub(crate) values: u64,
    /// Stored lines that replaced values of other lines in the request.
    pub(crate) replaced: u64,
    pub(crate) refusals: Refusals,
    /// No row was stored because a part was refused, as the request demanded.
    pub(crate) is_abandoned: bool,
    /// Done, but probably not intended.
    pub(crate) warning: Option<String>,
}

/// Terms of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    /// Streams that may be written; `None` = all, for writes of the server's operator.
    pub(crate) access: Option<&'a Access>,
    /// Store the good rows although others are refused.
    pub(crate) accept_partial: bool,
    /// Producer of the batch, and its number there.
    pub(crate) producer: Option<(&'a str, u64)>,
}

/// Writes one body.
pub(super) fn apply(
    context: &IngestContext,
    limits: &Limits,
    parser: &mut LineParser,
    request: &WriteRequest,
) -> Result<Outcome, ApiError> {
    let text = unpack::unpack(&request.body, request.encoding, limits.body_max)?;
    let options = parser.options_mut();
    options.now = context.clock.now();
    options.precision = request.precision;
    let mut outcome = Outcome::default();
    // A numbered batch, or one that is stored as a whole, is one record of the log.
    let is_one = request.producer.is_some() || !request.accept_partial;
    let mut part_bytes = if is_one { text.len() } else { PART_BYTES };
    let mut rest = &*text;
    let mut next_line = 1;
    let mut newest = i64::MIN;
    let mut error = None;
    while !rest.is_empty() {
        let part = rest.get(..part_bytes).unwrap_or(rest);
        let is_last = part.len() == rest.len();
        let (mut parsed, taken) = parser.parse_part(part, next_line, is_last);
        if taken == 0 {
            // A line longer than the part.
            part_bytes = part_bytes.saturating_mul(2);
            continue;
        }
        next_line += parsed.line_count;
        rest = rest.get(taken..).unwrap_or_default();
        let times = parsed.batch.entries().iter().flat_map(|e| &e.times);
        newest = times.fold(newest, |newest, time| newest.max(*time));
        if request.space != Space::Main {
            parsed.batch = in_database(parsed.batch, &request.space);
        }
        if let Err(failed) = hand_in(context, request.terms(), parsed, &mut outcome) {
            error = Some(write_error(failed));
            break;
        }
    }
    if let Some(first) = request.first_write.as_ref().filter(|_| outcome.stored > 0) {
        first.stored();
    }
    outcome.refusals.finish(&text);
    if let Some(error) = error {
        return Err(error);
    }
    outcome.warning = implausible(request.precision, newest);
    Ok(outcome)
}

/// The rows in the tables of a database that is not the main one.
fn in_database(batch: Batch, space: &Space) -> Batch {
    let mut placed = Batch::new();
    for mut rows in batch.into_entries() {
        rows.name = rows.name.in_table(Names::table(space, rows.name.table()));
        placed.push(rows);
    }
    placed
}

/// Passes one part to the engine. Adds refusals and pending acknowledgements to the outcome.
///
/// # Errors
/// Errors of the engine; no row of this part is stored then.
pub(crate) fn hand_in(
    context: &IngestContext,
    terms: Terms<'_>,
    parsed: ParsedBatch,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    let ParsedBatch {
        mut batch,
        mut lines,
        refused,
        refused_counts,
        ..
    } = parsed;
    outcome.refusals.parsed(refused, &refused_counts);
    if let Some(access) = terms.access.filter(|access| !access.writes_all()) {
        (batch, lines) = allowed(batch, lines, access, &mut outcome.refusals);
    }
    if !terms.accept_partial {
        batch.require_all();
        if !outcome.refusals.is_empty() {
            outcome.is_abandoned = true;
            return Ok(());
        }
    }
    if batch.is_empty() {
        return Ok(());
    }
    if let Some((name, number)) = terms.producer {
        batch.set_producer(name, number);
    }
    let rows = batch.row_count() as u64;
    let mut news = context.live.select(batch.entries());
    let ticket = context.db.write(batch)?;
    if ticket.is_repeated() {
        news = None;
    }
    for Refused {
        entry,
        row,
        code,
        message,
    } in ticket.refused()
    {
        let line = lines.get(*entry).and_then(|l| l.get(*row)).copied();
        outcome
            .refusals
            .later(line.unwrap_or_default(), code, || message.clone());
    }
    let refused = ticket.refused().len() as u64;
    if !terms.accept_partial && refused > 0 {
        outcome.is_abandoned = true;
        news = None;
    } else {
        outcome.stored += rows - refused;
        outcome.values += ticket.values();
        outcome.replaced += ticket.replaced();
    }
    outcome.parts.push(Pending { ticket, news });
    Ok(())
}

/// Rows of a batch that may be written; the rest is refused.
fn allowed(
    batch: Batch,
    lines: Vec<Vec<u64>>,
    access: &Access,
    refusals: &mut Refusals,
) -> (Batch, Vec<Vec<u64>>) {
    let mut kept = (Batch::new(), Vec::with_capacity(lines.len()));
    for (rows, lines) in batch.into_entries().into_iter().zip(lines) {
        if access.may_write_stream(&rows.name) {
            kept.0.push(rows);
            kept.1.push(lines);
            continue;
        }
        for line in lines {
            refusals.later(line, "E_ACCESS", || {
                format!(
                    "this token may not write {}: none of its rules allows it; use a token with \
                     such a rule (`headwater token create`)",
                    rows.name
                )
            });
        }
    }
    kept
}

pub(crate) fn write_error(error: Error) -> ApiError {
    match error.kind() {
        // The parser builds well-formed batches, so only their size can be refused.
        ErrorKind::Invalid => ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "E_LIMIT_BATCH",
            error.to_string(),
        ),
        _ => error.into(),
    }
}

/// Warning for a client whose timestamps seem to be in another unit than stated.
fn implausible(precision: Precision, newest: i64) -> Option<String> {
    let unit = match precision {
        Precision::Auto => return None,
        Precision::Nanoseconds => "ns",
        Precision::Microseconds => "us",
        Precision::Milliseconds => "ms",
        Precision::Seconds => "s",
        Precision::Minutes => "m",
        Precision::Hours => "h",
    };
    (0..IMPLAUSIBLE_BEFORE_NS).contains(&newest).then(|| {
        format!("all timestamps lie in 1970: is their unit really {unit}? precision=auto infers it from their size")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_given_unit_is_doubted() {
        let second_as_ns = 1_700_000_000;
        assert!(implausible(Precision::Nanoseconds, second_as_ns).is_some());
        assert!(implausible(Precision::Auto, second_as_ns).is_none());
        let right = 1_700_000_000_000_000_000;
        assert!(implausible(Precision::Nanoseconds, right).is_none());
        // Without stored rows, or with times before 1970, the unit cannot be judged.
        assert!(implausible(Precision::Nanoseconds, i64::MIN).is_none());
    }
}
