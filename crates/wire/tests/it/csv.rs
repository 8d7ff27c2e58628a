//! CSV: columns, types, times and refused rows.

use crate::support::{csv_options, parse_csv, rows_of, shown_refusals, shown_rows};
use headwater_types::FieldType;
use headwater_wire::csv::{CsvError, CsvOptions, CsvParser, TimeFormat};
use proptest::prelude::*;

fn with_tags(time: &str, tags: &[&str]) -> CsvOptions {
    let mut options = csv_options(time);
    options.tags = tags.iter().map(|t| (*t).to_owned()).collect();
    options
}

fn with_types(types: &[&str]) -> CsvOptions {
    let mut options = csv_options("ts:ns");
    options.types = types.iter().map(|t| (*t).to_owned()).collect();
    options
}

fn error_of(text: &str, options: CsvOptions) -> CsvError {
    match CsvParser::new(text.as_bytes(), options) {
        Ok(_) => panic!("{text:?} was taken"),
        Err(error) => error,
    }
}

/// One column `v` with these cells; the types and values they get.
fn check_cells(cells: &[&str], options: CsvOptions, expected: &[&str], refused: &[&str]) {
    let mut text = "ts,v,w\n".to_owned();
    for (index, cell) in cells.iter().enumerate() {
        text.push_str(&format!("{index},{cell},1\n"));
    }
    let parsed = parse_csv(&text, options);
    let values: Vec<String> = shown_rows(&parsed)
        .iter()
        .map(|row| {
            let row = row.strip_prefix("t ").unwrap();
            row.split(" w=")
                .next()
                .unwrap()
                .trim_start_matches("v=")
                .to_owned()
        })
        .collect();
    assert_eq!(values, expected, "{cells:?}");
    assert_eq!(
        shown_refusals(&parsed),
        refused,
        "{cells:?} {:?}",
        parsed.refused
    );
}

#[test]
fn rows_go_to_the_streams_their_tags_name() {
    let parsed = parse_csv(
        "site,ts,temp,device,state\nnorth,5,1.5,a,on\nsouth,6,2,a,\n,7,3,b,off\nnorth,8,,a,\n",
        with_tags("ts:ns", &["device", "site"]),
    );
    assert_eq!(
        shown_rows(&parsed),
        [
            "t,device=a,site=north state=\"on\" temp=1.5 @5",
            "t,device=a,site=south temp=2.0 @6",
            "t,device=b state=\"off\" temp=3.0 @7",
        ]
    );
    assert_eq!(parsed.empty_rows, 1);
    assert_eq!(parsed.line_count, 5);
}

#[test]
fn types_are_told_from_the_cells() {
    let infer = || csv_options("ts:ns");
    check_cells(&["1", "-2"], infer(), &["1i", "-2i"], &[]);
    check_cells(&["1", "2.5"], infer(), &["1.0", "2.5"], &[]);
    check_cells(
        &["1", "18446744073709551615"],
        infer(),
        &["1u", "18446744073709551615u"],
        &[],
    );
    check_cells(&["true", "false"], infer(), &["true", "false"], &[]);
    check_cells(&["True", "False"], infer(), &["\"True\"", "\"False\""], &[]);
    check_cells(
        &["07000048", "12"],
        infer(),
        &["\"07000048\"", "\"12\""],
        &[],
    );
    check_cells(
        &["0000000000000000"],
        infer(),
        &["\"0000000000000000\""],
        &[],
    );
    check_cells(&["1e5abc", "7"], infer(), &["\"1e5abc\"", "\"7\""], &[]);
    check_cells(&["NaN", "1", "-inf"], infer(), &["NaN", "1.0", "-inf"], &[]);
    check_cells(&[" 5", "6 "], infer(), &["5i", "6i"], &[]);
    check_cells(&["", "x"], infer(), &["w=1i @0", "\"x\""], &[]);
}

#[test]
fn declared_types_are_obeyed() {
    check_cells(
        &["0012", "+7", "1.5"],
        with_types(&["v:i64"]),
        &["12i", "7i"],
        &["4 E_TYPE"],
    );
    check_cells(
        &["12", "1.5", "x"],
        with_types(&["v:string"]),
        &["\"12\"", "\"1.5\"", "\"x\""],
        &[],
    );
    check_cells(
        &["1", "x", "nan"],
        with_types(&["v:f64"]),
        &["1.0", "NaN"],
        &["3 E_TYPE"],
    );
    check_cells(&["1", "-1"], with_types(&["v:u64"]), &["1u"], &["3 E_TYPE"]);
    check_cells(
        &["1", "False", "t", "no"],
        with_types(&["v:bool"]),
        &["true", "false", "true"],
        &["5 E_TYPE"],
    );
    check_cells(
        &["0x", "0xAFfe", "0xA", "af"],
        with_types(&["v:bytes"]),
        &["[]", "[af, fe]"],
        &["4 E_TYPE", "5 E_TYPE"],
    );
}

