//! Reads written batches back.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use super::*;
use arrow::array::{
    ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray,
    Float32Array, Float64Array, Int64Array, ListArray, StringArray, TimestampMillisecondArray,
    TimestampNanosecondArray, UInt64Array,
};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema, TimestampNanosecondType};
use arrow::ipc::reader::StreamReader;
use headwater::{Column, FieldType, ScanChunk, StreamName, Values};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
        .collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

fn written(format: Format, time: TimeText, batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = Writer::new(format, &batches[0].schema(), time).unwrap();
    let mut out = Vec::new();
    for batch in batches {
        writer.write(batch, &mut out).unwrap();
    }
    writer.finish(&mut out).unwrap();
    out
}

/// A batch with one row with a value of each kind and one row without values.
fn everything() -> RecordBatch {
    let instants = TimestampNanosecondArray::from(vec![Some(1_500_000_000), None]);
    let tags: DictionaryArray<Int32Type> = vec![Some("a,\"b"), None].into_iter().collect();
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(vec![
        Some(vec![Some(1), None, Some(3)]),
        None,
    ]);
    let decimals = Decimal128Array::from(vec![Some(12_345), None])
        .with_precision_and_scale(10, 2)
        .unwrap();
    batch(vec![
        ("time", Arc::new(instants.with_timezone("UTC"))),
        ("local", {
            Arc::new(TimestampMillisecondArray::from(vec![Some(1_500), None]))
        }),
        ("tag", Arc::new(tags)),
        (
            "f",
            Arc::new(Float64Array::from(vec![Some(0.1), Some(f64::NAN)])),
        ),
        ("f32", Arc::new(Float32Array::from(vec![Some(0.5), None]))),
        ("i", Arc::new(Int64Array::from(vec![Some(i64::MIN), None]))),
        ("u", Arc::new(UInt64Array::from(vec![Some(u64::MAX), None]))),
        ("b", Arc::new(BooleanArray::from(vec![Some(true), None]))),
        ("s", Arc::new(StringArray::from(vec![Some(""), None]))),
        ("x", {
            Arc::new(BinaryArray::from_opt_vec(vec![Some(&[0xAB, 0][..]), None]))
        }),
        ("l", Arc::new(lists)),
        ("d", Arc::new(decimals)),
        ("day", Arc::new(Date32Array::from(vec![Some(1), None]))),
    ])
}

#[test]
fn json_has_columns_with_types_and_rows_of_exact_values() {
    let text = written(
        Format::Json,
        TimeText::Rfc3339,
        std::slice::from_ref(&everything()),
    );
    let text = String::from_utf8(text).unwrap();
    let (head, rows) = text.split_once("\"rows\":").unwrap();
    assert_eq!(
        rows,
        "[[\"1970-01-01T00:00:01.500Z\",\"1970-01-01T00:00:01.500\",\"a,\\\"b\",0.1,0.5,-9223372036854775808,18446744073709551615,true,\"\",\"0xab00\",[1,null,3],123.45,\"1970-01-02\"],\n\
         [null,null,null,null,null,null,null,null,null,null,null,null,null]]}\n"
    );
    let types: Vec<&str> = head
        .split("\"type\":\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert_eq!(
        types,
        [
            "time",
            "local_time",
            "string",
            "f64",
            "f64",
            "i64",
            "u64",
            "bool",
            "string",
            "bytes",
            "list",
            "decimal",
            "date"
        ]
    );
}

#[test]
fn csv_tells_no_value_from_an_empty_text() {
    let text = written(
        Format::Csv,
        TimeText::Nanoseconds,
        std::slice::from_ref(&everything()),
    );
    assert_eq!(
        String::from_utf8(text).unwrap(),
        "time,local,tag,f,f32,i,u,b,s,x,l,d,day\n\
         1500000000,1500000000,\"a,\"\"b\",0.1,0.5,-9223372036854775808,18446744073709551615,true,\"\",0xab00,\"[1,null,3]\",123.45,1970-01-02\n\
         ,,,NaN,,,,,,,,,\n"
    );
    let alone = batch(vec![("v", Arc::new(Int64Array::from(vec![None, Some(1)])))]);
    let text = written(Format::Csv, TimeText::Rfc3339, std::slice::from_ref(&alone));
    assert_eq!(String::from_utf8(text).unwrap(), "v\n\n1\n");
    let texts = StringArray::from(vec![None, Some(""), Some("x")]);
    let alone = batch(vec![("v", Arc::new(texts))]);
    let text = written(Format::Csv, TimeText::Rfc3339, std::slice::from_ref(&alone));
    assert_eq!(String::from_utf8(text).unwrap(), "v\n\n\"\"\nx\n");
}

