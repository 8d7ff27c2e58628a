//! Differences between two states of a database: per stream, stretches of time and numbers of rows.
//!
//! Leaves that both states have at the same location are equal, since committed bytes never change:
//! they are not read. Where the leaves differ, since rows were added, removed or rewritten, the
//! rows are compared.
//!
//! Invariants: a row that differs is inside a reported stretch; a stretch begins and ends with rows
//! that differ. Only rows are compared: buckets whose rows were aged away are not reported.
//! Concurrency: no lock is held over I/O. Failure: `corrupt` where rows that have to be compared
//! cannot be read.

use super::scan::ScanSpec;
use super::single::SingleSnapshot;
use super::snapshot::{Scan, Snapshot};
use super::view::StreamView;
use crate::common::ids::{SegmentId, TableId};
use crate::common::ranges::{intersection, union};
use crate::metadata::catalog::stream_key;
use crate::storage::segment::Partition;
use crate::{Error, ErrorKind, Result};
use headwater_types::{ClosedRange, Column, StreamName, Timestamp, Value};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of stretches of a stream; the last one includes every later difference.
const STRETCHES_MAX: usize = 1000;
/// Names per page.
const PAGE: usize = 4_096;
/// Instants compared between two checks for cancellation.
const INSTANTS_AT_ONCE: u64 = 4_096;

/// A comparison to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffSpec {
    /// The table; `None` = all.
    pub table: Option<String>,
    /// Required tags of the streams; a key that appears several times may have any of its values.
    pub tags: Vec<(String, String)>,
    /// The instants, both ends included.
    pub range: ClosedRange,
}

impl Default for DiffSpec {
    fn default() -> Self {
        DiffSpec {
            table: None,
            tags: Vec::new(),
            range: ClosedRange::ALL,
        }
    }
}

/// A stretch of time in which rows of a stream differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiffStretch {
    /// From the first to the last row that differs; every row between them differs too.
    pub range: ClosedRange,
    /// Rows that only the first state has.
    pub removed: u64,
    /// Rows that only the second state has.
    pub added: u64,
    /// Rows at the same instant in both states, with other values.
    pub changed: u64,
}

/// Differences of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamDiff {
    /// The stream.
    pub stream: StreamName,
    /// The stretches, by time: at most 1,000; the last one includes every later difference.
    pub stretches: Vec<DiffStretch>,
}

/// Receiver of differences.
pub trait Differences {
    /// True to compare a table, where `DiffSpec` names none.
    fn accepts_table(&mut self, _table: &str) -> bool {
        true
    }

    /// True to compare a stream.
    fn accepts(&mut self, _stream: &StreamName) -> bool {
        true
    }

    /// Called repeatedly while rows are compared; an error ends the comparison.
    ///
    /// # Errors
    /// Any error ends the comparison.
    fn goes_on(&mut self) -> Result<()> {
        Ok(())
    }

    /// Receives the differences of a stream.
    ///
    /// # Errors
    /// Any error ends the comparison.
    fn add_stream(&mut self, found: StreamDiff) -> Result<()>;
}

/// Accepts every stream, and passes its differences to a function.
struct AcceptAll<F>(F);

impl<F: FnMut(StreamDiff) -> Result<()>> Differences for AcceptAll<F> {
    fn add_stream(&mut self, found: StreamDiff) -> Result<()> {
        (self.0)(found)
    }
}

impl Snapshot {
    /// Compares this state with another one of the same database, usually a later one, and passes
    /// the differences to `each`, stream by stream. Rows that both states have stored at the same
    /// location are not read.
    ///
    /// ```
    /// use headwater_engine::{Database, DiffSpec, Options};
    /// use headwater_types::{Batch, StreamName};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path()))?;
    /// let pump = StreamName::new("pump", [("id", "7")]);
    /// for rpm in [2150.0, 2160.0] {
    ///     let mut batch = Batch::new();
    ///     batch.stream(&pump).row(5, [("rpm", rpm.into())]).unwrap();
    ///     db.commit(batch)?;
    ///     if db.snapshots().is_empty() {
    ///         db.create_snapshot("before")?;
    ///     }
    /// }
    /// let mut changed = 0;
    /// db.snapshot_named("before")?.diff(&db.snapshot()?, &DiffSpec::default(), |diff| {
    ///     changed += diff.stretches.iter().map(|s| s.changed).sum::<u64>();
    ///     Ok(())
    /// })?;
    /// assert_eq!(changed, 1);
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `not_found` for a table that neither state has; `invalid` for states of several databases;
    /// `corrupt` where rows that have to be compared cannot be read; any error of `each`.
    pub fn diff(
        &self,
        other: &Snapshot,
        spec: &DiffSpec,
        each: impl FnMut(StreamDiff) -> Result<()>,
    ) -> Result<()> {
        self.diff_to(other, spec, &mut AcceptAll(each))
    }

