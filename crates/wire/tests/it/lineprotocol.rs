//! Line protocol: what is taken, what is refused, and where.

use crate::support::{NOW, parse_lines, rows_of, shown_refusals, shown_rows};
use headwater_types::{FieldType, Timestamp};
use headwater_wire::RefusalCode;
use headwater_wire::lineprotocol::{LineParser, LineStream, ParserOptions, Precision};
use proptest::prelude::*;

fn check(text: &str, expected: &[&str]) {
    let parsed = parse_lines(text);
    assert_eq!(
        shown_rows(&parsed),
        expected,
        "{text}\n{:?}",
        parsed.refused
    );
    assert!(parsed.refused.is_empty(), "{text}\n{:?}", parsed.refused);
}

fn check_refused(line: &str, code: RefusalCode, message_part: &str) {
    // A good line on either side must survive.
    let text = format!("a v=1 1\n{line}\nb v=2 2\n");
    let parsed = parse_lines(&text);
    assert_eq!(shown_rows(&parsed), ["a v=1.0 @1", "b v=2.0 @2"], "{line}");
    assert_eq!(shown_refusals(&parsed), [format!("2 {code}")], "{line}");
    let refused = &parsed.refused[0];
    assert!(
        refused.message.contains(message_part),
        "{line}: {}",
        refused.message
    );
    assert_eq!(refused.original, line.lines().next().unwrap());
}

#[test]
fn the_mark_before_utf_8_is_no_part_of_the_first_table() {
    check(
        "\u{feff}m20,a=b v=1 5\nm20 v=2 6\n",
        &["m20,a=b v=1.0 @5", "m20 v=2.0 @6"],
    );
    check("\u{feff}", &[]);
    // Only where a text begins; elsewhere it is a letter like others.
    check(
        "m v=1 5\n\u{feff}n v=2 6\n",
        &["m v=1.0 @5", "\u{feff}n v=2.0 @6"],
    );
    // Cut anywhere, a text that is read in parts gives the same.
    let text = "\u{feff}m v=1 5\nn v=2 6\n";
    for cut in 0..text.len() {
        let mut options = ParserOptions::new(Timestamp::from_nanos(NOW));
        options.precision = Precision::Nanoseconds;
        let mut parser = LineParser::new(options);
        let (first, taken) = parser.parse_part(&text.as_bytes()[..cut], 1, false);
        let rest = &text.as_bytes()[taken..];
        let (second, _) = parser.parse_part(rest, 1 + first.line_count, true);
        let rows = [shown_rows(&first), shown_rows(&second)].concat();
        assert_eq!(rows, ["m v=1.0 @5", "n v=2.0 @6"], "cut at {cut}");
    }
}

#[test]
fn values_of_every_type_are_read() {
    check(
        "m a=1,b=-2i,c=3u,d=t,e=FALSE,f=\"x y\",g=1e3,h=1.,i=.5,j=-0,k=+7 5",
        &["m a=1.0 b=-2i c=3u d=true e=false f=\"x y\" g=1000.0 h=1.0 i=0.5 j=-0.0 k=7.0 @5"],
    );
    for word in ["t", "T", "true", "True", "TRUE"] {
        check(&format!("m v={word} 5"), &["m v=true @5"]);
    }
    for word in ["f", "F", "false", "False", "FALSE"] {
        check(&format!("m v={word} 5"), &["m v=false @5"]);
    }
    check(
        "m v=9223372036854775807i,w=18446744073709551615u 1",
        &["m v=9223372036854775807i w=18446744073709551615u @1"],
    );
}

