//! CSV: quotes, line ends, line numbers, and rows of the wrong shape.

use crate::support::{csv_options, parse_csv, rows_of, shown_refusals, shown_rows};
use headwater_wire::csv::{CsvOptions, CsvParser};
use std::io::Read;

fn options() -> CsvOptions {
    let mut options = csv_options("ts:ns");
    options.types = vec!["s:string".into()];
    options
}

fn lines_of(text: impl AsRef<[u8]>) -> (Vec<String>, Vec<u64>, Vec<String>) {
    let parsed = parse_csv(text, options());
    let lines = rows_of(&parsed).iter().map(|r| r.2).collect();
    (shown_rows(&parsed), lines, shown_refusals(&parsed))
}

#[test]
fn lines_are_counted_as_an_editor_counts_them() {
    let (rows, lines, refused) =
        lines_of("ts,s\n1,\"a\nb\"\n\n2,c\r\n\r\n3,\"d\r\ne\"\r\n4\n5,\"f\"");
    assert_eq!(
        rows,
        [
            "t s=\"a\\nb\" @1",
            "t s=\"c\" @2",
            "t s=\"d\\r\\ne\" @3",
            "t s=\"f\" @5"
        ]
    );
    assert_eq!(lines, [2, 5, 7, 10]);
    assert_eq!(refused, ["9 E_FIELDS"]);
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_name() {
    let (rows, lines, _) = lines_of("\u{FEFF}ts,s\r\n1,x\r\n");
    assert_eq!((rows, lines), (vec!["t s=\"x\" @1".to_owned()], vec![2]));
}

#[test]
fn quotes_follow_rfc_4180() {
    let (rows, _, refused) = lines_of("ts,\"s\"\n\"1\",\"say \"\"hi\"\", you\"\n2,5\" pipe\n");
    assert_eq!(
        rows,
        ["t s=\"say \\\"hi\\\", you\" @1", "t s=\"5\\\" pipe\" @2"]
    );
    assert!(refused.is_empty());
}

#[test]
fn a_quote_that_ends_within_its_cell_is_refused_in_records_of_one_line_and_of_more() {
    for row in [
        "2,\"x\"y",
        "2,\"x\" ",
        "2,\"x\"\"y\"z",
        "\"2\" ,x",
        "2,\"x\"y\"z\"",
    ] {
        let text = format!("ts,s\n1,a\n{row}\n3,c\n");
        let (rows, lines, refused) = lines_of(&text);
        assert_eq!(rows, ["t s=\"a\" @1", "t s=\"c\" @3"], "{row}");
        assert_eq!((lines, refused), (vec![2, 4], vec!["3 E_PARSE".to_owned()]));
        // At the end of the file, with the line ended and without.
        for end in ["", "\n"] {
            let (rows, _, refused) = lines_of(format!("ts,s\n1,a\n{row}{end}"));
            assert_eq!((rows.len(), refused.len()), (1, 1), "{row}");
        }
    }
}

#[test]
fn an_open_quote_costs_its_own_line_only() {
    let (rows, lines, refused) = lines_of("ts,s\n1,\"a\n2,b\n3,\"c\"\n4,d\n");
    assert_eq!(rows, ["t s=\"b\" @2", "t s=\"c\" @3", "t s=\"d\" @4"]);
    assert_eq!(lines, [3, 4, 5]);
    assert_eq!(refused, ["2 E_PARSE"]);

    let (rows, lines, refused) = lines_of("ts,s\n1,a\n2,\"b\n3,c\n4,d\n");
    assert_eq!(rows, ["t s=\"a\" @1", "t s=\"c\" @3", "t s=\"d\" @4"]);
    assert_eq!(lines, [2, 4, 5]);
    assert_eq!(refused, ["3 E_PARSE"]);

    let (rows, _, refused) = lines_of("ts,s\n\"1,a\n2,b\n");
    assert_eq!(rows, ["t s=\"b\" @2"]);
    assert_eq!(refused, ["2 E_PARSE"]);
}

#[test]
fn a_file_cut_inside_a_quoted_cell_ends_in_a_refused_row() {
    let (rows, _, refused) = lines_of("ts,s\n1,a\n2,\"cut he");
    assert_eq!(rows, ["t s=\"a\" @1"]);
    assert_eq!(refused, ["3 E_PARSE"]);
    // A quote that ends within its cell is refused at the end of a file as it is before.
    let (rows, _, refused) = lines_of("ts,s\n1,\"a\" x\n2,\"b\" x");
    assert!(rows.is_empty());
    assert_eq!(refused, ["2 E_PARSE", "3 E_PARSE"]);
}

#[test]
fn a_sound_record_of_several_lines_is_refused_as_a_whole() {
    let (rows, lines, refused) = lines_of("ts,s\n1,\"a\n2,b\",c\n3,d\n");
    assert_eq!(rows, ["t s=\"d\" @3"]);
    assert_eq!((lines, refused), (vec![4], vec!["2 E_FIELDS".to_owned()]));
}

#[test]
fn rows_of_another_length_are_refused() {
    let (rows, _, refused) = lines_of("ts,s\n1\n2,a\n3,b,c\n4,d\n,\n");
    assert_eq!(rows, ["t s=\"a\" @2", "t s=\"d\" @4"]);
    assert_eq!(refused, ["2 E_FIELDS", "4 E_FIELDS", "6 E_TIME"]);
    let parsed = parse_csv("ts,s\n3,b,c\n", options());
    assert!(
        parsed.refused[0]
            .message
            .contains("expected 2 cells as in the header, found 3")
    );
    assert_eq!(parsed.refused[0].original, "3,b,c");
}

#[test]
fn bytes_that_are_no_text_are_refused_where_they_matter() {
    let (rows, _, refused) = lines_of(b"ts,s\n1,\xFF\n2,\xC3\xA9\n\xFF,x\n");
    assert_eq!(rows, ["t s=\"é\" @2"]);
    assert_eq!(refused, ["2 E_UTF8", "4 E_UTF8"]);
}

#[test]
fn other_delimiters_work() {
    let mut options = options();
    options.delimiter = b';';
    let parsed = parse_csv("ts;s\n1;a,b\n2;\"c;d\"\n", options);
    assert_eq!(shown_rows(&parsed), ["t s=\"a,b\" @1", "t s=\"c;d\" @2"]);
}

#[test]
fn a_row_beyond_the_limit_costs_its_own_line_only() {
    let long = "x".repeat(300_000);
    for open in ["", "\""] {
        let text = format!("ts,s\n1,a\n2,{open}{long}\n3,b\n");
        let mut options = options();
        options.record_bytes_max = 100_000;
        let parsed = parse_csv(text, options);
        assert_eq!(shown_rows(&parsed), ["t s=\"a\" @1", "t s=\"b\" @3"]);
        assert_eq!(shown_refusals(&parsed), ["3 E_LIMIT_LINE"]);
        assert_eq!(parsed.refused[0].original.chars().count(), 200);
    }
    let mut options = options();
    options.string_bytes_max = 3;
    let parsed = parse_csv("ts,s\n1,abcd\n2,abc\n", options);
    assert_eq!(shown_refusals(&parsed), ["2 E_LIMIT_STRING"]);
}

#[test]
fn an_open_quote_before_many_rows_loses_none_of_them() {
    let rows: String = (0..20_000).map(|i| format!("{i},value {i}\n")).collect();
    let text = format!("ts,s\n1,\"open\n{rows}");
    let mut options = options();
    options.record_bytes_max = 100_000;
    let parsed = parse_csv(text, options);
    assert_eq!(parsed.batch.row_count(), 20_000);
    assert_eq!(shown_refusals(&parsed), ["2 E_LIMIT_LINE"]);
    assert_eq!(parsed.line_count, 20_002);
}

/// Hands out a few bytes at a time.
struct Slow<'a>(&'a [u8], usize);

impl Read for Slow<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = self.1.min(out.len()).min(self.0.len());
        out[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

#[test]
fn the_size_of_reads_does_not_matter() {
    let text = "\u{FEFF}ts,s\r\n1,\"a\nb\"\r\n2,\"open\r\n3,c\r\n4,\"\"\"\"\r\n5\r\n6,d";
    let whole = parse_csv(text, options());
    for size in [1, 2, 3, 5, 1_000] {
        let mut parser = CsvParser::new(Slow(text.as_bytes(), size), options()).unwrap();
        let parsed = parser.next_batch(1_000).unwrap().unwrap();
        assert_eq!(shown_rows(&parsed), shown_rows(&whole), "reads of {size}");
        assert_eq!(
            shown_refusals(&parsed),
            shown_refusals(&whole),
            "reads of {size}"
        );
    }
    assert_eq!(shown_refusals(&whole), ["4 E_PARSE", "7 E_FIELDS"]);
}

#[test]
fn a_failing_reader_is_an_error_not_an_end() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("cable pulled"))
        }
    }
    let input = (&b"ts,s\n1,a\n"[..]).chain(Failing);
    let error = CsvParser::new(input, options()).err().unwrap().to_string();
    assert!(error.contains("cable pulled"), "{error}");
}
