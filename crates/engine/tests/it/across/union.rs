//! Streams of equal names in several parts, which nobody owns, or several parts own together by
//! stretches of time: whatever is read is read from the union of the rows that are shown, in which
//! the part with the lowest rank wins an instant. Streams have the names that added tags give them.

use super::compare::{self, Before};
use super::copies::{PartCopy, compare as compare_copies};
use super::part_database::{MINUTE, PartDatabase, SECOND, some_delete, span_until, table_spec};
use crate::support::{Dice, Fields, collect};
use headwater_engine::{
    Across, AddedTags, AggregateSpec, Bins, ConflictBounds, DeleteSpec, Owned, Owners, ScanSpec,
    Snapshot, SnapshotPart,
};
use headwater_io::{Env, ManualClock};
use headwater_types::{Batch, ClosedRange, FieldType, Level, StreamName, Timestamp, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Names of the parts in the order of their ranks, which is not that of their names.
const PARTS: [&str; 3] = ["this node", "edge-c", "edge-b"];
const TABLES: [&str; 2] = ["plain", "keeps"];
/// What the parts call `c` has these types, and in the union these names.
const C: [(FieldType, &str); 3] = [
    (FieldType::F64, "c"),
    (FieldType::String, "c@edge-c"),
    (FieldType::F64, "c"),
];

/// The rows of a stream: of each instant those of the part that wins, in their order.
type Union = BTreeMap<i64, Vec<Fields>>;

/// A part with a clock of its own, which stands still.
fn database(seed: u64) -> PartDatabase {
    PartDatabase::new(seed, &Arc::new(ManualClock::new(Env::MEMORY_START)))
}

/// Stretches of a stream with the parts that own it, as far as they have it.
fn stretches_of(stream: &StreamName) -> Vec<(ClosedRange, &'static [usize])> {
    let start = Env::MEMORY_START.as_nanos();
    let (first, second) = (start + 10 * MINUTE, start + 25 * MINUTE);
    let before = |until| ClosedRange::nanos(i64::MIN, until - 1);
    let from = |from| ClosedRange::nanos(from, i64::MAX);
    match stream.tag("id") {
        Some("0") => vec![(before(second), &[0, 1, 2]), (from(second), &[1, 2])],
        Some("1") => vec![
            (before(first), &[0, 2]),
            (ClosedRange::nanos(first, second - 1), &[1, 2]),
            (from(second), &[0]),
        ],
        _ => Vec::new(),
    }
}

/// Those of the parts that own something and have it, otherwise all that have it.
fn owners_of<T: Clone>(owners: &[usize], holders: &[T], number: impl Fn(&T) -> usize) -> Vec<T> {
    let own = holders.iter().filter(|one| owners.contains(&number(one)));
    let own: Vec<T> = own.cloned().collect();
    if own.is_empty() {
        holders.to_vec()
    } else {
        own
    }
}

fn owners() -> Owners {
    Owners::new(|stream, holders| {
        let stretches = stretches_of(stream).into_iter();
        let number = |name: &Arc<str>| PARTS.iter().position(|part| *part == &**name).unwrap();
        let owned = stretches.map(|(range, owners)| Owned {
            range,
            parts: owners_of(owners, holders, number),
        });
        owned.collect()
    })
}

/// What else there is than parts with streams of equal names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum With {
    Nothing,
    Owners,
    TagsAndOwners,
}

struct World {
    dice: Dice,
    with: With,
    parts: Vec<PartDatabase>,
    /// Tags that are added to the streams of each part.
    tags: [AddedTags; 3],
    /// True while streams have owners.
    is_owned: bool,
    /// Parts that are not among the others for now.
    absent: BTreeSet<usize>,
    newest: i64,
}

impl World {
    fn new(seed: u64, with: With) -> World {
        let parts: Vec<PartDatabase> = (0..3).map(|n| database(seed * 10 + n)).collect();
        for table in TABLES {
            for (part, c) in parts.iter().zip(C) {
                part.db()
                    .create_table(&table_spec(table, &[(c.0, "c")], &[]))
                    .unwrap();
            }
        }
        World {
            dice: Dice::new(seed),
            with,
            parts,
            tags: Default::default(),
            is_owned: with != With::Nothing,
            absent: BTreeSet::new(),
            newest: Env::MEMORY_START.as_nanos(),
        }
    }

