//! Random operations against a plain sorted map, over every read path.

use headwater_codec::{
    Aggregate, Batch, ClosedRange, Column, Extremes, FieldType, Level, StreamName, Timestamp,
    Value, ValueRef,
};
use headwater_engine::{
    AggregateSpec, Bins, CheckReport, Comparison, Database, DeleteSpec, Duplicates, FieldSpec,
    Filter, FlushRule, LatePolicy, MergeScope, Options, RowBlock, ScanSpec, Snapshot, Stats,
    SummarySpec, TableSpec,
};
use headwater_io::{Clock, Env, ManualClock, NoThreads};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A small generator of numbers: the same seed gives the same test.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

type Fields = BTreeMap<String, Value>;

/// The stream as it should be: rows by time, then arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelStream {
    rows: Vec<(i64, Fields)>,
}

/// Values, each with its expiry.
type Expiring = BTreeMap<String, (Value, Option<i64>)>;

/// A stream with everything that was written and not deleted: each value with its expiry.
#[derive(Clone, Debug, Default)]
struct WrittenStream {
    rows: Vec<(i64, Expiring)>,
}

impl WrittenStream {
    fn put(&mut self, duplicates: Duplicates, time: i64, fields: &Fields, expires_at: Option<i64>) {
        let fields = fields
            .iter()
            .map(|(k, v)| (k.clone(), (v.clone(), expires_at)));
        let at = self.rows.partition_point(|(t, _)| *t <= time);
        if duplicates == Duplicates::Last
            && let Some((t, old)) = at.checked_sub(1).and_then(|i| self.rows.get_mut(i))
            && *t == time
        {
            old.extend(fields);
            return;
        }
        self.rows.insert(at, (time, fields.collect()));
    }

    /// What is there at an instant: a row goes when it has lost its last value.
    fn at(&self, now: i64) -> ModelStream {
        let rows = self.rows.iter().filter_map(|(time, fields)| {
            let stays = |expiry: &Option<i64>| expiry.is_none_or(|e| e > now);
            let left: Fields = fields
                .iter()
                .filter(|(_, (_, expiry))| stays(expiry))
                .map(|(k, (v, _))| (k.clone(), v.clone()))
                .collect();
            (!left.is_empty() || fields.is_empty()).then_some((*time, left))
        });
        ModelStream {
            rows: rows.collect(),
        }
    }
}

pub(crate) const FIELDS: [(&str, FieldType); 6] = [
    ("a", FieldType::F64),
    ("b", FieldType::I64),
    ("c", FieldType::U64),
    ("d", FieldType::Bool),
    ("e", FieldType::String),
    ("f", FieldType::Bytes),
];

fn random_value(random: &mut Random, field_type: FieldType) -> Value {
    match field_type {
        FieldType::F64 => Value::F64(match random.below(40) {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => f64::NEG_INFINITY,
            3 => -0.0,
            4 => f64::from_bits(random.next()),
            5 => 1e300,
            _ => (random.below(10_000) as f64) / 100.0 - 20.0,
        }),
        FieldType::I64 => Value::I64(match random.below(40) {
            0 => i64::MIN,
            1 => i64::MAX,
            _ => random.below(1000) as i64 - 500,
        }),
        FieldType::U64 => Value::U64(if random.chance(3) {
            u64::MAX
        } else {
            random.below(1 << 40)
        }),
        FieldType::Bool => Value::Bool(random.chance(50)),
        FieldType::String => Value::String(
            ["", "on", "off", "übergröße", "standby"][random.below(5) as usize].to_owned(),
        ),
        FieldType::Bytes => Value::Bytes((0..random.below(5)).map(|b| b as u8).collect()),
    }
}

/// Times as sensors make them: mostly rising, some late, some far away, some twice.
struct Times {
    next: i64,
    step: i64,
}

impl Times {
    fn next(&mut self, random: &mut Random) -> i64 {
        match random.below(100) {
            0..=69 => {
                self.next = self
                    .next
                    .saturating_add(1 + random.below(self.step as u64) as i64);
                self.next
            }
            70..=89 => self.next - random.below(self.step as u64 * 50) as i64,
            90..=94 => self.next,
            95..=97 => self.next - random.below(self.step as u64 * 5000) as i64,
            98 => random.next() as i64,
            _ => [i64::MIN, i64::MAX, 0, -1, 1][random.below(5) as usize],
        }
    }
}

