//! Cost of a function call in memory and work, estimated from its arguments before it is made.
//!
//! A function with a much larger result than its arguments (`repeat('x', 1000000000)`) allocates
//! its memory in one step, and a failed allocation ends the process. So each function that can
//! return more than its arguments has its bound here, and so has each function whose work grows
//! faster than its arguments. Functions of [`PLAIN`] return at most [`GROWS`] times the bytes of
//! their arguments; a function in no list is not registered.
//!
//! Invariant: a bound is never below the actual size; the fuzzing of all functions with a memory
//! limit checks this.

use super::extent::{extent, of_scalar, of_value};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNanoType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ColumnarValue;

/// Maximum growth of the arguments by a function without its own bound: letters whose capitals have
/// three times the bytes.
const GROWS: usize = 3;
/// Bytes of a result for each row, besides the arguments: numbers, instants, offsets.
const ROW_BYTES: usize = 32;
/// Bytes per row and letter of a date pattern when it is formatted.
const DATE_GROWS: usize = 24;
/// Maximum states of a compiled regular expression; the library refuses larger ones.
const STATES_MAX: usize = 100_000;

/// Functions that return at most [`GROWS`] times the size of their arguments. A function in no list
/// is not registered: add new functions here or to a kind.
#[rustfmt::skip]
const PLAIN: [&str; 162] = [
    "abs", "acos", "acosh", "array_add", "array_any_value", "array_append", "array_avg",
    "array_compact", "array_concat", "array_dims", "array_distance", "array_element",
    "array_has", "array_length", "array_max", "array_min", "array_ndims", "array_normalize",
    "array_pop_back", "array_pop_front", "array_position", "array_positions", "array_prepend",
    "array_product", "array_remove", "array_remove_all", "array_remove_n", "array_reverse",
    "array_scale", "array_slice", "array_sort", "array_subtract", "array_sum", "arrays_overlap",
    "arrow_cast", "arrow_field", "arrow_metadata", "arrow_try_cast", "arrow_typeof", "ascii",
    "asin", "asinh", "asof_nearest", "atan", "atan2", "atanh", "average", "bit_length", "btrim",
    "cardinality", "cast_to_type", "cbrt", "ceil", "character_length", "chr", "coalesce",
    "concat", "cos", "cosh", "cosine_distance", "cot", "current_date", "current_time",
    "date_bin", "date_part", "date_trunc", "decode", "degrees", "delta", "duration_in", "empty",
    "encode", "ends_with", "exp", "factorial", "file_row_index", "first_time", "first_val",
    "flatten", "floor", "from_unixtime", "gcd", "get_field", "greatest", "increase", "initcap",
    "inner_product", "input_file_name", "integral", "interpolate", "isnan", "iszero",
    "last_time", "last_val", "lcm", "least", "left", "like_escape", "ln", "locf", "log",
    "log10", "log2", "lower", "ltrim", "make_date", "make_time", "map", "map_entries",
    "map_extract", "map_keys", "map_values", "nanvl", "now", "nullif", "num_changes", "num_elements",
    "num_resets", "nvl", "nvl2", "octet_length", "overlay", "pi", "power", "radians", "random",
    "rate", "reverse", "right", "round", "rtrim", "signum", "similar_to_escape", "sin", "sinh",
    "split_part", "sqrt", "starts_with", "substr", "tan", "tanh", "time_bucket",
    "time_bucket_gapfill", "time_delta", "timezone", "to_hex", "to_local_time",
    "to_timestamp_micros", "to_timestamp_millis", "to_timestamp_nanos", "to_timestamp_seconds",
    "to_unixtime", "translate", "trim", "trunc", "try_cast_to_type", "union_extract",
    "union_tag", "upper", "uuid", "version", "with_metadata",
];

