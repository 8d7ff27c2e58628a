//! `headwater import`: files into a database, of this machine or of a server.
//!
//! One thread reads and parses, the other writes; several batches are on their way to the medium at
//! once.

#[cfg(feature = "sql")]
mod batches;
mod pipeline;
mod remote;
mod source;
mod summary;

use crate::arguments::{parse_delimiter, parse_duration};
use crate::failure::Failure;
use crate::store::TargetArgs;
use clap::{Args, ValueEnum};
use encoding_rs::Encoding;
use headwater::{Duplicates, Durability};
use headwater_wire::lineprotocol::Precision;
use std::path::PathBuf;
use std::time::Duration;

/// Import CSV, line protocol or JSON lines, plain, gzip or zstd; Parquet or Arrow
#[derive(Debug, Args)]
#[command(after_help = "\
Good lines are always stored. Refused ones are counted by reason, and the first ten are shown with their numbers.
The exit code is 0 when anything was stored, 1 when lines were refused and nothing was stored, or with --strict
when any line was refused. An empty cell is an absent value; once --null is given, it is an empty string in text columns.
A line of JSON is an object; a member within another one is named by its path, a.b. Its numbers are f64, unless the
table, --field or --type says otherwise, and null is no value.
Parquet and Arrow streams have types and absent values of their own; their times may be timestamps of any unit, or
integers and texts as FORMAT says. Their rows are named by their number, the first is 1.

Examples:
  headwater import --db ./data --table weather --time time_hour --tag origin --null NA weather.csv.gz
  headwater import --db ./data --table plant --time 'when:%d.%m.%Y %H:%M:%S@Europe/Berlin' --tag device plant.csv
  headwater import --db ./data --table plant --time 'Zeit:%d.%m.%Y %H:%M' --delimiter ';' --decimal-comma --encoding windows-1252 --skip 3 logger.csv
  headwater import --db ./data --format parquet --table weather --time time --tag origin weather.parquet
  headwater import --db ./data --format jsonl --table plant --time at --tag device --type count:i64 events.jsonl
  zcat points.lp.gz | headwater import --db ./data --format lp -
  headwater import --url http://127.0.0.1:7373 --table weather --time time_hour --tag origin weather.csv.gz")]
pub(crate) struct Import {
    #[command(flatten)]
    pub(super) target: TargetArgs,

    /// Format of the files
    #[arg(long, value_enum, default_value_t = FileFormat::Csv)]
    pub(super) format: FileFormat,

    /// Table to store into (not line protocol)
    #[arg(long, value_name = "NAME")]
    pub(super) table: Option<String>,

    /// Column of the time; FORMAT is s, ms, us, ns, rfc3339 or STRFTIME[@ZONE] (not line protocol)
    #[arg(long, value_name = "COLUMN[:FORMAT]")]
    pub(super) time: Option<String>,

    /// Column that names the device; may be repeated (not line protocol)
    #[arg(long = "tag", value_name = "COLUMN")]
    pub(super) tags: Vec<String>,

    /// Column to store; TYPE is f64, i64, u64, bool, string or bytes; none = every other column
    /// (not line protocol)
    #[arg(long = "field", value_name = "COLUMN[:TYPE]")]
    pub(super) fields: Vec<String>,

    /// Type of a column, without choosing the columns to store (not line protocol)
    #[arg(long = "type", value_name = "COLUMN:TYPE")]
    pub(super) types: Vec<String>,

    /// Text that stands for an absent value; may be repeated (CSV)
    #[arg(long = "null", value_name = "TEXT")]
    pub(super) null_texts: Vec<String>,

    /// Character between cells, or tab (CSV)
    #[arg(long, value_name = "CHAR", value_parser = parse_delimiter, default_value = ",")]
    pub(super) delimiter: u8,

    /// Lines before the header to skip (CSV)
    #[arg(long, value_name = "LINES", default_value_t = 0)]
    pub(super) skip: u64,

    /// Names of the columns, if the file has no header; with --skip 1 those of the header
    /// are replaced (CSV)
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(super) names: Vec<String>,

    /// Numbers have a decimal comma, as in 12,5 (CSV)
    #[arg(long)]
    pub(super) decimal_comma: bool,

    /// Encoding of the text, where it is not UTF-8: windows-1252, iso-8859-15, utf-16le … (CSV,
    /// JSON lines and line protocol)
    #[arg(long, value_name = "ENCODING", value_parser = parse_encoding)]
    pub(super) encoding: Option<&'static Encoding>,

    /// Unit of the timestamps: ns, us, ms, s, or auto = by the size of each (line protocol)
    #[arg(long, value_name = "UNIT", value_parser = parse_precision, default_value = "auto")]
    pub(super) precision: Precision,

