//! The table of doors (`tests/doors/cases.json`) at `headwater import`: each format of file, into a
//! database and to a server that has it open.

use crate::serve::Served;
use crate::support::{Bench, program};
use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMillisecondArray, UInt64Array,
};
use arrow::datatypes::{Field, Schema};
use headwater_testing::doors::{
    Cell, FrontEnd, Need, Outcome, Request, Row, State, contents_of, lines, walk,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Formats of files, by what `--format` calls them.
const FORMATS: [&str; 5] = ["csv", "lp", "jsonl", "arrow", "parquet"];

struct Files {
    format: &'static str,
    bench: Bench,
    server: Option<Served>,
}

/// The tags and fields of a request.
fn columns(request: &Request) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let tags = request.rows.iter().flat_map(|row| row.tags.keys());
    let fields = request.rows.iter().flat_map(|row| row.fields.keys());
    (
        tags.map(String::as_str).collect(),
        fields.map(String::as_str).collect(),
    )
}

fn csv(request: &Request) -> Vec<u8> {
    let (tags, fields) = columns(request);
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let mut lines = vec![
        std::iter::once("time")
            .chain(tags.iter().copied())
            .chain(fields.iter().copied())
            .map(quoted)
            .collect::<Vec<_>>()
            .join(","),
    ];
    for row in &request.rows {
        let mut cells = vec![row.unix_ms().unwrap().to_string()];
        let of_tags = tags.iter().map(|tag| row.tags.get(*tag));
        cells.extend(of_tags.map(|value| value.map_or(String::new(), |v| quoted(v))));
        let of_fields = fields.iter().map(|field| row.fields.get(*field));
        cells.extend(of_fields.map(|cell| match cell {
            None => String::new(),
            Some(Cell::F64(value)) => format!("{value:?}"),
            Some(Cell::I64(value)) => value.to_string(),
            Some(Cell::U64(value)) => value.to_string(),
            Some(Cell::Bool(value)) => value.to_string(),
            Some(Cell::Text(value)) => quoted(value),
        }));
        lines.push(cells.join(","));
    }
    (lines.join("\n") + "\n").into_bytes()
}

/// Each row as an object.
fn json_lines(request: &Request) -> Vec<u8> {
    let mut text = String::new();
    for row in &request.rows {
        let mut members = serde_json::Map::new();
        members.insert("time".to_owned(), row.unix_ms().unwrap().into());
        for (name, value) in &row.tags {
            members.insert(name.clone(), value.as_str().into());
        }
        for (name, cell) in &row.fields {
            let value = match cell {
                Cell::F64(value) => (*value).into(),
                Cell::I64(value) => (*value).into(),
                Cell::U64(value) => (*value).into(),
                Cell::Bool(value) => (*value).into(),
                Cell::Text(value) => value.as_str().into(),
            };
            members.insert(name.clone(), value);
        }
        text.push_str(&format!("{}\n", serde_json::Value::from(members)));
    }
    text.into_bytes()
}

/// The rows as columns with types.
fn batch(request: &Request) -> RecordBatch {
    let (tags, fields) = columns(request);
    let rows = || request.rows.iter();
    let times: Vec<_> = rows().map(Row::unix_ms).collect();
    let times = TimestampMillisecondArray::from(times).with_timezone("UTC");
    let mut columns: Vec<(&str, ArrayRef)> = vec![("time", Arc::new(times))];
    for tag in tags {
        let values: StringArray = rows().map(|row| row.tags.get(tag).cloned()).collect();
        columns.push((tag, Arc::new(values)));
    }
    for field in fields {
        let cells: Vec<_> = rows().map(|row| row.fields.get(field)).collect();
        let each = || cells.iter().copied();
        let array: ArrayRef = match cells.iter().flatten().next().unwrap() {
            Cell::F64(_) => Arc::new(Float64Array::from_iter(each().map(|c| match c? {
                Cell::F64(value) => Some(*value),
                other => panic!("{other:?}"),
            }))),
            Cell::I64(_) => Arc::new(Int64Array::from_iter(each().map(|c| match c? {
                Cell::I64(value) => Some(*value),
                other => panic!("{other:?}"),
            }))),
            Cell::U64(_) => Arc::new(UInt64Array::from_iter(each().map(|c| match c? {
                Cell::U64(value) => Some(*value),
                other => panic!("{other:?}"),
            }))),
            Cell::Bool(_) => Arc::new(BooleanArray::from_iter(each().map(|c| match c? {
                Cell::Bool(value) => Some(*value),
                other => panic!("{other:?}"),
            }))),
            Cell::Text(_) => Arc::new(StringArray::from_iter(each().map(|c| match c? {
                Cell::Text(value) => Some(value.clone()),
                other => panic!("{other:?}"),
            }))),
        };
        columns.push((field, array));
    }
    let schema = columns.iter();
    let schema: Vec<_> = schema
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
        .collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(schema)), arrays).unwrap()
}

