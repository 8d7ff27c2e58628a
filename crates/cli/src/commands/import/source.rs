//! A file as a sequence of parsed batches.

#[cfg(feature = "sql")]
use super::batches::Batches;
use super::{FileFormat, Import};
use crate::clock::now;
use crate::failure::Failure;
use crate::grid::{Heading, render};
use crate::input::Input;
use encoding_rs_io::DecodeReaderBytesBuilder;
use headwater::{FieldSpec, FieldType};
use headwater_wire::ParsedBatch;
use headwater_wire::csv::{CsvOptions, CsvParser, TimeFormat};
use headwater_wire::lineprotocol::{LineStream, ParserOptions};
use headwater_wire::message::{JsonLines, MessageRules, TimeReading};
use indicatif::ProgressBar;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows of a batch: few enough to keep memory small, enough to make a sync worth while.
const BATCH_ROWS_MAX: usize = 16_384;

type Reader = Measured<Box<dyn Read + Send>>;

/// Reads one file.
pub(super) enum Source {
    Csv {
        parser: Box<CsvParser<Reader>>,
        file: String,
    },
    LineProtocol {
        stream: Box<LineStream<Reader>>,
        file: String,
        batch_bytes: usize,
    },
    Json {
        lines: Box<JsonLines<Reader>>,
        file: String,
        batch_bytes: usize,
    },
    #[cfg(feature = "sql")]
    Batches(Box<Batches>),
}

impl Source {
    /// `bytes_read` counts what comes out of the decompressor; `known` are the fields that the
    /// table has.
    pub(super) fn open(
        import: &Import,
        path: &Path,
        input: Input,
        bar: ProgressBar,
        bytes_read: Arc<AtomicU64>,
        known: &[FieldSpec],
    ) -> Result<Source, Failure> {
        let file = path.display().to_string();
        // A batch of columns takes up to four times its text.
        let batch_bytes = (import.target.memory / 32).clamp(32 << 10, 1 << 20);
        #[cfg(feature = "sql")]
        if import.format == FileFormat::Parquet {
            // Parquet is read from its end, so the file itself is needed.
            let batches = Batches::parquet(import, path, bar, bytes_read, batch_bytes)?;
            return Ok(Source::Batches(Box::new(batches)));
        }
        let inner = input
            .decompressed(bar)
            .map_err(|error| Failure::failed(format!("cannot read {file}: {error}")))?;
        let inner: Box<dyn Read + Send> = match import.encoding {
            None => inner,
            Some(encoding) => {
                let mut decoder = DecodeReaderBytesBuilder::new();
                Box::new(decoder.encoding(Some(encoding)).build(inner))
            }
        };
        let reader = Measured { inner, bytes_read };
        match import.format {
            FileFormat::Csv => {
                let mut options = import.csv_options();
                options.batch_bytes_max = batch_bytes;
                let known = known.iter().map(|f| (f.name.clone(), f.field_type));
                options.known_types = known.collect();
                options.cached_name_bytes_max = import.target.memory / 8;
                let parser = CsvParser::new(reader, options)
                    .map_err(|error| Failure::of_csv(&file, &error))?;
                let parser = Box::new(parser);
                Ok(Source::Csv { parser, file })
            }
            FileFormat::Lp => {
                let mut options = ParserOptions::new(now());
                options.precision = import.precision;
                options.cached_name_bytes_max = import.target.memory / 8;
                Ok(Source::LineProtocol {
                    stream: Box::new(LineStream::new(reader, options)),
                    file,
                    batch_bytes,
                })
            }
            FileFormat::Jsonl => {
                let mut options = ParserOptions::new(now());
                options.cached_name_bytes_max = import.target.memory / 8;
                let lines = JsonLines::new(reader, import.json_rules(known)?, options)
                    .map_err(|error| Failure::usage(error.to_string()))?;
                Ok(Source::Json {
                    lines: Box::new(lines),
                    file,
                    batch_bytes,
                })
            }
            #[cfg(feature = "sql")]
            FileFormat::Arrow | FileFormat::Parquet => {
                let batches = Batches::arrow(import, file, Box::new(reader), batch_bytes)?;
                Ok(Source::Batches(Box::new(batches)))
            }
            #[cfg(not(feature = "sql"))]
            FileFormat::Arrow | FileFormat::Parquet => {
                Err(crate::output::built_without("--format arrow|parquet"))
            }
        }
    }

    /// The next batch; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<ParsedBatch>, Failure> {
        match self {
            Source::Csv { parser, file } => parser
                .next_batch(BATCH_ROWS_MAX)
                .map_err(|error| Failure::of_csv(file, &error)),
            Source::LineProtocol {
                stream,
                file,
                batch_bytes,
            } => stream
                .next_batch(*batch_bytes)
                .map_err(|error| Failure::failed(format!("cannot read {file}: {error}"))),
            Source::Json {
                lines,
                file,
                batch_bytes,
            } => lines
                .next_batch(*batch_bytes)
                .map_err(|error| Failure::failed(format!("cannot read {file}: {error}"))),
            #[cfg(feature = "sql")]
            Source::Batches(batches) => batches.next(),
        }
    }

    /// The columns, as they were recognised.
    pub(super) fn columns(&self) -> Columns {
        match self {
            Source::LineProtocol { .. } | Source::Json { .. } => Columns::default(),
            #[cfg(feature = "sql")]
            Source::Batches(batches) => Columns {
                fields: batches.fields(),
                suspects: Vec::new(),
            },
            Source::Csv { parser, .. } => Columns {
                fields: parser
                    .fields()
                    .map(|(name, field_type)| (name.to_owned(), field_type))
                    .collect(),
                suspects: parser
                    .suspects()
                    .map(|(column, text)| (column.to_owned(), text.to_owned()))
                    .collect(),
            },
        }
    }
}

