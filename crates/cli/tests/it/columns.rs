//! Parquet and Arrow, out and in.

use crate::support::{Bench, text};
use arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    TimestampMillisecondArray, TimestampSecondArray,
};
use arrow::datatypes::{Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::path::PathBuf;
use std::sync::Arc;

/// Values of every type, absent ones, odd ones, and two devices.
const LINES: &str = "\
t,d=a,e=x f=0.1,i=-9223372036854775808i,u=18446744073709551615u,b=true,s=\"\" -1
t,d=a,e=x f=1e300,s=\"ü,\\\"\" 1700000000000000001
t,d=b i=5i 1700000000000000002
";

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
        .collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

fn parquet(bench: &Bench, name: &str, batch: &RecordBatch) -> PathBuf {
    let path = bench.path(name);
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    path
}

#[test]
fn what_is_exported_as_parquet_and_arrow_is_imported_as_it_was() {
    let bench = Bench::new();
    bench.import_lines(LINES).ok();
    let expected = bench.exported("t");
    assert_eq!(expected.lines().count(), 4, "{expected}");
    for format in ["parquet", "arrow"] {
        let bytes = bench.run_bytes("export", &["--table", "t", "--format", format]);
        let other = Bench::new();
        let file = other.file("rows", &bytes);
        let mapping = ["--table", "t", "--time", "time", "--tag", "d", "--tag", "e"];
        let mut arguments = vec!["--format", format];
        arguments.extend(mapping);
        arguments.push(text(&file));
        let ran = other.run("import", &arguments).ok();
        assert!(
            ran.stderr.contains("stored 3 rows from 3 rows"),
            "{}",
            ran.stderr
        );
        assert_eq!(other.exported("t"), expected, "{format}");
        let table = other.run("table show", &["t", "--format", "json"]).ok();
        let shown = bench.run("table show", &["t", "--format", "json"]).ok();
        assert_eq!(table.json()["fields"], shown.json()["fields"], "{format}");
        if format == "arrow" {
            let piped = Bench::new();
            arguments.pop();
            arguments.push("-");
            piped.run_with_input("import", &arguments, &bytes).ok();
            assert_eq!(piped.exported("t"), expected);
        }
    }
}

#[test]
fn an_export_keeps_to_streams_fields_and_range() {
    let bench = Bench::new();
    bench.import_lines(LINES).ok();
    let bytes = bench.run_bytes(
        "export",
        &[
            "--table", "t", "--where", "d=a", "--field", "s", "--field", "f", "--from", "0",
            "--format", "parquet",
        ],
    );
    let read = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes)).unwrap();
    let schema = read.schema().clone();
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["time", "d", "e", "s", "f"]);
    assert_eq!(read.metadata().file_metadata().num_rows(), 1);
}

#[test]
fn times_of_any_unit_are_read_exactly() {
    let bench = Bench::new();
    let v = || -> ArrayRef { Arc::new(Int64Array::from(vec![7])) };
    let times: [(&str, ArrayRef, &str); 7] = [
        ("s", Arc::new(TimestampSecondArray::from(vec![2])), "time"),
        (
            "ms",
            Arc::new(TimestampMillisecondArray::from(vec![2_000])),
            "time",
        ),
        (
            "us",
            { Arc::new(TimestampMicrosecondArray::from(vec![2_000_000]).with_timezone("UTC")) },
            "time",
        ),
        ("int", Arc::new(Int64Array::from(vec![2_000])), "time:ms"),
        ("float", Arc::new(Float64Array::from(vec![2.0])), "time:s"),
        (
            "text",
            Arc::new(StringArray::from(vec!["1970-01-01T01:00:02+01:00"])),
            "time",
        ),
        (
            "local",
            Arc::new(StringArray::from(vec!["01.01.1970 01:00:02"])),
            { "time:%d.%m.%Y %H:%M:%S@Europe/Berlin" },
        ),
    ];
    for (table, array, time) in times {
        let file = parquet(&bench, table, &batch(vec![("time", array), ("v", v())]));
        let arguments = [
            "--format",
            "parquet",
            "--table",
            table,
            "--time",
            time,
            text(&file),
        ];
        bench.run("import", &arguments).ok();
        assert_eq!(bench.exported(table), "time,v\n2000000000,7\n", "{table}");
    }
}

#[test]
fn bad_rows_are_told_by_their_numbers_and_the_others_are_stored() {
    let bench = Bench::new();
    // 1: good; 2: no time; 3: too far away for nanoseconds; 4: a fraction in an integer; 5: nothing
    // to store; 6: good.
    let times = [Some(1), None, Some(i64::MAX), Some(4), Some(5), Some(6)];
    let values = [Some(1.0), Some(2.0), Some(3.0), Some(4.5), None, Some(6.0)];
    let rows = batch(vec![
        ("when", Arc::new(TimestampSecondArray::from(times.to_vec()))),
        ("n", Arc::new(Float64Array::from(values.to_vec()))),
    ]);
    let file = parquet(&bench, "rows.parquet", &rows);
    let arguments = [
        "--format",
        "parquet",
        "--table",
        "t",
        "--time",
        "when",
        "--field",
        "n:i64",
        text(&file),
    ];
    let ran = bench.run("import", &arguments).ok();
    for part in [
        "stored 2 rows from 6 rows",
        "1 rows had no value",
        "3 rows were refused",
        "row 2: E_TIME",
        "row 3: E_TIME",
        "row 4: E_TYPE: `4.5` in column `n` is not of type i64",
    ] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    assert_eq!(bench.exported("t"), "time,n\n1000000000,1\n6000000000,6\n");
    let mut strict = vec!["--strict"];
    strict.extend(arguments);
    assert_eq!(bench.run("import", &strict).code, 1);
}

#[test]
fn a_wrong_mapping_is_told_before_anything_is_made() {
    let bench = Bench::new();
    let rows = batch(vec![
        ("t", Arc::new(Int64Array::from(vec![1]))),
        ("at", Arc::new(TimestampSecondArray::from(vec![1]))),
        ("v", Arc::new(Int64Array::from(vec![1]))),
    ]);
    let file = parquet(&bench, "rows.parquet", &rows);
    for (time, rest, part) in [
        ("t", &[][..], "--time t:ms"),
        (
            "when",
            &[],
            "the column does not exist; there are: t, at, v",
        ),
        ("at:ms", &[], "need no format"),
        ("at", &["--tag", "x"], "--tag x"),
        ("at", &["--field", "v:int"], "`int` is not a type"),
        ("t:ms", &[], "values of type Timestamp"),
        ("at", &["--null", "NA"], "leave out --null"),
    ] {
        let mut arguments = vec!["--format", "parquet", "--table", "x", "--time", time];
        arguments.extend(rest);
        arguments.push(text(&file));
        let ran = bench.run("import", &arguments);
        assert_eq!(ran.code, 2, "{time} {rest:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
        assert!(!bench.db().exists());
    }
    let broken = bench.file("broken.parquet", "PAR1 this is none");
    let arguments = [
        "--format",
        "parquet",
        "--table",
        "x",
        "--time",
        "t",
        text(&broken),
    ];
    let ran = bench.run("import", &arguments);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot read"), "{}", ran.stderr);
}
