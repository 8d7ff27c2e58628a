//! `INSERT` over HTTP and as a client of PostgreSQL sends it, and `COPY` in its forms.

use super::state_of;
use crate::postgres::raw::{Client, bind, execute, lines, message, parse, sync, texts};
use crate::support::{Running, client, json};
use headwater_testing::doors::{Cell, FrontEnd, Need, Outcome, Request, Row, State, walk};
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    /// `POST /api/v1/sql`.
    Http,
    /// A text of PostgreSQL's simple protocol.
    Simple,
    /// Prepared, with every value as a parameter in text.
    Prepared,
    CopyText,
    CopyCsv,
    CopyBinary,
}

struct Statements {
    protocol: Protocol,
    server: Running,
    session: Client,
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The columns of a request: whether there are times, the tags, and the fields.
fn columns(request: &Request) -> (bool, BTreeSet<&str>, BTreeSet<&str>) {
    let rows = || request.rows.iter();
    let tags = rows().flat_map(|row| row.tags.keys());
    let fields = rows().flat_map(|row| row.fields.keys());
    (
        rows().all(|row| row.time_ms.is_some()),
        tags.map(String::as_str).collect(),
        fields.map(String::as_str).collect(),
    )
}

/// A value as text, as PostgreSQL writes it.
fn text(cell: &Cell) -> String {
    match cell {
        Cell::F64(value) => format!("{value:?}"),
        Cell::I64(value) => value.to_string(),
        Cell::U64(value) => value.to_string(),
        Cell::Bool(value) => value.to_string(),
        Cell::Text(value) => value.clone(),
    }
}

/// The values of a row in the order of the columns, as text; `None` = NULL.
fn cells(request: &Request, row: &Row) -> Vec<Option<String>> {
    let (has_times, tags, fields) = columns(request);
    let mut cells = Vec::new();
    if has_times {
        let ms = row.unix_ms().unwrap();
        let at = headwater::Timestamp::from_nanos(ms.saturating_mul(1_000_000));
        cells.push(Some(headwater_wire::instant::format_instant(at)));
    }
    cells.extend(tags.iter().map(|tag| row.tags.get(*tag).cloned()));
    cells.extend(fields.iter().map(|field| row.fields.get(*field).map(text)));
    cells
}

/// A row of the binary form.
fn binary(request: &Request, row: &Row) -> Vec<u8> {
    let (has_times, tags, fields) = columns(request);
    let mut cells: Vec<Option<Vec<u8>>> = Vec::new();
    if has_times {
        let us = row.unix_ms().unwrap() * 1_000 - 946_684_800_000_000;
        cells.push(Some(us.to_be_bytes().to_vec()));
    }
    let tags = tags.iter().map(|tag| row.tags.get(*tag));
    cells.extend(tags.map(|tag| Some(tag?.clone().into_bytes())));
    let fields = fields.iter().map(|field| row.fields.get(*field));
    cells.extend(fields.map(|cell| {
        Some(match cell? {
            Cell::F64(value) => value.to_be_bytes().to_vec(),
            Cell::I64(value) => value.to_be_bytes().to_vec(),
            Cell::Bool(value) => vec![u8::from(*value)],
            Cell::Text(value) => value.clone().into_bytes(),
            Cell::U64(value) => numeric(*value),
        })
    }));
    let mut bytes = (cells.len() as i16).to_be_bytes().to_vec();
    for cell in cells {
        let Some(cell) = cell else {
            bytes.extend((-1i32).to_be_bytes());
            continue;
        };
        bytes.extend((cell.len() as i32).to_be_bytes());
        bytes.extend(cell);
    }
    bytes
}

/// An integer as a numeric: groups of four digits.
fn numeric(mut value: u64) -> Vec<u8> {
    let mut groups = Vec::new();
    while value > 0 {
        groups.insert(0, (value % 10_000) as i16);
        value /= 10_000;
    }
    let weight = groups.len().saturating_sub(1) as i16;
    let head = [groups.len() as i16, weight, 0, 0];
    let all = head.into_iter().chain(groups);
    all.flat_map(i16::to_be_bytes).collect()
}

impl Statements {
    fn new(protocol: Protocol) -> Statements {
        let server = Running::start_with(|settings| {
            settings.postgres_addr = Some("127.0.0.1:0".parse().unwrap());
        });
        let mut session = Client::connect(server.postgres.unwrap());
        session.begin(&[("user", "ann"), ("database", "plant")]);
        session.ready();
        Statements {
            protocol,
            server,
            session,
        }
    }

