//! Every way of reading, against one database and against the parts.

use super::world::{PARTS, STEADY, World};
use crate::model::same_aggregate;
use crate::support::{Dice, Fields, collect};
use headwater_engine::{
    Across, AggregateSpec, Bins, Comparison, ConflictBounds, DataVersion, Filter, OutermostSpec,
    PageStart, RowBlock, ScanSpec, Snapshot, StreamHandle, SummarySpec,
};
use headwater_types::{ClosedRange, FieldType, Level, StreamName, Timestamp, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

type Accepts<'a> = &'a mut dyn FnMut(&StreamName) -> headwater_engine::Result<bool>;

fn sorted<T: Ord>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = all.into_iter().collect();
    all.sort();
    all
}

/// Rows of a scan, which `visit` hands out too.
pub(super) fn rows(
    snapshot: &Snapshot,
    stream: &StreamName,
    spec: &ScanSpec,
) -> Vec<(i64, Fields)> {
    let scan = snapshot.scan(stream, spec).unwrap();
    let fields: Vec<String> = scan.fields().iter().map(|(name, _)| name.clone()).collect();
    let (rows, errors) = collect(scan);
    assert!(errors.is_empty(), "{errors:?}");
    let mut visited: Vec<(i64, Fields)> = Vec::new();
    let each = |block: RowBlock<'_>| {
        assert_eq!(block.width(), fields.len());
        for (row, time) in block.times().iter().enumerate() {
            let values = fields.iter().enumerate().filter_map(|(place, field)| {
                Some((field.clone(), block.column(place)?.get(row)?.to_owned()))
            });
            visited.push((*time, values.collect()));
        }
    };
    snapshot.visit(stream, spec, each).unwrap();
    assert_eq!(visited, rows, "{stream} {spec:?}");
    rows
}

fn some_range(dice: &mut Dice, world: &World) -> ClosedRange {
    let span = world.span();
    let width = (span.last.as_nanos() - span.first.as_nanos()) as u64;
    let mut at = || span.first.as_nanos() + dice.below(width) as i64;
    let (a, b) = (at(), at());
    match dice.below(4) {
        0 => ClosedRange::ALL,
        // At and around the instant of the move.
        1 => ClosedRange::nanos(a.min(world.moved_at()), world.moved_at()),
        2 => ClosedRange::nanos(world.moved_at(), b.max(world.moved_at())),
        _ => ClosedRange::nanos(a.min(b), a.max(b)),
    }
}

/// Definitions and lists.
pub(super) fn lists(across: &Snapshot, one: &Snapshot, dice: &mut Dice, range: ClosedRange) {
    assert_eq!(across.table_names(), one.table_names());
    for table in one.table_names() {
        let (a, b) = (
            across.table_info(&table).unwrap(),
            one.table_info(&table).unwrap(),
        );
        let fields = |t: &headwater_engine::TableInfo| {
            sorted(t.fields.iter().map(|f| (f.name.clone(), f.field_type)))
        };
        assert_eq!(fields(&a), fields(&b), "{table}");
        assert_eq!(
            (a.duplicates, a.retention, a.raw_for),
            (b.duplicates, b.retention, b.raw_for)
        );
        let names = one.streams(&table, &[]).unwrap();
        assert_eq!(across.streams(&table, &[]).unwrap(), names, "{table}");
        assert_eq!(across.stream_count(&table).unwrap(), names.len() as u64);
        let all: BTreeSet<String> = names
            .iter()
            .flat_map(|n| n.tags().iter().map(|(key, _)| key.clone()))
            .collect();
        assert!(
            all.iter().all(|key| a.tags.contains(key)),
            "{table} {all:?}"
        );
        pages(across, one, &table, dice);
        // Where partitions end says how far rows are aged and cut.
        if STEADY.contains(&table.as_str()) {
            let count = |s: &Snapshot| s.row_count(&table, range, &mut || true).unwrap();
            assert_eq!(count(across), count(one), "{table} {range:?}");
            outermost(across, one, &table, range, dice);
        }
    }
    assert!(across.table_info("none").is_err() && across.streams("none", &[]).is_err());
}