pub(crate) struct Setup {
    pub(crate) duplicates: Duplicates,
    pub(crate) policy: LatePolicy,
    pub(crate) rule: FlushRule,
    pub(crate) late_runs_max: usize,
    /// Few streams and large partitions, so that pyramids grow tall.
    pub(crate) tall: bool,
    /// The policy changes at random moments.
    pub(crate) switches: bool,
}

pub(crate) fn options(setup: &Setup) -> Options {
    Options {
        memory_budget_bytes: 1 << 20,
        shards: 2,
        late_policy: setup.policy.into(),
        flush_rule: setup.rule,
        late_runs_max: setup.late_runs_max,
        partition_target_bytes: if setup.tall { 1 << 20 } else { 8 << 10 },
        partition_bytes_max: if setup.tall { 2 << 20 } else { 24 << 10 },
        leaf_events: 32,
        bucket_events: 4,
        groups_max: 12,
        log_file_bytes: 32 << 10,
        ..Options::new("/db")
    }
}

fn environment(clock: &Arc<ManualClock>) -> Env {
    Env {
        threads: Arc::new(NoThreads),
        clock: Arc::clone(clock) as Arc<_>,
        ..Env::memory()
    }
}

struct World {
    env: Env,
    db: Option<Database>,
    setup: Setup,
    clock: Arc<ManualClock>,
    /// Some values expire. (Then no rows are without values: nothing could tell those from rows that have lost theirs.)
    expires: bool,
    model: BTreeMap<StreamName, WrittenStream>,
    times: Vec<Times>,
    random: Random,
}

impl World {
    fn new(seed: u64, setup: Setup) -> World {
        let clock = Arc::new(ManualClock::new(Timestamp::from_nanos(
            1_700_000_000_000_000_000,
        )));
        let env = environment(&clock);
        let db = Database::open_in(env.clone(), options(&setup)).unwrap();
        let fields = FIELDS
            .iter()
            .map(|(n, t)| FieldSpec {
                name: (*n).to_owned(),
                field_type: *t,
            })
            .collect();
        db.create_table(&TableSpec {
            duplicates: setup.duplicates,
            leaf_events: Some(32),
            fields,
            ..TableSpec::new("t")
        })
        .unwrap();
        let times = (0..if setup.tall { 2 } else { 5 })
            .map(|i| Times {
                next: 1_700_000_000_000_000_000 + i * 1_000_000,
                step: [1_000_000_000, 50_000_000, 7, 60_000_000_000, 1_000][i as usize],
            })
            .collect();
        World {
            env,
            db: Some(db),
            setup,
            clock,
            expires: seed % 2 == 1,
            model: BTreeMap::new(),
            times,
            random: Random::new(seed),
        }
    }

    fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    /// What a snapshot opened now should show.
    fn visible(&self) -> BTreeMap<StreamName, ModelStream> {
        let now = self.clock.now().as_nanos();
        let streams = self.model.iter();
        streams
            .map(|(name, stream)| (name.clone(), stream.at(now)))
            .collect()
    }

    fn write(&mut self) {
        let mut batch = Batch::new();
        let expires_at = (self.expires && self.random.chance(12)).then(|| {
            let seconds = self.random.below(60) as i64;
            self.clock.now().as_nanos() + seconds * 1_000_000_000
        });
        if let Some(at) = expires_at {
            batch.expire_at(Timestamp::from_nanos(at));
        }
        let count = 1 + self.random.below(if self.random.0.is_multiple_of(5) {
            200
        } else {
            12
        });
        for _ in 0..count {
            let stream = self.random.below(self.times.len() as u64) as usize;
            let name = StreamName::new("t", [("s", stream.to_string())]);
            let time = self.times[stream].next(&mut self.random);
            let mut fields = Fields::new();
            for (field, field_type) in FIELDS {
                if self.random.chance(if field == "a" { 95 } else { 40 }) {
                    fields.insert(field.to_owned(), random_value(&mut self.random, field_type));
                }
            }
            if fields.is_empty() && self.expires {
                fields.insert("d".to_owned(), Value::Bool(true));
            }
            let row: Vec<(&str, Value)> = fields
                .iter()
                .map(|(k, v)| (k.as_str(), v.clone()))
                .collect();
            batch.stream(&name).row(time, row).unwrap();
            self.model.entry(name).or_default().put(
                self.setup.duplicates,
                time,
                &fields,
                expires_at,
            );
        }
        let written = self.db().commit(batch).unwrap();
        assert!(written.refused.is_empty(), "{:?}", written.refused);
    }