    fn over_http(&self, sql: &str) -> Result<(u64, u64), String> {
        let mut answer = client()
            .post(self.server.url("/api/v1/sql"))
            .send(sql)
            .unwrap();
        let told = json(&mut answer);
        if answer.status() != 200 {
            return Err(told.to_string());
        }
        let columns: Vec<_> = told["columns"].as_array().unwrap().iter().collect();
        let of = |wanted: &str| {
            let at = columns.iter().position(|c| c["name"] == wanted)?;
            told["rows"][0][at].as_u64()
        };
        Ok((of("count").unwrap_or(0), of("replaced").unwrap_or(0)))
    }

    /// What a statement or a copy answered: rows, and those that replaced others.
    fn counted(lines: &[String]) -> Result<(u64, u64), String> {
        if let Some(error) = lines.iter().find(|line| line.starts_with("E ")) {
            return Err(error.clone());
        }
        let notice = lines.iter().find_map(|line| line.strip_prefix("N 00000 "));
        let replaced = notice.map_or(0, |text| {
            assert!(text.contains("replaced its values"), "{text}");
            text.split(' ').next().unwrap().parse().unwrap()
        });
        let done = lines.iter().find_map(|line| line.strip_prefix("C "));
        let rows = done.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
        Ok((rows, replaced))
    }

    fn run(&mut self, request: &Request) -> Result<(u64, u64), String> {
        let (has_times, tags, fields) = columns(request);
        let table = quoted(&request.rows[0].table);
        let names = has_times.then_some("time").into_iter();
        let names = names
            .chain(tags.iter().copied())
            .chain(fields.iter().copied());
        let names: Vec<_> = names.map(quoted).collect();
        let names = names.join(", ");
        let rows = request.rows.iter();
        match self.protocol {
            Protocol::Http | Protocol::Simple => {
                let rows = rows.map(|row| {
                    let cells = cells(request, row);
                    let of_fields = cells.len() - fields.len();
                    let values = cells.iter().enumerate().map(|(at, cell)| {
                        let field = at.checked_sub(of_fields);
                        let field = field.and_then(|at| fields.iter().nth(at));
                        let is_text = field.is_none_or(|name| {
                            matches!(row.fields.get(*name), Some(Cell::Text(_)))
                        });
                        match cell {
                            None => "NULL".to_owned(),
                            Some(text) if is_text => literal(text),
                            Some(text) => text.clone(),
                        }
                    });
                    format!("({})", values.collect::<Vec<_>>().join(", "))
                });
                let rows = rows.collect::<Vec<_>>().join(", ");
                let sql = format!("INSERT INTO {table} ({names}) VALUES {rows}");
                match self.protocol {
                    Protocol::Http => self.over_http(&sql),
                    _ => Self::counted(&self.session.query(&sql)),
                }
            }
            Protocol::Prepared => {
                let cells: Vec<_> = rows.flat_map(|row| cells(request, row)).collect();
                let width = cells.len() / request.rows.len();
                let rows = (0..request.rows.len()).map(|row| {
                    let places = (0..width).map(|at| format!("${}", row * width + at + 1));
                    format!("({})", places.collect::<Vec<_>>().join(", "))
                });
                let rows = rows.collect::<Vec<_>>().join(", ");
                let sql = format!("INSERT INTO {table} ({names}) VALUES {rows}");
                let cells: Vec<_> = cells
                    .iter()
                    .map(|c| c.as_deref().map(str::as_bytes))
                    .collect();
                let told = self.session.exchange(&[
                    parse("", &sql, &[]),
                    bind("", "", 0, &cells),
                    execute("", 0),
                    sync(),
                ]);
                Self::counted(&told)
            }
            Protocol::CopyText => {
                let rows = rows.map(|row| {
                    let cells = cells(request, row).into_iter().map(|cell| match cell {
                        None => "\\N".to_owned(),
                        Some(text) => text
                            .replace('\\', "\\\\")
                            .replace('\n', "\\n")
                            .replace('\t', "\\t"),
                    });
                    cells.collect::<Vec<_>>().join("\t") + "\n"
                });
                let data = rows.collect::<String>();
                self.copy(
                    &format!("COPY {table} ({names}) FROM STDIN"),
                    data.as_bytes(),
                )
            }
            Protocol::CopyCsv => {
                let rows = rows.map(|row| {
                    let cells = cells(request, row).into_iter();
                    let cells = cells.map(|cell| cell.map_or(String::new(), |text| quoted(&text)));
                    cells.collect::<Vec<_>>().join(",") + "\n"
                });
                let data = rows.collect::<String>();
                let sql = format!("COPY {table} ({names}) FROM STDIN (FORMAT csv)");
                self.copy(&sql, data.as_bytes())
            }
            Protocol::CopyBinary => {
                let mut data = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
                data.extend(rows.flat_map(|row| binary(request, row)));
                data.extend(b"\xff\xff");
                let sql = format!("COPY {table} ({names}) FROM STDIN (FORMAT binary)");
                self.copy(&sql, &data)
            }
        }
    }

