//! Decimal numbers in text.
//!
//! Invariant: a float is the `f64` nearest to its decimal text, ties to even, the same as the
//! result of [`str::parse`]; the fast path is used only where one exact multiplication or division
//! gives the same result.

/// Powers of ten that an `f64` represents exactly.
const EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Integers up to this size are exact as `f64`.
const EXACT_INTEGER_MAX: u64 = 1 << 53;

/// Number of digits that always fit a `u64`.
const SAFE_DIGITS: usize = 19;

/// No program writes longer exponents: `1E000048` is the name of a device in base 16, not a number.
const EXPONENT_DIGITS_MAX: usize = 3;

/// A number at the front of some text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scanned<'a> {
    /// Text of the number, without the rest.
    pub(crate) text: &'a [u8],
    pub(crate) negative: bool,
    /// All digits as one integer; meaningless when there are more than [`SAFE_DIGITS`].
    magnitude: u64,
    digits: usize,
    /// Digits after the point.
    fraction_digits: usize,
    /// A point or an exponent was there.
    pub(crate) is_float: bool,
    /// An exponent was there.
    has_exponent: bool,
}

/// The number at the front of `text`, and the rest. `None` when a required digit is missing.
///
/// Accepts a sign, digits with a point before, between or after them, and an exponent.
#[inline(always)]
pub(crate) fn scan(text: &[u8]) -> Option<(Scanned<'_>, &[u8])> {
    let (negative, mut rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let mut magnitude = 0u64;
    let before = rest.len();
    while let [digit @ b'0'..=b'9', tail @ ..] = rest {
        magnitude = magnitude
            .wrapping_mul(10)
            .wrapping_add(u64::from(*digit - b'0'));
        rest = tail;
    }
    let mut digits = before - rest.len();
    let mut fraction_digits = 0;
    let mut is_float = false;
    if let [b'.', tail @ ..] = rest {
        is_float = true;
        rest = tail;
        let before = rest.len();
        while let [digit @ b'0'..=b'9', tail @ ..] = rest {
            magnitude = magnitude
                .wrapping_mul(10)
                .wrapping_add(u64::from(*digit - b'0'));
            rest = tail;
        }
        fraction_digits = before - rest.len();
        digits += fraction_digits;
    }
    if digits == 0 {
        return None;
    }
    let mut has_exponent = false;
    if let [b'e' | b'E', tail @ ..] = rest {
        let tail = match tail {
            [b'-' | b'+', tail @ ..] => tail,
            tail => tail,
        };
        let count = tail.iter().take_while(|b| b.is_ascii_digit()).count();
        if count == 0 {
            return None;
        }
        is_float = true;
        has_exponent = true;
        rest = tail.get(count..).unwrap_or_default();
    }
    let text = text.get(..text.len() - rest.len()).unwrap_or_default();
    Some((
        Scanned {
            text,
            negative,
            magnitude,
            digits,
            fraction_digits,
            is_float,
            has_exponent,
        },
        rest,
    ))
}

impl Scanned<'_> {
    /// The nearest `f64`; `None` when it is beyond the largest one.
    #[inline]
    pub(crate) fn to_f64(self) -> Option<f64> {
        if !self.has_exponent
            && self.digits <= SAFE_DIGITS
            && self.magnitude <= EXACT_INTEGER_MAX
            && let Some(power) = EXACT_POWERS.get(self.fraction_digits)
        {
            let value = self.magnitude as f64 / power;
            return Some(if self.negative { -value } else { value });
        }
        self.to_f64_slowly()
    }

    #[cold]
    fn to_f64_slowly(self) -> Option<f64> {
        let value: f64 = std::str::from_utf8(self.text).ok()?.parse().ok()?;
        value.is_finite().then_some(value)
    }

    /// The integer; `None` when the text has a point, an exponent, or the integer does not fit.
    #[inline]
    pub(crate) fn to_i64(self) -> Option<i64> {
        if self.is_float {
            return None;
        }
        if self.digits <= SAFE_DIGITS {
            return signed(self.negative, self.magnitude);
        }
        std::str::from_utf8(self.text).ok()?.parse().ok()
    }

    /// The integer; `None` when the text has a point, an exponent, a minus sign, or the integer
    /// does not fit.
    #[inline]
    pub(crate) fn to_u64(self) -> Option<u64> {
        if self.is_float || self.negative {
            return None;
        }
        if self.digits <= SAFE_DIGITS {
            return Some(self.magnitude);
        }
        std::str::from_utf8(self.text).ok()?.parse().ok()
    }
}