    /// Deletes a range, of one stream or of all, or drops a stream.
    fn delete(&mut self) {
        let names: Vec<StreamName> = self.model.keys().cloned().collect();
        let Some(name) = names.get(self.random.below(names.len().max(1) as u64) as usize) else {
            return;
        };
        let tags = name.tags().to_vec();
        if self.random.chance(6) {
            assert_eq!(self.db().drop_streams("t", &tags).unwrap(), 1);
            self.model.remove(name);
            return;
        }
        let visible = self.visible();
        let range = match visible.get(name) {
            Some(stream) if !stream.rows.is_empty() && self.random.chance(98) => {
                // Mostly a few rows.
                let random = &mut self.random;
                if random.chance(20) {
                    random_range(random, stream)
                } else {
                    let from = random.below(stream.rows.len() as u64) as usize;
                    let to = (from + random.below(25) as usize).min(stream.rows.len() - 1);
                    let late = random.below(2) as i64;
                    ClosedRange::nanos(stream.rows[from].0.saturating_add(late), stream.rows[to].0)
                }
            }
            _ => ClosedRange::ALL,
        };
        let all = self.random.chance(20);
        let spec = DeleteSpec {
            table: "t".into(),
            tags: if all { Vec::new() } else { tags },
            range,
        };
        if range.is_empty() {
            self.db().delete(&spec).unwrap_err();
            return;
        }
        self.db().delete(&spec).unwrap();
        for (other, stream) in &mut self.model {
            if all || other == name {
                let inside = |t: i64| range.contains(Timestamp::from_nanos(t));
                stream.rows.retain(|(t, _)| !inside(*t));
            }
        }
    }

    fn reopen(&mut self) {
        self.db.take().unwrap().close().unwrap();
        self.db = Some(Database::open_in(self.env.clone(), options(&self.setup)).unwrap());
    }

    fn step(&mut self) {
        if self.random.chance(30) {
            self.clock
                .advance(Duration::from_secs(self.random.below(10)));
        }
        if self.setup.switches && self.random.chance(15) {
            let policies = policies();
            let policy = policies[self.random.below(policies.len() as u64) as usize];
            self.db().set_late_policy(policy.into()).unwrap();
        }
        match self.random.below(100) {
            0..=75 => self.write(),
            76..=79 => self.delete(),
            80..=89 => self.db().flush().unwrap(),
            90..=92 => self.reopen(),
            93 => self.db().compact().unwrap(),
            _ => {
                let snapshot = self.db().snapshot().unwrap();
                let model = self.visible();
                // What is written, flushed and compacted while a snapshot is open does not change it.
                for _ in 0..self.random.below(4) {
                    self.write();
                }
                if self.random.chance(30) {
                    self.delete();
                }
                self.db().flush().unwrap();
                if self.random.chance(30) {
                    self.db().compact().unwrap();
                }
                check(&snapshot, &model, &mut self.random);
            }
        }
    }
}

/// Compares every read path of a snapshot with the model.
pub(crate) fn check(
    snapshot: &Snapshot,
    model: &BTreeMap<StreamName, ModelStream>,
    random: &mut Random,
) {
    let names = snapshot.streams("t", &[]).unwrap();
    for name in model.keys() {
        assert!(names.contains(name), "{name} is missing");
    }
    for (name, stream) in model {
        check_scan(snapshot, name, stream, ClosedRange::ALL);
        if stream.rows.is_empty() {
            assert!(snapshot.last(name).unwrap().is_empty(), "{name}");
            continue;
        }
        let range = random_range(random, stream);
        check_scan(snapshot, name, stream, range);
        check_filter(snapshot, name, stream, range, random);
        check_last(snapshot, name, stream);
        for (field, _) in FIELDS {
            check_aggregates(snapshot, name, stream, field, range, random);
            check_tiles(snapshot, name, stream, field, random);
        }
    }
}

