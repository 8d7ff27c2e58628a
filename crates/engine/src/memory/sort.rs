//! Rows of a stream's chunks, sorted by time and then arrival.
//!
//! Work is done by stretches: consecutive rows of a chunk that are in order. Stretches are dealt to
//! a few piles that ascend by time, in the order of arrival: events in order make one pile, bursts
//! of late ones another, and only rows that fit no pile are sorted one by one (the idea of patience
//! sorting: Chandramouli and Goldstein, "Patience is a virtue", SIGMOD 2014). The piles are merged
//! then, and whole stretches are copied.

use crate::common::ids::Sequence;
use crate::memory::chunk::{Chunk, Sequences};
use crate::memory::expiry::owner_of;
use crate::metadata::catalog::Table;
use headwater_types::invariant::part_of;
use headwater_types::{ClosedRange, Column, FieldId, FieldType, Rows, ValueRef, Values};
use std::ops::Range;
use std::sync::Arc;

/// Number of piles that ascend by time before the rest is sorted.
const PILES: usize = 3;

/// Sort key of a row: its time, its write, its chunk, its position there. Rows of one write keep
/// their order; one write's rows of a stream are in several chunks only after a split by time, so
/// equal times are always in one chunk.
type Key = (i64, Sequence, u32, u32);

/// Consecutive rows of a chunk that are in order; at least one.
#[derive(Clone, Debug)]
struct Stretch {
    chunk: u32,
    rows: Range<u32>,
}

/// Sorts the rows of chunks that are in `range` with a sequence up to `sequence`, by time and then
/// arrival, with every column in the present type of the table. With `duplicates = last`, rows of
/// one time are merged field by field.
pub(crate) fn sorted_rows(
    chunks: &[Arc<Chunk>],
    range: &ClosedRange,
    sequence: Sequence,
    table: &Table,
    fields: Option<&[FieldId]>,
) -> Rows {
    let mut chunks: Vec<&Chunk> = chunks
        .iter()
        .map(|c| &**c)
        .filter(|c| c.first_sequence <= sequence && c.span.overlaps(range))
        .collect();
    chunks.sort_by_key(|c| (c.span.first, c.first_sequence));
    let found = in_order(&chunks, range, sequence);
    let distinct = found.is_some() && chunks.iter().all(|c| c.rising);
    let stretches = found.unwrap_or_else(|| {
        // In the order of arrival: otherwise a chunk with one very late event would move far to the
        // front, with all its rows.
        chunks.sort_by_key(|c| c.first_sequence);
        let sorting = Sorting { chunks: &chunks };
        sorting.all(range, sequence)
    });
    let rows = assembled(&chunks, &stretches, table, fields);
    if distinct || table.keeps_duplicates() {
        rows
    } else {
        merge_equal_times(rows)
    }
}

/// The rows of each chunk in the range, if they only have to be concatenated.
fn in_order(chunks: &[&Chunk], range: &ClosedRange, sequence: Sequence) -> Option<Vec<Stretch>> {
    let apart = |w: &[&Chunk]| matches!(w, [a, b] if a.span.last < b.span.first);
    if !chunks.windows(2).all(apart) {
        return None;
    }
    let mut out = Vec::with_capacity(chunks.len());
    for (index, chunk) in (0u32..).zip(chunks) {
        if !chunk.sorted {
            return None;
        }
        let rows = rows_within(chunk, range, sequence)?;
        if !rows.is_empty() {
            out.push(Stretch {
                chunk: index,
                rows: rows.start as u32..rows.end as u32,
            });
        }
    }
    Some(out)
}

/// The rows of a sorted chunk in a range that a reader sees; `None` when these are not consecutive.
pub(super) fn rows_within(
    chunk: &Chunk,
    range: &ClosedRange,
    sequence: Sequence,
) -> Option<Range<usize>> {
    let seen = match &chunk.sequences {
        _ if chunk.last_sequence <= sequence => chunk.len(),
        Sequences::Many(all) if all.is_sorted() => all.partition_point(|s| *s <= sequence),
        _ => return None,
    };
    let times = part_of(&chunk.rows.times, ..seen, "rows of a chunk that are seen");
    if range.intersect(&chunk.span) == chunk.span {
        return Some(0..times.len());
    }
    Some(rows_between(times, range))
}