#[test]
fn a_chunk_of_parquet_with_nan_has_no_bounds() {
    let nan = f64::NAN;
    let floats: [&[Option<f64>]; 3] = [&[Some(1.0), Some(nan)], &[Some(1.0), None], &[Some(nan)]];
    let batches: Vec<RecordBatch> = floats
        .iter()
        .map(|values| {
            let lists = ListArray::from_iter_primitive::<arrow::datatypes::Float64Type, _, _>(
                values.iter().map(|value| Some(vec![*value])),
            );
            batch(vec![
                ("f", Arc::new(Float64Array::from(values.to_vec()))),
                ("n", Arc::new(Int64Array::from(vec![7; values.len()]))),
                ("l", Arc::new(lists)),
            ])
        })
        .collect();
    // One row group per batch: the rows in one file of several groups.
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(2))
        .build();
    let mut file = Vec::new();
    let mut nans = NanRows::default();
    let mut writer =
        ArrowWriter::try_new(&mut file, batches[0].schema(), Some(properties)).unwrap();
    for batch in &batches {
        nans.add(batch);
        writer.write(batch).unwrap();
    }
    let metadata = writer.close().unwrap();
    let end = nans.end(&metadata).unwrap().unwrap();
    file.truncate(file.len() - nan::end_len(&file).unwrap());
    file.extend_from_slice(&end);
    let options = parquet::arrow::arrow_reader::ArrowReaderOptions::new()
        .with_page_index_policy(parquet::file::metadata::PageIndexPolicy::Optional);
    let reader =
        ParquetRecordBatchReaderBuilder::try_new_with_options(bytes::Bytes::from(file), options)
            .unwrap();
    let groups = reader.metadata().row_groups();
    let bounds = |group: usize, column: usize| groups[group].column(column).statistics().is_some();
    let found: Vec<[bool; 3]> = (0..groups.len())
        .map(|group| [bounds(group, 0), bounds(group, 1), bounds(group, 2)])
        .collect();
    assert_eq!(
        found,
        [
            [false, true, false],
            [true, true, false],
            [false, true, false]
        ]
    );
    let read: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
    let rows: usize = read.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 5);

    // Columns without NaN stay as they were written.
    let mut none = NanRows::default();
    let plain = batch(vec![("f", Arc::new(Float64Array::from(vec![1.0])))]);
    none.add(&plain);
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, plain.schema(), None).unwrap();
    writer.write(&plain).unwrap();
    assert!(none.end(&writer.close().unwrap()).unwrap().is_none());
    assert!(nan::end_len(b"PAR1").is_err());
    // The general format: the writer of answers gives the same result.
    let answer = written(Format::Parquet, TimeText::Rfc3339, &batches);
    let answer = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(answer)).unwrap();
    let group = answer.metadata().row_group(0);
    assert!(group.column(0).statistics().is_none() && group.column(1).statistics().is_some());
}

#[test]
fn an_answer_without_rows_has_its_columns_in_every_form() {
    let empty = everything().slice(0, 0);
    let json = written(
        Format::Json,
        TimeText::Rfc3339,
        std::slice::from_ref(&empty),
    );
    assert!(json.ends_with(b"\"rows\":[]}\n"));
    let csv = written(Format::Csv, TimeText::Rfc3339, std::slice::from_ref(&empty));
    assert_eq!(csv, b"time,local,tag,f,f32,i,u,b,s,x,l,d,day\n");
    let arrow = written(
        Format::Arrow,
        TimeText::Rfc3339,
        std::slice::from_ref(&empty),
    );
    let read = StreamReader::try_new(&arrow[..], None).unwrap();
    assert_eq!(read.schema(), empty.schema());
    assert_eq!(read.count(), 0);
    let parquet = written(
        Format::Parquet,
        TimeText::Rfc3339,
        std::slice::from_ref(&empty),
    );
    let read = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(parquet)).unwrap();
    assert_eq!(read.schema().fields(), empty.schema().fields());
}