    /// Stream 0 is at one part after the other, 1 at all of them at once, 2 mostly at one.
    fn stream(&mut self) -> (StreamName, usize) {
        let id = self.dice.below(3);
        let minutes = (self.newest - Env::MEMORY_START.as_nanos()) / MINUTE;
        let part = match id {
            0 => (minutes / 20) as usize % 3,
            1 => self.dice.index(3),
            _ if self.dice.chance(90) => 1,
            _ => self.dice.index(3),
        };
        let table = self.dice.pick(&TABLES);
        let mut tags = vec![("id", id.to_string())];
        if self.with == With::TagsAndOwners && self.dice.chance(30) {
            let key = self
                .dice
                .pick(&["gateway", "gateway", "exported_gateway", "a"]);
            tags.push((key, self.dice.pick(&["x", "y"]).to_owned()));
        }
        (StreamName::new(table, tags), part)
    }

    /// Gives a part other tags, or takes the owners away or sets them again.
    fn relabel(&mut self, part: usize, all: &mut Option<Across>) {
        if self.with == With::TagsAndOwners && self.dice.chance(80) {
            let all: [&[(&str, &str)]; 4] = [
                &[],
                &[("gateway", "x")],
                &[("gateway", "y")],
                &[("gateway", "x"), ("site", "north")],
            ];
            let tags = self.dice.pick(&all);
            self.tags[part] = AddedTags::new(tags.iter().copied()).unwrap();
        } else if self.with != With::Nothing {
            self.is_owned = !self.is_owned;
            if let Some(all) = all {
                all.set_owners(self.is_owned.then(owners));
            }
        }
    }

    fn fields(&mut self, part: usize) -> Vec<(&'static str, Value)> {
        let dice = &mut self.dice;
        let mut own = Vec::new();
        if dice.chance(80) {
            own.push(("v", Value::F64(dice.below(1000) as f64 / 8.0)));
        }
        if own.is_empty() || dice.chance(40) {
            own.push(("n", Value::I64(dice.below(100) as i64 - 50)));
        }
        if dice.chance(40) {
            let number = dice.below(20);
            own.push((
                "c",
                match C[part].0 {
                    FieldType::F64 => Value::F64(number as f64 / 4.0),
                    _ => Value::String(number.to_string()),
                },
            ));
        }
        own
    }

    fn write(&mut self) {
        let (stream, part) = self.stream();
        let is_late = self.dice.chance(25);
        let late = self.dice.below(20 * MINUTE as u64) as i64;
        let mut time = self.newest - if is_late { late } else { 0 };
        // Instants of full seconds are likely to be those of other parts.
        let step = self.dice.pick(&[SECOND, SECOND / 2, 700_000_001]);
        time -= time % SECOND;
        let mut batch = Batch::new();
        for _ in 0..1 + self.dice.below(if is_late { 12 } else { 60 }) {
            time += match self.dice.below(20) {
                0 => 0,
                1 => -5 * SECOND,
                _ => step,
            };
            let fields = self.fields(part);
            batch.stream(&stream).row(time, fields).unwrap();
        }
        self.parts[part].db().commit(batch).unwrap();
        self.newest = self.newest.max(time);
    }

    fn delete(&mut self) {
        let (stream, part) = self.stream();
        let spec = some_delete(&mut self.dice, &stream, self.newest);
        self.parts[part].db().delete(&spec).unwrap();
    }

    fn drop(&mut self) {
        let (stream, part) = self.stream();
        self.parts[part].drop_stream(&stream);
    }

    /// Does one thing. Snapshots keep a database from being opened again.
    fn step(&mut self, all: &mut Option<Across>) {
        let part = self.dice.index(3);
        let which = self.dice.below(100);
        let place = &mut self.parts[part];
        match which {
            0..=63 => self.write(),
            64..=67 => self.relabel(part, all),
            68..=75 => place.db().flush().unwrap(),
            76..=80 => self.delete(),
            81 => self.drop(),
            82..=88 => place.db().maintain().unwrap(),
            89..=93 => place.db().compact().unwrap(),
            94..=96 => {
                if !self.absent.remove(&part) && self.absent.is_empty() {
                    self.absent.insert(part);
                }
            }
            _ => {
                *all = None;
                place.reopen();
            }
        }
    }