/// Kinds of functions by the growth of their results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GrowthKind {
    /// At most a few times its arguments.
    Plain,
    /// The concatenated arguments.
    Gather,
    Repeat,
    Pad,
    Replace,
    RegexReplace,
    RegexMatch,
    Regex,
    Join,
    SplitText,
    DatePattern,
    JoinList,
    Range,
    RepeatList,
    ResizeList,
    ReplaceInList,
    Zip,
    Pairs,
    Levenshtein,
    Find,
}

impl GrowthKind {
    /// The kind of a function; functions that only rules put into plans have no entry, and are
    /// plain: they compute a value from a value.
    pub(super) fn of(name: &str) -> GrowthKind {
        GrowthKind::listed(name).unwrap_or(GrowthKind::Plain)
    }

    /// The kind of a listed function; `None` = not listed.
    pub(super) fn listed(name: &str) -> Option<GrowthKind> {
        Some(match name {
            "repeat" => GrowthKind::Repeat,
            "lpad" | "rpad" => GrowthKind::Pad,
            "replace" => GrowthKind::Replace,
            "regexp_replace" => GrowthKind::RegexReplace,
            "regexp_match" => GrowthKind::RegexMatch,
            "regexp_count" | "regexp_instr" | "regexp_like" | "~" => GrowthKind::Regex,
            "concat_ws" => GrowthKind::Join,
            "string_to_array" | "string_to_list" => GrowthKind::SplitText,
            "to_char" | "date_format" | "to_timestamp" | "to_date" | "to_time" => {
                GrowthKind::DatePattern
            }
            "array_to_string" | "list_to_string" => GrowthKind::JoinList,
            "range" | "generate_series" | "gen_series" => GrowthKind::Range,
            "array_repeat" | "list_repeat" => GrowthKind::RepeatList,
            "array_resize" | "list_resize" => GrowthKind::ResizeList,
            "array_replace" | "array_replace_n" | "array_replace_all" => GrowthKind::ReplaceInList,
            "arrays_zip" | "list_zip" => GrowthKind::Zip,
            "array_has_all" | "array_has_any" | "array_except" | "array_intersect"
            | "array_union" | "array_distinct" => GrowthKind::Pairs,
            "levenshtein" => GrowthKind::Levenshtein,
            "strpos" | "find_in_set" | "substr_index" | "contains" => GrowthKind::Find,
            "make_array" | "make_list" | "struct" | "row" | "named_struct" => GrowthKind::Gather,
            name if PLAIN.binary_search(&name).is_ok() => GrowthKind::Plain,
            _ => return None,
        })
    }

    /// True for functions whose result can be much larger than their arguments.
    pub(super) fn grows(self) -> bool {
        !matches!(self, GrowthKind::Plain | GrowthKind::Gather)
    }
}

/// Cost of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Maximum bytes of the result.
    pub(super) bytes: usize,
    /// Steps of work, some nanoseconds each.
    pub(super) work: usize,
    /// Steps of the most expensive row.
    pub(super) row_work: usize,
}

impl Cost {
    fn row(&mut self, bytes: usize, work: usize) {
        self.bytes = self.bytes.saturating_add(bytes).saturating_add(ROW_BYTES);
        self.work = self.work.saturating_add(work);
        self.row_work = self.row_work.max(work);
    }
}

/// An argument, row by row.
enum Lengths<'a> {
    One(usize),
    Each(&'a ArrayRef),
}

impl Lengths<'_> {
    fn at(&self, row: usize) -> usize {
        match self {
            Lengths::One(bytes) => *bytes,
            Lengths::Each(array) => extent(*array, row, row + 1),
        }
    }
}

fn lengths(args: &[ColumnarValue], at: usize) -> Lengths<'_> {
    match args.get(at) {
        None => Lengths::One(0),
        Some(ColumnarValue::Scalar(value)) => Lengths::One(of_scalar(value)),
        Some(ColumnarValue::Array(array)) => Lengths::Each(array),
    }
}

/// Integers of an argument, row by row; `None` for other values.
enum Numbers {
    One(Option<i64>),
    Each(ArrayRef),
}

