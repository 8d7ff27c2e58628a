//! Parses on one thread and writes on another.
//!
//! Invariants: batches are written in the order of the input; at most [`QUEUE_BATCHES`] parsed
//! batches wait and at most [`FLIGHT_BATCHES`] are unacknowledged; the import is done when every
//! batch is acknowledged and the database closed.

use super::remote::Remote;
use super::source::{Columns, Source};
use super::summary::Summary;
use super::{FileFormat, Import};
use crate::failure::Failure;
use crate::grid::grouped;
use crate::input::Input;
use crate::output::print;
use crate::progress::{bytes_bar, spinner};
use crate::store::{DbArgs, DbTarget};
use headwater::{
    ClosedRange, Database, Duplicates, Error, ErrorKind, FieldSpec, Reader, TableChange, TableSpec,
    Ticket, Timestamp,
};
use headwater_wire::ParsedBatch;
use indicatif::ProgressBar;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Parsed batches waiting for the writer.
const QUEUE_BATCHES: usize = 2;
/// Batches waiting for their acknowledgement.
const FLIGHT_BATCHES: usize = 8;
/// An import waits for memory as long as it takes; the engine's default is made for servers.
const BUSY_TIMEOUT: Duration = Duration::from_secs(600);

/// From the parser to the writer.
enum Message {
    File { name: String, bar: ProgressBar },
    Columns(Columns),
    Batch(Box<ParsedBatch>),
    Failed(Failure),
}

pub(super) fn run(import: &Import) -> Result<Summary, Failure> {
    // Before the database is made, so that a mistyped name leaves nothing behind.
    let inputs: Vec<(PathBuf, Input)> = import
        .files
        .iter()
        .map(|path| Ok((path.clone(), Input::open(path)?)))
        .collect::<Result<_, Failure>>()?;
    // The types of a table that is there count for a file that names none.
    let target = BatchDestination::open_existing(import)?;
    let known = match (&target, &import.table) {
        (Some(target), Some(table))
            if matches!(import.format, FileFormat::Csv | FileFormat::Jsonl) =>
        {
            target.fields_of(table)?
        }
        _ => Vec::new(),
    };
    let start = Instant::now();
    let text_bytes = Arc::new(AtomicU64::new(0));
    let (sender, receiver) = sync_channel(QUEUE_BATCHES);
    let mut summary = std::thread::scope(|scope| {
        let counter = Arc::clone(&text_bytes);
        let known = &known;
        scope.spawn(move || parse_all(import, inputs, &counter, known, &sender));
        if import.dry_run {
            look(receiver)
        } else {
            store(import, target, receiver)
        }
    })?;
    summary.counts_rows = matches!(import.format, FileFormat::Arrow | FileFormat::Parquet);
    summary.elapsed = start.elapsed();
    summary.text_bytes = text_bytes.load(Ordering::Relaxed);
    Ok(summary)
}

/// The parser's thread. Ends early when the writer has ended.
fn parse_all(
    import: &Import,
    inputs: Vec<(PathBuf, Input)>,
    text_bytes: &Arc<AtomicU64>,
    known: &[FieldSpec],
    sender: &SyncSender<Message>,
) {
    for (path, input) in inputs {
        let name = path.display().to_string();
        let bar = bytes_bar(input.bytes);
        bar.set_prefix(name.clone());
        let bytes_read = Arc::clone(text_bytes);
        let opened = Source::open(import, &path, input, bar.clone(), bytes_read, known);
        if sender.send(Message::File { name, bar }).is_err() {
            return;
        }
        if let Err(failure) = opened.and_then(|source| parse_file(source, sender)) {
            // Without a receiver nobody is interested.
            let _ = sender.send(Message::Failed(failure));
            return;
        }
    }
}

