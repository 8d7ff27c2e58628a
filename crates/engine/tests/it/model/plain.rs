//! What the engine is compared with: streams as plain sorted lists, and the values and times that
//! are written.

use headwater_engine::Duplicates;
use headwater_types::{ClosedRange, FieldType, Timestamp, Value};
use std::collections::BTreeMap;

/// A small generator of numbers: the same seed gives the same test.
pub(crate) struct Random(pub(super) u64);

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
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

pub(super) type Fields = BTreeMap<String, Value>;

/// The stream as it should be: rows by time, then arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelStream {
    pub(super) rows: Vec<(i64, Fields)>,
}

/// Values, each with its expiry.
pub(super) type Expiring = BTreeMap<String, (Value, Option<i64>)>;

/// A stream with everything that was written and not deleted: each value with its expiry.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenStream {
    pub(super) rows: Vec<(i64, Expiring)>,
}

impl WrittenStream {
    pub(super) fn put(
        &mut self,
        duplicates: Duplicates,
        time: i64,
        fields: &Fields,
        expires_at: Option<i64>,
    ) {
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
    pub(super) fn at(&self, now: i64) -> ModelStream {
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

pub(crate) fn random_value(random: &mut Random, field_type: FieldType) -> Value {
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
pub(super) struct Times {
    pub(super) next: i64,
    pub(super) step: i64,
}

impl Times {
    pub(super) fn next(&mut self, random: &mut Random) -> i64 {
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

pub(super) fn inside(stream: &ModelStream, range: ClosedRange) -> Vec<(i64, Fields)> {
    stream
        .rows
        .iter()
        .filter(|(t, _)| range.contains(Timestamp::from_nanos(*t)))
        .cloned()
        .collect()
}

pub(super) fn values_of(
    stream: &ModelStream,
    field: &str,
    range: ClosedRange,
) -> Vec<(i64, Value)> {
    inside(stream, range)
        .into_iter()
        .filter_map(|(t, mut f)| Some((t, f.remove(field)?)))
        .collect()
}

pub(super) fn random_range(random: &mut Random, stream: &ModelStream) -> ClosedRange {
    let pick = |random: &mut Random| stream.rows[random.below(stream.rows.len() as u64) as usize].0;
    let (a, b) = (pick(random), pick(random));
    ClosedRange::nanos(a.min(b).saturating_add(random.below(2) as i64), a.max(b))
}