    /// As [`Snapshot::diff`], for callers that select streams, or may end the comparison early.
    /// Names of streams are loaded a few thousand at a time.
    ///
    /// # Errors
    /// As for [`Snapshot::diff`]; any error of `to` ends the comparison.
    pub fn diff_to(
        &self,
        other: &Snapshot,
        spec: &DiffSpec,
        told: &mut dyn Differences,
    ) -> Result<()> {
        let pair = (self.single()?, other.single()?);
        let wanted = by_key(&spec.tags);
        for table in tables(pair, spec)? {
            if spec.table.is_none() && !told.accepts_table(&table) {
                continue;
            }
            let mut names = StreamPairs::new((self, other), &table, &wanted);
            while let Some(stream) = names.next()? {
                told.goes_on()?;
                if !told.accepts(&stream) {
                    continue;
                }
                let stretches = between((self, other), &stream, &spec.range, told)?;
                if !stretches.is_empty() {
                    told.add_stream(StreamDiff { stream, stretches })?;
                }
            }
        }
        Ok(())
    }
}

type Pair<'a> = (&'a SingleSnapshot, &'a SingleSnapshot);

/// The tables of either state, by name.
fn tables((a, b): Pair<'_>, spec: &DiffSpec) -> Result<BTreeSet<String>> {
    let all = a.tables().iter().chain(b.tables());
    let names: BTreeSet<String> = all.map(|t| t.name.clone()).collect();
    match &spec.table {
        None => Ok(names),
        Some(name) if names.contains(name) => Ok([name.clone()].into()),
        Some(name) => Err(Error::not_found(format!(
            "neither of the two states has a table `{name}`"
        ))),
    }
}

/// The accepted values of each key.
fn by_key(tags: &[(String, String)]) -> Vec<(String, Vec<String>)> {
    let mut wanted: Vec<(String, Vec<String>)> = Vec::new();
    for (key, value) in tags {
        match wanted.iter_mut().find(|(known, _)| known == key) {
            Some((_, values)) => values.push(value.clone()),
            None => wanted.push((key.clone(), vec![value.clone()])),
        }
    }
    wanted
}

/// Streams of a table in one of the two states, in the order of the catalog.
struct Names<'a> {
    snapshot: &'a Snapshot,
    page: std::vec::IntoIter<StreamName>,
    /// The next stream, with its key bytes, which define the order.
    next: Option<(Vec<u8>, StreamName)>,
    last: Option<StreamName>,
    is_at_end: bool,
}

impl Names<'_> {
    /// Looks up the next stream, unless it is loaded.
    fn look(&mut self, table: &str, wanted: &[(String, Vec<String>)]) -> Result<()> {
        while self.next.is_none() {
            if let Some(name) = self.page.next() {
                let mut key = Vec::with_capacity(64);
                stream_key(TableId(0), name.tags(), &mut key);
                self.next = Some((key, name));
                return Ok(());
            }
            if self.is_at_end {
                return Ok(());
            }
            let last = self.last.as_ref();
            let page = self.snapshot.streams_having(table, wanted, last, PAGE);
            let page = there(page)?.unwrap_or_default();
            self.is_at_end = page.len() < PAGE;
            self.last = page.last().cloned().or(self.last.take());
            self.page = page.into_iter();
        }
        Ok(())
    }
}

/// Streams of a table in either state, each once, in the order of the catalog.
struct StreamPairs<'a> {
    sides: [Names<'a>; 2],
    table: &'a str,
    requested: &'a [(String, Vec<String>)],
}

impl<'a> StreamPairs<'a> {
    fn new(
        (a, b): (&'a Snapshot, &'a Snapshot),
        table: &'a str,
        requested: &'a [(String, Vec<String>)],
    ) -> StreamPairs<'a> {
        let of = |snapshot| Names {
            snapshot,
            page: Vec::new().into_iter(),
            next: None,
            last: None,
            is_at_end: false,
        };
        StreamPairs {
            sides: [of(a), of(b)],
            table,
            requested,
        }
    }

    fn next(&mut self) -> Result<Option<StreamName>> {
        for side in &mut self.sides {
            side.look(self.table, self.requested)?;
        }
        let [a, b] = &mut self.sides;
        let order = match (&a.next, &b.next) {
            (Some((of_a, _)), Some((of_b, _))) => of_a.cmp(of_b),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        let of_a = match order {
            Ordering::Greater => None,
            _ => a.next.take(),
        };
        let of_b = match order {
            Ordering::Less => None,
            _ => b.next.take(),
        };
        Ok(of_a.or(of_b).map(|(_, name)| name))
    }
}