fn pages(across: &Snapshot, one: &Snapshot, table: &str, dice: &mut Dice) {
    let names = one.streams(table, &[]).unwrap();
    let limit = 1 + dice.below(4) as usize;
    let mut paged: Vec<StreamName> = Vec::new();
    loop {
        let page = across.streams_after(table, paged.last(), limit).unwrap();
        let is_last = page.len() < limit;
        paged.extend(page);
        if is_last {
            break;
        }
    }
    assert_eq!(paged, names, "{table} by {limit}");
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let odd = &mut |text: &str| text.contains("id=1") || text.contains("id=4");
        let a = across
            .streams_where(table, after.as_ref(), limit, odd)
            .unwrap();
        let b = one
            .streams_where(table, after.as_ref(), limit, odd)
            .unwrap();
        assert_eq!(a, b, "{table} by {limit}");
        found.extend(a.streams);
        match a.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    let wanted = [
        vec![("a".to_owned(), vec!["0".to_owned(), "2".to_owned()])],
        vec![("id".to_owned(), vec!["1".to_owned(), "8".to_owned()])],
        vec![],
    ];
    for wanted in wanted {
        let list = |s: &Snapshot| s.streams_having(table, &wanted, None, 5).unwrap();
        assert_eq!(list(across), list(one), "{table} {wanted:?}");
    }
    let handles = handles(across, table, limit);
    let by_number = sorted(handles.iter().map(|h| h.name().clone()));
    assert_eq!(by_number, sorted(names), "{table} by {limit}");
}

pub(super) fn handles(across: &Snapshot, table: &str, limit: usize) -> Vec<StreamHandle> {
    let mut all = Vec::new();
    let mut start = Some(PageStart::default());
    while let Some(from) = start {
        let page = across.handles_from(table, from, limit).unwrap();
        assert!(page.streams.len() <= limit);
        all.extend(page.streams);
        start = page.next;
    }
    all
}