#[inline]
fn signed(negative: bool, magnitude: u64) -> Option<i64> {
    if negative {
        0i64.checked_sub_unsigned(magnitude)
    } else {
        i64::try_from(magnitude).ok()
    }
}

/// The integer in `text`, of up to 19 digits, parsed eight digits at a time. `None` for any other
/// text.
#[inline]
pub(crate) fn whole_integer(text: &[u8]) -> Option<i64> {
    let (negative, mut rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    if rest.is_empty() || rest.len() > SAFE_DIGITS {
        return None;
    }
    let mut magnitude = 0u64;
    while let Some((eight, tail)) = rest.split_first_chunk::<8>() {
        magnitude = magnitude * 100_000_000 + eight_digits(*eight)?;
        rest = tail;
    }
    for digit in rest {
        if !digit.is_ascii_digit() {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(digit - b'0');
    }
    signed(negative, magnitude)
}

/// Eight digits at once: neighbours are joined into pairs, pairs into fours, fours into the number.
#[inline]
fn eight_digits(bytes: [u8; 8]) -> Option<u64> {
    let word = u64::from_le_bytes(bytes);
    let digits = word.wrapping_sub(0x3030_3030_3030_3030);
    let above_nine = word.wrapping_add(0x4646_4646_4646_4646);
    if (digits | above_nine) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00FF_00FF_00FF_00FF;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_FFFF_0000_FFFF;
    Some(fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xFFFF_FFFF)
}

/// True when an integer converted to `f64` and back is unchanged.
pub(crate) fn is_exact_in_f64(value: i64) -> bool {
    // 2^63 itself is an f64, so the comparison converts back to i128.
    (value as f64) as i128 == i128::from(value)
}

/// Form of the text of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    /// An integer in its usual spelling.
    I64(i64),
    /// An integer beyond `i64::MAX`.
    U64(u64),
    /// A number with a point or an exponent, or minus zero.
    F64(f64),
    /// `NaN`, `inf` and the like: a number only in the company of numbers.
    NotFinite(f64),
    /// `true` or `false`.
    Bool(bool),
    /// Any other text, such as `0012`, `+5`, `1e5abc`, `1E000048` and integers that fit no type.
    Text,
}

/// The value of a cell without a declared type. Texts that would lose information as a number stay
/// text.
#[inline]
pub(crate) fn shape_of(text: &[u8]) -> Shape {
    match text.first() {
        Some(b'0'..=b'9' | b'-' | b'.') => number_shape(text),
        _ => word_shape(text),
    }
}

#[inline]
fn number_shape(text: &[u8]) -> Shape {
    let Some((number, [])) = scan(text) else {
        return word_shape(text);
    };
    let unsigned = if number.negative {
        text.get(1..).unwrap_or_default()
    } else {
        text
    };
    if matches!(unsigned, [b'0', b'0'..=b'9', ..]) {
        return Shape::Text;
    }
    if number.has_exponent && exponent_digits(text) > EXPONENT_DIGITS_MAX {
        return Shape::Text;
    }
    if number.is_float || text == b"-0" {
        return number.to_f64().map_or(Shape::Text, Shape::F64);
    }
    if let Some(value) = number.to_i64() {
        return Shape::I64(value);
    }
    number.to_u64().map_or(Shape::Text, Shape::U64)
}

/// Digits at the end of a text.
fn exponent_digits(text: &[u8]) -> usize {
    text.iter().rev().take_while(|b| b.is_ascii_digit()).count()
}

fn word_shape(text: &[u8]) -> Shape {
    match text {
        b"true" => Shape::Bool(true),
        b"false" => Shape::Bool(false),
        _ => not_finite(text).map_or(Shape::Text, Shape::NotFinite),
    }
}

/// The spellings of NaN and infinity that common programs write.
pub(crate) fn not_finite(text: &[u8]) -> Option<f64> {
    let (negative, name) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    match name {
        b"NaN" | b"nan" | b"NAN" if name.len() == text.len() => Some(f64::NAN),
        b"inf" | b"Inf" | b"INF" | b"Infinity" | b"infinity" => Some(if negative {
            f64::NEG_INFINITY
        } else {
            f64::INFINITY
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn floats_equal_what_the_standard_library_reads() {
        for text in [
            "0",
            "-0.0",
            "1.",
            ".5",
            "+.5e1",
            "1e3",
            "1E-3",
            "9007199254740993",
            "0.1",
            "10.357019999999999",
            "1e22",
            "1e23",
            "123456789012345678901234567890",
            "5e-324",
            "2.2250738585072014e-308",
            "1.7976931348623157e308",
            "00.50",
        ] {
            let (number, rest) = scan(text.as_bytes()).unwrap();
            assert!(rest.is_empty(), "{text}");
            let expected: f64 = text.parse().unwrap();
            assert_eq!(
                number.to_f64().unwrap().to_bits(),
                expected.to_bits(),
                "{text}"
            );
        }
        for text in ["", "-", ".", "e5", "1e", "1e+", "x", "--1"] {
            assert!(scan(text.as_bytes()).is_none(), "{text}");
        }
        assert_eq!(scan(b"1e999").unwrap().0.to_f64(), None);
    }

    #[test]
    fn integers_stop_at_their_limits() {
        let read = |text: &'static str| scan(text.as_bytes()).unwrap().0;
        assert_eq!(read("-9223372036854775808").to_i64(), Some(i64::MIN));
        assert_eq!(read("9223372036854775807").to_i64(), Some(i64::MAX));
        assert_eq!(read("9223372036854775808").to_i64(), None);
        assert_eq!(read("18446744073709551615").to_u64(), Some(u64::MAX));
        assert_eq!(read("18446744073709551616").to_u64(), None);
        assert_eq!(read("-1").to_u64(), None);
        assert_eq!(read("9999999999999999999").to_i64(), None);
        assert_eq!(read("0000000000000000000000012").to_i64(), Some(12));
    }

    #[test]
    fn shapes_keep_what_a_number_would_lose() {
        let cases: [(&str, Shape); 19] = [
            ("12", Shape::I64(12)),
            ("-12", Shape::I64(-12)),
            ("0", Shape::I64(0)),
            ("-0", Shape::F64(-0.0)),
            ("0012", Shape::Text),
            ("-01", Shape::Text),
            ("+5", Shape::Text),
            ("0.50", Shape::F64(0.5)),
            ("1e5", Shape::F64(1e5)),
            ("1e5abc", Shape::Text),
            ("1e999", Shape::Text),
            ("1e+005", Shape::F64(1e5)),
            ("1E000048", Shape::Text),
            ("0E000048", Shape::Text),
            ("9223372036854775808", Shape::U64(1 << 63)),
            ("99999999999999999999", Shape::Text),
            ("True", Shape::Text),
            ("inf", Shape::NotFinite(f64::INFINITY)),
            ("", Shape::Text),
        ];
        for (text, expected) in cases {
            assert_eq!(shape_of(text.as_bytes()), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn whole_integers_equal_the_standard_library(value: i64, text in "[-+0-9a]{0,21}") {
            prop_assert_eq!(whole_integer(value.to_string().as_bytes()), Some(value));
            if let Some(found) = whole_integer(text.as_bytes()) {
                prop_assert_eq!(text.parse::<i64>().ok(), Some(found));
            }
        }

        #[test]
        fn eight_digits_are_eight_digits(bytes: [u8; 8]) {
            let expected = bytes
                .iter()
                .all(u8::is_ascii_digit)
                .then(|| std::str::from_utf8(&bytes).unwrap().parse::<u64>().unwrap());
            prop_assert_eq!(eight_digits(bytes), expected);
        }

        #[test]
        fn any_float_reads_back(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            for text in [format!("{value:?}"), format!("{value}"), format!("{value:e}")] {
                let (number, rest) = scan(text.as_bytes()).unwrap();
                prop_assert!(rest.is_empty());
                prop_assert_eq!(number.to_f64().unwrap().to_bits(), bits);
            }
        }

        #[test]
        fn short_decimals_equal_the_standard_library(m in 0u64..1 << 55, places in 0usize..25, negative: bool) {
            let digits = format!("{m:0>width$}", width = places + 1);
            let (whole, fraction) = digits.split_at(digits.len() - places);
            let text = format!("{}{whole}.{fraction}", if negative { "-" } else { "" });
            let expected: f64 = text.parse().unwrap();
            let found = scan(text.as_bytes()).unwrap().0.to_f64().unwrap();
            prop_assert_eq!(found.to_bits(), expected.to_bits());
        }
    }
}