fn parquet(batch: &RecordBatch) -> Vec<u8> {
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

fn stream(batch: &RecordBatch) -> Vec<u8> {
    let mut writer =
        arrow::ipc::writer::StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

impl FrontEnd for Files {
    fn name(&self) -> &'static str {
        match (self.format, &self.server) {
            ("csv", None) => "import of CSV",
            ("csv", _) => "import of CSV to a server",
            ("lp", None) => "import of line protocol",
            ("lp", _) => "import of line protocol to a server",
            ("jsonl", None) => "import of JSON lines",
            ("jsonl", _) => "import of JSON lines to a server",
            ("arrow", None) => "import of Arrow",
            ("arrow", _) => "import of Arrow to a server",
            ("parquet", None) => "import of Parquet",
            _ => "import of Parquet to a server",
        }
    }

    fn unmet_needs(&self) -> &'static [Need] {
        match self.format {
            // The limit is a server's setting.
            "lp" if self.server.is_some() => &[],
            "lp" => &[Need::FarTimes],
            "csv" => &[
                Need::FarTimes,
                Need::NoTimes,
                Need::SeveralTables,
                Need::FieldCalledTime,
                // Quoted or not, an empty cell is no value, unless --null names another.
                Need::EmptyTexts,
            ],
            // Numbers are floats, unless the command says otherwise.
            "jsonl" => &[
                Need::FarTimes,
                Need::NoTimes,
                Need::SeveralTables,
                Need::FieldCalledTime,
                Need::Integers,
                Need::Unsigned,
            ],
            // A column has one type.
            _ => &[
                Need::FarTimes,
                Need::NoTimes,
                Need::SeveralTables,
                Need::FieldCalledTime,
                Need::MixedTypes,
            ],
        }
    }

    fn counts_all(&self) -> bool {
        self.server.is_none()
    }

    fn send(&mut self, request: &Request) -> Outcome {
        let bytes = match self.format {
            "csv" => csv(request),
            "lp" => lines(request).into_bytes(),
            "jsonl" => json_lines(request),
            "arrow" => stream(&batch(request)),
            _ => parquet(&batch(request)),
        };
        let file = self.bench.file("rows", bytes);
        let mut command = program();
        command.args(["import", "--format", self.format]);
        match &self.server {
            Some(server) => command.args(["--url", &format!("http://{}", server.addr)]),
            None => command.arg("--db").arg(self.bench.db()),
        };
        if self.format == "lp" {
            command.args(["--precision", "ns"]);
        } else {
            let (tags, _) = columns(request);
            command.args(["--table", &request.rows[0].table]);
            command.args([
                "--time",
                if matches!(self.format, "csv" | "jsonl") {
                    "time:ms"
                } else {
                    "time"
                },
            ]);
            for tag in tags {
                command.args(["--tag", tag]);
            }
            // Types are told from the file alone: who mixes them says what a column is.
            let mut fields = request.rows.iter().flat_map(|row| &row.fields);
            if self.format == "csv"
                && let Some((name, first)) = fields.next()
                && fields
                    .any(|(other, cell)| other == name && cell.type_name() != first.type_name())
            {
                command.arg("--type");
                command.arg(format!("{name}:{}", first.type_name()));
            }
        }
        let output = command.arg(file).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        let count = |marker: &str| -> usize {
            let line = told.lines().find(|line| line.contains(marker));
            let words = line.into_iter().flat_map(|line| line.split(' '));
            words
                .filter_map(|word| word.replace(',', "").parse().ok())
                .next()
                .unwrap_or(0)
        };
        let refused = count("were refused:");
        assert_eq!(
            output.status.code(),
            Some(i32::from(refused == request.rows.len())),
            "{told}"
        );
        assert_eq!(count("stored "), request.rows.len() - refused, "{told}");
        let codes = told.lines().filter_map(|line| {
            let mut words = line.strip_prefix("  E_")?.split_whitespace();
            let code = format!("E_{}", words.next()?);
            Some(std::iter::repeat_n(code, words.next()?.parse().ok()?))
        });
        let replaced = u64::try_from(count("replaced its values")).unwrap();
        Outcome {
            refused,
            codes: Some(codes.flatten().collect()),
            replaced: Some(replaced),
        }
    }

    fn stored(self: Box<Self>) -> State {
        drop(self.server);
        contents_of(&self.bench.db())
    }
}

#[test]
fn files_of_every_format_are_taken_as_every_door_does() {
    for format in FORMATS {
        for has_server in [false, true] {
            let bench = Bench::new();
            let server = has_server.then(|| Served::start(&bench.db(), &[]));
            let walked = walk(Box::new(Files {
                format,
                bench,
                server,
            }));
            assert!(walked >= 13, "{format}: {walked}");
        }
    }
}

#[test]
fn every_format_of_files_has_its_column() {
    let output = program().args(["import", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let line = help.lines().find(|line| line.contains("--format <FORMAT>"));
    let known = line.unwrap().split("possible values: ").nth(1).unwrap();
    assert_eq!(
        known.trim_end_matches(']'),
        FORMATS.join(", "),
        "a format that is added needs a column here"
    );
}