    /// Rows of the same device and time: the last value of each field wins, or all are stored
    #[arg(long, value_enum)]
    pub(super) duplicates: Option<DuplicatesArg>,

    /// synced survives a power cut, written a crash of the program; 100ms = synced that often
    #[arg(long, value_name = "WHEN", value_parser = parse_durability, default_value = "synced")]
    pub(super) durability: Durability,

    /// Fail when any line is refused
    #[arg(long)]
    pub(super) strict: bool,

    /// Store nothing; show the types of the columns and the lines that would be refused
    #[arg(long)]
    pub(super) dry_run: bool,

    /// Files to import; - is stdin
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
}

/// Format of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileFormat {
    // Comma-separated values
    Csv,
    // InfluxDB line protocol
    Lp,
    // An object of JSON on each line
    Jsonl,
    // Arrow's stream format
    Arrow,
    // Parquet
    Parquet,
}

/// As [`Duplicates`], for the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DuplicatesArg {
    // The later write wins, field by field
    Last,
    // Both are kept
    Keep,
}

impl From<DuplicatesArg> for Duplicates {
    fn from(argument: DuplicatesArg) -> Self {
        match argument {
            DuplicatesArg::Last => Duplicates::Last,
            DuplicatesArg::Keep => Duplicates::Keep,
        }
    }
}

fn parse_encoding(text: &str) -> Result<&'static Encoding, String> {
    Encoding::for_label(text.as_bytes()).ok_or_else(|| {
        "expected the name of a WHATWG encoding, such as windows-1252 or utf-16le".to_owned()
    })
}

fn parse_precision(text: &str) -> Result<Precision, String> {
    Precision::from_name(text).ok_or_else(|| "expected ns, us, ms, s, m, h or auto".to_owned())
}

fn parse_durability(text: &str) -> Result<Durability, String> {
    match text {
        "synced" => Ok(Durability::Synced),
        "written" => Ok(Durability::Written),
        text => match parse_duration(text) {
            Ok(nanos) => Ok(Durability::Every(Duration::from_nanos(
                nanos.unsigned_abs(),
            ))),
            Err(_) => Err("expected synced, written or an interval such as 100ms".to_owned()),
        },
    }
}

impl Import {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.check_mapping()?;
        let summary = pipeline::run(&self)?;
        summary.print(self.dry_run);
        let is_failure = if self.strict {
            summary.refused() > 0
        } else {
            summary.refused() > 0 && summary.rows == 0
        };
        if is_failure {
            Err(Failure::Reported)
        } else {
            Ok(())
        }
    }

    /// Columns need a mapping, line protocol must not have one.
    fn check_mapping(&self) -> Result<(), Failure> {
        let name = match self.format {
            FileFormat::Lp => return self.check_no_mapping(),
            FileFormat::Csv => "CSV",
            FileFormat::Jsonl => "JSON",
            FileFormat::Arrow => "Arrow",
            FileFormat::Parquet => "Parquet",
        };
        if self.table.is_none() {
            return Err(Failure::usage(format!(
                "{name} needs --table NAME, the table to store into"
            )));
        }
        if self.time.is_none() {
            return Err(Failure::usage(format!(
                "{name} needs --time COLUMN[:FORMAT], the column that holds the time"
            )));
        }
        if self.format != FileFormat::Csv && !self.null_texts.is_empty() {
            return Err(Failure::usage(format!(
                "{name} has absent values of its own: leave out --null"
            )));
        }
        self.check_text(name)
    }

    /// Refuses options for text where the file is not text.
    fn check_text(&self, name: &str) -> Result<(), Failure> {
        let of_csv = [
            ("--skip", self.skip > 0),
            ("--names", !self.names.is_empty()),
            ("--decimal-comma", self.decimal_comma),
        ];
        let is_text = !matches!(self.format, FileFormat::Arrow | FileFormat::Parquet);
        let of_text = [("--encoding", self.encoding.is_some() && !is_text)];
        let of_csv = of_csv.map(|(flag, given)| (flag, given && self.format != FileFormat::Csv));
        match of_csv.into_iter().chain(of_text).find(|(_, given)| *given) {
            Some((flag, _)) => Err(Failure::usage(format!(
                "{flag} has no effect for {name}: leave it out"
            ))),
            None => Ok(()),
        }
    }

    fn check_no_mapping(&self) -> Result<(), Failure> {
        let has_mapping = self.table.is_some()
            || self.time.is_some()
            || !(self.tags.is_empty()
                && self.fields.is_empty()
                && self.types.is_empty()
                && self.null_texts.is_empty());
        if has_mapping {
            return Err(Failure::usage(
                "line protocol names its own tables, tags, fields and times: leave out --table --time --tag --field --type --null",
            ));
        }
        self.check_text("line protocol")
    }
}
