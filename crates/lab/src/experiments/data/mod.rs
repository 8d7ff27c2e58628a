//! Each file of real data: import speed, bytes per event beside Parquet, write amplification.
//!
//! A file is decompressed into memory first. Then, for every run, it is written to a new database
//! in batches of 1,000 rows with one ticket in flight and `Durability::Synced`; the database is
//! flushed, measured, compacted, measured again, checked and removed. The rows of the first run are
//! written as Parquet too.

use crate::harness::{Bound, Targets};
use crate::{machine, table};
use headwater::{Database, Duplicates, Options, Stats, TableSpec, Values};
use headwater_wire::csv::{CsvOptions, CsvParser};
use serde::Serialize;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

mod parquet;

type Failure = Box<dyn std::error::Error>;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where the files are; those that are not there are left out.
    #[arg(long, default_value = "data")]
    dir: PathBuf,
    /// Where databases are made; a folder of its own is made in it and removed.
    #[arg(long, default_value = "/tmp")]
    scratch: PathBuf,
    /// Only this file, by its name without ending; may be repeated.
    #[arg(long)]
    only: Vec<String>,
    /// Runs of each file.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Write the results as JSON too.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A file, and the use of its columns.
struct Source {
    file: &'static str,
    time: &'static str,
    tags: &'static [&'static str],
    null: Option<&'static str>,
}

const SOURCES: [Source; 11] = [
    Source {
        file: "weather_nyc_2013",
        time: "epoch_ms:ms",
        tags: &["origin"],
        null: Some("NA"),
    },
    Source {
        file: "obd_seat_leon_2017",
        time: "epoch_ms:ms",
        tags: &["drive"],
        null: None,
    },
    Source {
        file: "obd_seat_leon_2018",
        time: "epoch_ms:ms",
        tags: &["drive"],
        null: None,
    },
    Source {
        file: "phones_umts_d1_d5",
        time: "S.Client.Detection.Time:ms",
        tags: &["S.Session.Name", "S.Device.ID"],
        null: Some("NA"),
    },
    Source {
        file: "lorawan_helium_ems",
        time: "hotspot.reported_at:ms",
        tags: &["dev_eui"],
        null: None,
    },
    Source {
        file: "lorawan_helium_ftd",
        time: "hotspot.reported_at:ms",
        tags: &["dev_eui"],
        null: None,
    },
    Source {
        file: "lorawan_helium_imst",
        time: "hotspot.reported_at:ms",
        tags: &["dev_eui"],
        null: None,
    },
    Source {
        file: "balloon_loggers",
        time: "epoch_ms_logger:ms",
        tags: &["logger"],
        null: None,
    },
    Source {
        file: "nab_real",
        time: "epoch_ms:ms",
        tags: &["series"],
        null: None,
    },
    Source {
        file: "usgs_quakes_2020_snapshots",
        time: "time:rfc3339",
        tags: &["net"],
        null: None,
    },
    Source {
        file: "usgs_quakes_2025_snapshots",
        time: "time:rfc3339",
        tags: &["net"],
        null: None,
    },
];

#[derive(Serialize)]
struct Report {
    machine: machine::Machine,
    runs: usize,
    files: Vec<Results>,
    targets: Targets,
}