    fn copy(&mut self, sql: &str, data: &[u8]) -> Result<(u64, u64), String> {
        self.session.send(&[
            message(b'Q', &texts(&[sql])),
            message(b'd', data),
            message(b'c', &[]),
        ]);
        Self::counted(&lines(&self.session.ready()))
    }
}

impl FrontEnd for Statements {
    fn name(&self) -> &'static str {
        match self.protocol {
            Protocol::Http => "INSERT over HTTP",
            Protocol::Simple => "INSERT over PostgreSQL",
            Protocol::Prepared => "INSERT over PostgreSQL, prepared",
            Protocol::CopyText => "COPY, text",
            Protocol::CopyCsv => "COPY, CSV",
            Protocol::CopyBinary => "COPY, binary",
        }
    }

    fn unmet_needs(&self) -> &'static [Need] {
        match self.protocol {
            // A row has values of the types of the columns.
            Protocol::CopyBinary => &[
                Need::NewFields,
                Need::SeveralTables,
                Need::FieldCalledTime,
                Need::MixedTypes,
            ],
            _ => &[Need::NewFields, Need::SeveralTables, Need::FieldCalledTime],
        }
    }

    fn is_whole(&self) -> bool {
        true
    }

    fn declare(&mut self, tables: &State) {
        for (name, table) in tables {
            let fields = table.fields.iter().map(|(field, of)| {
                let of = match of.as_str() {
                    "f64" => "DOUBLE",
                    "i64" => "BIGINT",
                    "u64" => "BIGINT UNSIGNED",
                    "bool" => "BOOLEAN",
                    _ => "TEXT",
                };
                format!(", {} {of}", quoted(field))
            });
            let fields = fields.collect::<String>();
            let sql = format!(
                "CREATE TABLE {} (time TIMESTAMP, id TAG, site TAG{fields})",
                quoted(name)
            );
            self.over_http(&sql).unwrap();
        }
    }

    fn send(&mut self, request: &Request) -> Outcome {
        match self.run(request) {
            Ok((rows, replaced)) => {
                assert_eq!(rows, request.rows.len() as u64);
                Outcome {
                    replaced: Some(replaced),
                    ..Outcome::default()
                }
            }
            Err(_) => Outcome {
                refused: 1,
                ..Outcome::default()
            },
        }
    }

    fn stored(self: Box<Self>) -> State {
        drop(self.session);
        state_of(self.server)
    }
}

#[test]
fn every_form_of_copy_has_its_column() {
    let mut door = Statements::new(Protocol::CopyText);
    door.over_http("CREATE TABLE t (time TIMESTAMP, v DOUBLE)")
        .unwrap();
    let error = door
        .copy("COPY t FROM STDIN (FORMAT parquet)", b"")
        .unwrap_err();
    assert!(
        error.contains("the format parquet, other than text, csv and binary,"),
        "a form that is added needs a column here: {error}"
    );
}

#[test]
fn statements_and_copies_are_taken_as_every_door_does() {
    let ways = [
        Protocol::Http,
        Protocol::Simple,
        Protocol::Prepared,
        Protocol::CopyText,
        Protocol::CopyCsv,
        Protocol::CopyBinary,
    ];
    for way in ways {
        let walked = walk(Box::new(Statements::new(way)));
        assert!(walked >= 16, "{way:?}: {walked}");
    }
}
