//! Points as JSON: one object, or an array of them.
//!
//! Invariant: the boundaries of the points of a body are found without parsing them, so that each
//! point is parsed separately, and refused separately.

use super::VALUE;
use crate::ParsedBatch;
use crate::refusal::{Fault, RefusalCode, shown};
use headwater_types::{Batch, Column, StreamName, StreamRows, Values};
use serde::Deserialize;
use serde_json::{Number, Value};
use std::collections::{BTreeMap, HashMap};

/// A body that is not a list of points.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PointsError {
    /// Neither an object nor an array.
    #[error("expected a point as a JSON object, or an array of them, found {0}")]
    Shape(String),
    /// The array is not closed, or other text is between its points.
    #[error(
        "the array of points is malformed at byte {0}: expected points with commas between them, and a closing ]"
    )]
    Broken(usize),
}

/// The texts of the points of a body, in order.
///
/// ```
/// let body = br#"[{"metric":"m"}, {"a":[1,2]}]"#;
/// let points = headwater_wire::opentsdb::points(body).unwrap();
/// assert_eq!(points, [&br#"{"metric":"m"}"#[..], br#"{"a":[1,2]}"#]);
/// ```
///
/// # Errors
/// When the body is neither an object nor an array of values.
pub fn points(body: &[u8]) -> Result<Vec<&[u8]>, PointsError> {
    let trimmed = body.trim_ascii();
    match trimmed.first() {
        Some(b'{') => return Ok(vec![trimmed]),
        Some(b'[') => {}
        _ => return Err(PointsError::Shape(shown(trimmed))),
    }
    // Offset of `trimmed` in the body.
    let skipped = body.len() - body.trim_ascii_start().len();
    let broken = |at: usize| PointsError::Broken(skipped + at);
    let mut out = Vec::new();
    let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
    let mut start = 1;
    for (at, byte) in trimmed.iter().enumerate() {
        if in_text {
            in_text = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
            continue;
        }
        let ends = match byte {
            b'"' => {
                in_text = true;
                false
            }
            b'{' | b'[' => {
                depth += 1;
                false
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1).ok_or_else(|| broken(at))?;
                depth == 0
            }
            b',' => depth == 1,
            _ => false,
        };
        if !ends {
            continue;
        }
        let point = trimmed.get(start..at).unwrap_or_default().trim_ascii();
        let is_last = *byte != b',';
        if !point.is_empty() {
            out.push(point);
        } else if !is_last || !out.is_empty() {
            return Err(broken(at));
        }
        if is_last {
            if *byte != b']' || at + 1 != trimmed.len() {
                return Err(broken(at));
            }
            return Ok(out);
        }
        start = at + 1;
    }
    Err(broken(trimmed.len()))
}