impl Numbers {
    fn at(&self, row: usize) -> Option<i64> {
        match self {
            Numbers::One(number) => *number,
            Numbers::Each(array) => {
                let numbers = array.as_primitive::<Int64Type>();
                (row < numbers.len() && numbers.is_valid(row)).then(|| numbers.value(row))
            }
        }
    }

    fn count(&self, row: usize) -> usize {
        usize::try_from(self.at(row).unwrap_or(0)).unwrap_or(0)
    }
}

fn numbers(args: &[ColumnarValue], at: usize) -> Numbers {
    match args.get(at) {
        None => Numbers::One(None),
        Some(ColumnarValue::Scalar(value)) => {
            let whole = value.cast_to(&DataType::Int64);
            Numbers::One(match whole {
                Ok(ScalarValue::Int64(number)) => number,
                _ => None,
            })
        }
        Some(ColumnarValue::Array(array)) => match cast(array, &DataType::Int64) {
            Ok(array) => Numbers::Each(array),
            Err(_) => Numbers::One(None),
        },
    }
}

/// Number of elements of the list in a row.
fn elements(args: &[ColumnarValue], at: usize, row: usize) -> usize {
    let of = |array: &dyn Array, row: usize| match array.data_type() {
        DataType::List(_) => usize::try_from(array.as_list::<i32>().value_length(row)).unwrap_or(0),
        DataType::LargeList(_) => {
            usize::try_from(array.as_list::<i64>().value_length(row)).unwrap_or(0)
        }
        DataType::FixedSizeList(_, size) => usize::try_from(*size).unwrap_or(0),
        DataType::Map(..) => usize::try_from(array.as_map().value_length(row)).unwrap_or(0),
        _ => 0,
    };
    match args.get(at) {
        Some(ColumnarValue::Array(array)) if row < array.len() => of(array, row),
        Some(ColumnarValue::Scalar(ScalarValue::List(array))) => of(array.as_ref(), 0),
        Some(ColumnarValue::Scalar(ScalarValue::LargeList(array))) => of(array.as_ref(), 0),
        Some(ColumnarValue::Scalar(ScalarValue::FixedSizeList(array))) => of(array.as_ref(), 0),
        _ => 0,
    }
}

/// The text of a row.
fn text(args: &[ColumnarValue], at: usize, row: usize) -> &str {
    match args.get(at) {
        Some(ColumnarValue::Scalar(value)) => value.try_as_str().flatten().unwrap_or_default(),
        Some(ColumnarValue::Array(array)) if row < array.len() => match array.data_type() {
            DataType::Utf8 => array.as_string::<i32>().value(row),
            DataType::LargeUtf8 => array.as_string::<i64>().value(row),
            DataType::Utf8View => array.as_string_view().value(row),
            _ => "",
        },
        _ => "",
    }
}

/// Approximate number of states of a pattern: counted repetitions are expanded, also nested ones.
pub(super) fn states(pattern: &str) -> usize {
    let mut product = 1usize;
    let mut number = 0usize;
    let mut largest = 0usize;
    let mut counting = false;
    for byte in pattern.bytes() {
        match byte {
            b'{' => (counting, number, largest) = (true, 0, 0),
            b'0'..=b'9' if counting => {
                number = number
                    .saturating_mul(10)
                    .saturating_add(usize::from(byte - b'0'));
                largest = largest.max(number);
            }
            b',' if counting => number = 0,
            b'}' if counting => {
                counting = false;
                product = product.saturating_mul(largest.max(1));
            }
            _ => counting = counting && byte == b' ',
        }
    }
    if product == 1 {
        return 1 + pattern.len() / 16;
    }
    let written = pattern.len().saturating_mul(product).min(STATES_MAX);
    1 + written / 4
}