/// The positions of sorted times in a range.
pub(crate) fn rows_between(times: &[i64], range: &ClosedRange) -> Range<usize> {
    let (first, last) = (range.first.as_nanos(), range.last.as_nanos());
    let from = search(times, guess(times, first), |t| t < first);
    let to = search(times, from, |t| t <= last);
    from..to.max(from)
}

/// Approximate position of a time in sorted times, if they are evenly spaced.
fn guess(times: &[i64], time: i64) -> usize {
    let (Some(first), Some(last)) = (times.first(), times.last()) else {
        return 0;
    };
    let share = (time as f64 - *first as f64) / (*last as f64 - *first as f64).max(1.0);
    (share * times.len() as f64).max(0.0) as usize
}

/// The first of sorted times for which `before` is false, searched from `guess` on in growing
/// steps: a good guess reads few cache lines besides those that are read anyway, where binary
/// search would read one for each step.
pub(crate) fn search(times: &[i64], guess: usize, before: impl Fn(i64) -> bool) -> usize {
    let is_before = |at: usize| times.get(at).is_some_and(|t| before(*t));
    let (mut low, mut high) = (0, times.len());
    let mut step = 8;
    if is_before(guess) {
        low = guess + 1;
        while low + step < high {
            if !is_before(low + step) {
                high = low + step;
                break;
            }
            low += step + 1;
            step *= 4;
        }
    } else {
        high = high.min(guess);
        while high > step {
            if is_before(high - step) {
                low = high - step + 1;
                break;
            }
            high -= step;
            step *= 4;
        }
    }
    let between = part_of(times, low..high, "times between two guesses");
    low + between.partition_point(|t| before(*t))
}

/// Sorts the rows of chunks.
struct Sorting<'a> {
    chunks: &'a [&'a Chunk],
}