#[derive(Deserialize)]
struct Written {
    metric: String,
    timestamp: Value,
    value: Value,
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

/// Parses points; the line number of an outcome is the number of the point, from 1.
///
/// ```
/// let body = br#"{"metric":"sys.load","timestamp":1700000000,"value":0.5,"tags":{"host":"a"}}"#;
/// let parsed = headwater_wire::opentsdb::parse_points(&headwater_wire::opentsdb::points(body).unwrap());
/// assert_eq!(parsed.batch.entries()[0].name.to_string(), "sys.load,host=a");
/// assert_eq!(parsed.batch.entries()[0].times, [1_700_000_000_000_000_000]);
/// ```
#[must_use]
pub fn parse_points(points: &[&[u8]]) -> ParsedBatch {
    let mut out = ParsedBatch {
        line_count: points.len() as u64,
        ..ParsedBatch::default()
    };
    let mut streams: Vec<(StreamName, Vec<Sample>)> = Vec::new();
    let mut by_name: HashMap<StreamName, usize> = HashMap::new();
    for (number, text) in (1u64..).zip(points) {
        match point(text) {
            Ok((name, time, value)) => {
                let at = *by_name.entry(name.clone()).or_insert(streams.len());
                if at == streams.len() {
                    streams.push((name, Vec::new()));
                }
                if let Some((_, samples)) = streams.get_mut(at) {
                    samples.push(Sample {
                        number,
                        time,
                        value,
                    });
                }
            }
            Err(fault) => out.refuse(number, fault, text),
        }
    }
    let mut batch = Batch::new();
    for (name, samples) in streams {
        let (times, column, lines) = columns(samples, points, &mut out);
        if !times.is_empty() {
            batch.push(StreamRows {
                name,
                times,
                fields: vec![(VALUE.to_owned(), column)],
            });
            out.lines.push(lines);
        }
    }
    out.batch = batch;
    out
}

struct Sample {
    number: u64,
    time: i64,
    value: Numeric,
}

#[derive(Clone, Copy, PartialEq)]
enum Numeric {
    Integer(i64),
    Float(f64),
}

/// Integers stay integers if all values are; otherwise all become floats, and integers that a float
/// cannot represent are refused.
fn columns(
    samples: Vec<Sample>,
    points: &[&[u8]],
    out: &mut ParsedBatch,
) -> (Vec<i64>, Column, Vec<u64>) {
    let (mut times, mut lines) = (Vec::new(), Vec::new());
    let are_integers = samples
        .iter()
        .all(|s| matches!(s.value, Numeric::Integer(_)));
    let (mut integers, mut floats) = (Vec::new(), Vec::new());
    for sample in samples {
        match sample.value {
            Numeric::Integer(v) if are_integers => integers.push(v),
            Numeric::Integer(v) if i128::from(v) != (v as f64) as i128 => {
                let text = usize::try_from(sample.number - 1)
                    .ok()
                    .and_then(|at| points.get(at));
                let message = format!(
                    "{v} cannot be stored exactly in a series with fractions: beyond 2^53 not every integer is a float"
                );
                let fault = Fault::new(RefusalCode::Type, message);
                out.refuse(sample.number, fault, text.copied().unwrap_or_default());
                continue;
            }
            Numeric::Integer(v) => floats.push(v as f64),
            Numeric::Float(v) => floats.push(v),
        }
        times.push(sample.time);
        lines.push(sample.number);
    }
    let values = if are_integers {
        Values::I64(integers)
    } else {
        Values::F64(floats)
    };
    (times, Column::from_values(values), lines)
}

fn point(text: &[u8]) -> Result<(StreamName, i64, Numeric), Fault> {
    let parse = |message: String| Fault::new(RefusalCode::Parse, message);
    let written: Written = serde_json::from_slice(text).map_err(|error| {
        parse(format!(
            "expected {{\"metric\":…,\"timestamp\":…,\"value\":…,\"tags\":{{…}}}}: {error}"
        ))
    })?;
    if written.metric.is_empty() {
        return Err(parse("the metric is empty".to_owned()));
    }
    if written.tags.keys().any(String::is_empty) {
        return Err(parse("a tag has an empty name".to_owned()));
    }
    let time = time(&written.timestamp)?;
    let value = value(&written.value)?;
    let tags = written.tags.into_iter().filter(|(_, v)| !v.is_empty());
    Ok((StreamName::new(written.metric, tags), time, value))
}

/// Seconds up to 32 bits, else milliseconds, as OpenTSDB distinguishes them.
fn time(written: &Value) -> Result<i64, Fault> {
    let number = match written {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    let unit = match number {
        Some(n) if n <= 0 => None,
        Some(n) if n <= i64::from(u32::MAX) => Some(1_000_000_000),
        Some(_) => Some(1_000_000),
        None => None,
    };
    number
        .zip(unit)
        .and_then(|(n, unit)| n.checked_mul(unit))
        .ok_or_else(|| {
            Fault::new(
                RefusalCode::Time,
                format!(
                    "expected a timestamp in whole seconds or milliseconds since 1970, above 0, found {written}"
                ),
            )
        })
}

fn value(written: &Value) -> Result<Numeric, Fault> {
    let wrong = || {
        let message = format!("expected a finite number as value, found {written}");
        Fault::new(RefusalCode::Parse, message)
    };
    match written {
        Value::Number(number) => numeric(number).ok_or_else(wrong),
        Value::String(text) => {
            let text = text.trim();
            if let Ok(v) = text.parse() {
                return Ok(Numeric::Integer(v));
            }
            let is_number = text.bytes().all(|b| b"+-.eE0123456789".contains(&b));
            match text.parse::<f64>() {
                Ok(v) if is_number && v.is_finite() && !is_whole(text) => Ok(Numeric::Float(v)),
                _ => Err(wrong()),
            }
        }
        _ => Err(wrong()),
    }
}

/// Digits only: an integer, though it may be too large.
fn is_whole(text: &str) -> bool {
    text.trim_start_matches(['+', '-'])
        .bytes()
        .all(|b| b.is_ascii_digit())
}

fn numeric(number: &Number) -> Option<Numeric> {
    if let Some(v) = number.as_i64() {
        return Some(Numeric::Integer(v));
    }
    if number.is_u64() {
        // Beyond the integers of OpenTSDB.
        return None;
    }
    number
        .as_f64()
        .filter(|v| v.is_finite())
        .map(Numeric::Float)
}