fn random_range(random: &mut Random, stream: &ModelStream) -> ClosedRange {
    let pick = |random: &mut Random| stream.rows[random.below(stream.rows.len() as u64) as usize].0;
    let (a, b) = (pick(random), pick(random));
    ClosedRange::nanos(a.min(b).saturating_add(random.below(2) as i64), a.max(b))
}

fn rows_of(snapshot: &Snapshot, name: &StreamName, spec: &ScanSpec) -> Vec<(i64, Fields)> {
    let scan = snapshot.scan(name, spec).unwrap();
    let fields: Vec<String> = scan.fields().iter().map(|(n, _)| n.clone()).collect();
    let mut out = Vec::new();
    for chunk in scan {
        let chunk = chunk.unwrap();
        for (row, time) in chunk.times.iter().enumerate() {
            let values = fields
                .iter()
                .zip(&chunk.columns)
                .filter_map(|(f, c)| Some((f.clone(), c.get(row)?.to_owned())));
            out.push((*time, values.collect()));
        }
    }
    let mut visited = Vec::new();
    let each = |rows: RowBlock<'_>| {
        assert!(rows.len() > 0 && rows.width() == fields.len());
        for (row, time) in rows.times().iter().enumerate() {
            let values = fields.iter().enumerate().filter_map(|(place, field)| {
                let value = rows.column(place)?.get(row)?;
                assert_eq!(rows.field_type(place), Some(value.field_type()));
                Some((field.clone(), value.to_owned()))
            });
            visited.push((*time, values.collect()));
        }
    };
    snapshot.visit(name, spec, each).unwrap();
    same_rows(&visited, &out, &format!("visit of {name} {:?}", spec.range));
    out
}

fn same_rows(found: &[(i64, Fields)], expected: &[(i64, Fields)], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: number of rows");
    for (row, ((t, f), (u, g))) in found.iter().zip(expected).enumerate() {
        assert_eq!(t, u, "{what}: time of row {row}");
        assert_eq!(
            f.keys().collect::<Vec<_>>(),
            g.keys().collect::<Vec<_>>(),
            "{what}: fields of row {row} at {t}"
        );
        for (key, value) in f {
            let other = &g[key];
            assert!(
                value.as_ref().same_bits(&other.as_ref()),
                "{what}: row {row} at {t}, {key}: {value:?} is not {other:?}"
            );
        }
    }
}

fn inside(stream: &ModelStream, range: ClosedRange) -> Vec<(i64, Fields)> {
    stream
        .rows
        .iter()
        .filter(|(t, _)| range.contains(Timestamp::from_nanos(*t)))
        .cloned()
        .collect()
}

fn check_scan(snapshot: &Snapshot, name: &StreamName, stream: &ModelStream, range: ClosedRange) {
    let spec = ScanSpec {
        range,
        ..ScanSpec::default()
    };
    same_rows(
        &rows_of(snapshot, name, &spec),
        &inside(stream, range),
        &format!("scan {name} {range:?}"),
    );
    let spec = ScanSpec {
        range,
        fields: Some(vec!["c".into(), "a".into()]),
        ..ScanSpec::default()
    };
    let expected: Vec<(i64, Fields)> = inside(stream, range)
        .into_iter()
        .map(|(t, f)| {
            (
                t,
                f.into_iter()
                    .filter(|(k, _)| k == "a" || k == "c")
                    .collect(),
            )
        })
        .collect();
    same_rows(
        &rows_of(snapshot, name, &spec),
        &expected,
        &format!("scan of two fields {name} {range:?}"),
    );
}