#[test]
fn a_value_against_the_inferred_type_is_refused_with_advice() {
    let mut options = csv_options("ts:ns");
    options.rows_inspected = 2;
    check_cells(
        &["1", "2", "x", "0012", "3"],
        options.clone(),
        &["1i", "2i", "3i"],
        &["4 E_TYPE", "5 E_TYPE"],
    );
    check_cells(
        &["1", "2", "2.5", "3"],
        options.clone(),
        &["1.0", "2.0", "2.5", "3.0"],
        &[],
    );
    check_cells(
        &["9007199254740993", "2", "2.5", "3"],
        options.clone(),
        &["9007199254740993i", "2i", "3i"],
        &["4 E_TYPE"],
    );
    check_cells(
        &["", "", "2.5", "3", "x"],
        options.clone(),
        &["w=1i @0", "w=1i @1", "2.5", "3.0"],
        &["6 E_TYPE"],
    );
    let parsed = parse_csv("ts,v\n1,1\n2,1\n3,ab12\n", options);
    let message = &parsed.refused[0].message;
    for part in ["`v`", "i64", "`ab12`", "--field 'v:string'"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(parsed.refused[0].original, "3,ab12");
}

#[test]
fn a_widened_column_is_f64_in_later_batches() {
    let mut options = csv_options("ts:ns");
    options.rows_inspected = 2;
    let mut parser = CsvParser::new(&b"ts,v\n1,1\n2,2\n3,3.5\n4,4\n"[..], options).unwrap();
    let mut types = Vec::new();
    while let Some(parsed) = parser.next_batch(1).unwrap() {
        types.extend(
            parsed
                .batch
                .entries()
                .iter()
                .map(|e| e.fields[0].1.field_type()),
        );
    }
    assert_eq!(
        types,
        [
            FieldType::I64,
            FieldType::I64,
            FieldType::F64,
            FieldType::F64
        ]
    );
}

#[test]
fn a_bad_row_widens_nothing() {
    let mut options = csv_options("ts:ns");
    options.rows_inspected = 1;
    let parsed = parse_csv("ts,v,w\n1,1,1\n2,1.5,x\n3,2,2\n", options);
    assert_eq!(shown_rows(&parsed), ["t v=1i w=1i @1", "t v=2i w=2i @3"]);
}

#[test]
fn null_texts_are_absent_and_then_empty_strings_are_values() {
    let mut options = csv_options("ts:ns");
    options.null_texts = vec!["NA".into(), "-".into()];
    let text = "ts,v,s\n1,NA,x\n2,2,\n3,-,NA\n4,,y\n";
    let parsed = parse_csv(text, options);
    assert_eq!(
        shown_rows(&parsed),
        ["t s=\"x\" @1", "t s=\"\" v=2i @2", "t s=\"y\" @4"]
    );
    assert_eq!(parsed.empty_rows, 1);
}

#[test]
fn fields_can_be_chosen_and_typed() {
    let mut options = csv_options("ts:ns");
    options.fields = Some(vec!["b:string".into(), "a".into()]);
    let parsed = parse_csv("ts,a,b,c\n1,2,3,4\n", options);
    assert_eq!(shown_rows(&parsed), ["t a=2i b=\"3\" @1"]);
}

#[test]
fn names_may_contain_colons_and_equals_signs() {
    let text = "a:ms,a,b=c:string,d:x\n1400000000000,1,2,3\n";
    let mut options = csv_options("a:ms");
    options.fields = Some(vec!["b=c:string".into(), "d:x:string".into()]);
    assert_eq!(
        shown_rows(&parse_csv(text, options)),
        ["t b=c:string=2i d:x=\"3\" @1400000000000000000"]
    );
    let mut options = csv_options("a:s");
    options.tags = vec!["d:x".into()];
    assert!(shown_rows(&parse_csv(text, options))[0].ends_with("@1000000000"));
}

fn check_time(format: &str, cell: &str, expected: Option<i64>) {
    let read = TimeFormat::parse(format).unwrap().read(cell);
    assert_eq!(
        read.clone().ok().map(|t| t.as_nanos()),
        expected,
        "{format} {cell}: {read:?}"
    );
}

#[test]
fn times_are_exact() {
    check_time("s", "1386201234", Some(1_386_201_234_000_000_000));
    check_time("s", "1386201234.123456789", Some(1_386_201_234_123_456_789));
    check_time("s", "-0.5", Some(-500_000_000));
    check_time("s", "1386201234.1234567891", None);
    check_time(
        "s",
        "1386201234.1234567890",
        Some(1_386_201_234_123_456_789),
    );
    check_time("s", "9223372036.854775807", Some(i64::MAX));
    check_time("s", "9223372036.854775808", None);
    check_time("s", "-9223372036.854775808", Some(i64::MIN));
    check_time("ms", "1386201234123.5", Some(1_386_201_234_123_500_000));
    check_time("us", "1.001", Some(1_001));
    check_time("us", "1.0001", None);
    check_time("ns", "-5", Some(-5));
    check_time("ns", "5.0", Some(5));
    check_time("ns", "5.5", None);
    for bad in ["", "1.", ".5", "1e9", "x", "1,5", "99999999999999999999"] {
        check_time("s", bad, None);
    }
    check_time("ms", "1970-01-01T00:00:01Z", Some(1_000_000_000));
    check_time(
        "rfc3339",
        "2014-11-10T13:53:41.690+0100",
        Some(1_415_624_021_690_000_000),
    );
    check_time("rfc3339", "2013-01-01T00:00:00", None);
    check_time("rfc3339", "1356998400", None);
}

#[test]
fn patterns_read_local_times() {
    check_time(
        "%Y-%m-%d %H:%M:%S",
        "2014-02-14 14:30:00",
        Some(1_392_388_200_000_000_000),
    );
    check_time(
        "%d.%m.%Y %H:%M@Europe/Berlin",
        "01.07.2017 02:00",
        Some(1_498_867_200_000_000_000),
    );
    check_time(
        "%Y-%m-%d@America/New_York",
        "2013-01-01",
        Some(1_357_016_400_000_000_000),
    );
    check_time(
        "%Y-%m-%dT%H:%M:%S%.f%z@Europe/Berlin",
        "2013-01-01T00:00:00.25+0000",
        Some(1_356_998_400_250_000_000),
    );
    check_time("%s", "1386201234", Some(1_386_201_234_000_000_000));
    check_time("%Y-%m-%d %H:%M:%S", "2014-02-14", None);
    check_time("%Y-%m-%d %H:%M:%S", "2014-02-30 00:00:00", None);
    check_time("%Y-%m-%d", "1500-01-01", None);
    // The clocks of New York: 2013-03-10 has no second hour, 2013-11-03 has its first twice.
    let new_york = "%Y-%m-%d %H:%M@America/New_York";
    check_time(
        new_york,
        "2013-03-10 01:59",
        Some(1_362_898_740_000_000_000),
    );
    check_time(new_york, "2013-03-10 02:30", None);
    check_time(
        new_york,
        "2013-03-10 03:00",
        Some(1_362_898_800_000_000_000),
    );
    check_time(
        new_york,
        "2013-11-03 01:30",
        Some(1_383_456_600_000_000_000),
    );
    check_time(
        new_york,
        "2013-11-03 02:00",
        Some(1_383_462_000_000_000_000),
    );
}

#[test]
fn time_formats_are_checked_when_named() {
    for (format, part) in [
        ("minutes", "expected s, ms"),
        ("%Y@Mars/Olympus", "time zone `Mars/Olympus`"),
        ("%Y-%é", "%"),
    ] {
        let error = TimeFormat::parse(format).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_time_column_without_a_format_shows_it() {
    for (cell, expected) in [
        ("2013-01-01T00:00:00Z", 1_356_998_400_000_000_000),
        ("2013-01-01 01:00:00+01:00", 1_356_998_400_000_000_000),
        ("1356998400", 1_356_998_400_000_000_000),
        ("1356998400.5", 1_356_998_400_500_000_000),
        ("1356998400000", 1_356_998_400_000_000_000),
        ("1356998400000000", 1_356_998_400_000_000_000),
        ("1356998400000000000", 1_356_998_400_000_000_000),
    ] {
        let parsed = parse_csv(format!("ts,v\n{cell},1\n"), csv_options("ts"));
        assert_eq!(rows_of(&parsed)[0].1, expected, "{cell}");
    }
    let error = error_of("ts,v\n2013-01-01 00:00:00,1\n", csv_options("ts")).to_string();
    assert!(
        error.contains("`2013-01-01 00:00:00`") && error.contains("ts:FORMAT"),
        "{error}"
    );
    let parsed = parse_csv("ts,v\n,1\n5,2\n", csv_options("ts"));
    assert_eq!(shown_refusals(&parsed), ["2 E_TIME"]);
}

#[test]
fn a_file_that_cannot_be_read_says_why() {
    let check = |text: &str, options: CsvOptions, parts: &[&str]| {
        let message = error_of(text, options).to_string();
        for part in parts {
            assert!(message.contains(part), "{message}");
        }
    };
    check("", csv_options("ts"), &["empty"]);
    check("ts,a,a\n", csv_options("ts"), &["`a` twice", "ts, a, a"]);
    check("ts,,a\n", csv_options("ts"), &["column 2 has no name"]);
    check(
        "when,a\n",
        csv_options("ts:ms"),
        &["no column `ts:ms`", "the time", "when, a"],
    );
    check(
        "ts,a\n",
        with_tags("ts", &["device"]),
        &["no column `device`", "a tag"],
    );
    check(
        "ts,a\n",
        with_tags("ts", &["a", "a"]),
        &["`a` is given twice"],
    );
    check("ts,a\n", with_tags("ts", &["a"]), &["no column is left"]);
    check(
        "ts,a\n",
        csv_options("ts:fortnights"),
        &["`fortnights` is not a time format"],
    );
    check(
        "ts,a\n",
        with_types(&["a:int"]),
        &["`int` is not a type for column `a`"],
    );
    let mut options = csv_options("ts");
    options.fields_max = 1;
    check("ts,a,b\n", options, &["2 columns", "--field"]);
}

#[test]
fn a_header_alone_is_an_empty_file() {
    assert!(parse_csv("ts,v\n", csv_options("ts")).is_empty());
    assert!(parse_csv("ts,v", csv_options("ts:ms")).is_empty());
}

#[test]
fn batches_end_at_the_wanted_row() {
    let text: String = (0..100).map(|i| format!("{i},{}\n", i * 2)).collect();
    let mut parser = CsvParser::new(format!("ts,v\n{text}").as_bytes(), csv_options("ts:s")).map(
        |mut parser| {
            let mut sizes = Vec::new();
            while let Some(parsed) = parser.next_batch(30).unwrap() {
                sizes.push(parsed.batch.row_count());
            }
            sizes
        },
    );
    assert_eq!(parser.as_mut().unwrap(), &[30, 30, 30, 10]);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), rows_inspected in 0usize..4) {
        for time in ["a", "a:s", "a:%Y@Europe/Berlin"] {
            let mut options = csv_options(time);
            options.rows_inspected = rows_inspected;
            let mut text = b"a,b,c\n".to_vec();
            text.extend_from_slice(&bytes);
            if let Ok(mut parser) = CsvParser::new(&text[..], options) {
                while parser.next_batch(7).unwrap().is_some() {}
            }
        }
    }

    #[test]
    fn no_likely_text_panics_and_every_line_is_accounted_for(
        text in "(1|2\\.5|\"x\"|\"\"|\"|x|,|\r\n|\n|NA){0,60}",
        batch in 1usize..5,
    ) {
        let mut options = csv_options("a:s");
        options.rows_inspected = 3;
        let file = format!("a,b\n{text}");
        let mut parser = CsvParser::new(file.as_bytes(), options).unwrap();
        let mut seen = std::collections::HashSet::new();
        while let Some(parsed) = parser.next_batch(batch).unwrap() {
            let lines = parsed.lines.iter().flatten().chain(parsed.refused.iter().map(|r| &r.line));
            for line in lines {
                prop_assert!(seen.insert(*line), "line {} twice in {:?}", line, file);
                prop_assert!(*line >= 2 && *line as usize <= file.split('\n').count());
            }
        }
    }
}

#[test]
fn second_60_is_the_first_of_the_next_minute_by_every_form() {
    let next = TimeFormat::parse("rfc3339").unwrap();
    let next = next.read("2017-01-01T00:00:00Z").unwrap();
    for (format, cell) in [
        ("rfc3339", "2016-12-31T23:59:60Z"),
        ("%Y-%m-%d %H:%M:%S", "2016-12-31 23:59:60"),
        ("%Y-%m-%d %T@Europe/Berlin", "2017-01-01 00:59:60"),
        ("%S:%M:%H %d/%m/%Y", "60:59:23 31/12/2016"),
        ("%Y-%m-%dT%H:%M:%S%z", "2017-01-01T00:59:60+0100"),
    ] {
        let read = TimeFormat::parse(format).unwrap().read(cell);
        assert_eq!(read.unwrap(), next, "{format}");
    }
    let part = TimeFormat::parse("%Y-%m-%d %H:%M:%S%.f").unwrap();
    let read = part.read("2016-12-31 23:59:60.560").unwrap();
    assert_eq!(read.as_nanos(), next.as_nanos() + 560_000_000);
    // Other 60s stay what they are.
    for (format, cell, same) in [
        ("%s", "60", "1970-01-01T00:01:00Z"),
        (
            "%Y-%m-%d %H:%M:%S",
            "1960-06-06 00:06:06",
            "1960-06-06T00:06:06Z",
        ),
        (
            "%Y-%m-%d %H:%M:%S%.f",
            "2000-01-01 00:00:59.60",
            "2000-01-01T00:00:59.6Z",
        ),
    ] {
        let read = TimeFormat::parse(format).unwrap().read(cell).unwrap();
        let wanted = TimeFormat::parse("rfc3339").unwrap().read(same).unwrap();
        assert_eq!(read, wanted, "{format}");
    }
}
