//! What a bin says besides its fields.

use crate::common::{Db, get, list, release, s};
use headwater_ffi::*;
use std::ptr::null;

/// Without values that are finite there is no number, whatever is asked; integers are exact before
/// they become doubles.
#[test]
fn bins_are_finished_without_what_is_not_finite() {
    let db = Db::new();
    let stream = db.stream("t");
    let infinite = f64::INFINITY;
    db.write(
        stream,
        "v",
        &[
            (1, 4.0),
            (2, infinite),
            (3, f64::NAN),
            (60_000_000_000, infinite),
        ],
    );
    // SAFETY: handles are checked, the places are valid.
    unsafe {
        let mut spec: hw_aggregate_spec = std::mem::zeroed();
        (spec.first_ns, spec.last_ns) = (i64::MIN, i64::MAX);
        (spec.bins, spec.width_ns) = (HW_EVERY_WIDTH, 60_000_000_000);
        let bins = get(|out, e| hw_aggregate(stream, 0, s("v"), &raw const spec, out, e));
        let [some, none] = list(bins.bins, bins.count) else {
            panic!("{} bins", bins.count);
        };
        assert_eq!((hw_bin_sum(some), hw_bin_spread(some)), (4.0, 0.0));
        assert!(hw_bin_sample_stddev(some).is_nan(), "one finite value");
        for number in [hw_bin_sum(none), hw_bin_spread(none), hw_bin_sum(null())] {
            assert!(number.is_nan());
        }
        let wide = hw_bin {
            extremes_type: HW_I64,
            min_bits: i64::MIN.cast_unsigned(),
            max_bits: i64::MAX.cast_unsigned(),
            count: 2,
            sum_low: u64::MAX,
            sum_high: -1,
            ..*none
        };
        assert_eq!(hw_bin_sum(&raw const wide), -1.0);
        assert_eq!(hw_bin_spread(&raw const wide), 18_446_744_073_709_551_615.0);
        release(bins.handle);
    }
    db.close();
}