fn compare(comparison: Comparison, a: ValueRef<'_>, b: ValueRef<'_>) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let total = matches!(
        comparison,
        Comparison::TotalEqual
            | Comparison::TotalNotEqual
            | Comparison::TotalLess
            | Comparison::TotalLessOrEqual
            | Comparison::TotalGreater
            | Comparison::TotalGreaterOrEqual
    );
    let ordering = match (a, b) {
        (ValueRef::F64(a), ValueRef::F64(b)) if total => Some(a.total_cmp(&b)),
        (ValueRef::F64(a), ValueRef::F64(b)) => a.partial_cmp(&b),
        (ValueRef::I64(a), ValueRef::I64(b)) => Some(a.cmp(&b)),
        (ValueRef::U64(a), ValueRef::U64(b)) => Some(a.cmp(&b)),
        (ValueRef::Bool(a), ValueRef::Bool(b)) => Some(a.cmp(&b)),
        (ValueRef::String(a), ValueRef::String(b)) => Some(a.cmp(b)),
        (ValueRef::Bytes(a), ValueRef::Bytes(b)) => Some(a.cmp(b)),
        _ => panic!("types"),
    };
    match comparison {
        Comparison::Equal | Comparison::TotalEqual => ordering == Some(Equal),
        Comparison::NotEqual | Comparison::TotalNotEqual => ordering != Some(Equal),
        Comparison::Less | Comparison::TotalLess => ordering == Some(Less),
        Comparison::LessOrEqual | Comparison::TotalLessOrEqual => {
            matches!(ordering, Some(Less | Equal))
        }
        Comparison::Greater | Comparison::TotalGreater => ordering == Some(Greater),
        Comparison::GreaterOrEqual | Comparison::TotalGreaterOrEqual => {
            matches!(ordering, Some(Greater | Equal))
        }
    }
}

fn check_filter(
    snapshot: &Snapshot,
    name: &StreamName,
    stream: &ModelStream,
    range: ClosedRange,
    random: &mut Random,
) {
    let comparisons = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
        Comparison::TotalEqual,
        Comparison::TotalNotEqual,
        Comparison::TotalLess,
        Comparison::TotalLessOrEqual,
        Comparison::TotalGreater,
        Comparison::TotalGreaterOrEqual,
    ];
    for (field, field_type) in FIELDS {
        let comparison = comparisons[random.below(6) as usize];
        let value = random_value(random, field_type);
        let expected: Vec<(i64, Fields)> = inside(stream, range)
            .into_iter()
            .filter(|(_, f)| {
                f.get(field)
                    .is_some_and(|v| compare(comparison, v.as_ref(), value.as_ref()))
            })
            .collect();
        let filter = Filter {
            field: field.into(),
            comparison,
            value: value.clone(),
        };
        let spec = ScanSpec {
            range,
            filters: vec![filter],
            ..ScanSpec::default()
        };
        same_rows(
            &rows_of(snapshot, name, &spec),
            &expected,
            &format!("{name} {field} {comparison:?} {value:?}"),
        );
    }
}

fn check_last(snapshot: &Snapshot, name: &StreamName, stream: &ModelStream) {
    let found = snapshot.last(name).unwrap();
    for (field, _) in FIELDS {
        let expected = stream
            .rows
            .iter()
            .rev()
            .find_map(|(t, f)| Some((*t, f.get(field)?)));
        let found = found.iter().find(|l| l.field == field);
        match (found, expected) {
            (None, None) => {}
            (Some(found), Some((time, value))) => {
                assert_eq!(found.time.as_nanos(), time, "last {name} {field}");
                assert!(
                    found.value.as_ref().same_bits(&value.as_ref()),
                    "last {name} {field}: {found:?} is not {value:?}"
                );
            }
            other => panic!("last {name} {field}: {other:?}"),
        }
    }
}

/// The aggregate of values as one column: the reference every other way of computing it is compared with.
pub(crate) fn reference(rows: &[(i64, Value)], field_type: FieldType) -> Aggregate {
    let mut column = Column::new(field_type);
    let times: Vec<i64> = rows.iter().map(|(t, _)| *t).collect();
    for (_, value) in rows {
        assert!(column.push(value.as_ref()));
    }
    Aggregate::of(&times, &column, 0..rows.len())
}