/// The value, or `None` for `not_found`: a stream or table may exist in only one of two states.
fn there<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// The stretches in which the rows of a stream differ.
fn between(
    (a, b): (&Snapshot, &Snapshot),
    stream: &StreamName,
    range: &ClosedRange,
    told: &mut dyn Differences,
) -> Result<Vec<DiffStretch>> {
    let views = (
        view(a.single()?, stream, range)?,
        view(b.single()?, stream, range)?,
    );
    let candidates = match &views {
        (Some(a), Some(b)) => candidates((a, b), range)?,
        _ => vec![*range],
    };
    let mut found = DiffCollector::default();
    for range in candidates {
        let spec = ScanSpec {
            range,
            ..ScanSpec::default()
        };
        let scan = |one: &Snapshot| there(one.scan(stream, &spec));
        let (a, b) = (scan(a)?, scan(b)?);
        let names = names([&a, &b]);
        let (mut a, mut b) = (RowsAt::new(a, &names), RowsAt::new(b, &names));
        for instants in 0u64.. {
            if instants.is_multiple_of(INSTANTS_AT_ONCE) {
                told.goes_on()?;
            }
            let (left, right) = (a.time()?, b.time()?);
            match (left, right) {
                (None, None) => break,
                (Some(at), None) => found.rows(at, (&a.take(at)?, &[])),
                (None, Some(at)) => found.rows(at, (&[], &b.take(at)?)),
                (Some(left), Some(right)) => match left.cmp(&right) {
                    Ordering::Less => found.rows(left, (&a.take(left)?, &[])),
                    Ordering::Greater => found.rows(right, (&[], &b.take(right)?)),
                    Ordering::Equal => found.rows(left, (&a.take(left)?, &b.take(left)?)),
                },
            }
        }
        // Rows between two candidates are the same in both states.
        found.is_open = false;
    }
    Ok(found.stretches)
}

fn view(
    one: &SingleSnapshot,
    stream: &StreamName,
    range: &ClosedRange,
) -> Result<Option<StreamView>> {
    let found = there(one.find(stream))?;
    found.map(|found| one.view(found, range)).transpose()
}

/// Location of rows: segment, offset of the leaf, and first row in the leaf.
type RowsLocation = (SegmentId, u64, u32);

/// The stretches in which rows may differ: all other rows are stored at the same locations.
fn candidates((a, b): (&StreamView, &StreamView), range: &ClosedRange) -> Result<Vec<ClosedRange>> {
    let mut out: Vec<ClosedRange> = Vec::new();
    for view in [a, b] {
        out.extend(view.chunks.iter().map(|chunk| chunk.span));
    }
    // Where values expire, stored values may have expired in only one of the states.
    let expires = a.now != b.now;
    let of = |view: &StreamView| -> BTreeMap<SegmentId, Arc<Partition>> {
        let partitions = view.partitions_in(range).into_iter();
        partitions.map(|p| (p.id(), p)).collect()
    };
    let (of_a, of_b) = (of(a), of(b));
    let mut places: (
        BTreeMap<RowsLocation, ClosedRange>,
        BTreeMap<RowsLocation, ClosedRange>,
    ) = Default::default();
    for (id, partition) in &of_a {
        match of_b.get(id) {
            Some(other) if is_same((a, partition), (b, other)) && !expires => {}
            Some(other) => {
                out.extend(hidden_in_one((a, partition), (b, other)));
                if expires && partition.record.expires_first.is_some() {
                    out.push(partition.span());
                }
                leaves(a, partition, range, &mut places.0)?;
                leaves(b, other, range, &mut places.1)?;
            }
            None => leaves(a, partition, range, &mut places.0)?,
        }
    }
    for (_, partition) in of_b.iter().filter(|(id, _)| !of_a.contains_key(id)) {
        leaves(b, partition, range, &mut places.1)?;
    }
    let only = |these: &BTreeMap<RowsLocation, ClosedRange>,
                those: &BTreeMap<RowsLocation, ClosedRange>| {
        let only = these.iter().filter(|(place, _)| !those.contains_key(place));
        only.map(|(_, range)| *range).collect::<Vec<_>>()
    };
    out.extend(only(&places.0, &places.1));
    out.extend(only(&places.1, &places.0));
    out.retain(|range| !range.is_empty());
    Ok(intersection(&union(out), &[*range]))
}

type PartitionView<'a> = (&'a StreamView, &'a Partition);

/// True when both states show the same of a partition.
fn is_same((a, in_a): PartitionView<'_>, (b, in_b): PartitionView<'_>) -> bool {
    in_a.record.footer_offset == in_b.record.footer_offset && a.hidden(in_a).0 == b.hidden(in_b).0
}