impl Sorting<'_> {
    fn key(&self, chunk: u32, row: u32) -> Key {
        let Some(found) = self.chunks.get(chunk as usize) else {
            return (i64::MAX, Sequence::default(), chunk, row);
        };
        let time = found.rows.times.get(row as usize);
        let time = time.copied().unwrap_or(i64::MAX);
        (time, found.sequences.get(row as usize), chunk, row)
    }

    fn first(&self, stretch: &Stretch) -> Key {
        self.key(stretch.chunk, stretch.rows.start)
    }

    fn last(&self, stretch: &Stretch) -> Key {
        self.key(stretch.chunk, stretch.rows.end - 1)
    }

    /// End of the rows of a stretch before `key`. The search starts at the front with growing
    /// steps: where two lists alternate, the end is a few rows away.
    fn split(&self, stretch: &Stretch, key: Key) -> u32 {
        let (mut low, mut high) = (stretch.rows.start, stretch.rows.end);
        let mut step = 1;
        while low < high {
            let at = low + step.min(high - low) - 1;
            if self.key(stretch.chunk, at) >= key {
                high = at;
                break;
            }
            low = at + 1;
            step *= 2;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key(stretch.chunk, middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// All rows in the range, in their order.
    fn all(&self, range: &ClosedRange, sequence: Sequence) -> Vec<Stretch> {
        let mut piles: [Vec<Stretch>; PILES] = Default::default();
        let mut rest: Vec<Key> = Vec::new();
        for (index, chunk) in (0u32..).zip(self.chunks) {
            self.stretches(index, chunk, range, sequence, |stretch| {
                self.deal(stretch, &mut piles, &mut rest);
            });
        }
        rest.sort_unstable();
        let mut sorted: Vec<Stretch> = Vec::with_capacity(rest.len());
        for (_, _, chunk, row) in rest {
            put(&mut sorted, chunk, row..row + 1);
        }
        for pile in piles.iter().rev() {
            sorted = self.merged(&sorted, pile);
        }
        sorted
    }

    /// Calls `give` with the stretches of a chunk's visible rows.
    fn stretches(
        &self,
        index: u32,
        chunk: &Chunk,
        range: &ClosedRange,
        sequence: Sequence,
        mut give: impl FnMut(Stretch),
    ) {
        if let Sequences::One(written) = chunk.sequences
            && written <= sequence
            && range.intersect(&chunk.span) == chunk.span
        {
            // All from one write: only times show the end of a stretch.
            let mut start = 0;
            let pairs = (1u32..).zip(chunk.rows.times.windows(2));
            let falls = pairs.filter(|(_, pair)| matches!(pair, [a, b] if b < a));
            for row in falls.map(|(row, _)| row).chain([chunk.len() as u32]) {
                give(Stretch {
                    chunk: index,
                    rows: start..row,
                });
                start = row;
            }
            return;
        }
        let (first, last) = (range.first.as_nanos(), range.last.as_nanos());
        let mut from: Option<u32> = None;
        let mut before = (i64::MIN, Sequence::default());
        let mut end = |from: &mut Option<u32>, row: u32| {
            if let Some(start) = from.take() {
                give(Stretch {
                    chunk: index,
                    rows: start..row,
                });
            }
        };
        for (row, time) in (0u32..).zip(&chunk.rows.times) {
            let now = (*time, chunk.sequences.get(row as usize));
            if *time < first || *time > last || now.1 > sequence {
                end(&mut from, row);
                continue;
            }
            if now < before {
                end(&mut from, row);
            }
            from.get_or_insert(row);
            before = now;
        }
        end(&mut from, chunk.len() as u32);
    }

    /// Puts a stretch on the first pile it continues; the part before the top of a pile is passed
    /// to the next.
    fn deal(&self, stretch: Stretch, piles: &mut [Vec<Stretch>; PILES], rest: &mut Vec<Key>) {
        let mut left = stretch;
        for pile in piles {
            let from = match pile.last() {
                Some(top) => {
                    let top = self.last(top);
                    if self.last(&left) < top {
                        continue;
                    }
                    self.split(&left, top)
                }
                None => left.rows.start,
            };
            put(pile, left.chunk, from..left.rows.end);
            left.rows.end = from;
            if left.rows.is_empty() {
                return;
            }
        }
        let chunk = left.chunk;
        rest.extend(left.rows.map(|row| self.key(chunk, row)));
    }

    /// Merges two ascending lists.
    fn merged(&self, a: &[Stretch], b: &[Stretch]) -> Vec<Stretch> {
        let mut out: Vec<Stretch> = Vec::with_capacity(a.len() + b.len());
        let (mut a, mut b) = (a.iter().cloned(), b.iter().cloned());
        let (mut low, mut high) = (a.next(), b.next());
        while let (Some(x), Some(y)) = (&mut low, &mut high) {
            let (smaller, other) = if self.first(x) < self.first(y) {
                (x, &*y)
            } else {
                (y, &*x)
            };
            let bound = self.first(other);
            let to = if self.last(smaller) < bound {
                smaller.rows.end
            } else {
                self.split(smaller, bound)
            };
            put(&mut out, smaller.chunk, smaller.rows.start..to);
            smaller.rows.start = to;
            if low.as_ref().is_some_and(|s| s.rows.is_empty()) {
                low = a.next();
            }
            if high.as_ref().is_some_and(|s| s.rows.is_empty()) {
                high = b.next();
            }
        }
        for stretch in low.into_iter().chain(a).chain(high).chain(b) {
            put(&mut out, stretch.chunk, stretch.rows);
        }
        out
    }
}

/// Appends rows to a list; rows that continue the last stretch are joined to it.
fn put(list: &mut Vec<Stretch>, chunk: u32, rows: Range<u32>) {
    match list.last_mut() {
        Some(last) if last.chunk == chunk && last.rows.end == rows.start => {
            last.rows.end = rows.end;
        }
        _ => list.push(Stretch { chunk, rows }),
    }
}

/// Concatenates stretches; fields that a chunk does not have are absent there.
fn assembled(
    chunks: &[&Chunk],
    stretches: &[Stretch],
    table: &Table,
    fields: Option<&[FieldId]>,
) -> Rows {
    if let [one] = stretches {
        return one_stretch(chunks, one, table, fields);
    }
    let count = stretches.iter().map(|s| s.rows.len()).sum();
    let mut times = Vec::with_capacity(count);
    let rows = |s: &Stretch| s.rows.start as usize..s.rows.end as usize;
    for stretch in stretches {
        let at = stretch.chunk as usize;
        for chunk in part_of(chunks, at..=at, "the chunk of a stretch") {
            let theirs = part_of(&chunk.rows.times, rows(stretch), "the rows of a stretch");
            times.extend_from_slice(theirs);
        }
    }
    let mut wanted: Vec<(FieldId, FieldType)> = Vec::new();
    for (field, column) in chunks.iter().flat_map(|c| &c.rows.columns) {
        if fields.is_none_or(|w| w.contains(field))
            && let Err(at) = wanted.binary_search_by_key(field, |(f, _)| *f)
        {
            let known = table.field(*field).map(|f| f.field_type);
            wanted.insert(at, (*field, known.unwrap_or(column.field_type())));
        }
    }
    let columns = wanted.into_iter().map(|(field, field_type)| {
        let theirs: Vec<Option<&Column>> = chunks.iter().map(|c| c.rows.column(field)).collect();
        if let Some(values) = numbers(&theirs, stretches, field_type, count) {
            return (field, Column::from_values(values));
        }
        let mut column = Column::with_capacity(field_type, count);
        for stretch in stretches {
            match theirs.get(stretch.chunk as usize) {
                Some(Some(theirs)) => column.extend_from(theirs, rows(stretch)),
                _ => column.push_absent(stretch.rows.len()),
            }
        }
        column.simplify();
        (field, in_table_type(column, table, field))
    });
    let columns: Vec<(FieldId, Column)> = columns.collect();
    assert!(
        times.len() == count && columns.iter().all(|(_, c)| c.len() == count),
        "a row was lost or doubled when {count} were put in order"
    );
    Rows { times, columns }
}

/// Copies like [`assembled`], for the small read of a single stretch.
fn one_stretch(
    chunks: &[&Chunk],
    stretch: &Stretch,
    table: &Table,
    fields: Option<&[FieldId]>,
) -> Rows {
    let at = stretch.chunk as usize;
    let [chunk] = part_of(chunks, at..=at, "the chunk of a stretch") else {
        return Rows::default();
    };
    let range = stretch.rows.start as usize..stretch.rows.end as usize;
    let columns = chunk.rows.columns.iter();
    let wanted = columns.filter(|(f, _)| fields.is_none_or(|w| w.contains(f)));
    Rows {
        times: part_of(&chunk.rows.times, range.clone(), "the rows of a stretch").to_vec(),
        columns: wanted
            .map(|(f, c)| (*f, in_table_type(c.slice(range.clone()), table, *f)))
            .collect(),
    }
}

/// The values of a number column without absent values and of one type; `None` for any other.
fn numbers(
    theirs: &[Option<&Column>],
    stretches: &[Stretch],
    field_type: FieldType,
    count: usize,
) -> Option<Values> {
    macro_rules! copied {
        ($variant:path) => {{
            let mut slices = Vec::with_capacity(theirs.len());
            for column in theirs {
                match (
                    column.map(Column::values),
                    column.and_then(Column::presence),
                ) {
                    (Some($variant(values)), None) => slices.push(values.as_slice()),
                    _ => return None,
                }
            }
            let mut out = Vec::with_capacity(count);
            for stretch in stretches {
                let rows = stretch.rows.start as usize..stretch.rows.end as usize;
                let slice = slices.get(stretch.chunk as usize)?.get(rows)?;
                if let [one] = slice {
                    out.push(*one);
                } else {
                    out.extend_from_slice(slice);
                }
            }
            Some($variant(out))
        }};
    }
    match field_type {
        FieldType::F64 => copied!(Values::F64),
        FieldType::I64 => copied!(Values::I64),
        FieldType::U64 => copied!(Values::U64),
        FieldType::Bool | FieldType::String | FieldType::Bytes => None,
    }
}

/// The column in the table's type of the field.
pub(crate) fn in_table_type(column: Column, table: &Table, field: FieldId) -> Column {
    match table.field(field) {
        Some(f) if f.field_type == FieldType::F64 && column.field_type() == FieldType::I64 => {
            column.widened_to_f64()
        }
        // An older snapshot may see rows that share a column with newer rows: none of the values
        // that widened the column to floats is visible to it.
        Some(f) if f.field_type == FieldType::I64 && column.field_type() == FieldType::F64 => {
            let mut integers = Column::with_capacity(FieldType::I64, column.len());
            for row in 0..column.len() {
                match column.get(row) {
                    Some(ValueRef::F64(value)) => {
                        integers.push(ValueRef::I64(value as i64));
                    }
                    _ => integers.push_absent(1),
                }
            }
            integers
        }
        _ => column,
    }
}

/// Merges rows of one time, the later over the earlier, field by field. Rows are sorted by time,
/// then arrival.
pub(crate) fn merge_equal_times(rows: Rows) -> Rows {
    if rows.times.windows(2).all(|w| matches!(w, [a, b] if a < b)) {
        return rows;
    }
    let mut groups: Vec<Range<usize>> = Vec::new();
    for (row, time) in rows.times.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if rows.times.get(group.start) == Some(time) => group.end = row + 1,
            _ => groups.push(row..row + 1),
        }
    }
    let times = groups
        .iter()
        .filter_map(|g| rows.times.get(g.start).copied())
        .collect();
    let columns = rows
        .columns
        .iter()
        .map(|(field, column)| {
            // Expiries follow their values.
            let decides = owner_of(*field).and_then(|owner| rows.column(owner));
            let decides = decides.unwrap_or(column);
            let picked: Vec<u32> = groups
                .iter()
                .map(|g| {
                    g.clone()
                        .rev()
                        .find(|r| decides.is_present(*r))
                        .unwrap_or(g.end - 1) as u32
                })
                .collect();
            (*field, column.gather(&picked))
        })
        .collect();
    Rows { times, columns }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::common::ids::TableId;
    use crate::metadata::catalog::{Duplicates, Field};
    use headwater_types::{Value, Values};
    use proptest::prelude::*;

    fn table(duplicates: Duplicates) -> Table {
        let field = |name: &str, field_type| Field {
            name: name.to_owned(),
            field_type,
        };
        Table {
            id: TableId(0),
            name: "t".to_owned(),
            duplicates,
            leaf_events: 16,
            fields: vec![field("a", FieldType::F64), field("b", FieldType::I64)],
            tags: Vec::new(),
            lifetime: crate::metadata::catalog::TableLifetime::FOREVER,
        }
    }

    /// A row in the tests: time, sequence, and the fields' values.
    type Plain = (i64, u64, Option<Value>, Option<Value>);

    fn plain(chunks: &[Arc<Chunk>]) -> Vec<Plain> {
        let mut all = Vec::new();
        for chunk in chunks {
            let value = |field, row| {
                let column = chunk.rows.column(FieldId(field))?;
                match column.get(row)?.to_owned() {
                    Value::I64(v) if field == 0 => Some(Value::F64(v as f64)),
                    other => Some(other),
                }
            };
            for row in 0..chunk.len() {
                let time = chunk.rows.times[row];
                let sequence = chunk.sequences.get(row).0;
                all.push((time, sequence, value(0, row), value(1, row)));
            }
        }
        all
    }

    fn found(rows: &Rows) -> Vec<(i64, Option<Value>, Option<Value>)> {
        let value = |field, row| Some(rows.column(FieldId(field))?.get(row)?.to_owned());
        (0..rows.len())
            .map(|row| (rows.times[row], value(0, row), value(1, row)))
            .collect()
    }

    /// Writes of some rows each: times, and which columns are set (both, only the first, its
    /// integers before widening).
    fn writes() -> impl Strategy<Value = Vec<(Vec<i64>, u8)>> {
        let near = (0i64..40, prop::collection::vec(0i64..6, 1..12)).prop_map(|(at, steps)| {
            let mut at = at;
            steps
                .iter()
                .map(|s| {
                    at += s;
                    at
                })
                .collect::<Vec<i64>>()
        });
        let any = prop::collection::vec(0i64..60, 1..6);
        prop::collection::vec((prop_oneof![3 => near, 1 => any], 0u8..3), 1..12)
    }

    proptest! {
        #[test]
        fn a_search_from_any_guess_ends_where_halving_ends(
            steps in prop::collection::vec(prop_oneof![8 => 0i64..3, 1 => 0i64..1000], 0..300),
            start in prop_oneof![Just(i64::MIN), Just(0), -500i64..500],
            at in prop_oneof![Just(i64::MIN), Just(i64::MAX), -600i64..2000],
            from in 0usize..320,
        ) {
            let mut time = start;
            let mut times: Vec<i64> = steps.iter().map(|s| { time = time.saturating_add(*s); time }).collect();
            if at == i64::MAX {
                times.push(i64::MAX);
            }
            let expected = times.partition_point(|t| *t < at);
            prop_assert_eq!(search(&times, from, |t| t < at), expected);
            prop_assert_eq!(search(&times, guess(&times, at), |t| t < at), expected);
        }

        #[test]
        fn rows_come_in_the_order_of_a_plain_sort(
            writes in writes(),
            bounds in (0i64..80, 0i64..80),
            seen in 0u64..14,
            as_one in any::<bool>(),
        ) {
            let mut chunks: Vec<Arc<Chunk>> = Vec::new();
            for (number, (times, kind)) in writes.iter().enumerate() {
                let sequence = Sequence(number as u64 + 1);
                let whole: Vec<i64> = times.iter().map(|t| t * 100 + number as i64).collect();
                let floats = whole.iter().map(|v| *v as f64).collect();
                let first = if *kind == 2 { Values::I64(whole.clone()) } else { Values::F64(floats) };
                let mut columns = vec![(FieldId(0), Column::from_values(first))];
                if *kind == 0 {
                    columns.push((FieldId(1), Column::from_values(Values::I64(whole))));
                }
                let rows = Rows { times: times.clone(), columns };
                let appended = as_one
                    && chunks
                        .last_mut()
                        .and_then(Arc::get_mut)
                        .is_some_and(|chunk| chunk.append(&rows, sequence));
                if !appended {
                    chunks.extend(Chunk::new(rows, Sequences::One(sequence), 0));
                }
            }
            let range = ClosedRange::nanos(bounds.0.min(bounds.1), bounds.0.max(bounds.1));
            let mut expected: Vec<Plain> = plain(&chunks)
                .into_iter()
                .filter(|(time, s, ..)| {
                    range.first.as_nanos() <= *time && *time <= range.last.as_nanos() && *s <= seen
                })
                .collect();
            // Stable: rows of one write keep their order.
            expected.sort_by_key(|(time, s, ..)| (*time, *s));
            let rows = sorted_rows(&chunks, &range, Sequence(seen), &table(Duplicates::Keep), None);
            let kept: Vec<_> = expected.iter().map(|(t, _, a, b)| (*t, a.clone(), b.clone())).collect();
            prop_assert_eq!(found(&rows), kept);
            let mut last: Vec<(i64, Option<Value>, Option<Value>)> = Vec::new();
            for (time, _, a, b) in expected {
                match last.last_mut().filter(|(t, ..)| *t == time) {
                    Some(slot) => {
                        slot.1 = a.or(slot.1.take());
                        slot.2 = b.or(slot.2.take());
                    }
                    None => last.push((time, a, b)),
                }
            }
            let rows = sorted_rows(&chunks, &range, Sequence(seen), &table(Duplicates::Last), None);
            prop_assert_eq!(found(&rows), last);
        }
    }
}