/// Smallest possible step, in nanoseconds or units.
fn step(args: &[ColumnarValue], row: usize) -> usize {
    const DAY: i128 = 86_400_000_000_000;
    let of = |months: i32, days: i32, ns: i64| {
        let sum = i128::from(months) * 28 * DAY + i128::from(days) * DAY + i128::from(ns);
        usize::try_from(sum.unsigned_abs())
            .unwrap_or(usize::MAX)
            .max(1)
    };
    match args.get(2) {
        None => 1,
        Some(ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(Some(i)))) => {
            of(i.months, i.days, i.nanoseconds)
        }
        Some(ColumnarValue::Array(array))
            if matches!(
                array.data_type(),
                DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano)
            ) =>
        {
            let intervals = array.as_primitive::<IntervalMonthDayNanoType>();
            if row >= intervals.len() || intervals.is_null(row) {
                return usize::MAX;
            }
            let i = intervals.value(row);
            of(i.months, i.days, i.nanoseconds)
        }
        Some(_) => {
            let step = numbers(args, 2).at(row).unwrap_or(1).unsigned_abs();
            usize::try_from(step).unwrap_or(usize::MAX).max(1)
        }
    }
}

/// Unit of an argument of `range`, in units of its step.
fn unit(args: &[ColumnarValue]) -> i128 {
    match args.first().map(ColumnarValue::data_type) {
        Some(DataType::Date32) => 86_400_000_000_000,
        Some(DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _)) => 1_000_000,
        Some(DataType::Timestamp(TimeUnit::Second, _)) => 1_000_000_000,
        Some(DataType::Timestamp(TimeUnit::Microsecond, _)) => 1_000,
        _ => 1,
    }
}

/// Number of elements that `range` returns for a row.
fn range(args: &[ColumnarValue], row: usize, first: &Numbers, second: &Numbers) -> usize {
    let (from, to) = match args.len() {
        0 | 1 => (Some(0), first.at(row)),
        _ => (first.at(row), second.at(row)),
    };
    let (Some(from), Some(to)) = (from, to) else {
        return 0;
    };
    let span = (i128::from(to) - i128::from(from)).unsigned_abs();
    let span = span.saturating_mul(unit(args).unsigned_abs());
    let step = u128::try_from(step(args, row)).unwrap_or(1);
    usize::try_from(span / step + 1).unwrap_or(usize::MAX)
}

/// Cost of a call for a number of rows.
pub(super) fn cost(kind: GrowthKind, args: &[ColumnarValue], rows: usize) -> Cost {
    let mut cost = Cost::default();
    let scalars = args
        .iter()
        .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if scalars { 1 } else { rows };
    if !kind.grows() {
        let times = if kind == GrowthKind::Plain { GROWS } else { 1 };
        return plain(args, rows, times);
    }
    let [a, b, c] = [lengths(args, 0), lengths(args, 1), lengths(args, 2)];
    let [m, n] = [numbers(args, 0), numbers(args, 1)];
    // Most patterns are the same in every row.
    let constant = matches!(args.get(1), Some(ColumnarValue::Scalar(_)));
    let constant = constant.then(|| states(text(args, 1, 0)));
    for row in 0..rows {
        let of = RowArgs {
            args,
            row,
            a: a.at(row),
            b: b.at(row),
            c: c.at(row),
            count: n.count(row),
            range: match kind {
                GrowthKind::Range => range(args, row, &m, &n),
                _ => 0,
            },
            constant,
        };
        let (bytes, work) = of_texts(kind, &of).unwrap_or_else(|| of_lists(kind, &of));
        cost.row(bytes, work);
    }
    cost
}

/// The arguments of a call in one row.
struct RowArgs<'a> {
    args: &'a [ColumnarValue],
    row: usize,
    /// Length of the first argument; the next two fields are the lengths of the second and third.
    a: usize,
    b: usize,
    c: usize,
    /// The second argument as a count.
    count: usize,
    /// Elements of a range from the first to the second.
    range: usize,
    /// States of a pattern that is the same in every row.
    constant: Option<usize>,
}