pub(crate) fn same_aggregate(a: &Aggregate, b: &Aggregate, what: &str) {
    assert_eq!(
        (
            a.count,
            a.nan,
            a.positive_infinite,
            a.negative_infinite,
            a.sum,
            a.time_sum
        ),
        (
            b.count,
            b.nan,
            b.positive_infinite,
            b.negative_infinite,
            b.sum,
            b.time_sum
        ),
        "{what}"
    );
    let largest = match (a.extremes, b.extremes) {
        (Extremes::F64(l, h), Extremes::F64(m, i)) => {
            assert_eq!(
                (l.to_bits(), h.to_bits()),
                (m.to_bits(), i.to_bits()),
                "{what}: extremes"
            );
            l.abs().max(h.abs())
        }
        (x, y) => {
            assert_eq!(x, y, "{what}: extremes");
            match x {
                Extremes::I64(l, h) => l.unsigned_abs().max(h.unsigned_abs()) as f64,
                Extremes::U64(_, h) => h as f64,
                _ => 0.0,
            }
        }
    };
    let close = |x: Option<f64>, y: Option<f64>, tolerance: f64| match (x, y) {
        (Some(x), Some(y)) => {
            x == y
                || (x - y).abs() <= tolerance
                || (!tolerance.is_finite() && !x.is_nan() && !y.is_nan())
        }
        (x, y) => x.is_none() && y.is_none(),
    };
    assert!(
        close(a.mean(), b.mean(), 1e-12 * largest),
        "{what}: mean {:?} {:?}",
        a.mean(),
        b.mean()
    );
    let spread = (b.mean().unwrap_or(0.0).powi(2) + b.variance().unwrap_or(0.0)).sqrt();
    assert!(
        close(a.stddev(), b.stddev(), 1e-12 * spread),
        "{what}: stddev {:?} {:?}",
        a.stddev(),
        b.stddev()
    );
}

fn values_of(stream: &ModelStream, field: &str, range: ClosedRange) -> Vec<(i64, Value)> {
    inside(stream, range)
        .into_iter()
        .filter_map(|(t, mut f)| Some((t, f.remove(field)?)))
        .collect()
}

/// A summary has the rows of a scan and the aggregates of the fields, in the same bins.
fn check_summary(
    snapshot: &Snapshot,
    name: &StreamName,
    stream: &ModelStream,
    field: &str,
    spec: &AggregateSpec,
) {
    let AggregateSpec { range, bins, .. } = *spec;
    let asked = SummarySpec {
        range,
        bins,
        fields: vec![field.to_owned(), FIELDS[0].0.to_owned()],
    };
    let what = format!("summary {name} {asked:?}");
    let found = snapshot.summary(name, &asked).unwrap();
    let number = |time: i64| match bins {
        Bins::Whole => 0,
        Bins::Every {
            width_ns,
            origin_ns,
        } => (i128::from(time) - i128::from(origin_ns)).div_euclid(i128::from(width_ns)),
        Bins::Level(level) => i128::from(level.bucket_of(Timestamp::from_nanos(time))),
    };
    let mut rows: BTreeMap<i128, u64> = BTreeMap::new();
    for (time, _) in inside(stream, range) {
        *rows.entry(number(time)).or_default() += 1;
    }
    let counted: BTreeMap<i128, u64> = found.iter().map(|b| (b.number, b.rows)).collect();
    assert_eq!(counted, rows, "{what}");
    for (at, asked) in asked.fields.iter().enumerate() {
        let of_type = FIELDS.iter().find(|(f, _)| f == asked).unwrap().1;
        let mut expected: BTreeMap<i128, Vec<(i64, Value)>> = BTreeMap::new();
        for (time, value) in values_of(stream, asked, range) {
            expected
                .entry(number(time))
                .or_default()
                .push((time, value));
        }
        for bin in &found {
            let rows = expected.remove(&bin.number).unwrap_or_default();
            same_aggregate(&bin.aggregates[at], &reference(&rows, of_type), &what);
        }
        assert!(expected.is_empty(), "{what}");
    }
}