#[test]
fn escapes_keep_special_characters() {
    check(
        r"a\ b\,c,k\ 1\=2=v\,\=\ x f\ g\,h\=i=1 5",
        &[r"a\ b\,c,k\ 1\=2=v\,\=\ x f g,h=i=1.0 @5"],
    );
    check(r"m,path=C:\temp\x v=1 5", &[r"m,path=C:\\temp\\x v=1.0 @5"]);
    check(r"m,t=a\\ v=1 5", &[r"m,t=a\\ v=1.0 @5"]);
    check(
        r#"m s="a\"b\\c\d, e=f" 5"#,
        &[r#"m s="a\"b\\c\\d, e=f" @5"#],
    );
    check("m,t=\"quoted\" v=1 5", &["m,t=\"quoted\" v=1.0 @5"]);
    check(
        "météo,ville=Zürich größe=1 5",
        &["météo,ville=Zürich größe=1.0 @5"],
    );
}

#[test]
fn strings_may_cross_lines() {
    let parsed = parse_lines("m s=\"a\nb\r\nc\",v=1 5\nm s=\"d\" 6\nx");
    assert_eq!(
        shown_rows(&parsed),
        ["m s=\"a\\nb\\r\\nc\" v=1.0 @5", "m s=\"d\" @6"]
    );
    assert_eq!(
        rows_of(&parsed).iter().map(|r| r.2).collect::<Vec<_>>(),
        [1, 4]
    );
    assert_eq!(shown_refusals(&parsed), ["5 E_PARSE"]);
    assert_eq!(parsed.line_count, 5);
}

#[test]
fn an_open_quote_costs_one_line() {
    check_refused("m s=\"open 3", RefusalCode::Parse, "quote");
    let parsed = parse_lines("m s=\"open\nm s=\"ok\" 2\nm v=1 3\n");
    assert_eq!(shown_rows(&parsed), ["m s=\"ok\" @2", "m v=1.0 @3"]);
    assert_eq!(shown_refusals(&parsed), ["1 E_PARSE"]);
}

#[test]
fn blanks_comments_and_line_ends_are_skipped() {
    check(
        "\n# comment\n   \t \r\n  m v=1 5\r\nm   v=2   6   \r\n\r\n #x\nm v=3 7",
        &["m v=1.0 @5", "m v=2.0 @6", "m v=3.0 @7"],
    );
    check("m v=1", &[&format!("m v=1.0 @{NOW}")]);
}

#[test]
fn a_repeated_field_keeps_its_last_value() {
    check("m a=1,b=2,a=3 5", &["m a=3.0 b=2.0 @5"]);
    check(
        "m a=1i,a=\"x\",a=2u 5\nm b=1,a=7u 6",
        &["m a=2u @5", "m a=7u b=1.0 @6"],
    );
}

#[test]
fn fields_in_any_order_find_their_columns() {
    let parsed = parse_lines("m a=1,b=2,c=3 1\nm c=6,a=4 2\nm d=7 3\nm b=8,d=9,a=0 4\n");
    assert_eq!(
        shown_rows(&parsed),
        [
            "m a=1.0 b=2.0 c=3.0 @1",
            "m a=4.0 c=6.0 @2",
            "m d=7.0 @3",
            "m a=0.0 b=8.0 d=9.0 @4"
        ]
    );
    assert_eq!(parsed.batch.entries().len(), 1);
    let wide: Vec<String> = (0..300).map(|i| format!("f{i}={i}")).collect();
    let backwards: Vec<String> = (0..300).rev().map(|i| format!("f{i}={i}")).collect();
    let parsed = parse_lines(format!(
        "m {} 1\nm {} 2\n",
        wide.join(","),
        backwards.join(",")
    ));
    let rows = rows_of(&parsed);
    assert_eq!(rows[0].3, rows[1].3);
    assert_eq!(rows[0].3.len(), 300);
}

#[test]
fn spellings_of_one_name_are_one_stream_and_one_field() {
    let parsed = parse_lines("m,a=1,b=2 v=1 1\nm,b=2,a=1 v=2 2\n");
    assert_eq!(parsed.batch.entries().len(), 1);
    let parsed = parse_lines(
        "m,b=x\\,y,a=c\\d v=1 1\nm,a=c\\\\d,b=x\\,y v=2 2\nm,a=c\\d,b=x\\,y v=3 3\ne=q,b=1,a=2 v=4 4\ne\\=q,a=2,b=1 v=5 5\ne=q,a=2,b=1 v=6 6\n",
    );
    assert_eq!(parsed.batch.entries().len(), 2);
    assert_eq!(parsed.batch.row_count(), 6);
    let parsed = parse_lines("m a\\b=1 1\nm a\\\\b=2 2\nm a\\b=3 3\n");
    assert_eq!(
        shown_rows(&parsed),
        ["m a\\b=1.0 @1", "m a\\b=2.0 @2", "m a\\b=3.0 @3"]
    );
    assert_eq!(parsed.batch.entries()[0].fields.len(), 1);
}

#[test]
fn numbers_widen_without_loss_and_other_clashes_are_left_to_the_table() {
    let parsed = parse_lines(
        "m v=1 1\nm v=2i 2\nm v=9007199254740993i 3\nm v=4u 4\nm v=\"x\" 5\nm v=t,w=1 6\n",
    );
    assert_eq!(
        shown_rows(&parsed),
        [
            "m v=1.0 @1",
            "m v=2.0 @2",
            "m v=9007199254740993i @3",
            "m v=4u @4",
            "m v=\"x\" @5",
            "m v=true w=1.0 @6"
        ]
    );
    assert!(parsed.refused.is_empty());
    assert_eq!(parsed.batch.entries().len(), 5);
    assert_eq!(
        parsed.lines,
        [vec![1, 2], vec![3], vec![4], vec![5], vec![6]]
    );

    let parsed = parse_lines("m v=1i,s=\"a\" 1\nm s=\"b\" 2\nm v=2.5 3\n");
    assert_eq!(
        shown_rows(&parsed),
        ["m s=\"a\" v=1.0 @1", "m s=\"b\" @2", "m v=2.5 @3"]
    );
    let v = &parsed.batch.entries()[0].fields[0].1;
    assert_eq!(v.field_type(), FieldType::F64);

    let parsed = parse_lines("m v=9007199254740993i 1\nm v=2.5 2\nm v=3i 3\n");
    assert_eq!(
        shown_rows(&parsed),
        ["m v=9007199254740993i @1", "m v=2.5 @2", "m v=3.0 @3"]
    );
    assert_eq!(parsed.batch.entries().len(), 2);
    // The parser starts the next input afresh.
    let mut parser = LineParser::new(ParserOptions::new(Timestamp::from_nanos(NOW)));
    for _ in 0..2 {
        let parsed = parser.parse(b"m v=1 1\nm v=t 2\nm v=f 3\nm v=2 4", 1);
        assert_eq!(parsed.lines, [vec![1], vec![2, 3], vec![4]]);
    }
}

#[test]
fn a_name_cut_at_its_backslash_is_not_found_in_front_of_a_blank_that_belongs_to_a_name() {
    let parsed = parse_lines("a\\\na\\ b v=1 1\nc\\\r\nc\\ d v=2 2\n");
    assert_eq!(shown_rows(&parsed), ["a\\ b v=1.0 @1", "c\\ d v=2.0 @2"]);
    assert_eq!(shown_refusals(&parsed), ["1 E_PARSE", "3 E_PARSE"]);
}

#[test]
fn a_refused_line_leaves_no_trace() {
    let parsed = parse_lines("m a=1,new=2 nonsense\nm a=\"text\" 2\nm new=t 3\n");
    assert_eq!(shown_rows(&parsed), ["m a=\"text\" @2", "m new=true @3"]);
    let parsed = parse_lines("m a=1 1\nm b=1,a=x 2\nm a=2 3");
    assert_eq!(shown_rows(&parsed), ["m a=1.0 @1", "m a=2.0 @3"]);
    assert_eq!(parsed.batch.entries()[0].fields.len(), 1);
}

#[test]
fn faults_are_named() {
    use RefusalCode::{Parse, Time, Type};
    check_refused("m", Parse, "at least one field");
    check_refused("m,t=1", Parse, "at least one field");
    check_refused(",t=1 v=1 5", Parse, "name of a table");
    check_refused("m,t v=1 5", Parse, "tag=value");
    check_refused("m,t= v=1 5", Parse, "has no value");
    check_refused("m,=x v=1 5", Parse, "has no name");
    check_refused("m,a=1,a=2 v=1 5", Parse, "is repeated");
    check_refused("m,a=1=2 v=1 5", Parse, "second `=`");
    check_refused("m v 5", Parse, "without `=`");
    check_refused("m =1 5", Parse, "name of a field");
    check_refused("m v= 5", Parse, "found nothing");
    check_refused("m v=1, 5", Parse, "without `=`");
    check_refused("m v=NaN 5", Parse, "cannot represent `NaN`");
    check_refused("m v=-inf 5", Parse, "cannot represent `-inf`");
    check_refused("m v=cold 5", Parse, "double quotes");
    check_refused("m v=1.5i 5", Parse, "found `1.5i`");
    check_refused("m v=1x 5", Parse, "found `1x`");
    check_refused("m v=\"a\"b 5", Parse, "after a value");
    check_refused("m v=9223372036854775808i 5", Type, "range of i64");
    check_refused("m v=-1u 5", Type, "range of u64");
    check_refused("m v=1e999 5", Type, "range of f64");
    check_refused("m v=1 5 6", Time, "integer");
    check_refused("m v=1 5.0", Time, "integer");
    check_refused("m v=1 noon", Time, "integer");
    check_refused("m v=1 9223372036854775808", Time, "1677");
}

#[test]
fn bytes_that_are_no_text_are_refused_with_their_line() {
    let parsed = parse_lines(
        b"m v=1 1\nm,t=\xFF v=1 2\nm \xFF=1 3\nm s=\"\xFF\" 4\n# \xFF\nm v=\"\xC3\xA9\" 5\n",
    );
    assert_eq!(
        shown_refusals(&parsed),
        ["2 E_UTF8", "3 E_UTF8", "4 E_UTF8"]
    );
    assert_eq!(parsed.refused[0].original, "m,t=\u{FFFD} v=1 2");
}

#[test]
fn stamps_have_the_unit_they_are_said_to_have() {
    for (precision, stamp, expected) in [
        (Precision::Seconds, "5", 5_000_000_000),
        (Precision::Milliseconds, "-5", -5_000_000),
        (Precision::Microseconds, "5", 5_000),
        (Precision::Nanoseconds, "5", 5),
        (Precision::Auto, "1400000000", 1_400_000_000_000_000_000),
        (Precision::Auto, "1400000000000", 1_400_000_000_000_000_000),
        (
            Precision::Auto,
            "1400000000000000000",
            1_400_000_000_000_000_000,
        ),
        (Precision::Nanoseconds, "-9223372036854775808", i64::MIN),
        (Precision::Nanoseconds, "+0000000000000000000009", 9),
    ] {
        let mut options = ParserOptions::new(Timestamp::from_nanos(NOW));
        options.precision = precision;
        let parsed = LineParser::new(options).parse(format!("m v=1 {stamp}").as_bytes(), 1);
        assert_eq!(
            parsed.batch.entries()[0].times,
            [expected],
            "{stamp} {precision:?}"
        );
    }
    assert_eq!(Precision::from_name("u"), Some(Precision::Microseconds));
    assert_eq!(Precision::from_name("day"), None);
}

#[test]
fn the_future_is_refused_when_asked() {
    let mut options = ParserOptions::new(Timestamp::from_nanos(NOW));
    options.precision = Precision::Nanoseconds;
    options.latest = Some(Timestamp::from_nanos(100));
    let parsed = LineParser::new(options).parse(b"m v=1 100\nm v=2 101\nm v=3\n", 1);
    assert_eq!(
        shown_rows(&parsed),
        ["m v=1.0 @100", &format!("m v=3.0 @{NOW}")]
    );
    assert_eq!(shown_refusals(&parsed), ["2 E_TIME_FUTURE"]);
}

#[test]
fn limits_cost_the_line_that_passes_them() {
    let mut options = ParserOptions::new(Timestamp::from_nanos(NOW));
    options.line_bytes_max = 60;
    options.string_bytes_max = 10;
    options.fields_max = 2;
    let text = format!(
        "m v=1 1\nm v={} 2\nm s=\"12345678901\" 3\nm a=1,b=2,c=3 4\nm w=5 5\nm x=6 6\nn s=\"open {}\nm v=7 7\n",
        "1".repeat(80),
        "x".repeat(20),
    );
    let parsed = LineParser::new(options).parse(text.as_bytes(), 1);
    assert_eq!(
        shown_refusals(&parsed),
        [
            "2 E_LIMIT_LINE",
            "3 E_LIMIT_STRING",
            "4 E_LIMIT_FIELDS",
            "6 E_LIMIT_FIELDS",
            "7 E_PARSE"
        ]
    );
    assert_eq!(parsed.batch.row_count(), 3);
}

#[test]
fn refused_lines_are_counted_when_there_are_too_many_to_keep() {
    let parsed = parse_lines("x\n".repeat(5_000));
    assert_eq!(parsed.refused.len(), 1_000);
    assert_eq!(
        parsed.refused_counts.iter().collect::<Vec<_>>(),
        [(RefusalCode::Parse, 5_000)]
    );
}

#[test]
fn a_parser_forgets_values_but_not_names() {
    let mut parser = LineParser::new(ParserOptions::new(Timestamp::from_nanos(NOW)));
    let first = parser.parse(b"m,d=1 v=1i,w=2 1400000000\n", 1);
    let second = parser.parse(b"m,d=1 v=\"text\" 1400000000\n", 9);
    assert_eq!(first.batch.row_count(), 1);
    assert_eq!(
        shown_rows(&second),
        ["m,d=1 v=\"text\" @1400000000000000000"]
    );
    assert_eq!(second.lines, [[9]]);
}

#[test]
fn names_beyond_the_limit_are_forgotten() {
    let mut options = ParserOptions::new(Timestamp::from_nanos(NOW));
    options.cached_name_bytes_max = 10_000;
    let mut parser = LineParser::new(options);
    for round in 0..10 {
        let text: String = (0..50)
            .map(|i| format!("m,d={round}-{i} v=1 1\n"))
            .collect();
        assert_eq!(parser.parse(text.as_bytes(), 1).batch.row_count(), 50);
    }
}

fn stream_rows(
    text: &[u8],
    piece: usize,
    line_bytes_max: usize,
) -> (Vec<String>, Vec<String>, u64) {
    let mut options = ParserOptions::new(Timestamp::from_nanos(NOW));
    options.precision = Precision::Nanoseconds;
    options.line_bytes_max = line_bytes_max;
    let mut stream = LineStream::new(text, options);
    let (mut rows, mut refused, mut lines) = (Vec::new(), Vec::new(), 0);
    while let Some(parsed) = stream.next_batch(piece).unwrap() {
        rows.extend(shown_rows(&parsed));
        refused.extend(shown_refusals(&parsed));
        lines += parsed.line_count;
    }
    (rows, refused, lines)
}

#[test]
fn pieces_of_any_size_give_the_same_rows() {
    let text = b"m v=1 1\r\nm s=\"a\nb\",v=2 2\n\n# c\nbad\nm s=\"\\\"\n\\\\\" 3\nm v=4 4";
    let whole = stream_rows(text, usize::MAX, 1 << 20);
    assert_eq!(whole.0.len(), 4);
    assert_eq!(whole.1, ["6 E_PARSE"]);
    for piece in 1..text.len() + 2 {
        assert_eq!(
            stream_rows(text, piece, 1 << 20),
            whole,
            "pieces of {piece}"
        );
    }
}

#[test]
fn endless_lines_and_strings_need_bounded_memory() {
    let mut text = b"m v=1 1\nm v=".to_vec();
    text.resize(text.len() + 10_000, b'1');
    text.extend_from_slice(b" 2\nm s=\"");
    text.resize(text.len() + 10_000, b'x');
    text.extend_from_slice(b"\nm v=3 3\nm v=4 4\n");
    for piece in [1, 7, 100, 1_000] {
        let (rows, refused, lines) = stream_rows(&text, piece, 500);
        assert_eq!(
            rows,
            ["m v=1.0 @1", "m v=3.0 @3", "m v=4.0 @4"],
            "pieces of {piece}"
        );
        assert_eq!(
            refused,
            ["2 E_LIMIT_LINE", "3 E_LIMIT_LINE"],
            "pieces of {piece}"
        );
        assert_eq!(lines, 5);
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        parse_lines(bytes);
    }

    #[test]
    fn no_likely_text_panics_and_every_line_is_accounted_for(
        text in "([mn](,[ab]=[xy]){0,2} |[ab]=(1|2i|\"x\"|\"|t)|,| |\\\\|=|\n|#|5| 7\n){0,40}",
    ) {
        let parsed = parse_lines(&text);
        let lines = parsed.lines.iter().flatten().chain(parsed.refused.iter().map(|r| &r.line));
        let mut seen = std::collections::HashSet::new();
        for line in lines {
            prop_assert!(seen.insert(*line) && *line >= 1 && *line <= parsed.line_count);
        }
        let piecewise = stream_rows(text.as_bytes(), 3, 1 << 20);
        prop_assert_eq!(piecewise.0, shown_rows(&parsed));
        prop_assert_eq!(piecewise.1, shown_refusals(&parsed));
    }
}

#[test]
fn each_line_without_a_time_gets_an_instant_of_its_own() {
    let parsed = parse_lines("a v=1\na v=2 5\na v=x\na v=3\nb v=4\n");
    let mut times: Vec<i64> = Vec::new();
    for entry in parsed.batch.entries() {
        times.extend(&entry.times);
    }
    times.sort_unstable();
    assert_eq!(times, [5, NOW, NOW + 1, NOW + 2]);
}