fn outermost(across: &Snapshot, one: &Snapshot, table: &str, range: ClosedRange, dice: &mut Dice) {
    let spec = OutermostSpec {
        range,
        newest: dice.chance(50),
        limit: 1 + dice.below(5) as usize,
    };
    let some = dice.chance(50);
    let ends = |snapshot: &Snapshot| -> Vec<Option<Timestamp>> {
        let mut accepts = |name: &StreamName| Ok(name.tag("a").is_none());
        let accepts = some.then_some(&mut accepts as Accepts<'_>);
        let found = snapshot.outermost_streams(table, &spec, accepts, &mut || true);
        let found = found.unwrap();
        let distinct: BTreeSet<&StreamName> = found.iter().collect();
        assert_eq!(distinct.len(), found.len());
        assert!(!some || found.iter().all(|name| name.tag("a").is_none()));
        let end = |name: &StreamName| match spec.newest {
            true => snapshot.last_row_in(name, range).unwrap(),
            false => snapshot.first_row_in(name, range).unwrap(),
        };
        found.iter().map(end).collect()
    };
    assert_eq!(ends(across), ends(one), "{table} {spec:?}");
}

/// All ways of reading a stream. Aggregates may have been added up in another order.
pub(super) fn stream(
    a: &Snapshot,
    b: &Snapshot,
    name: &StreamName,
    range: ClosedRange,
    dice: &mut Dice,
) {
    let fields = b.fields(name.table()).unwrap();
    let spec = ScanSpec {
        range,
        ..ScanSpec::default()
    };
    assert_eq!(
        rows(a, name, &spec),
        rows(b, name, &spec),
        "{name} {range:?}"
    );
    let some = ["c", "v", "c@edge-c", "v"].map(str::to_owned).to_vec();
    let some: Vec<String> = some
        .into_iter()
        .filter(|f| fields.iter().any(|(name, _)| name == f))
        .collect();
    let spec = ScanSpec {
        fields: Some(some),
        ..spec
    };
    assert_eq!(
        rows(a, name, &spec),
        rows(b, name, &spec),
        "{name} {range:?}"
    );
    for (field, of) in &fields {
        assert_eq!(a.field_type(name, field).unwrap(), *of);
        let value = match of {
            FieldType::F64 => Value::F64(dice.below(40) as f64 / 8.0),
            FieldType::I64 => Value::I64(dice.below(20) as i64),
            _ => Value::String(dice.below(20).to_string()),
        };
        let comparison = match dice.below(3) {
            0 => Comparison::Equal,
            1 => Comparison::NotEqual,
            _ => Comparison::Less,
        };
        let filter = Filter {
            field: field.clone(),
            comparison,
            value,
        };
        let spec = ScanSpec {
            filters: vec![filter],
            ..spec.clone()
        };
        assert_eq!(
            rows(a, name, &spec),
            rows(b, name, &spec),
            "{name} {spec:?}"
        );
        let first = |s: &Snapshot| s.first_in(name, field, range).unwrap();
        let last = |s: &Snapshot| s.last_in(name, field, range).unwrap();
        assert_eq!(
            (first(a), last(a)),
            (first(b), last(b)),
            "{name}.{field} {range:?}"
        );
        buckets(a, b, name, field, range, dice);
    }
    let newest = |s: &Snapshot| {
        let all = s.last(name).unwrap().into_iter();
        all.map(|l| (l.field, (l.time, l.value)))
            .collect::<BTreeMap<_, _>>()
    };
    assert_eq!(newest(a), newest(b), "newest of {name}");
    let ends = |s: &Snapshot| {
        let first = s.first_row_in(name, range).unwrap();
        (first, s.last_row_in(name, range).unwrap())
    };
    assert_eq!(ends(a), ends(b), "{name} {range:?}");
    summaries(a, b, name, range, dice);
    for snapshot in [a, b] {
        assert!(snapshot.tile(name, "none", Level::clamped(0), 0).is_err());
        assert!(
            snapshot
                .scan(
                    name,
                    &ScanSpec {
                        fields: Some(vec!["none".into()]),
                        ..ScanSpec::default()
                    }
                )
                .is_err()
        );
    }
}

fn bins(dice: &mut Dice) -> Bins {
    match dice.below(3) {
        0 => Bins::Whole,
        1 => Bins::Every {
            width_ns: 1 + dice.below(900_000_000_000) as i64,
            origin_ns: dice.below(1000) as i64 - 500,
        },
        _ => Bins::Level(Level::clamped(dice.below(16) as i32 - 3)),
    }
}

fn buckets(
    a: &Snapshot,
    b: &Snapshot,
    name: &StreamName,
    field: &str,
    range: ClosedRange,
    dice: &mut Dice,
) {
    let spec = AggregateSpec {
        range,
        bins: bins(dice),
        first_last: dice.chance(50),
    };
    let what = format!("{name}.{field} {spec:?}");
    let found = a.aggregate(name, field, &spec).unwrap();
    let expected = b.aggregate(name, field, &spec).unwrap();
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found.start, expected.start, "{what}");
        assert_eq!(
            (&found.first, &found.last),
            (&expected.first, &expected.last),
            "{what}"
        );
        same_aggregate(&found.aggregate, &expected.aggregate, &what);
    }
    let level = Level::clamped(dice.below(10) as i32);
    let at = range.first.max(headwater_io::Env::MEMORY_START);
    let offset = level
        .bucket_of(at)
        .div_euclid(headwater_types::TILE_BUCKETS);
    let found = a.tile(name, field, level, offset).unwrap();
    let expected = b.tile(name, field, level, offset).unwrap();
    let what = format!("{name}.{field}, {level:?}, tile {offset}");
    assert_eq!(found.len(), expected.len(), "{what}");
    for ((bucket, found), (number, expected)) in found.iter().zip(&expected) {
        assert_eq!(bucket, number, "{what}");
        same_aggregate(found, expected, &what);
    }
}