    /// Brings the parts up to date, in any order.
    fn across(&mut self, all: &mut Option<Across>) -> Snapshot {
        let is_owned = self.is_owned;
        let all = all.get_or_insert_with(|| {
            let all = Across::default();
            all.set_owners(is_owned.then(owners));
            all
        });
        let from = self.dice.index(3);
        for n in (0..3).map(|n| (n + from) % 3) {
            if self.absent.contains(&n) {
                all.remove(PARTS[n]).unwrap();
            } else {
                let snapshot = self.parts[n].db().snapshot().unwrap();
                let tags = self.tags[n].clone();
                all.replace(SnapshotPart {
                    tags,
                    ..part(n, snapshot)
                })
                .unwrap();
            }
        }
        all.snapshot().unwrap()
    }

    /// The present parts that have each stream, by its shown name.
    fn holders(&self) -> BTreeMap<StreamName, Vec<usize>> {
        let mut holders: BTreeMap<StreamName, Vec<usize>> = BTreeMap::new();
        for (n, place) in self.present() {
            let snapshot = place.db().snapshot().unwrap();
            for table in TABLES {
                for name in snapshot.streams(table, &[]).unwrap() {
                    holders
                        .entry(self.tags[n].shown(&name))
                        .or_default()
                        .push(n);
                }
            }
        }
        holders
    }

    /// True where rows of a part are shown unless one before it has the instant.
    fn is_shown(&self, stream: &StreamName, holders: &[usize], part: usize, time: i64) -> bool {
        let stretches = stretches_of(stream);
        let at = Timestamp::from_nanos(time);
        match stretches.iter().find(|(range, _)| range.contains(at)) {
            Some((_, owners)) if self.is_owned => {
                owners_of(owners, holders, |part| *part).contains(&part)
            }
            _ => true,
        }
    }

    fn present(&self) -> impl Iterator<Item = (usize, &PartDatabase)> {
        let all = self.parts.iter().enumerate();
        all.filter(|(n, _)| !self.absent.contains(n))
    }

    /// The union of the rows of all present parts, and the number of rows that are not in it.
    fn union(&self) -> BTreeMap<StreamName, (Union, u64)> {
        let mut union: BTreeMap<StreamName, (Union, u64)> = BTreeMap::new();
        let holders = self.holders();
        for (n, place) in self.present() {
            let snapshot = place.db().snapshot().unwrap();
            for table in TABLES {
                for name in snapshot.streams(table, &[]).unwrap() {
                    let scan = snapshot.scan(&name, &ScanSpec::default()).unwrap();
                    let mut own = Union::new();
                    for (time, fields) in collect(scan).0 {
                        own.entry(time).or_default().push(renamed(fields, n));
                    }
                    let name = self.tags[n].shown(&name);
                    let holders = &holders[&name];
                    let (rows, hidden) = union.entry(name.clone()).or_default();
                    for (time, own) in own {
                        let is_shown = self.is_shown(&name, holders, n, time);
                        match rows.contains_key(&time) || !is_shown {
                            true => *hidden += own.len() as u64,
                            false => drop(rows.insert(time, own)),
                        }
                    }
                }
            }
        }
        union
    }

    fn span(&self) -> ClosedRange {
        span_until(self.newest)
    }

    fn some_range(&mut self) -> ClosedRange {
        let span = self.span();
        let width = (span.last.as_nanos() - span.first.as_nanos()) as u64;
        let mut at = || span.first.as_nanos() + self.dice.below(width) as i64;
        let (a, b) = (at(), at());
        // Full seconds are instants of rows.
        let a = if a % 3 == 0 { a - a % SECOND } else { a };
        match self.dice.below(4) {
            0 => ClosedRange::ALL,
            1 => ClosedRange::nanos(a, a + 10 * SECOND),
            _ => ClosedRange::nanos(a.min(b), a.max(b)),
        }
    }
}

pub(super) fn part(n: usize, snapshot: Snapshot) -> SnapshotPart {
    SnapshotPart {
        name: PARTS[n].into(),
        rank: n as u64 * 1_000,
        snapshot,
        tags: AddedTags::default(),
    }
}

/// The names of the union. A part alone, or the first with the field, keeps its own name.
fn renamed(fields: Fields, n: usize) -> Fields {
    let named = |field: String| match field.as_str() {
        "c" => C[n].1.to_owned(),
        _ => field,
    };
    fields.into_iter().map(|(f, v)| (named(f), v)).collect()
}

