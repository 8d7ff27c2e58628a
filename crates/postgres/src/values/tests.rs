//! Values of every type, in both forms.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::parameters::{one, parameter};
use super::{TimeFormat, cell, numeric};
use crate::catalog::PgType;
use crate::messages::Format;
use arrow::datatypes::DataType;
use headwater_query::Zone;
use headwater_query::datafusion::common::ScalarValue;
use proptest::prelude::*;

/// TimeFormat that show all digits.
fn exact(zone: Zone) -> TimeFormat {
    TimeFormat {
        zone,
        nanoseconds: true,
    }
}

fn encoded(scalar: &ScalarValue, format: Format) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    cell(
        one(scalar).as_ref(),
        0,
        format,
        &exact(Zone::utc()),
        &mut bytes,
    )
    .unwrap()
    .then_some(bytes)
}

fn text(scalar: &ScalarValue) -> String {
    String::from_utf8(encoded(scalar, Format::Text).unwrap()).unwrap()
}

fn instant(ns: i64) -> ScalarValue {
    ScalarValue::TimestampNanosecond(Some(ns), Some("UTC".into()))
}

#[test]
fn values_are_written_as_postgresql_writes_them() {
    let list = |values: &[ScalarValue], kind: &DataType| {
        ScalarValue::List(ScalarValue::new_list_nullable(values, kind))
    };
    let interval = |months, days, ns| {
        ScalarValue::IntervalMonthDayNano(Some(arrow::datatypes::IntervalMonthDayNano::new(
            months, days, ns,
        )))
    };
    for (scalar, wanted) in [
        (ScalarValue::from(true), "t"),
        (ScalarValue::from(-7i64), "-7"),
        (ScalarValue::from(u64::MAX), "18446744073709551615"),
        (ScalarValue::from(1.0f64), "1"),
        (ScalarValue::from(0.1f32), "0.1"),
        (ScalarValue::from(1e300f64), "1e+300"),
        (ScalarValue::from(1.5e-7f64), "1.5e-07"),
        (ScalarValue::from(f64::NAN), "NaN"),
        (ScalarValue::from(f64::NEG_INFINITY), "-Infinity"),
        (ScalarValue::from("a'b"), "a'b"),
        (ScalarValue::Binary(Some(vec![0, 255])), "\\x00ff"),
        (instant(0), "1970-01-01 00:00:00+00"),
        (instant(-1), "1969-12-31 23:59:59.999999999+00"),
        (
            instant(1_709_210_096_500_000_000),
            "2024-02-29 12:34:56.5+00",
        ),
        (instant(i64::MIN), "1677-09-21 00:12:43.145224192+00"),
        (instant(i64::MAX), "2262-04-11 23:47:16.854775807+00"),
        (
            ScalarValue::TimestampSecond(Some(-62_167_219_201), None),
            "0002-12-31 23:59:59 BC",
        ),
        (ScalarValue::Date32(Some(19_782)), "2024-02-29"),
        (
            ScalarValue::Time64Nanosecond(Some(45_296_000_001_000)),
            "12:34:56.000001",
        ),
        (
            interval(14, -3, 3_723_500_000_000),
            "1 year 2 mons -3 days +01:02:03.5",
        ),
        (interval(0, 0, 0), "00:00:00"),
        (interval(0, 1, -1_000_000_000), "1 day -00:00:01"),
        (ScalarValue::DurationSecond(Some(90_061)), "1 day 01:01:01"),
        (ScalarValue::Decimal128(Some(-12_345), 10, 2), "-123.45"),
        (
            list(
                &[
                    ScalarValue::from("a"),
                    ScalarValue::Utf8(None),
                    ScalarValue::from("b \"c"),
                    ScalarValue::from("null"),
                    ScalarValue::from(""),
                ],
                &DataType::Utf8,
            ),
            "{a,NULL,\"b \\\"c\",\"null\",\"\"}",
        ),
        (list(&[], &DataType::Int64), "{}"),
    ] {
        assert_eq!(text(&scalar), wanted);
    }
    assert_eq!(encoded(&ScalarValue::Int64(None), Format::Text), None);
    assert_eq!(encoded(&ScalarValue::Null, Format::Binary), None);
    let tag = ScalarValue::Dictionary(DataType::Int32.into(), ScalarValue::from("x").into());
    assert_eq!(text(&tag), "x");
}