fn check_aggregates(
    snapshot: &Snapshot,
    name: &StreamName,
    stream: &ModelStream,
    field: &str,
    range: ClosedRange,
    random: &mut Random,
) {
    let field_type = FIELDS.iter().find(|(f, _)| *f == field).unwrap().1;
    let widths = [
        1,
        1_000,
        7_000_000_000,
        60_000_000_000,
        3_600_000_000_000,
        i64::MAX,
    ];
    let bins = match random.below(3) {
        0 => Bins::Whole,
        1 => Bins::Every {
            width_ns: widths[random.below(6) as usize],
            origin_ns: random.below(1000) as i64 - 500,
        },
        _ => Bins::Level(Level::clamped(random.below(61) as i32 - 20)),
    };
    for range in [range, ClosedRange::ALL] {
        let spec = AggregateSpec {
            range,
            bins,
            first_last: random.chance(50),
        };
        let found = snapshot.aggregate(name, field, &spec).unwrap();
        let mut expected: BTreeMap<i128, Vec<(i64, Value)>> = BTreeMap::new();
        for (time, value) in values_of(stream, field, range) {
            let bin = match bins {
                Bins::Whole => 0,
                Bins::Every {
                    width_ns,
                    origin_ns,
                } => (i128::from(time) - i128::from(origin_ns)).div_euclid(i128::from(width_ns)),
                Bins::Level(level) => i128::from(level.bucket_of(Timestamp::from_nanos(time))),
            };
            expected.entry(bin).or_default().push((time, value));
        }
        check_summary(snapshot, name, stream, field, &spec);
        let what = format!("aggregate {name}.{field} {spec:?}");
        assert_eq!(found.len(), expected.len(), "{what}: bins");
        for (bin, rows) in found.iter().zip(expected.values()) {
            same_aggregate(&bin.aggregate, &reference(rows, field_type), &what);
            if spec.first_last {
                let (first, last) = (rows.first().unwrap(), rows.last().unwrap());
                let (t, v) = bin.first.as_ref().unwrap();
                assert!(
                    t.as_nanos() == first.0 && v.as_ref().same_bits(&first.1.as_ref()),
                    "{what}: first"
                );
                let (t, v) = bin.last.as_ref().unwrap();
                assert!(
                    t.as_nanos() == last.0 && v.as_ref().same_bits(&last.1.as_ref()),
                    "{what}: last"
                );
            }
        }
    }
}

fn check_tiles(
    snapshot: &Snapshot,
    name: &StreamName,
    stream: &ModelStream,
    field: &str,
    random: &mut Random,
) {
    let field_type = FIELDS.iter().find(|(f, _)| *f == field).unwrap().1;
    let level = Level::clamped(random.below(61) as i32 - 20);
    let time = stream.rows[random.below(stream.rows.len() as u64) as usize].0;
    let offset = level.bucket_of(Timestamp::from_nanos(time)).div_euclid(512);
    let found = snapshot.tile(name, field, level, offset).unwrap();
    let buckets = level.tile_buckets(offset).unwrap();
    let span = level.span(*buckets.start(), *buckets.end());
    let mut expected: BTreeMap<i64, Vec<(i64, Value)>> = BTreeMap::new();
    for (time, value) in values_of(stream, field, span) {
        expected
            .entry(level.bucket_of(Timestamp::from_nanos(time)))
            .or_default()
            .push((time, value));
    }
    let what = format!("tile {name}.{field} level {} offset {offset}", level.get());
    assert_eq!(
        found.iter().map(|(b, _)| *b).collect::<Vec<_>>(),
        expected.keys().copied().collect::<Vec<_>>(),
        "{what}: buckets"
    );
    for ((_, aggregate), rows) in found.iter().zip(expected.values()) {
        same_aggregate(aggregate, &reference(rows, field_type), &what);
    }
}

fn run(seed: u64, steps: usize, setup: Setup) -> (Stats, CheckReport) {
    let mut world = World::new(seed, setup);
    for step in 0..steps {
        world.step();
        if step % 20 == 19 {
            let snapshot = world.db().snapshot().unwrap();
            let visible = world.visible();
            check(&snapshot, &visible, &mut world.random);
        }
    }
    world.reopen();
    let snapshot = world.db().snapshot().unwrap();
    let visible = world.visible();
    check(&snapshot, &visible, &mut world.random);
    drop(snapshot);
    let stats = world.db().stats().unwrap();
    world.db.take().unwrap().close().unwrap();
    let report = headwater_engine::check(world.env.clone(), options(&world.setup)).unwrap();
    assert!(report.is_sound(), "{:#?}", report.damages);
    (stats, report)
}

/// What happened over several runs, so that a test can tell that it tested something.
#[derive(Debug, Default)]
struct Happened {
    merged: u64,
    late_run: u64,
    folded: u64,
    compacted: u64,
    cut: u64,
    blocks: u64,
    partitions: u64,
}

