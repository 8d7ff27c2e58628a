//! Aggregates of channels over a range, whole or in bins.
//!
//! Invariant: an answer has at most [`BINS_MAX`] bins over all channels.

use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::request::{self, Deadline, Form, answer, not_found, now, ok_if_found, query, too_much};
use crate::routes::{Needs, Route};
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use headwater::{AggregateSpec, Bin, Bins, ClosedRange, Snapshot, StreamHandle};
use headwater_wire::channel::Channel;
use headwater_wire::durations::parse_duration_ns;
use headwater_wire::json::{
    push_extreme, push_i64, push_integer_text, push_optional_f64, push_str, push_sum, push_u64,
    push_value,
};
use headwater_wire::query::{Query, QueryError};
use std::sync::Arc;

/// Bins of all channels together.
const BINS_MAX: i128 = 200_000;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/api/v1/aggregate", Needs::Read, aggregate)]
}

/// A column of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Mean,
    Min,
    Max,
    Count,
    First,
    Last,
    Stddev,
    Sum,
}

impl Function {
    const ALL: [(Function, &'static str); 8] = [
        (Function::Mean, "mean"),
        (Function::Min, "min"),
        (Function::Max, "max"),
        (Function::Count, "count"),
        (Function::First, "first"),
        (Function::Last, "last"),
        (Function::Stddev, "stddev"),
        (Function::Sum, "sum"),
    ];

    fn list(query: &Query) -> Result<Vec<Function>, ApiError> {
        let Some(names) = query.list("functions")? else {
            return Ok(vec![
                Function::Mean,
                Function::Min,
                Function::Max,
                Function::Count,
            ]);
        };
        let mut out = Vec::new();
        for name in &names {
            let Some((function, _)) = Function::ALL.iter().find(|(_, n)| n == name) else {
                let reason =
                    "expected mean, min, max, count, first, last, stddev or sum between commas";
                return Err(QueryError::value("functions", reason, name).into());
            };
            if !out.contains(function) {
                out.push(*function);
            }
        }
        Ok(out)
    }

    fn name(self) -> &'static str {
        Function::ALL
            .iter()
            .find(|(f, _)| *f == self)
            .map_or("", |(_, name)| name)
    }

    fn push(self, out: &mut Vec<u8>, bin: &Bin) {
        let a = &bin.aggregate;
        let ends = |out: &mut Vec<u8>, end: &Option<_>| match end {
            Some((_, value)) => push_value(out, headwater::Value::as_ref(value)),
            None => out.extend_from_slice(b"null"),
        };
        match self {
            Function::Mean => push_optional_f64(out, a.mean()),
            Function::Min => push_extreme(out, a.extremes, false),
            Function::Max => push_extreme(out, a.extremes, true),
            Function::Count => push_u64(out, a.count),
            Function::Stddev => push_optional_f64(out, a.stddev()),
            Function::First => ends(out, &bin.first),
            Function::Last => ends(out, &bin.last),
            Function::Sum => push_sum(out, a.sum()),
        }
    }
}

/// Division of the range.
#[derive(Clone, Copy, Debug)]
enum Division {
    Whole,
    Every(i64),
    Into(i64),
}

/// Non-empty bins of a channel, and their width in ns.
#[derive(Debug, Default)]
struct Divided {
    bins: Vec<Bin>,
    width: Option<i64>,
}

#[derive(Debug)]
struct AggregateRequest {
    channels: Vec<(String, Channel)>,
    range: ClosedRange,
    division: Division,
    functions: Vec<Function>,
    form: Form,
    /// The named snapshot to read; `None` = the present.
    past: Option<String>,
}

async fn aggregate(
    State(app): State<Arc<App>>,
    access: Access,
    uri: Uri,
) -> Result<Response, ApiError> {
    let asked = AggregateRequest::of(&uri)?;
    let form = asked.form;
    let (body, until) = app
        .blocking(move |app| {
            let deadline = Deadline::after(app.settings.request_timeout);
            let snapshot = app.snapshot_of(asked.past.as_deref())?;
            let handles = asked.handles(&snapshot, &access, deadline)?;
            let body = match asked.form {
                Form::Json => asked.json(&snapshot, &handles, deadline),
                Form::Csv => asked.csv(&snapshot, &handles, deadline),
            }?;
            let seen = handles.iter().flatten();
            let until = app.until(&snapshot, seen.map(|handle| (handle, asked.range)))?;
            Ok((body, until))
        })
        .await?;
    let content_type = match form {
        Form::Json => request::JSON,
        Form::Csv => request::CSV,
    };
    Ok(request::with_until(answer(content_type, body), until))
}