/// One database with the rows of the union.
fn one_database(
    union: &BTreeMap<StreamName, (Union, u64)>,
    c: &[(FieldType, &str)],
) -> PartDatabase {
    let one = database(1);
    for table in TABLES {
        one.db().create_table(&table_spec(table, c, &[])).unwrap();
    }
    let (empty, filled): (Vec<_>, Vec<_>) =
        union.iter().partition(|(_, (rows, _))| rows.is_empty());
    // Before the others: a deletion is about all streams that have these tags.
    for (name, _) in empty {
        let mut batch = Batch::new();
        batch.stream(name).row(0, [("v", 0.0.into())]).unwrap();
        one.db().commit(batch).unwrap();
        let range = ClosedRange::ALL;
        let (table, tags) = (name.table().to_owned(), name.tags().to_vec());
        one.db().delete(&DeleteSpec { table, tags, range }).unwrap();
    }
    for (name, (rows, _)) in filled {
        let mut batch = Batch::new();
        for (time, rows) in rows {
            for fields in rows {
                let fields = fields.iter().map(|(f, v)| (f.as_str(), v.clone()));
                batch.stream(name).row(*time, fields).unwrap();
            }
        }
        one.db().commit(batch).unwrap();
    }
    one.db().flush().unwrap();
    one
}

/// Names and types of `c` over the present parts.
fn types(world: &World) -> Vec<(FieldType, &'static str)> {
    let mut c: Vec<(FieldType, &str)> = world.present().map(|(n, _)| C[n]).collect();
    c.dedup();
    c.sort_by_key(|(_, name)| name.len());
    c.dedup();
    c
}

/// Counts and conflicts, against the union.
fn counts(across: &Snapshot, union: &BTreeMap<StreamName, (Union, u64)>) {
    let mut hidden: BTreeMap<StreamName, u64> = BTreeMap::new();
    for table in TABLES {
        let found = across.conflicts(table, &ConflictBounds::default()).unwrap();
        assert!(found.is_complete);
        for one in found.list {
            assert!(one.spans.iter().all(|span| !span.is_empty()));
            *hidden.entry(one.stream).or_default() += one.hidden_rows.unwrap();
        }
    }
    for (name, (rows, not_shown)) in union {
        let info = across.stream_info(name).unwrap();
        let ends = (
            rows.keys().next().copied(),
            rows.keys().next_back().copied(),
        );
        if hidden.contains_key(name) {
            let found = (
                info.first.map(|t| t.as_nanos()),
                info.last.map(|t| t.as_nanos()),
            );
            assert_eq!(found, ends, "{name}");
            let count: usize = rows.values().map(Vec::len).sum();
            assert_eq!(info.rows, count as u64, "{name}");
        }
        let told = hidden.remove(name).unwrap_or(0);
        assert_eq!(told, *not_shown, "{name}");
    }
    assert!(hidden.is_empty());
}

fn run(seed: u64, steps: usize, with: With) -> (u64, u64) {
    let mut world = World::new(seed, with);
    let mut dice = Dice::new(seed ^ 0xacce55);
    let mut all: Option<Across> = None;
    let mut before = Before::default();
    let mut conflicts = 0;
    for step in 0..steps {
        let known = all.is_some();
        world.step(&mut all);
        if known && all.is_none() {
            before.handles.clear();
        }
        // Without the first part `c` has another name, which the model of it does not know.
        if step % 9 != 8 || world.absent.contains(&0) {
            continue;
        }
        let across = world.across(&mut all);
        let union = world.union();
        conflicts += union.values().map(|(_, hidden)| hidden).sum::<u64>();
        let one = one_database(&union, &types(&world));
        let one = one.db().snapshot().unwrap();
        for (name, (rows, _)) in &union {
            let found = compare::rows(&across, name, &ScanSpec::default());
            let expected = rows
                .iter()
                .flat_map(|(t, rows)| rows.iter().map(|f| (*t, f.clone())));
            assert_eq!(found, expected.collect::<Vec<_>>(), "{name}");
            for _ in 0..2 {
                let range = world.some_range();
                compare::stream(&across, &one, name, range, &mut dice);
            }
        }
        let range = world.some_range();
        compare::lists(&across, &one, &mut dice, range);
        before.check(&across, world.span(), &mut dice);
        counts(&across, &union);
    }
    (conflicts, before.same_versions)
}