impl RowArgs<'_> {
    /// Total length of the first three arguments.
    fn all(&self) -> usize {
        self.a.saturating_add(self.b).saturating_add(self.c)
    }

    /// States of the pattern of this row, and the work to compile it.
    fn pattern(&self) -> (usize, usize) {
        if let Some(states) = self.constant {
            return (states, 0);
        }
        let states = states(text(self.args, 1, self.row)).max(1 + self.b / 16);
        // Each pattern is compiled again.
        (states, states.saturating_mul(2_000).saturating_add(20_000))
    }
}

/// Bytes and work of a call that returns text; `None` for one that returns a list.
fn of_texts(kind: GrowthKind, of: &RowArgs<'_>) -> Option<(usize, usize)> {
    let (a, b, c, all) = (of.a, of.b, of.c, of.all());
    Some(match kind {
        GrowthKind::Plain | GrowthKind::Gather => (all, all),
        GrowthKind::Repeat => {
            let made = a.saturating_mul(of.count);
            (made, made)
        }
        GrowthKind::Pad => {
            // Memory for the longest letters, and for the positions of the fill letters.
            let fill = if c <= 1 { 4 } else { 12 };
            let made = a.saturating_add(of.count.saturating_mul(fill));
            (made, made)
        }
        GrowthKind::Replace => {
            let places = a / b.max(1) + 1;
            let made = a.saturating_add(places.saturating_mul(c));
            (made, made.saturating_add(all))
        }
        GrowthKind::RegexReplace => {
            let parts = text(of.args, 2, of.row).bytes();
            let parts = parts.filter(|byte| matches!(byte, b'$' | b'\\')).count();
            let made = a
                .saturating_mul(parts + 1)
                .saturating_add((a + 1).saturating_mul(c));
            let (states, making) = of.pattern();
            (
                made,
                a.saturating_mul(states)
                    .saturating_add(making)
                    .saturating_add(made),
            )
        }
        GrowthKind::RegexMatch => {
            let groups = text(of.args, 1, of.row)
                .bytes()
                .filter(|byte| *byte == b'(')
                .count();
            let (states, making) = of.pattern();
            let made = a.saturating_mul(groups + 1).saturating_add(groups * 16);
            (
                made,
                a.saturating_mul(states)
                    .saturating_add(making)
                    .saturating_add(made),
            )
        }
        GrowthKind::Regex => {
            let (states, making) = of.pattern();
            (16, a.saturating_mul(states).saturating_add(making))
        }
        GrowthKind::Join => {
            let parts = of.args.len().saturating_sub(1);
            let others = (1..of.args.len()).map(|at| lengths(of.args, at).at(of.row));
            let sum = others.fold(0usize, usize::saturating_add);
            let made = sum.saturating_add(a.saturating_mul(parts));
            (made, made)
        }
        GrowthKind::SplitText => {
            let made = a
                .saturating_mul(8)
                .saturating_add(c.saturating_mul(a / b.max(1) + 1));
            (made, made)
        }
        GrowthKind::DatePattern => {
            let others = (1..of.args.len()).map(|at| lengths(of.args, at).at(of.row));
            let patterns = others.fold(0usize, usize::saturating_add);
            let made = patterns.saturating_mul(DATE_GROWS).saturating_add(64);
            (made, made.saturating_mul(4).saturating_add(a))
        }
        GrowthKind::Levenshtein => (8, a.saturating_mul(b.max(1)).saturating_mul(2)),
        _ => return None,
    })
}