impl AggregateRequest {
    fn of(uri: &Uri) -> Result<AggregateRequest, ApiError> {
        let query = query(
            uri,
            &[
                "channel",
                "from",
                "to",
                "every",
                "bins",
                "functions",
                "format",
                "snapshot",
            ],
        )?;
        let channels = request::channels(&query)?;
        let division = match (query.one("every")?, query.number::<i64>("bins")?) {
            (None, None) => Division::Whole,
            (Some(every), None) => Division::Every(
                parse_duration_ns(every)
                    .map_err(|e| QueryError::value("every", e.to_string(), every))?,
            ),
            (None, Some(bins)) if bins > 0 => Division::Into(bins),
            (None, Some(bins)) => {
                return Err(
                    QueryError::value("bins", "expected 1 or more", &bins.to_string()).into(),
                );
            }
            (Some(every), Some(_)) => {
                let reason = "either `every` or `bins` divides the range, not both";
                return Err(QueryError::value("every", reason, every).into());
            }
        };
        Ok(AggregateRequest {
            channels,
            range: query.range(now())?,
            division,
            functions: Function::list(&query)?,
            form: Form::of(&query)?,
            past: request::past(&query)?,
        })
    }

    /// Looks up the stream of each channel; `None` when the channel is absent or not visible.
    fn handles(
        &self,
        snapshot: &Snapshot,
        access: &Access,
        deadline: Deadline,
    ) -> Result<Vec<Option<StreamHandle>>, ApiError> {
        let resolve = |(_, channel): &(String, Channel)| {
            deadline.check()?;
            let resolved = access.resolve(snapshot, &channel.stream, &channel.field)?;
            Ok(resolved.map(|(handle, _)| handle))
        };
        self.channels.iter().map(resolve).collect()
    }

    /// Bins of a channel; `None` when the channel is absent or not visible.
    fn bins(
        &self,
        snapshot: &Snapshot,
        handle: Option<&StreamHandle>,
        channel: &Channel,
    ) -> Result<Option<Divided>, ApiError> {
        let Some(handle) = handle else {
            return Ok(None);
        };
        let Some(info) = ok_if_found(handle.info(snapshot))? else {
            return Ok(None);
        };
        let extent = match (info.first, info.last) {
            (Some(first), Some(last)) => ClosedRange::new(first, last),
            _ => ClosedRange::EMPTY,
        };
        let range = match self.division {
            // Divides the requested range, as far as the request bounds it.
            Division::Into(_) => ClosedRange::new(
                if self.range.first == ClosedRange::ALL.first {
                    extent.first
                } else {
                    self.range.first
                },
                if self.range.last == ClosedRange::ALL.last {
                    extent.last
                } else {
                    self.range.last
                },
            ),
            Division::Every(_) | Division::Whole => self.range.intersect(&extent),
        };
        if range.is_empty() || extent.is_empty() {
            return Ok(Some(Divided::default()));
        }
        let length = i128::from(range.last.as_nanos()) - i128::from(range.first.as_nanos()) + 1;
        let bins = match self.division {
            Division::Whole => Bins::Whole,
            Division::Every(width_ns) => Bins::Every {
                width_ns,
                origin_ns: 0,
            },
            Division::Into(1) => Bins::Whole,
            Division::Into(count) => {
                // One less, since the range may begin within a bin.
                let count = i128::from(count - 1);
                let least = (length + count - 1) / count;
                Bins::Every {
                    width_ns: whole_width(least),
                    origin_ns: 0,
                }
            }
        };
        let width = match bins {
            Bins::Every { width_ns, .. } => Some(width_ns),
            _ => None,
        };
        let count = width.map_or(1, |w| length / i128::from(w) + 1);
        let most = BINS_MAX / self.channels.len() as i128;
        if count > most {
            return Err(too_much(format!(
                "`{channel}` would have {count} bins, at most {most} fit into an answer for {} channels: use wider bins or a shorter range",
                self.channels.len()
            )));
        }
        let first_last = self
            .functions
            .iter()
            .any(|f| matches!(f, Function::First | Function::Last));
        let spec = AggregateSpec {
            range,
            bins,
            first_last,
        };
        let bins = handle.aggregate(snapshot, &channel.field, &spec)?;
        Ok(Some(Divided { bins, width }))
    }