fn run_all(with: With) {
    let seeds = std::env::var("HEADWATER_MODEL_SEEDS").ok();
    let seeds = seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(6);
    let (mut conflicts, mut versions) = (0, 0);
    for seed in 1..=seeds {
        let found = run(seed, 150, with);
        conflicts += found.0;
        versions += found.1;
    }
    assert!(conflicts > 100 && versions > 20, "{conflicts} {versions}");
}

#[test]
fn parts_that_nobody_owns_answer_as_the_union_of_their_rows() {
    run_all(With::Nothing);
}

#[test]
fn what_several_parts_own_together_answers_as_the_union_of_their_rows() {
    run_all(With::Owners);
}

#[test]
fn streams_with_added_tags_answer_as_if_they_were_written_under_these_names() {
    run_all(With::TagsAndOwners);
}

#[test]
fn copies_with_holes_of_parts_with_streams_of_one_name_answer_as_the_databases_or_not_at_all() {
    for seed in 61..=63 {
        let mut world = World::new(seed, With::Nothing);
        for _ in 0..150 {
            world.step(&mut None);
        }
        let level = match seed {
            61 => Level::clamped(5),
            _ => Level::MIN,
        };
        let of = |n: usize| PartCopy::of_database(world.parts[n].db(), level);
        let far = [of(1), of(2)];
        let fresh = |n: usize| part(n, world.parts[n].db().snapshot().unwrap());
        let merged = |parts: Vec<SnapshotPart>| {
            let all = Across::default();
            if seed >= 62 {
                all.set_owners(Some(owners()));
            }
            for (n, part) in parts.into_iter().enumerate() {
                // Those of the copies, which are still one name.
                let tags = [("gateway", "x")]
                    .into_iter()
                    .filter(|_| seed == 63 && n > 0);
                let tags = AddedTags::new(tags).unwrap();
                all.replace(SnapshotPart { tags, ..part }).unwrap();
            }
            all.snapshot().unwrap()
        };
        let databases = merged((0..3).map(fresh).collect());
        let mut dice = Dice::new(seed);
        let (mut elsewhere, mut covered) = (0, 0);
        loop {
            let parts = vec![
                fresh(0),
                part(1, far[0].snapshot()),
                part(2, far[1].snapshot()),
            ];
            let copies = merged(parts);
            let found = compare_copies(&databases, &copies, &world.span());
            elsewhere = found.elsewhere.max(elsewhere);
            covered += coverage(&databases, &copies, world.span(), &mut dice);
            let more: Vec<bool> = far
                .iter()
                .map(|far| far.fetch(1 + dice.below(20_000)))
                .collect();
            if !more.contains(&true) {
                assert!(level != Level::MIN || found.elsewhere == 0);
                break;
            }
        }
        assert!(elsewhere > 0 && covered > 0, "{elsewhere} {covered}");
    }
}

/// A range of which all is said to be here can be read; how many there were.
fn coverage(databases: &Snapshot, copies: &Snapshot, span: ClosedRange, dice: &mut Dice) -> u64 {
    let mut covered = 0;
    for table in TABLES {
        for name in databases.streams(table, &[]).unwrap() {
            let width = (span.last.as_nanos() - span.first.as_nanos()) as u64;
            let from = span.first.as_nanos() + dice.below(width) as i64;
            let range = ClosedRange::nanos(from, from + dice.below(width / 4) as i64);
            let level = dice.pick(&[None, Some(4), Some(6)]).map(Level::clamped);
            let told = copies.coverage(&name, range, level).unwrap();
            if !told.iter().all(|one| one.is_here) {
                continue;
            }
            covered += 1;
            let found = match level {
                None => {
                    let spec = ScanSpec {
                        range,
                        ..ScanSpec::default()
                    };
                    let (_, errors) = collect(copies.scan(&name, &spec).unwrap());
                    errors.into_iter().next()
                }
                Some(level) => {
                    let first = level.bucket_span(level.bucket_of(range.first)).first;
                    let last = level.bucket_span(level.bucket_of(range.last)).last;
                    let spec = AggregateSpec {
                        range: ClosedRange::new(first, last),
                        bins: Bins::Level(level),
                        first_last: false,
                    };
                    copies.aggregate(&name, "v", &spec).err()
                }
            };
            assert!(
                found.is_none(),
                "{name} {range:?} {level:?}: {found:?}, told {told:?}"
            );
        }
    }
    covered
}