#[derive(Serialize)]
struct Results {
    file: &'static str,
    events: u64,
    streams: u64,
    fields: usize,
    /// Values that are there.
    values: u64,
    csv_bytes: usize,
    rows_per_second: f64,
    values_per_second: f64,
    /// The slowest and the fastest run, from the median.
    spread_percent: (f64, f64),
    cpu_seconds_per_million_values: f64,
    bytes_per_event: f64,
    bytes_per_event_compacted: f64,
    parquet_bytes_per_event: f64,
    /// Text in the rows, of all bytes of values and times.
    text_percent: f64,
    wa_events: f64,
    wa_bytes: f64,
    /// Bytes written before compaction, by kind, and bytes accepted.
    bytes_log: u64,
    bytes_leaf: u64,
    bytes_index: u64,
    bytes_meta: u64,
    bytes_accepted: u64,
    sync_median_us: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let scratch = arguments
        .scratch
        .join(format!("headwater-lab-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let machine = machine::Machine::look(&scratch)?;
    println!("{machine}\n");
    let mut all = Vec::new();
    let is_wanted =
        |s: &&Source| arguments.only.is_empty() || arguments.only.iter().any(|name| name == s.file);
    for source in SOURCES.iter().filter(is_wanted) {
        let path = arguments.dir.join(format!("{}.csv.gz", source.file));
        if !path.exists() {
            eprintln!("{} is not there: left out", path.display());
            continue;
        }
        all.push(measure(source, &path, &scratch, arguments.runs.max(1))?);
        eprintln!("{} done", source.file);
    }
    std::fs::remove_dir_all(&scratch)?;
    if all.is_empty() {
        return Err("there is no such file".into());
    }
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    table::print(
        &[
            "file",
            "events",
            "fields",
            "rows/s",
            "spread",
            "million values/s",
            "CPU s per million values",
            "bytes/event",
            "compacted",
            "Parquet + zstd",
            "text",
            "CSV bytes/event",
            "WA events",
            "WA bytes",
            "sync median",
        ],
        &rows,
    );
    let targets = judge(&all);
    targets.print();
    if let Some(path) = &arguments.json {
        let report = Report {
            machine,
            runs: arguments.runs.max(1),
            files: all,
            targets,
        };
        std::fs::write(path, serde_json::to_string_pretty(&report)?)?;
    }
    Ok(())
}

/// Text makes up more than this of files in which strings dominate.
const TEXT_PERCENT: f64 = 50.0;

fn judge(files: &[Results]) -> Targets {
    let mut targets = Targets::default();
    for file in files {
        let text = file.text_percent > TEXT_PERCENT;
        let kind = if text { "mostly text" } else { "numeric" };
        targets.add(
            format!("{} ({kind}): bytes per event, of Parquet + zstd", file.file),
            Bound::AtMost(if text { 1.2 } else { 1.0 }),
            " ×",
            file.bytes_per_event_compacted / file.parquet_bytes_per_event.max(f64::MIN_POSITIVE),
        );
    }
    targets
}

fn row(results: &Results) -> Vec<String> {
    vec![
        results.file.to_owned(),
        results.events.to_string(),
        results.fields.to_string(),
        format!("{:.0}", results.rows_per_second),
        format!(
            "{:+.0} % … {:+.0} %",
            results.spread_percent.0, results.spread_percent.1
        ),
        format!("{:.2}", results.values_per_second / 1e6),
        format!("{:.3}", results.cpu_seconds_per_million_values),
        format!("{:.2}", results.bytes_per_event),
        format!("{:.2}", results.bytes_per_event_compacted),
        format!("{:.2}", results.parquet_bytes_per_event),
        format!("{:.0} %", results.text_percent),
        format!(
            "{:.1}",
            results.csv_bytes as f64 / results.events.max(1) as f64
        ),
        format!("{:.3}", results.wa_events),
        format!("{:.3}", results.wa_bytes),
        format!("{:.0} µs", results.sync_median_us),
    ]
}

struct ImportRun {
    rows_per_second: f64,
    cpu_seconds: f64,
    values: u64,
    fields: usize,
    flushed: Stats,
    compacted: Stats,
    text_bytes: u64,
    /// Size as Parquet, of the first run only.
    parquet_bytes: Option<u64>,
}

fn measure(source: &Source, path: &Path, scratch: &Path, runs: usize) -> Result<Results, Failure> {
    let mut csv = Vec::new();
    flate2::read::MultiGzDecoder::new(std::fs::File::open(path)?).read_to_end(&mut csv)?;
    let mut results = Vec::new();
    for number in 0..runs {
        results.push(one_run(
            source,
            &csv,
            &scratch.join(format!("{}-{number}", source.file)),
            number == 0,
        )?);
    }
    let (rows_per_second, least, most) =
        table::median(results.iter().map(|r| r.rows_per_second).collect());
    let cpu = table::median(
        results
            .iter()
            .map(|r| r.cpu_seconds * 1e6 / r.values.max(1) as f64)
            .collect(),
    )
    .0;
    let sync = table::median(
        results
            .iter()
            .map(|r| r.flushed.log_sync_median.as_secs_f64() * 1e6)
            .collect(),
    )
    .0;
    let Some(last) = results.last() else {
        return Err("no run".into());
    };
    Ok(Results {
        file: source.file,
        events: last.flushed.events,
        streams: last.flushed.streams,
        fields: last.fields,
        values: last.values,
        csv_bytes: csv.len(),
        rows_per_second,
        values_per_second: rows_per_second * last.values as f64 / last.flushed.events.max(1) as f64,
        spread_percent: (least, most),
        cpu_seconds_per_million_values: cpu,
        bytes_per_event: last.flushed.bytes_per_event(),
        bytes_per_event_compacted: last.compacted.bytes_per_event(),
        parquet_bytes_per_event: results.iter().find_map(|r| r.parquet_bytes).unwrap_or(0) as f64
            / last.flushed.events.max(1) as f64,
        text_percent: last.text_bytes as f64 * 100.0 / last.flushed.bytes_accepted.max(1) as f64,
        wa_events: last.flushed.wa_events(),
        wa_bytes: last.flushed.wa_bytes(),
        bytes_log: last.flushed.bytes_log,
        bytes_leaf: last.flushed.bytes_leaf,
        bytes_index: last.flushed.bytes_index,
        bytes_meta: last.flushed.bytes_meta,
        bytes_accepted: last.flushed.bytes_accepted,
        sync_median_us: sync,
    })
}

fn one_run(
    source: &Source,
    csv: &[u8],
    dir: &Path,
    with_parquet: bool,
) -> Result<ImportRun, Failure> {
    let db = Database::open(Options::new(dir))?;
    db.create_table(&TableSpec {
        duplicates: Duplicates::Keep,
        ..TableSpec::new("t")
    })?;
    let mut options = CsvOptions::new("t", source.time);
    options.tags = source.tags.iter().map(|t| (*t).to_owned()).collect();
    options.null_texts = source.null.iter().map(|n| (*n).to_owned()).collect();
    let (start, cpu) = (Instant::now(), machine::cpu_seconds());
    let mut parser = CsvParser::new(csv, options)?;
    let (mut rows, mut values, mut text_bytes) = (0u64, 0u64, 0u64);
    let mut flying = None;
    while let Some(parsed) = parser.next_batch(1000)? {
        if let Some(refused) = parsed.refused.first() {
            return Err(format!(
                "{}: line {}: {}",
                source.file, refused.line, refused.message
            )
            .into());
        }
        for entry in parsed.batch.entries() {
            for (_, column) in &entry.fields {
                values += column.present_count() as u64;
                if let Values::String(text) = column.values() {
                    text_bytes += text.bytes().len() as u64;
                }
            }
        }
        let ticket = db.write(parsed.batch)?;
        if let Some(before) = flying.replace(ticket) {
            rows += wait(before)?;
        }
    }
    if let Some(last) = flying {
        rows += wait(last)?;
    }
    db.flush()?;
    let rows_per_second = rows as f64 / start.elapsed().as_secs_f64();
    let cpu_seconds = machine::cpu_seconds() - cpu;
    let flushed = db.stats()?;
    db.compact()?;
    let compacted = db.stats()?;
    let mut parquet_bytes = None;
    if with_parquet {
        let (bytes, written) = parquet::size_of(&db, "t")?;
        if written != rows {
            return Err(format!("{}: {written} rows in Parquet, not {rows}", source.file).into());
        }
        parquet_bytes = Some(bytes);
    }
    let fields = db.tables().first().map_or(0, |t| t.fields.len());
    db.close()?;
    drop(db);
    let report = headwater::check(Options::new(dir))?;
    if !report.is_sound() {
        return Err(format!("{}: {:?}", source.file, report.damages.first()).into());
    }
    std::fs::remove_dir_all(dir)?;
    Ok(ImportRun {
        rows_per_second,
        cpu_seconds,
        values,
        fields,
        flushed,
        compacted,
        text_bytes,
        parquet_bytes,
    })
}

fn wait(ticket: headwater::Ticket) -> Result<u64, Failure> {
    let written = ticket.wait()?;
    match written.refused.first() {
        Some(refused) => Err(refused.message.clone().into()),
        None => Ok(written.accepted),
    }
}