#[test]
fn arrow_and_parquet_read_back_what_was_written_also_when_dictionaries_change() {
    let name = |d: &str| StreamName::new("t", [("d", d), ("e", "x")]);
    let fields = [
        ("f".to_owned(), FieldType::F64),
        ("time".to_owned(), FieldType::String),
    ];
    let tags = ["d".to_owned(), "gone".to_owned()];
    let mut events = EventBatches::new(&tags, &fields);
    let names: Vec<String> = events
        .schema()
        .fields()
        .iter()
        .map(|f| f.name().clone())
        .collect();
    assert_eq!(names, ["time", "d", "gone", "f", "time_1"]);
    let chunk = |from: i64, rows: i64| {
        let texts = (from..from + rows).map(|i| i.to_string());
        let mut text = Column::new(FieldType::String);
        for (row, value) in texts.enumerate() {
            if row % 7 == 0 {
                text.push_absent(1);
            } else {
                text.push(headwater::ValueRef::String(&value));
            }
        }
        ScanChunk {
            times: (from..from + rows).collect(),
            columns: vec![
                Column::from_values(Values::F64(
                    (from..from + rows).map(|i| i as f64 / 8.0).collect(),
                )),
                text,
            ],
        }
    };
    let mut batches = Vec::new();
    for (device, from) in [("p1", 0), ("p2", 5_000), ("p3", 10_000), ("p4", 15_000)] {
        events.push(&name(device), &chunk(from, 5_000));
        batches.extend(events.full().unwrap());
    }
    batches.push(events.take().unwrap());
    assert!(batches.len() > 1);
    let plain = |batches: &[RecordBatch]| {
        let schema = batches[0].schema();
        let all = concat_batches(&schema, batches).unwrap();
        let tags = cast(all.column(1), &DataType::Utf8).unwrap();
        let tags: Vec<String> = tags
            .as_string::<i32>()
            .iter()
            .map(|t| t.unwrap().to_owned())
            .collect();
        let times = all.column(0).as_primitive::<TimestampNanosecondType>();
        (times.values().to_vec(), tags, all.column(3).clone(), {
            cast(all.column(4), &DataType::Utf8).unwrap()
        })
    };
    let expected = plain(&batches);
    assert_eq!(expected.0, (0..20_000).collect::<Vec<_>>());
    assert_eq!(expected.1[4_999..5_001], ["p1", "p2"]);

    let arrow = written(Format::Arrow, TimeText::Rfc3339, &batches);
    let read: Vec<RecordBatch> = StreamReader::try_new(&arrow[..], None)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(plain(&read), expected);

    let parquet = written(Format::Parquet, TimeText::Rfc3339, &batches);
    let read: Vec<RecordBatch> =
        ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(parquet))
            .unwrap()
            .build()
            .unwrap()
            .map(Result::unwrap)
            .collect();
    assert_eq!(plain(&read), expected);
}

#[test]
fn rows_without_any_value_are_left_out() {
    let fields = [("f".to_owned(), FieldType::F64)];
    let mut events = EventBatches::new(&[], &fields);
    let mut column = Column::new(FieldType::F64);
    column.push_absent(1);
    column.push(headwater::ValueRef::F64(2.0));
    let chunk = ScanChunk {
        times: vec![1, 2],
        columns: vec![column],
    };
    events.push(&StreamName::new("t", [("d", "1")]), &chunk);
    assert!(events.full().unwrap().is_none());
    assert_eq!(events.take().unwrap().num_rows(), 1);
    assert_eq!(events.take().unwrap().num_rows(), 0);
}

#[test]
fn a_parquet_file_of_many_rows_is_handed_out_in_row_groups() {
    let column = |from: i64| {
        let noise = |i: i64| i.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Int64Array::from_iter_values((from..from + 250_000).map(|i| noise(noise(i))))
    };
    let batches: Vec<RecordBatch> = (0..12)
        .map(|k| batch(vec![("v", Arc::new(column(k * 250_000)))]))
        .collect();
    let mut writer = Writer::new(Format::Parquet, &batches[0].schema(), TimeText::Rfc3339).unwrap();
    let (mut whole, mut handed_early) = (Vec::new(), 0);
    for batch in &batches {
        writer.write(batch, &mut whole).unwrap();
        handed_early = whole.len();
    }
    assert_eq!(writer.rows(), 3_000_000);
    writer.finish(&mut whole).unwrap();
    assert!(
        handed_early > whole.len() / 2,
        "{handed_early} of {}",
        whole.len()
    );
    let read = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(whole)).unwrap();
    assert!(read.metadata().num_row_groups() > 1);
    assert_eq!(read.metadata().file_metadata().num_rows(), 3_000_000);
}
