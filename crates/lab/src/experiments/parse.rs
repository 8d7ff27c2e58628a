//! Line protocol: our parser beside the published one (`influxdb-line-protocol`), over text in
//! memory.
//!
//! Our parser ends with columns per stream, ready to be stored. The other one ends with lines whose
//! parts are still text and numbers; storing them requires columns, so that conversion is measured
//! too, with a map of streams by their text.

use crate::harness::{
    Bench, Bound, Candidate, Common, Failure, Random, Rounds, Targets, time_round, turns,
};
use crate::table;
use headwater::Timestamp;
use headwater_wire::lineprotocol::{LineParser, ParserOptions};
use influxdb_line_protocol::{FieldValue, ParsedLine, parse_lines};
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::Write as _;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Lines of each text.
    #[arg(long, default_value_t = 500_000)]
    lines: u32,
}

const OURS: &str = "headwater, into columns";
const THEIRS: &str = "influxdb-line-protocol, lines only";
const THEIRS_COLUMNS: &str = "influxdb-line-protocol, into columns";
/// Bytes that are parsed at once, as a request body is.
const CHUNK_BYTES: usize = 1 << 20;

#[derive(Serialize)]
struct Measured {
    text: &'static str,
    bytes: usize,
    rounds: Vec<Rounds>,
}

#[derive(Serialize)]
struct Results {
    lines: u32,
    texts: Vec<Measured>,
}

/// Ten devices' values of one field, as a small sensor sends them.
fn narrow(lines: u32) -> String {
    let mut dice = Random::new(1);
    let mut out = String::new();
    for line in 0..lines {
        let time = 1_700_000_000_000_000_000 + u64::from(line) * 1_000_000;
        let (whole, rest) = (dice.below(1_000), dice.below(100));
        let _ = writeln!(
            out,
            "pump,id=p{} pressure={whole}.{rest:02} {time}",
            line % 10
        );
    }
    out
}

/// Ten fields of a hundred hosts with five tags each, as an agent for servers sends them.
fn wide(lines: u32) -> String {
    let mut dice = Random::new(2);
    let mut out = String::new();
    for line in 0..lines {
        let host = line % 100;
        let time = 1_700_000_000_000_000_000 + u64::from(line / 100) * 10_000_000_000;
        let _ = write!(
            out,
            "cpu,host=host_{host},region=eu-central-1,rack={},os=Ubuntu\\ 22.04,team=CHI ",
            host % 20
        );
        for field in 0..10 {
            let comma = if field == 0 { "" } else { "," };
            let _ = write!(out, "{comma}usage_{field}={}i", dice.below(100));
        }
        let _ = writeln!(out, " {time}");
    }
    out
}

/// The parts of a text, each whole lines.
fn chunks(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = text;
    while rest.len() > CHUNK_BYTES {
        // The texts are ASCII.
        let (front, _) = rest.split_at(CHUNK_BYTES);
        let end = front.rfind('\n').map_or(CHUNK_BYTES, |at| at + 1);
        let (part, behind) = rest.split_at(end);
        out.push(part);
        rest = behind;
    }
    out.push(rest);
    out
}

fn ours(parts: &[&str]) -> Result<usize, Failure> {
    let mut parser = LineParser::new(ParserOptions::new(Timestamp::from_nanos(0)));
    let mut rows = 0;
    for part in parts {
        let parsed = parser.parse(part.as_bytes(), 1);
        if parsed.refused_counts.total() > 0 {
            return Err("a line was refused".into());
        }
        rows += parsed.batch.row_count();
    }
    Ok(rows)
}

fn theirs(parts: &[&str]) -> Result<usize, Failure> {
    let mut rows = 0;
    for part in parts {
        for line in parse_lines(part) {
            let line = line.map_err(|e| e.to_string())?;
            rows += usize::from(!line.field_set.is_empty());
        }
    }
    Ok(rows)
}

/// Columns of one stream, by the names of its fields.
#[derive(Default)]
struct Columns {
    times: Vec<i64>,
    fields: Vec<(String, Vec<f64>)>,
}

impl Columns {
    fn push(&mut self, line: &ParsedLine<'_>) -> Result<(), Failure> {
        self.times.push(line.timestamp.unwrap_or(0));
        for (at, (name, value)) in line.field_set.iter().enumerate() {
            let value = match value {
                FieldValue::F64(v) => *v,
                FieldValue::I64(v) => f64::from(i32::try_from(*v)?),
                _ => return Err("a value of another type than the texts have".into()),
            };
            let known = self
                .fields
                .get(at)
                .is_some_and(|(n, _)| *name == n.as_str());
            if !known {
                self.fields.push((name.to_string(), Vec::new()));
            }
            if let Some((_, values)) = self.fields.get_mut(at) {
                values.push(value);
            }
        }
        Ok(())
    }
}

fn theirs_in_columns(parts: &[&str]) -> Result<usize, Failure> {
    let mut rows = 0;
    for part in parts {
        let mut streams: HashMap<String, Columns> = HashMap::new();
        let mut name = String::new();
        for line in parse_lines(part) {
            let line = line.map_err(|e| e.to_string())?;
            name.clear();
            let _ = write!(name, "{}", line.series.measurement);
            for (key, value) in line.series.tag_set.iter().flatten() {
                let _ = write!(name, ",{key}={value}");
            }
            match streams.get_mut(&name) {
                Some(columns) => columns.push(&line)?,
                None => streams.entry(name.clone()).or_default().push(&line)?,
            }
        }
        rows += streams.values().map(|c| c.times.len()).sum::<usize>();
    }
    Ok(rows)
}

type Parse = fn(&[&str]) -> Result<usize, Failure>;

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::new("parse", &arguments.common)?;
    let mut texts = Vec::new();
    for (what, text) in [
        ("one float, one tag", narrow(arguments.lines)),
        ("ten integers, five tags", wide(arguments.lines)),
    ] {
        let parts = chunks(&text);
        let candidates: [(&str, Parse); 3] = [
            (OURS, ours),
            (THEIRS, theirs),
            (THEIRS_COLUMNS, theirs_in_columns),
        ];
        let candidates = candidates.map(|(name, parse)| {
            let (parts, lines) = (&parts, arguments.lines);
            Candidate::new(name, move |_| {
                time_round(|| match parse(parts)? {
                    rows if u32::try_from(rows) == Ok(lines) => Ok(lines.into()),
                    rows => Err(format!("{rows} rows of {lines} lines").into()),
                })
            })
        });
        texts.push(Measured {
            text: what,
            bytes: text.len(),
            rounds: turns(bench.rounds(), candidates.into())?,
        });
    }
    let mut targets = Targets::default();
    for measured in &texts {
        let bytes = f64::from(u32::try_from(measured.bytes)?);
        let per_line = bytes / f64::from(arguments.lines.max(1));
        let rows: Vec<Vec<String>> = measured
            .rounds
            .iter()
            .map(|r| {
                vec![
                    r.name.clone(),
                    format!("{:.2}", r.per_second() / 1e6),
                    format!("{:.0}", r.per_second() * per_line / 1e6),
                    r.spread(),
                ]
            })
            .collect();
        println!("{}", measured.text);
        table::print(&["parser", "million lines/s", "MB/s", "spread"], &rows);
        println!();
        if let [ours, _, columns] = measured.rounds.as_slice() {
            targets.add(
                format!("{}: faster than the published parser", measured.text),
                Bound::AtLeast(1.0),
                " ×",
                columns.times_of(ours),
            );
        }
    }
    let results = Results {
        lines: arguments.lines,
        texts,
    };
    bench.finish(&results, &targets)
}
