//! Aggregates in bins, and tiles.

use crate::column::{HW_F64, HW_I64, HW_U64, hw_value};
use crate::handles;
use crate::snapshot::hw_snapshot;
use crate::status::{Outcome, guard, hw_error, invalid, out, write_result};
use crate::stream::{Stream, hw_stream};
use crate::text::{hw_str, pointer, slice};
use headwater::{
    Aggregate, AggregateSpec, Bin, Bins, ClosedRange, Extremes, Level, Sum, Timestamp, Value,
};

/// One bin: the whole range.
pub const HW_WHOLE: i32 = 0;
/// Bins of equal width: width_ns, origin_ns.
pub const HW_EVERY_WIDTH: i32 = 1;
/// Buckets of a level of the pyramid, 2^level seconds wide: level.
pub const HW_LEVEL: i32 = 2;

/// Fields and bins of an aggregation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_aggregate_spec {
    /// The first instant, ns since 1970, included.
    pub first_ns: i64,
    /// The last instant, included.
    pub last_ns: i64,
    /// HW_WHOLE, HW_EVERY_WIDTH or HW_LEVEL.
    pub bins: i32,
    /// HW_LEVEL: -20 to 40.
    pub level: i32,
    /// HW_EVERY_WIDTH: above 0.
    pub width_ns: i64,
    /// HW_EVERY_WIDTH: an instant at which a bin begins.
    pub origin_ns: i64,
    /// 1 = give the first and the last value of each bin too, which reads every row of the range.
    pub first_last: u8,
}

/// A bin with at least one value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_bin {
    /// Its first instant, or that of the range if that is later, ns since 1970.
    pub start_ns: i64,
    /// Tiles: the number of the bucket, which begins at bucket * 2^level s. Else 0.
    pub bucket: i64,
    /// Values, those that are not finite included.
    pub count: u64,
    /// Values that are NaN.
    pub nan_count: u64,
    /// Values that are +Inf.
    pub positive_infinite_count: u64,
    /// Values that are -Inf.
    pub negative_infinite_count: u64,
    /// Mean time of the values, rounded down.
    pub mean_time_ns: i64,
    /// Mean of the finite values; NaN without one, and for text.
    pub mean: f64,
    /// Their population standard deviation; NaN without one.
    pub stddev: f64,
    /// Their sum of squared differences from the mean.
    pub m2: f64,
    /// Smallest finite value, as a double; NaN without one.
    pub min: f64,
    /// Largest finite value, as a double; NaN without one.
    pub max: f64,
    /// Type of the exact extremes: HW_F64, HW_I64 (booleans are 0 and 1) or HW_U64; 0 = there are
    /// none.
    pub extremes_type: i32,
    /// The 64 bits of the smallest value, of that type.
    pub min_bits: u64,
    /// The 64 bits of the largest value, of that type.
    pub max_bits: u64,
    /// Exact sum of integers and booleans: the low 64 bits; 0 for other types.
    pub sum_low: u64,
    /// The high 64 bits of the same sum, with its sign.
    pub sum_high: i64,
}

/// The first or the last value of a bin.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_bin_end {
    /// When, ns since 1970.
    pub time_ns: i64,
    /// The value; type 0 = only aggregates are stored there.
    pub value: hw_value,
}

/// Bins in the order of time; those without a value are left out. Release the handle when they have
/// been read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_bins {
    /// To release.
    pub handle: u64,
    /// The number of bins.
    pub count: usize,
    /// The bins.
    pub bins: *const hw_bin,
    /// The first value of each, if asked for; else NULL.
    pub firsts: *const hw_bin_end,
    /// The last value of each, if asked for; else NULL.
    pub lasts: *const hw_bin_end,
}

struct BinsResult {
    bins: Box<[hw_bin]>,
    firsts: Box<[hw_bin_end]>,
    lasts: Box<[hw_bin_end]>,
    /// The memory that the ends point into.
    _values: Vec<Bin>,
}

// SAFETY: the pointers in `firsts` and `lasts` lead to `_values`, which live as long, are never
// changed, and may be read by any thread.
unsafe impl Send for BinsResult {}
// SAFETY: as above.
unsafe impl Sync for BinsResult {}

fn bin(start_ns: i64, bucket: i64, a: &Aggregate) -> hw_bin {
    let (extremes_type, min, max, min_bits, max_bits) = match a.extremes {
        Extremes::None => (0, f64::NAN, f64::NAN, 0, 0),
        Extremes::F64(low, high) => (HW_F64, low, high, low.to_bits(), high.to_bits()),
        Extremes::I64(low, high) => (
            HW_I64,
            low as f64,
            high as f64,
            low.cast_unsigned(),
            high.cast_unsigned(),
        ),
        Extremes::U64(low, high) => (HW_U64, low as f64, high as f64, low, high),
    };
    hw_bin {
        start_ns,
        bucket,
        count: a.count,
        nan_count: a.nan,
        positive_infinite_count: a.positive_infinite,
        negative_infinite_count: a.negative_infinite,
        mean_time_ns: a.mean_time().unwrap_or(start_ns),
        mean: a.mean().unwrap_or(f64::NAN),
        stddev: a.stddev().unwrap_or(f64::NAN),
        m2: a.m2,
        min,
        max,
        extremes_type,
        min_bits,
        max_bits,
        sum_low: a.sum as u64,
        sum_high: (a.sum >> 64) as i64,
    }
}