/// The columns of a CSV file that become fields.
#[derive(Debug, Default)]
pub(super) struct Columns {
    /// Names, and types where they are known.
    pub(super) fields: Vec<(String, Option<FieldType>)>,
    /// Columns and the one text that makes them strings.
    suspects: Vec<(String, String)>,
}

impl Columns {
    /// The fields with a known type.
    pub(super) fn specs(&self) -> Vec<FieldSpec> {
        self.fields
            .iter()
            .filter_map(|(name, field_type)| {
                Some(FieldSpec {
                    name: name.clone(),
                    field_type: (*field_type)?,
                })
            })
            .collect()
    }

    pub(super) fn table(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .fields
            .iter()
            .map(|(name, field_type)| {
                let shown = field_type.map_or("no value yet", FieldType::name);
                vec![name.clone(), shown.to_owned()]
            })
            .collect();
        render(&[Heading::text("column"), Heading::text("type")], &rows)
    }

    /// Reports columns that are strings only because of a mark for absent values.
    pub(super) fn warn(&self) {
        let mut texts: Vec<&str> = self
            .suspects
            .iter()
            .map(|(_, text)| text.as_str())
            .collect();
        texts.sort_unstable();
        texts.dedup();
        for text in texts {
            let columns: Vec<&str> = self
                .suspects
                .iter()
                .filter(|(_, other)| other == text)
                .map(|(column, _)| column.as_str())
                .collect();
            eprintln!(
                "note: stored as text because of `{text}` among numbers: {}; if it stands for an absent value, give --null '{text}'",
                columns.join(", ")
            );
        }
    }
}

impl Import {
    /// Rules for the members of the lines. Types of the table apply where none is given.
    fn json_rules(&self, known: &[FieldSpec]) -> Result<MessageRules, Failure> {
        let table = self.table.as_deref().unwrap_or_default();
        let mut rules = JsonLines::<Reader>::rules(table);
        let (time, format) = match self.time.as_deref().and_then(|time| time.split_once(':')) {
            Some((time, format)) => (Some(time), Some(format)),
            None => (self.time.as_deref(), None),
        };
        rules.time = time.map(str::to_owned);
        if let Some(format) = format {
            let format = TimeFormat::parse(format);
            rules.time_format =
                TimeReading::As(format.map_err(|error| Failure::usage(error.to_string()))?);
        }
        rules.tag_members = self.tags.clone();
        let mut only = Vec::new();
        for text in &self.fields {
            let (name, field_type) = typed(text)?;
            only.push(name.to_owned());
            rules.types.extend(field_type.map(|t| (name.to_owned(), t)));
        }
        rules.only = (!only.is_empty()).then_some(only);
        for text in &self.types {
            let (name, Some(field_type)) = typed(text)? else {
                return Err(Failure::usage(format!(
                    "--type {text}: expected COLUMN:TYPE"
                )));
            };
            rules.types.push((name.to_owned(), field_type));
        }
        for field in known {
            if !rules.types.iter().any(|(name, _)| *name == field.name) {
                rules.types.push((field.name.clone(), field.field_type));
            }
        }
        Ok(rules)
    }

    fn csv_options(&self) -> CsvOptions {
        let mut options = CsvOptions::new(
            self.table.clone().unwrap_or_default(),
            self.time.clone().unwrap_or_default(),
        );
        options.tags = self.tags.clone();
        options.fields = (!self.fields.is_empty()).then(|| self.fields.clone());
        options.types = self.types.clone();
        options.null_texts = self.null_texts.clone();
        options.delimiter = self.delimiter;
        options.skip_lines = self.skip;
        options.names = (!self.names.is_empty()).then(|| self.names.clone());
        options.decimal_comma = self.decimal_comma;
        options
    }
}

/// The two parts of `COLUMN[:TYPE]`.
fn typed(text: &str) -> Result<(&str, Option<FieldType>), Failure> {
    match text.rsplit_once(':') {
        None => Ok((text, None)),
        Some((name, field_type)) => match FieldType::from_name(field_type) {
            Some(found) => Ok((name, Some(found))),
            None => Err(Failure::usage(format!(
                "`{text}`: `{field_type}` is not a type; expected f64, i64, u64, bool, string or bytes"
            ))),
        },
    }
}

/// Counts the bytes that pass.
pub(super) struct Measured<R> {
    inner: R,
    bytes_read: Arc<AtomicU64>,
}

impl<R: Read> Read for Measured<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(out)?;
        self.bytes_read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