fn parse_file(mut source: Source, sender: &SyncSender<Message>) -> Result<(), Failure> {
    if sender.send(Message::Columns(source.columns())).is_err() {
        return Ok(());
    }
    while let Some(parsed) = source.next()? {
        if sender.send(Message::Batch(Box::new(parsed))).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Shows what an import would do. The receiver goes with the writer, so that a failed one stops the
/// parser.
fn look(receiver: Receiver<Message>) -> Result<Summary, Failure> {
    let mut summary = Summary::default();
    for message in receiver {
        match message {
            Message::File { name, .. } => summary.start_file(name),
            Message::Columns(columns) => {
                if !columns.fields.is_empty() {
                    print(&columns.table())?;
                }
                columns.warn();
            }
            Message::Batch(parsed) => {
                summary.rows += parsed.batch.row_count() as u64;
                take_counts(&mut summary, &parsed);
            }
            Message::Failed(failure) => return Err(failure),
        }
    }
    Ok(summary)
}

fn take_counts(summary: &mut Summary, parsed: &ParsedBatch) {
    let times = parsed.batch.entries().iter().flat_map(|entry| &entry.times);
    let newest = times.copied().max().map(Timestamp::from_nanos);
    summary.newest = newest.max(summary.newest);
    summary.lines += parsed.line_count;
    summary.empty_rows += parsed.empty_rows;
    for (code, count) in parsed.refused_counts.iter() {
        summary.count(code.as_str(), count);
    }
    for refused in &parsed.refused {
        summary.show_refused(refused);
    }
}

/// Stores what the parser sends, into what is open, or made now.
fn store(
    import: &Import,
    mut writer: Option<BatchDestination>,
    receiver: Receiver<Message>,
) -> Result<Summary, Failure> {
    let mut summary = Summary::default();
    let mut bar = ProgressBar::hidden();
    for message in receiver {
        match message {
            Message::File { name, bar: next } => {
                bar.finish_and_clear();
                bar = next;
                summary.start_file(name);
            }
            Message::Columns(columns) => {
                columns.warn();
                // The first file could be read: only now the database is made.
                let writer = match &mut writer {
                    Some(writer) => writer,
                    none => none.insert(BatchDestination::open(import)?),
                };
                writer.begin_file(columns.specs());
            }
            Message::Batch(parsed) => {
                if let Some(writer) = &mut writer {
                    writer.write(*parsed, &mut summary)?;
                    bar.set_message(format!("{} rows", grouped(summary.rows)));
                }
            }
            Message::Failed(failure) => {
                bar.finish_and_clear();
                if let Some(writer) = writer {
                    writer.finish(&mut summary)?;
                    if summary.rows > 0 {
                        eprintln!(
                            "{} rows were stored before the failure",
                            grouped(summary.rows)
                        );
                    }
                }
                return Err(failure);
            }
        }
    }
    bar.finish_and_clear();
    if let Some(writer) = writer {
        let spinner = spinner("storing what is in memory");
        writer.finish(&mut summary)?;
        spinner.finish_and_clear();
    }
    Ok(summary)
}

/// Destination of the batches.
enum BatchDestination {
    Local(Box<Writer>),
    Remote(Box<Remote>),
    /// A dry run looks at a database, beside the process that has it open.
    Looked(Reader),
}

impl BatchDestination {
    /// `None` where the import makes the database.
    fn open_existing(import: &Import) -> Result<Option<BatchDestination>, Failure> {
        if import.dry_run && !import.target.is_named() {
            return Ok(None);
        }
        let opened = match import.target.open()? {
            DbTarget::Remote(server) => Ok(BatchDestination::Remote(Box::new(Remote::new(
                import, server,
            )))),
            DbTarget::Local(db) if import.dry_run => {
                Reader::open(db.options()).map(BatchDestination::Looked)
            }
            DbTarget::Local(db) => {
                Writer::open(import, &db, true).map(|w| BatchDestination::Local(Box::new(w)))
            }
        };
        match opened {
            Ok(target) => Ok(Some(target)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the database; a server is there or not.
    fn open(import: &Import) -> Result<BatchDestination, Failure> {
        Ok(match import.target.open()? {
            DbTarget::Local(db) => {
                BatchDestination::Local(Box::new(Writer::open(import, &db, false)?))
            }
            DbTarget::Remote(server) => {
                BatchDestination::Remote(Box::new(Remote::new(import, server)))
            }
        })
    }

    /// The fields that the table has, if it is there.
    fn fields_of(&self, table: &str) -> Result<Vec<FieldSpec>, Failure> {
        let tables = match self {
            BatchDestination::Local(writer) => writer.db.tables(),
            BatchDestination::Looked(reader) => reader.tables(),
            BatchDestination::Remote(remote) => return remote.fields_of(table),
        };
        let info = tables.into_iter().find(|info| info.name == table);
        let fields = info.map(|info| info.fields).unwrap_or_default();
        let specs = fields.into_iter().map(|field| FieldSpec {
            name: field.name,
            field_type: field.field_type,
        });
        Ok(specs.collect())
    }

    fn begin_file(&mut self, fields: Vec<FieldSpec>) {
        match self {
            BatchDestination::Local(writer) => writer.fields = fields,
            BatchDestination::Remote(remote) => remote.fields = fields,
            BatchDestination::Looked(_) => {}
        }
    }

    fn write(&mut self, parsed: ParsedBatch, summary: &mut Summary) -> Result<(), Failure> {
        take_counts(summary, &parsed);
        if parsed.batch.is_empty() {
            return Ok(());
        }
        match self {
            BatchDestination::Local(writer) => writer.write(parsed, summary),
            BatchDestination::Remote(remote) => remote.write(&parsed, summary),
            BatchDestination::Looked(_) => Ok(()),
        }
    }

    fn finish(self, summary: &mut Summary) -> Result<(), Failure> {
        match self {
            BatchDestination::Local(writer) => writer.finish(summary),
            BatchDestination::Remote(remote) => {
                remote.finish();
                Ok(())
            }
            BatchDestination::Looked(_) => Ok(()),
        }
    }
}

/// The database, and the batches on their way to it.
struct Writer {
    db: Database,
    duplicates: Option<Duplicates>,
    /// Fields of a table that is made now, in the order of the file.
    fields: Vec<FieldSpec>,
    /// Tables that were written to, and the rows that each had before.
    settled_tables: BTreeMap<String, u64>,
    in_flight: VecDeque<Ticket>,
}

impl Writer {
    fn open(import: &Import, db: &DbArgs, must_exist: bool) -> Result<Writer, Error> {
        let mut options = db.options();
        options.must_exist = must_exist;
        options.durability = import.durability;
        options.busy_timeout = BUSY_TIMEOUT;
        Ok(Writer {
            db: Database::open(options)?,
            duplicates: import.duplicates.map(Duplicates::from),
            fields: Vec::new(),
            settled_tables: BTreeMap::new(),
            in_flight: VecDeque::new(),
        })
    }

    fn write(&mut self, parsed: ParsedBatch, summary: &mut Summary) -> Result<(), Failure> {
        self.settle_tables(&parsed)?;
        let ParsedBatch { batch, lines, .. } = parsed;
        let ticket = self.db.write(batch)?;
        for refused in ticket.refused() {
            let line = lines
                .get(refused.entry)
                .and_then(|lines| lines.get(refused.row))
                .copied()
                .unwrap_or(0);
            summary.count(refused.code, 1);
            summary.show(line, refused.code, &refused.message, "");
        }
        self.in_flight.push_back(ticket);
        while self.in_flight.len() > FLIGHT_BATCHES {
            self.wait_for_oldest(summary)?;
        }
        Ok(())
    }

    fn wait_for_oldest(&mut self, summary: &mut Summary) -> Result<(), Failure> {
        if let Some(ticket) = self.in_flight.pop_front() {
            summary.rows += ticket.wait()?.accepted;
        }
        Ok(())
    }

    /// Makes the tables of a batch before their first row: as `--duplicates` says, and with the
    /// columns in their order.
    fn settle_tables(&mut self, parsed: &ParsedBatch) -> Result<(), Failure> {
        for entry in parsed.batch.entries() {
            let table = entry.name.table();
            if !self.settled_tables.contains_key(table) {
                self.settle(table)?;
                let rows = self.row_count(table)?;
                self.settled_tables.insert(table.to_owned(), rows);
            }
        }
        Ok(())
    }

    fn settle(&self, table: &str) -> Result<(), Failure> {
        let known = self.db.tables().into_iter().find(|t| t.name == table);
        match (known, self.duplicates) {
            (None, None) if self.fields.is_empty() => {}
            (None, duplicates) => {
                let mut spec = TableSpec::new(table);
                spec.duplicates = duplicates.unwrap_or_default();
                spec.fields = self.fields.clone();
                self.db.create_table(&spec)?;
            }
            (Some(info), Some(duplicates)) if info.duplicates != duplicates => {
                let change = TableChange {
                    duplicates: Some(duplicates),
                    ..TableChange::default()
                };
                self.db.alter_table(table, &change)?;
            }
            (Some(_), _) => {}
        }
        Ok(())
    }

    fn row_count(&self, table: &str) -> Result<u64, Failure> {
        let found = self
            .db
            .snapshot()?
            .row_count(table, ClosedRange::ALL, &mut || true);
        match found {
            Ok(rows) => Ok(rows.unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    fn finish(mut self, summary: &mut Summary) -> Result<(), Failure> {
        while !self.in_flight.is_empty() {
            self.wait_for_oldest(summary)?;
        }
        // Nobody else writes meanwhile: rows that did not become more fell on others.
        let mut added = 0;
        for (table, before) in &self.settled_tables {
            added += self.row_count(table)?.saturating_sub(*before);
        }
        summary.replaced += summary.rows.saturating_sub(added);
        self.db.close()?;
        Ok(())
    }
}
