//! Columns of integers: times, i64, u64 and decimals.

use super::codec;
use super::encoding_cache::{Choice, Encoding};
use super::pages::{Pages, Selection, put_payloads};
use super::pco_pages::{self, Chunk};
use crate::bytes::{Cursor, DecodeError, PutBytes};
use crate::pack::{block_len, put_block, take_block};

/// Minimum number of values for pco: for fewer, its tables cost more than they save.
const PCO_FROM: usize = 96;
/// Size, in thousandths of pco's, up to which bit packing is preferred, because it decodes several
/// times faster.
const PLAIN_WORTH: usize = 1_060;

/// Appends the payload of at least one value and returns its codec.
pub(super) fn put(
    values: &[i64],
    pages: &Pages,
    known: &mut Option<Choice>,
    out: &mut Vec<u8>,
) -> u8 {
    let (Some(first), rest) = (values.first().copied(), values.get(1..).unwrap_or_default()) else {
        return codec::CONSTANT;
    };
    let step = rest.first().map_or(0, |second| second.wrapping_sub(first));
    if is_arithmetic(values, step) {
        out.put_signed(first);
        if step == 0 {
            return codec::CONSTANT;
        }
        out.put_signed(step);
        return codec::ARITHMETIC;
    }
    let scale = Scale::of(values);
    scale.put(out);
    let scaled: Vec<i64>;
    let values = if scale.factor > 1 {
        scaled = scale.down(values);
        scaled.as_slice()
    } else {
        values
    };
    let plain: usize = pages
        .filled()
        .map(|page| block_len(values.get(page).unwrap_or_default()))
        .sum();
    if let Some(chunk) = choose(values, pages, plain, known)
        && let Some(payload) = chunk.write()
        && payload.len() * PLAIN_WORTH < plain * 1_000
    {
        out.extend_from_slice(&payload);
        return codec::PCO;
    }
    let (mut bytes, mut ends) = (Vec::with_capacity(plain), Vec::new());
    for page in pages.filled() {
        put_block(values.get(page).unwrap_or_default(), &mut bytes);
        ends.push(bytes.len());
    }
    put_payloads(&bytes, &ends, out);
    codec::PACKED
}

fn is_arithmetic(values: &[i64], step: i64) -> bool {
    // In blocks, so that the comparison of a block has no branch.
    let mut before = values.first().map_or(0, |v| v.wrapping_sub(step));
    values.chunks(64).all(|block| {
        block.iter().fold(true, |same, v| {
            let expected = before.wrapping_add(step);
            before = *v;
            same & (*v == expected)
        })
    })
}

/// Form that all values share: `base` plus a multiple of `factor`. If the factor is 1, the base is
/// 0.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scale {
    base: i64,
    factor: i64,
}

/// Number of values whose common factor is searched first.
const SAMPLE: usize = 32;
const NONE: Scale = Scale { base: 0, factor: 1 };

impl Scale {
    /// The scale of at least one value.
    fn of(values: &[i64]) -> Scale {
        let base = values.first().copied().unwrap_or_default();
        let mut factor = 0u64;
        let sample = values.iter().step_by((values.len() / SAMPLE).max(1));
        for value in sample.chain(values) {
            let Some(difference) = value.checked_sub(base) else {
                return NONE;
            };
            let difference = difference.unsigned_abs();
            if !is_multiple(difference, factor) {
                factor = greatest_common_divisor(difference, factor);
                if factor == 1 {
                    return NONE;
                }
            }
        }
        match i64::try_from(factor) {
            Ok(factor) if factor > 1 => Scale { base, factor },
            _ => NONE,
        }
    }

    fn down(&self, values: &[i64]) -> Vec<i64> {
        let inverse = 1.0 / self.factor as f64;
        values
            .iter()
            .map(|v| {
                let difference = v.wrapping_sub(self.base);
                if difference.unsigned_abs() < EXACT {
                    ((difference as f64 * inverse) + ROUND).to_bits() as i64
                        - ROUND.to_bits() as i64
                } else {
                    difference / self.factor
                }
            })
            .collect()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.factor as u64);
        if self.factor > 1 {
            out.put_signed(self.base);
        }
    }

    fn take(cursor: &mut Cursor<'_>) -> Result<Scale, DecodeError> {
        let factor = cursor.varint("a common factor")?;
        match i64::try_from(factor) {
            Ok(1) => Ok(NONE),
            Ok(factor) if factor > 1 => Ok(Scale {
                base: cursor.signed("the base of a common factor")?,
                factor,
            }),
            _ => Err(cursor.expected("a common factor from 1 to 2^63 - 1")),
        }
    }
}

/// Below this, `d · (1/f)` rounds to the exact quotient when `f` divides `d`.
const EXACT: u64 = 1 << 50;
/// 1.5·2^52: adding it leaves the rounded integer in the low bits.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// True when `value` is a multiple; only zero is one of zero.
#[inline(always)]
fn is_multiple(value: u64, factor: u64) -> bool {
    if factor == 0 {
        value == 0
    } else {
        value.is_multiple_of(factor)
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The pco chunk to write; `None` if bit packing is at least as good.
fn choose(
    values: &[i64],
    pages: &Pages,
    plain: usize,
    known: &mut Option<Choice>,
) -> Option<Chunk> {
    if values.len() < PCO_FROM {
        return None;
    }
    let bits_of = |len: usize| len as f32 * 8.0 / values.len() as f32;
    if let Some(choice) = known {
        choice.age += 1;
        match choice.encoding {
            Encoding::Plain if !choice.is_stale(bits_of(plain)) => return None,
            Encoding::Plain => {}
            Encoding::Pco(mode, order) => {
                if let Some(chunk) = pco_pages::with(values, pages, mode, order)
                    && !choice.is_stale(bits_of(chunk.len))
                {
                    return Some(chunk);
                }
            }
        }
    }
    let chunk = pco_pages::search(values, pages)?;
    if chunk.len * PLAIN_WORTH >= plain * 1_000 {
        *known = Some(Choice::new(Encoding::Plain, bits_of(plain)));
        None
    } else {
        *known = Some(Choice::new(chunk.encoding, bits_of(chunk.len)));
        Some(chunk)
    }
}

/// Reads the selected values.
pub(super) fn take(
    codec: u8,
    cursor: &mut Cursor<'_>,
    pages: &Pages,
    selection: &Selection,
) -> Result<Vec<i64>, DecodeError> {
    match codec {
        codec::CONSTANT => {
            let value = cursor.signed("a constant")?;
            Ok(vec![value; selection.values.len()])
        }
        codec::ARITHMETIC => {
            let first = cursor.signed("the first value")?;
            let step = cursor.signed("the step")?;
            Ok(selection
                .values
                .clone()
                .map(|i| first.wrapping_add(step.wrapping_mul(i as i64)))
                .collect())
        }
        codec::PACKED | codec::PCO => {
            let scale = Scale::take(cursor)?;
            let mut values = if codec == codec::PCO {
                pco_pages::read(cursor, pages, selection)?
            } else {
                pages.read(cursor, selection, |payload, slots: &mut [i64]| {
                    let mut cursor = Cursor::new(payload);
                    take_block(&mut cursor, slots).map_err(|e| e.expected)
                })?
            };
            if scale.factor > 1 {
                for v in &mut values {
                    *v = scale.base.wrapping_add(v.wrapping_mul(scale.factor));
                }
            }
            Ok(values)
        }
        _ => Err(cursor.expected("a codec of integers")),
    }
}