fn summaries(a: &Snapshot, b: &Snapshot, name: &StreamName, range: ClosedRange, dice: &mut Dice) {
    let fields = b.fields(name.table()).unwrap();
    let mut fields: Vec<String> = fields.into_iter().map(|(field, _)| field).collect();
    if dice.chance(30) {
        fields.clear();
    }
    let spec = SummarySpec {
        range,
        bins: bins(dice),
        fields,
    };
    let what = format!("{name} {spec:?}");
    let (found, expected) = (
        a.summary(name, &spec).unwrap(),
        b.summary(name, &spec).unwrap(),
    );
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(
            (found.number, found.rows),
            (expected.number, expected.rows),
            "{what}"
        );
        assert_eq!(found.aggregates.len(), expected.aggregates.len());
        for (found, expected) in found.aggregates.iter().zip(&expected.aggregates) {
            same_aggregate(found, expected, &what);
        }
    }
}

/// Answers of before, by what says that they are the same.
#[derive(Default)]
pub(super) struct Before {
    versions: HashMap<(StreamName, i64, u64), Vec<(i64, Fields)>>,
    definitions: HashMap<u64, String>,
    pub(super) handles: Vec<StreamHandle>,
    pub(super) same_versions: u64,
    same_definitions: u64,
}

impl Before {
    pub(super) fn check(&mut self, across: &Snapshot, span: ClosedRange, dice: &mut Dice) {
        let told = |s: &Snapshot| {
            let names = s.table_names();
            let tables = names
                .iter()
                .map(|t| (s.table_info(t).unwrap(), s.streams(t, &[]).unwrap()));
            format!("{:?}", tables.collect::<Vec<_>>())
        };
        if let Some(definitions) = across.definitions() {
            let now = told(across);
            match self.definitions.get(&definitions) {
                Some(before) => {
                    assert_eq!(*before, now);
                    self.same_definitions += 1;
                }
                None => drop(self.definitions.insert(definitions, now)),
            }
        }
        for table in across.table_names() {
            for name in across.streams(&table, &[]).unwrap() {
                let cut = span.first.as_nanos() + 600_000_000_000 * dice.below(6) as i64;
                let range = ClosedRange::nanos(i64::MIN, cut);
                let spec = ScanSpec {
                    range,
                    ..ScanSpec::default()
                };
                let version: Option<DataVersion> = across.version(&name, &range).unwrap();
                let now = rows(across, &name, &spec);
                let key = (name, cut, version.unwrap().number);
                match self.versions.get(&key) {
                    Some(before) => {
                        assert_eq!(*before, now, "{key:?}");
                        self.same_versions += 1;
                    }
                    None => drop(self.versions.insert(key, now)),
                }
            }
        }
        for handle in &self.handles {
            let spec = ScanSpec::default();
            match across.scan(handle.name(), &spec) {
                Ok(scan) => {
                    let again = collect(handle.scan(across, &spec).unwrap()).0;
                    assert_eq!(again, collect(scan).0, "{:?}", handle.name());
                    let last = handle.last(across).unwrap();
                    assert_eq!(last, across.last(handle.name()).unwrap());
                }
                Err(error) => {
                    let again = handle.scan(across, &spec).err().unwrap();
                    assert_eq!(again.kind(), error.kind());
                }
            }
        }
        self.handles.truncate(20);
        let tables = across.table_names();
        let table = &tables[dice.index(tables.len())];
        self.handles.splice(0..0, handles(across, table, 3));
    }
}

fn conflicts(across: &Snapshot, world: &World) {
    let mut told = BTreeMap::new();
    let found = across
        .conflicts("moves", &ConflictBounds::default())
        .unwrap();
    assert!(found.is_complete);
    for conflict in found.list {
        assert!(conflict.hidden_rows.is_some());
        for span in &conflict.spans {
            assert!(!span.is_empty());
        }
        told.insert(
            (conflict.stream.clone(), conflict.part.to_string()),
            conflict.spans,
        );
    }
    for ((stream, part), (first, last)) in &world.strays {
        let spans = told.get(&(stream.clone(), (*part).to_owned()));
        let spans = spans.unwrap_or_else(|| panic!("{stream} of {part} is not told"));
        for at in [first, last] {
            let at = Timestamp::from_nanos(*at);
            assert!(
                spans.iter().any(|s| s.contains(at)),
                "{stream} of {part}: {spans:?}"
            );
        }
    }
    let known: BTreeSet<(StreamName, String)> = world
        .strays
        .keys()
        .map(|(s, p)| (s.clone(), (*p).to_owned()))
        .collect();
    assert!(told.keys().all(|key| known.contains(key)), "{told:?}");
}