#[test]
fn instants_are_written_by_the_clocks_of_a_zone() {
    let in_zone = |ns: i64, zone: &str| {
        let mut bytes = Vec::new();
        let zone = Zone::read(zone).unwrap();
        cell(
            one(&instant(ns)).as_ref(),
            0,
            Format::Text,
            &exact(zone),
            &mut bytes,
        )
        .unwrap();
        String::from_utf8(bytes).unwrap()
    };
    const AUTUMN: i64 = 1_729_990_800_000_000_000;
    for (ns, zone, wanted) in [
        (
            AUTUMN - 1,
            "Europe/Berlin",
            "2024-10-27 02:59:59.999999999+02",
        ),
        (AUTUMN, "Europe/Berlin", "2024-10-27 02:00:00+01"),
        (AUTUMN, "America/St_Johns", "2024-10-26 22:30:00-02:30"),
        (0, "Asia/Kolkata", "1970-01-01 05:30:00+05:30"),
        (
            i64::MIN,
            "Europe/Berlin",
            "1677-09-21 01:06:11.145224192+00:53:28",
        ),
        (
            i64::MAX,
            "Europe/Berlin",
            "2262-04-12 01:47:16.854775807+02",
        ),
    ] {
        assert_eq!(in_zone(ns, zone), wanted);
    }
    // A time without zone is the same everywhere.
    let mut bytes = Vec::new();
    let local = ScalarValue::TimestampNanosecond(Some(0), None);
    let zone = Zone::read("Europe/Berlin").unwrap();
    cell(
        one(&local).as_ref(),
        0,
        Format::Text,
        &exact(zone),
        &mut bytes,
    )
    .unwrap();
    assert_eq!(bytes, b"1970-01-01 00:00:00");
}

/// Checks that a sent value reads back unchanged.
fn check_round_trip(scalar: &ScalarValue) {
    let oid = PgType::oid_of(&scalar.data_type());
    for format in [Format::Text, Format::Binary] {
        let bytes = encoded(scalar, format);
        let read = parameter(bytes.as_deref(), oid, &scalar.data_type(), format).unwrap();
        let read = read.cast_to(&scalar.data_type()).unwrap();
        let same = match (&read, scalar) {
            (ScalarValue::Float64(Some(a)), ScalarValue::Float64(Some(b))) => {
                a == b || a.is_nan() && b.is_nan()
            }
            (a, b) => a == b,
        };
        assert!(same, "{format:?}: {scalar:?} came back as {read:?}");
    }
}

#[test]
fn parameters_are_read_in_both_forms() {
    let texts = [ScalarValue::from("a,\"b\\"), ScalarValue::Utf8(None)];
    for scalar in [
        ScalarValue::from(false),
        ScalarValue::from(i16::MIN),
        ScalarValue::from(i32::MAX),
        ScalarValue::from("ä"),
        ScalarValue::Binary(Some(vec![0, 92, 255])),
        ScalarValue::Date32(Some(-5)),
        ScalarValue::Int64(None),
        ScalarValue::List(ScalarValue::new_list_nullable(&texts, &DataType::Utf8)),
    ] {
        check_round_trip(&scalar);
    }
    let read =
        |oid, text: &str| parameter(Some(text.as_bytes()), oid, &DataType::Utf8, Format::Text);
    assert_eq!(
        read(17, "a\\\\b\\001"),
        Ok(ScalarValue::Binary(Some(b"a\\b\x01".to_vec())))
    );
    assert_eq!(read(16, "on"), Ok(ScalarValue::from(true)));
    for (oid, text, sqlstate) in [
        (20, "1.5", "22P02"),
        (16, "maybe", "22P02"),
        (17, "\\xabc", "22P02"),
        (1009, "{a", "22P02"),
        (1009, "{\"a}", "22P02"),
    ] {
        assert_eq!(read(oid, text).unwrap_err().0, sqlstate, "{text}");
    }
    for (oid, bytes, sqlstate) in [
        (20, &[0u8; 4][..], "22P03"),
        (1184, &i64::MAX.to_be_bytes(), "22008"),
        (1700, &[0, 1], "22P03"),
        (
            1007,
            &[
                0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 23, 0x7f, 255, 255, 255, 0, 0, 0, 1,
            ],
            "22P03",
        ),
        // A point, and JSON of another version.
        (600, &[0; 16], "0A000"),
        (3802, &[2, b'1'], "22P03"),
        (25, &[255], "22021"),
    ] {
        let error = parameter(Some(bytes), oid, &DataType::Utf8, Format::Binary).unwrap_err();
        assert_eq!(error.0, sqlstate, "{oid}");
    }
}