/// The aggregate that the bin was made of, but for the rounding that merges carry along.
fn aggregate(bin: &hw_bin) -> Aggregate {
    let extremes = match bin.extremes_type {
        HW_F64 => Extremes::F64(f64::from_bits(bin.min_bits), f64::from_bits(bin.max_bits)),
        HW_I64 => Extremes::I64(bin.min_bits.cast_signed(), bin.max_bits.cast_signed()),
        HW_U64 => Extremes::U64(bin.min_bits, bin.max_bits),
        _ => Extremes::None,
    };
    Aggregate {
        count: bin.count,
        nan: bin.nan_count,
        positive_infinite: bin.positive_infinite_count,
        negative_infinite: bin.negative_infinite_count,
        extremes,
        mean: bin.mean,
        m2: bin.m2,
        sum: (i128::from(bin.sum_high) << 64) | i128::from(bin.sum_low),
        ..Aggregate::EMPTY
    }
}

fn finished(bin: *const hw_bin, of: impl FnOnce(&Aggregate) -> Option<f64>) -> f64 {
    // SAFETY: the caller says that it is a bin, or NULL, which is checked here.
    let bin = unsafe { bin.as_ref() };
    bin.and_then(|bin| of(&aggregate(bin))).unwrap_or(f64::NAN)
}

/// The sum of the finite values of a bin as a double; NaN without one, for text, and for NULL.
/// sum_low and sum_high give that of integers and booleans with all its digits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_bin_sum(bin: *const hw_bin) -> f64 {
    finished(bin, |a| a.sum().map(Sum::as_f64))
}

/// The largest finite value of a bin minus the smallest; NaN without one, for text, and for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_bin_spread(bin: *const hw_bin) -> f64 {
    finished(bin, |a| a.spread().map(Sum::as_f64))
}

/// The standard deviation of the finite values of a bin as a sample; NaN of fewer than two, for
/// text, and for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_bin_sample_stddev(bin: *const hw_bin) -> f64 {
    finished(bin, |a| a.sample_stddev())
}

fn end(end: Option<&(Timestamp, Value)>) -> hw_bin_end {
    match end {
        None => hw_bin_end {
            time_ns: 0,
            value: hw_value::NONE,
        },
        Some((time, value)) => hw_bin_end {
            time_ns: time.as_nanos(),
            value: hw_value::of(value),
        },
    }
}

impl hw_bins {
    fn make(bins: Box<[hw_bin]>, values: Vec<Bin>) -> hw_bins {
        let (handle, kept) = handles::register_result(BinsResult {
            bins,
            firsts: values.iter().map(|b| end(b.first.as_ref())).collect(),
            lasts: values.iter().map(|b| end(b.last.as_ref())).collect(),
            _values: values,
        });
        hw_bins {
            handle,
            count: kept.bins.len(),
            bins: pointer(&kept.bins),
            firsts: pointer(&kept.firsts),
            lasts: pointer(&kept.lasts),
        }
    }
}

fn level(level: i32) -> Outcome<Level> {
    Level::new(level).ok_or_else(|| invalid(format!("level: expected -20 to 40, found {level}")))
}

impl hw_aggregate_spec {
    fn read(&self) -> Outcome<AggregateSpec> {
        let bins = match self.bins {
            HW_WHOLE => Bins::Whole,
            HW_EVERY_WIDTH => Bins::Every {
                width_ns: self.width_ns,
                origin_ns: self.origin_ns,
            },
            HW_LEVEL => Bins::Level(level(self.level)?),
            other => {
                return Err(invalid(format!(
                    "bins: expected HW_WHOLE, HW_EVERY_WIDTH or HW_LEVEL, found {other}"
                )));
            }
        };
        Ok(AggregateSpec {
            range: ClosedRange::nanos(self.first_ns, self.last_ns),
            bins,
            first_last: self.first_last != 0,
        })
    }
}

/// Aggregates of one field over a range, whole or in bins. snapshot 0 = as it is now. HW_NOT_FOUND
/// for an unknown stream or field.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_aggregate(
    stream: hw_stream,
    snapshot: hw_snapshot,
    field: hw_str,
    spec: *const hw_aggregate_spec,
    bins: *mut hw_bins,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(bins, "bins")?;
        let [spec] = slice(spec, 1, "spec")? else {
            return Err(invalid("spec: expected one, found NULL"));
        };
        let stream = handles::get::<Stream>(stream)?;
        let view = stream.view(snapshot)?;
        let field = field.read("field")?;
        let spec = spec.read()?;
        let at = stream.at(&view)?;
        let found = at.aggregate(&view, field, &spec)?;
        let list = found
            .iter()
            .map(|b| bin(b.start.as_nanos(), 0, &b.aggregate))
            .collect();
        // Without the ends nothing points to the bins.
        let values = if spec.first_last { found } else { Vec::new() };
        write_result(bins, hw_bins::make(list, values), "bins")
    })
}

/// The filled buckets of a tile of one field: tile `offset` of a level holds buckets offset * 512
/// to offset * 512 + 511, each 2^level s wide, counted from 1970. A tile outside of the range of
/// instants is empty. snapshot 0 = as it is now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_tile(
    stream: hw_stream,
    snapshot: hw_snapshot,
    field: hw_str,
    level: i32,
    offset: i64,
    bins: *mut hw_bins,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(bins, "bins")?;
        let level = self::level(level)?;
        let stream = handles::get::<Stream>(stream)?;
        let view = stream.view(snapshot)?;
        let field = field.read("field")?;
        let at = stream.at(&view)?;
        let found = at.tile(&view, field, level, offset)?;
        let list = found.iter().map(|(bucket, aggregate)| {
            let start = level.bucket_span(*bucket).first.as_nanos();
            bin(start, *bucket, aggregate)
        });
        write_result(bins, hw_bins::make(list.collect(), Vec::new()), "bins")
    })
}