impl Happened {
    fn add(&mut self, (stats, report): (Stats, CheckReport)) {
        self.merged += stats.events_merge;
        self.late_run += stats.events_late_run;
        self.folded += stats.events_fold;
        self.compacted += stats.events_compaction;
        self.cut += stats.events_delete;
        self.partitions = self.partitions.max(stats.partitions);
        self.blocks += report.blocks;
    }
}

pub(crate) fn policies() -> Vec<LatePolicy> {
    let mut out = Vec::new();
    for scope in [MergeScope::Touched, MergeScope::Overlap] {
        for retain in [0, 10] {
            for policy in [
                LatePolicy::conventional(),
                LatePolicy::separate(0.5),
                LatePolicy::separate(0.9),
            ] {
                out.push(LatePolicy {
                    merge_scope: scope,
                    retain_events: retain,
                    ..policy
                });
            }
        }
    }
    out
}

/// Further seeds for a longer run: `HEADWATER_MODEL_SEEDS=100 cargo test -p headwater-engine model`.
fn extra_seeds() -> u64 {
    std::env::var("HEADWATER_MODEL_SEEDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}

#[test]
fn random_operations_equal_a_sorted_map() {
    let mut happened = Happened::default();
    let mut seed = 1;
    for round in 0..=extra_seeds() {
        for policy in policies() {
            for duplicates in [Duplicates::Last, Duplicates::Keep] {
                for late_runs_max in [0, 3] {
                    let setup = Setup {
                        duplicates,
                        policy,
                        rule: FlushRule::Production,
                        late_runs_max,
                        tall: false,
                        switches: false,
                    };
                    happened.add(run(seed + round * 10_000, 60, setup));
                    seed += 1;
                }
            }
        }
    }
    println!("{happened:?}");
    assert!(
        happened.merged > 1000 && happened.late_run > 1000 && happened.folded > 1000,
        "{happened:?}"
    );
    assert!(
        happened.compacted > 1000
            && happened.cut > 1000
            && happened.blocks > 100
            && happened.partitions > 5,
        "{happened:?}"
    );
}

#[test]
fn long_random_operations_equal_a_sorted_map() {
    let mut happened = Happened::default();
    for (seed, duplicates) in [
        (77, Duplicates::Last),
        (78, Duplicates::Keep),
        (79, Duplicates::Last),
    ] {
        let setup = Setup {
            duplicates,
            policy: LatePolicy::default(),
            rule: FlushRule::Production,
            late_runs_max: 3,
            tall: true,
            switches: false,
        };
        happened.add(run(seed, 400, setup));
    }
    println!("{happened:?}");
    assert!(
        happened.blocks > 50 && happened.folded > 1000,
        "{happened:?}"
    );
}

#[test]
fn random_operations_under_the_papers_rule_equal_a_sorted_map() {
    let mut happened = Happened::default();
    let mut seed = 1000;
    for round in 0..=extra_seeds() {
        for policy in policies() {
            for duplicates in [Duplicates::Last, Duplicates::Keep] {
                let rule = FlushRule::LabExact { memory_events: 40 };
                let setup = Setup {
                    duplicates,
                    policy,
                    rule,
                    late_runs_max: 0,
                    tall: false,
                    switches: false,
                };
                happened.add(run(seed + round * 10_000, 60, setup));
                seed += 1;
            }
        }
    }
    println!("{happened:?}");
    assert!(
        happened.merged > 1000 && happened.late_run == 0 && happened.folded == 0,
        "{happened:?}"
    );
}

#[test]
fn random_operations_while_policies_change_equal_a_sorted_map() {
    let mut happened = Happened::default();
    let mut seed = 5000;
    for round in 0..=extra_seeds() {
        for memory_events in [None, Some(40), Some(150)] {
            for duplicates in [Duplicates::Last, Duplicates::Keep] {
                for late_runs_max in [0, 3] {
                    let setup = Setup {
                        duplicates,
                        policy: LatePolicy::default(),
                        rule: memory_events.map_or(FlushRule::Production, |memory_events| {
                            FlushRule::LabExact { memory_events }
                        }),
                        late_runs_max,
                        tall: false,
                        switches: true,
                    };
                    happened.add(run(seed + round * 10_000, 100, setup));
                    seed += 1;
                }
            }
        }
    }
    println!("{happened:?}");
    assert!(
        happened.merged > 1000 && happened.late_run > 500 && happened.folded > 500,
        "{happened:?}"
    );
}
