//! Dictionaries of strings that repeat.
//!
//! Invariant: entries are distinct and in order of first appearance; `codes[i]` is the entry of
//! string `i`.

use headwater_types::VarBytes;

/// Distinct strings and which of them each string is.
pub(crate) struct Dictionary {
    pub(crate) entries: VarBytes,
    pub(crate) codes: Vec<i64>,
}

/// Hash of a short string: eight bytes a step. Only this process sees it.
fn hash(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = bytes.as_chunks::<8>();
    let mut state = bytes.len() as u64;
    for word in words {
        state = (state ^ u64::from_le_bytes(*word)).wrapping_mul(FACTOR);
        state ^= state >> 32;
    }
    let last = rest.iter().fold(0u64, |w, b| w << 8 | u64::from(*b));
    state = (state ^ last).wrapping_mul(FACTOR);
    state ^ state >> 29
}

impl Dictionary {
    /// The dictionary of `strings`, or `None` if more than `most` are distinct.
    pub(crate) fn of(strings: &VarBytes, most: usize) -> Option<Dictionary> {
        const FREE: u32 = u32::MAX;
        let size = (most.max(1) * 2 + 2).next_power_of_two();
        let mut slots = vec![FREE; size];
        let mut entries = VarBytes::new();
        let mut codes = Vec::with_capacity(strings.len());
        for index in 0..strings.len() {
            let string = strings.get(index);
            let mut at = hash(string) as usize % size;
            loop {
                let slot = slots.get_mut(at)?;
                if *slot == FREE {
                    if entries.len() >= most {
                        return None;
                    }
                    *slot = u32::try_from(entries.len()).ok()?;
                    codes.push(i64::from(*slot));
                    entries.push(string);
                    break;
                }
                if entries.get(*slot as usize) == string {
                    codes.push(i64::from(*slot));
                    break;
                }
                at = (at + 1) % size;
            }
        }
        Some(Dictionary { entries, codes })
    }
}

/// Strings of `codes`; `None` if a code has no entry or their total exceeds `limit` bytes.
pub(crate) fn look_up(entries: &VarBytes, codes: &[i64], limit: usize) -> Option<VarBytes> {
    let mut total = 0usize;
    for code in codes {
        let index = usize::try_from(*code).ok().filter(|i| *i < entries.len())?;
        total += entries.get(index).len();
    }
    if total > limit || u32::try_from(total).is_err() {
        return None;
    }
    let mut bytes = Vec::with_capacity(total);
    let mut ends = Vec::with_capacity(codes.len());
    for code in codes {
        bytes.extend_from_slice(entries.get(*code as usize));
        ends.push(bytes.len() as u32);
    }
    VarBytes::from_parts(ends, bytes)
}

/// Lengths of strings, as integers to pack.
pub(crate) fn lengths(strings: &VarBytes) -> Vec<i64> {
    let mut before = 0;
    strings
        .ends()
        .iter()
        .map(|end| i64::from(*end - std::mem::replace(&mut before, *end)))
        .collect()
}

/// Ends from lengths; `None` if one is negative or the total exceeds `limit` bytes.
pub(crate) fn ends(lengths: &[i64], limit: usize) -> Option<Vec<u32>> {
    let limit = limit.min(u32::MAX as usize) as u64;
    let mut at = 0u64;
    lengths
        .iter()
        .map(|length| {
            at += u64::try_from(*length).ok().filter(|l| *l <= limit)?;
            (at <= limit).then_some(at as u32)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_dictionary_gives_the_strings_back() {
        let mut strings = VarBytes::new();
        for i in 0..500 {
            strings.push(format!("state-{}", i * i % 7).as_bytes());
            strings.push(b"");
        }
        let dictionary = Dictionary::of(&strings, 8).unwrap();
        assert_eq!(dictionary.entries.len(), 5);
        let back = look_up(&dictionary.entries, &dictionary.codes, 1 << 20).unwrap();
        assert_eq!(back, strings);
        assert!(Dictionary::of(&strings, 4).is_none());
        assert!(look_up(&dictionary.entries, &dictionary.codes, 10).is_none());
        assert!(look_up(&dictionary.entries, &[5], 100).is_none());
        assert!(look_up(&dictionary.entries, &[-1], 100).is_none());
    }

    #[test]
    fn lengths_and_ends_agree() {
        let ends_in = [0u32, 3, 3, 10];
        let strings = VarBytes::from_parts(ends_in.to_vec(), vec![b'x'; 10]).unwrap();
        assert_eq!(lengths(&strings), [0, 3, 0, 7]);
        assert_eq!(ends(&[0, 3, 0, 7], 10).unwrap(), ends_in);
        assert!(ends(&[0, 3, 0, 7], 9).is_none());
        assert!(ends(&[-1], 9).is_none());
        assert!(ends(&[i64::MAX, i64::MAX], usize::MAX).is_none());
    }
}