#[test]
fn numerics_go_there_and_back() {
    for (text, wanted) in [
        ("0", "0"),
        ("-0.00", "0.00"),
        ("12345678.9", "12345678.9"),
        ("10000", "10000"),
        ("0.00012", "0.00012"),
        ("-99999999999999999999", "-99999999999999999999"),
        ("1.000000000000000001", "1.000000000000000001"),
    ] {
        let mut bytes = Vec::new();
        numeric::put(text, &mut bytes).unwrap();
        assert_eq!(numeric::read(&bytes).as_deref(), Ok(wanted));
    }
    // 1.5: two groups, the first of weight 0, one digit after the point.
    let mut bytes = Vec::new();
    numeric::put("1.5", &mut bytes).unwrap();
    assert_eq!(bytes, [0, 2, 0, 0, 0, 0, 0, 1, 0, 1, 0x13, 0x88]);
    assert!(numeric::put("1e5", &mut bytes).is_err());
}

proptest! {
    #[test]
    fn any_value_comes_back(int in any::<i64>(), float in any::<f64>(), unsigned in any::<u64>(), text in "[^\0]*", us in any::<i32>()) {
        check_round_trip(&ScalarValue::from(int));
        check_round_trip(&ScalarValue::from(float));
        check_round_trip(&ScalarValue::from(unsigned));
        check_round_trip(&ScalarValue::from(text.as_str()));
        check_round_trip(&instant(i64::from(us) * 1_000_000_000 + 123_000));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60), kind in 0..PgType::ALL.len(), array in any::<bool>(), binary in any::<bool>()) {
        let pg = PgType::ALL[kind];
        let oid = if array { pg.array } else { pg.oid };
        let format = if binary { Format::Binary } else { Format::Text };
        let _ = parameter(Some(&bytes), oid, &DataType::Utf8, format);
    }
}

#[test]
fn times_have_six_digits_unless_nine_are_asked_for() {
    let told = |scalar: ScalarValue| {
        let mut bytes = Vec::new();
        cell(
            one(&scalar).as_ref(),
            0,
            Format::Text,
            &TimeFormat::default(),
            &mut bytes,
        )
        .unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let instant = |ns| ScalarValue::TimestampNanosecond(Some(ns), Some("UTC".into()));
    assert_eq!(
        told(instant(1_123_456_789)),
        "1970-01-01 00:00:01.123456+00"
    );
    assert_eq!(told(instant(1_000_000_999)), "1970-01-01 00:00:01+00");
    assert_eq!(told(instant(-1)), "1969-12-31 23:59:59.999999+00");
    assert_eq!(
        told(ScalarValue::Time64Nanosecond(Some(1_999))),
        "00:00:00.000001"
    );
    assert_eq!(
        told(ScalarValue::DurationNanosecond(Some(-1_999))),
        "-00:00:00.000002"
    );
    assert_eq!(
        told(ScalarValue::DurationNanosecond(Some(2_666_499))),
        "00:00:00.002666"
    );
}