/// Bytes and work of a call that returns or reads a list.
fn of_lists(kind: GrowthKind, of: &RowArgs<'_>) -> (usize, usize) {
    let (a, b, c, all) = (of.a, of.b, of.c, of.all());
    match kind {
        GrowthKind::JoinList => {
            let count = elements(of.args, 0, of.row).max(a / 8 + 1);
            let each = b.saturating_add(c).saturating_add(24);
            let made = a.saturating_add(count.saturating_mul(each));
            (made, made)
        }
        GrowthKind::Range => {
            let made = of.range.saturating_mul(8);
            (made, made)
        }
        GrowthKind::RepeatList => {
            let made = of.count.saturating_mul(a.saturating_add(8));
            (made, made)
        }
        GrowthKind::ResizeList => {
            let made = of
                .count
                .saturating_mul(c.saturating_add(16))
                .saturating_add(a);
            (made, made)
        }
        GrowthKind::ReplaceInList => {
            let count = elements(of.args, 0, of.row);
            let made = a.saturating_add(count.saturating_mul(c.saturating_add(8)));
            (made, made)
        }
        GrowthKind::Zip => {
            let counts = (0..of.args.len()).map(|at| elements(of.args, at, of.row));
            let most = counts.max().unwrap_or(0);
            let sizes = (0..of.args.len()).map(|at| lengths(of.args, at).at(of.row));
            let sum = sizes.fold(0usize, usize::saturating_add);
            let made = sum.saturating_add(most.saturating_mul(of.args.len() * 16));
            (made, made)
        }
        GrowthKind::Pairs => {
            let pairs =
                elements(of.args, 0, of.row).saturating_mul(elements(of.args, 1, of.row).max(1));
            let made = all.saturating_mul(2);
            (
                made,
                pairs
                    .saturating_mul(4)
                    .saturating_add(made.saturating_mul(8)),
            )
        }
        GrowthKind::Find => {
            let deep = a.saturating_mul(b / 16 + 1);
            (a, deep.saturating_add(b))
        }
        // Functions that return text are counted in `of_texts`.
        _ => (all, all),
    }
}

fn plain(args: &[ColumnarValue], rows: usize, times: usize) -> Cost {
    let mut bytes = 0usize;
    let mut row_work = 0usize;
    for arg in args {
        let own = of_value(arg);
        let (all, each) = match arg {
            ColumnarValue::Scalar(_) => (own.saturating_mul(rows), own),
            ColumnarValue::Array(array) => (own, own / array.len().max(1)),
        };
        bytes = bytes.saturating_add(all);
        row_work = row_work.saturating_add(each);
    }
    Cost {
        bytes: bytes
            .saturating_mul(times)
            .saturating_add(rows.saturating_mul(ROW_BYTES)),
        work: bytes,
        row_work,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(n: i64) -> ColumnarValue {
        ColumnarValue::Scalar(ScalarValue::Int64(Some(n)))
    }

    fn words(text: &str) -> ColumnarValue {
        ColumnarValue::Scalar(ScalarValue::Utf8(Some(text.to_owned())))
    }

    #[test]
    fn what_grows_is_known_before_it_is_made() {
        let cost = |name: &str, args: &[ColumnarValue]| cost(GrowthKind::of(name), args, 1).bytes;
        assert!(cost("repeat", &[words("ab"), number(1 << 40)]) >= 2 << 40);
        assert_eq!(cost("repeat", &[words("ab"), number(-5)]), ROW_BYTES);
        assert!(cost("lpad", &[words("ab"), number(i64::MAX), words("y")]) > 1 << 62);
        assert!(cost("replace", &[words("aaaa"), words("a"), words("0123456789")]) >= 40);
        assert!(cost("range", &[number(1), number(9_000_000_000_000_000_000)]) > 1 << 62);
        assert!(cost("range", &[number(0), number(100), number(-7)]) >= 8 * 14);
        assert!(cost("array_repeat", &[number(1), number(1 << 50)]) > 1 << 50);
        assert!(cost("upper", &[words("abc")]) >= 3);
    }

    #[test]
    fn counted_repetitions_within_each_other_multiply() {
        assert!(states("^[a-z]+$") < 3);
        assert!(states("((a{100}){100}){100}") > 20_000);
        assert!(states("\\d{1,3}") < 10);
    }
}