/// A superset of the stretches that only one of the two states hides.
fn hidden_in_one((a, in_a): PartitionView<'_>, (b, in_b): PartitionView<'_>) -> Vec<ClosedRange> {
    let (a, b) = (a.hidden(in_a), b.hidden(in_b));
    match a.0 == b.0 {
        true => Vec::new(),
        false => a.0.iter().chain(b.0.iter()).copied().collect(),
    }
}

/// The leaves of a stream in a partition.
fn leaves(
    view: &StreamView,
    partition: &Partition,
    range: &ClosedRange,
    out: &mut BTreeMap<RowsLocation, ClosedRange>,
) -> Result<()> {
    if let Some(error) = &partition.unreadable {
        return Err(error.clone());
    }
    let Some(held) = view.state(partition)? else {
        return Ok(());
    };
    let main = held.leaves_in(&view.core.store, range)?;
    for leaf in main.iter().chain(held.late().iter().flatten()) {
        let place = (partition.id(), leaf.offset, leaf.row_start);
        out.insert(place, leaf.range());
    }
    Ok(())
}

/// The names of the columns of two scans.
fn names(scans: [&Option<Scan>; 2]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for scan in scans.into_iter().flatten() {
        for (name, _) in scan.fields() {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    names
}

/// The values of a row, in the order of names that both states share.
type Row = Vec<Option<Value>>;

/// Rows of a scan, read one instant at a time.
struct RowsAt {
    scan: Option<Scan>,
    times: Vec<i64>,
    columns: Vec<Column>,
    /// Position of the next row.
    next: usize,
    /// The column of each name.
    positions: Vec<Option<usize>>,
}

impl RowsAt {
    fn new(scan: Option<Scan>, names: &[String]) -> RowsAt {
        let fields = scan.as_ref().map(|scan| scan.fields().to_vec());
        let fields = fields.unwrap_or_default();
        let place = |name: &String| fields.iter().position(|(field, _)| field == name);
        RowsAt {
            scan,
            times: Vec::new(),
            columns: Vec::new(),
            next: 0,
            positions: names.iter().map(place).collect(),
        }
    }

    /// The instant of the next row.
    fn time(&mut self) -> Result<Option<Timestamp>> {
        while self.next >= self.times.len() {
            let Some(chunk) = self.scan.as_mut().and_then(Iterator::next) else {
                return Ok(None);
            };
            let chunk = chunk?;
            (self.times, self.columns, self.next) = (chunk.times, chunk.columns, 0);
        }
        let time = self.times.get(self.next).copied();
        Ok(time.map(Timestamp::from_nanos))
    }

    /// All rows of an instant, which must be the next one.
    fn take(&mut self, at: Timestamp) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        while self.time()? == Some(at) {
            let value = |place: &Option<usize>| {
                let column = self.columns.get((*place)?)?;
                Some(column.get(self.next)?.to_owned())
            };
            rows.push(self.positions.iter().map(value).collect());
            self.next += 1;
        }
        Ok(rows)
    }
}

/// Differences collected so far.
#[derive(Default)]
struct DiffCollector {
    stretches: Vec<DiffStretch>,
    /// True when no equal row was met since the last row that differs.
    is_open: bool,
}

impl DiffCollector {
    /// Compares the rows of an instant in the two states.
    fn rows(&mut self, at: Timestamp, (a, b): (&[Row], &[Row])) {
        let mut rest: Vec<&Row> = b.iter().collect();
        let mut removed = 0u64;
        for row in a {
            match rest.iter().position(|other| is_equal(row, other)) {
                Some(found) => drop(rest.swap_remove(found)),
                None => removed += 1,
            }
        }
        let added = headwater_types::invariant::wide(rest.len());
        let changed = removed.min(added);
        if removed == 0 && added == 0 {
            self.is_open = false;
            return;
        }
        let is_full = self.stretches.len() >= STRETCHES_MAX;
        if !(self.is_open || is_full) || self.stretches.is_empty() {
            self.stretches.push(DiffStretch {
                range: ClosedRange::new(at, at),
                removed: 0,
                added: 0,
                changed: 0,
            });
        }
        if let Some(last) = self.stretches.last_mut() {
            last.range.last = at;
            last.removed += removed - changed;
            last.added += added - changed;
            last.changed += changed;
        }
        self.is_open = true;
    }
}

/// True when two rows have the same values, bit for bit; in a field that was widened, an integer
/// equals the float that it became.
fn is_equal(a: &Row, b: &Row) -> bool {
    let same = |(a, b): (&Option<Value>, &Option<Value>)| match (a, b) {
        (None, None) => true,
        (Some(Value::I64(i)), Some(Value::F64(f))) | (Some(Value::F64(f)), Some(Value::I64(i))) => {
            (*i as f64).to_bits() == f.to_bits()
        }
        (Some(a), Some(b)) => a.as_ref().same_bits(&b.as_ref()),
        _ => false,
    };
    a.iter().zip(b).all(same)
}
