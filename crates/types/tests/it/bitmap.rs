//! Slices and joins of bitmaps against single bits.

use crate::shapes::Noise;
use headwater_types::Bitmap;

#[test]
fn slices_and_joins_agree_with_single_bits() {
    let mut noise = Noise(1);
    let mut bits = Bitmap::default();
    for _ in 0..517 {
        bits.push(noise.below(2) == 0);
    }
    for (from, to) in [
        (0, 517),
        (1, 64),
        (63, 65),
        (64, 128),
        (100, 101),
        (130, 500),
        (7, 7),
    ] {
        for before in [0, 1, 63, 64, 70] {
            let mut out = Bitmap::filled(true, before);
            out.extend_from(&bits, from..to);
            out.push_many(true, 70);
            out.push_many(false, 3);
            let expected: Vec<bool> = std::iter::repeat_n(true, before)
                .chain((from..to).map(|i| bits.get(i)))
                .chain(std::iter::repeat_n(true, 70))
                .chain([false; 3])
                .collect();
            assert_eq!(out.len(), expected.len());
            assert!(expected.iter().enumerate().all(|(i, b)| out.get(i) == *b));
            assert_eq!(
                bits.count_ones_in(from..to),
                (from..to).filter(|i| bits.get(*i)).count()
            );
        }
    }
}