fn run_simulation(seed: u64, steps: usize) -> (u64, u64) {
    let mut world = World::new(seed);
    let mut dice = Dice::new(seed ^ 0xacce55);
    let mut all: Option<Across> = None;
    let mut before = Before::default();
    for step in 0..steps {
        let known = all.is_some();
        world.step(&mut all);
        if known && all.is_none() {
            // Numbers mean something in one open database only, and yet none comes again.
            before.handles.clear();
        }
        if step % 7 != 6 {
            continue;
        }
        let across = world.across(&mut all);
        let one = world.one();
        let range = some_range(&mut dice, &world);
        lists(&across, &one, &mut dice, range);
        before.check(&across, world.span(), &mut dice);
        conflicts(&across, &world);
        for table in one.table_names() {
            for name in one.streams(&table, &[]).unwrap() {
                if STEADY.contains(&table.as_str()) {
                    let range = some_range(&mut dice, &world);
                    stream(&across, &one, &name, range, &mut dice);
                }
            }
        }
        for (n, part) in PARTS.iter().enumerate() {
            let part_of = world.part(n).snapshot().unwrap();
            for table in ["ages", "forgets"] {
                for name in part_of.streams(table, &[]).unwrap() {
                    as_in_part(&across, &part_of, part, &name, &world, &mut dice);
                }
            }
        }
    }
    (before.same_versions, before.same_definitions)
}

/// What lies in one part is what the part says, to the bit.
fn as_in_part(
    across: &Snapshot,
    part: &Snapshot,
    part_name: &str,
    name: &StreamName,
    world: &World,
    dice: &mut Dice,
) {
    let range = some_range(dice, world);
    let named = |field: &str| match (field, part_name) {
        ("c", "own") => "c".to_owned(),
        ("c", part) => format!("c@{part}"),
        (field, _) => field.to_owned(),
    };
    let renamed = |rows: Vec<(i64, Fields)>| -> Vec<(i64, Fields)> {
        let fields = |f: Fields| f.into_iter().map(|(f, v)| (named(&f), v)).collect();
        rows.into_iter().map(|(t, f)| (t, fields(f))).collect()
    };
    let spec = ScanSpec {
        range,
        ..ScanSpec::default()
    };
    assert_eq!(rows(across, name, &spec), renamed(rows(part, name, &spec)));
    assert_eq!(
        across.stream_info(name).unwrap(),
        part.stream_info(name).unwrap()
    );
    for (field, _) in part.fields(name.table()).unwrap() {
        let spec = AggregateSpec {
            range,
            bins: bins(dice),
            first_last: dice.chance(50),
        };
        assert_eq!(
            across.aggregate(name, &named(&field), &spec).unwrap(),
            part.aggregate(name, &field, &spec).unwrap()
        );
        let level = Level::clamped(dice.below(10) as i32);
        let offset = level
            .bucket_of(range.last.min(world.span().last))
            .div_euclid(headwater_types::TILE_BUCKETS);
        assert_eq!(
            across.tile(name, &named(&field), level, offset).unwrap(),
            part.tile(name, &field, level, offset).unwrap()
        );
        assert_eq!(
            across.last_in(name, &named(&field), range).unwrap(),
            part.last_in(name, &field, range).unwrap()
        );
    }
}

#[test]
fn several_databases_answer_as_one_that_was_written_all_of_it() {
    let (mut versions, mut definitions) = (0, 0);
    for seed in 1..=6 {
        let same = run_simulation(seed, 180);
        versions += same.0;
        definitions += same.1;
    }
    // They are of use: answers of before were found to be the same.
    assert!(
        versions > 100 && definitions > 10,
        "{versions} {definitions}"
    );
}