    fn json(
        &self,
        snapshot: &Snapshot,
        handles: &[Option<StreamHandle>],
        deadline: Deadline,
    ) -> Result<Vec<u8>, ApiError> {
        let mut out = Vec::with_capacity(4 * 1024);
        out.extend_from_slice(b"{\"channels\":[");
        for (index, ((text, channel), handle)) in self.channels.iter().zip(handles).enumerate() {
            deadline.check()?;
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(b"{\"channel\":");
            push_str(&mut out, text);
            let Some(Divided { bins, width }) = self.bins(snapshot, handle.as_ref(), channel)?
            else {
                out.extend_from_slice(
                    b",\"error\":{\"code\":\"E_NOT_FOUND\",\"message\":\"there is no such channel\"}}",
                );
                continue;
            };
            out.extend_from_slice(b",\"every\":");
            match width {
                Some(width) => push_integer_text(&mut out, width),
                None => out.extend_from_slice(b"null"),
            }
            column(&mut out, "time", &bins, |out, bin| {
                push_integer_text(out, bin.start.as_nanos());
            });
            for function in &self.functions {
                column(&mut out, function.name(), &bins, |out, bin| {
                    function.push(out, bin);
                });
            }
            out.push(b'}');
        }
        out.extend_from_slice(b"]}");
        Ok(out)
    }

    fn csv(
        &self,
        snapshot: &Snapshot,
        handles: &[Option<StreamHandle>],
        deadline: Deadline,
    ) -> Result<Vec<u8>, ApiError> {
        let mut out = b"time,channel".to_vec();
        for function in &self.functions {
            out.push(b',');
            out.extend_from_slice(function.name().as_bytes());
        }
        out.push(b'\n');
        for ((text, channel), handle) in self.channels.iter().zip(handles) {
            deadline.check()?;
            let Some(Divided { bins, .. }) = self.bins(snapshot, handle.as_ref(), channel)? else {
                return Err(not_found("channel", text));
            };
            let name = format!("\"{}\"", text.replace('"', "\"\""));
            for bin in &bins {
                push_i64(&mut out, bin.start.as_nanos());
                out.push(b',');
                out.extend_from_slice(name.as_bytes());
                for function in &self.functions {
                    out.push(b',');
                    let from = out.len();
                    function.push(&mut out, bin);
                    in_csv(&mut out, from);
                }
                out.push(b'\n');
            }
        }
        Ok(out)
    }
}

/// Narrowest width of at least `least` ns that is 4 to 7 times a power of two seconds: bins that
/// begin at multiples of it are made of whole buckets of the pyramid, without rows at their ends.
/// Below some milliseconds such buckets do not exist.
fn whole_width(least: i128) -> i64 {
    const FINEST: i128 = 1_000_000_000 >> 9;
    let mut unit = FINEST;
    while unit * 7 < least {
        unit *= 2;
    }
    let width = if least < 4 * FINEST {
        least.max(1)
    } else {
        (least + unit - 1) / unit * unit
    };
    i64::try_from(width).unwrap_or(i64::MAX)
}

/// Makes a JSON value at the end of `out` a cell: empty for `null`, text with doubled quotes.
fn in_csv(out: &mut Vec<u8>, from: usize) {
    let cell = out.split_off(from);
    if cell == b"null" {
        return;
    }
    match serde_json::from_slice::<String>(&cell) {
        Ok(text) => {
            out.push(b'"');
            out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
            out.push(b'"');
        }
        Err(_) => out.extend_from_slice(&cell),
    }
}

fn column(out: &mut Vec<u8>, name: &str, bins: &[Bin], push: impl Fn(&mut Vec<u8>, &Bin)) {
    out.push(b',');
    push_str(out, name);
    out.extend_from_slice(b":[");
    for (index, bin) in bins.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push(out, bin);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_whole_and_at_most_a_quarter_wider() {
        assert_eq!(whole_width(10_000_000_000_000), 5 * 2_048 * 1_000_000_000);
        assert_eq!(whole_width(1), 1);
        assert_eq!(whole_width(i128::from(i64::MAX) * 2), i64::MAX);
        for shift in 0..62 {
            for least in [1i128 << shift, (1 << shift) + 1, (1 << shift) * 3 / 2 + 1] {
                let width = i128::from(whole_width(least));
                assert!(least <= width, "{least}: {width}");
                assert!(
                    width * 4 <= least * 5 + 4 || width == i128::from(i64::MAX),
                    "{least}: {width}"
                );
                let unit = (1..=7).find_map(|m| {
                    (width % m == 0).then(|| width / m).filter(|u| {
                        u % (1_000_000_000 >> 9) == 0
                            && (u / (1_000_000_000 >> 9)).count_ones() == 1
                    })
                });
                assert!(unit.is_some() || least < 8_000_000, "{least}: {width}");
            }
        }
    }
}
