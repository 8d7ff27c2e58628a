//! Batches on their way to a server, as line protocol.
//!
//! Invariants: batches are numbered, so that one which may have been stored can be sent again and
//! is stored once; values that line protocol cannot hold are counted and reported.
//! Failure: what a server refuses line by line is counted like what the parser refuses; anything
//! else ends the import, and what was stored before stays.

use super::Import;
use super::summary::Summary;
use crate::clock::now;
use crate::failure::Failure;
use crate::server::Server;
use headwater::{Duplicates, FieldSpec, FieldType, Timestamp};
use headwater_wire::ParsedBatch;
use headwater_wire::lineprotocol::LineWriter;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::time::Duration;

/// Attempts at a server that is busy, and the pause between two of them.
const TRIES: usize = 600;
const WAIT: Duration = Duration::from_secs(1);

pub(super) struct Remote {
    server: Server,
    lines: LineWriter,
    duplicates: Option<Duplicates>,
    /// Fields of a table that is made now, in the order of the file.
    pub(super) fields: Vec<FieldSpec>,
    settled_tables: HashSet<String>,
    /// Name of this producer, and the number of the batch sent last.
    producer: String,
    number: u64,
}

impl Remote {
    pub(super) fn new(import: &Import, server: Server) -> Remote {
        Remote {
            server,
            lines: LineWriter::new(),
            duplicates: import.duplicates.map(Duplicates::from),
            fields: Vec::new(),
            settled_tables: HashSet::new(),
            producer: format!("import-{}-{}", std::process::id(), now().as_nanos()),
            number: 0,
        }
    }

    /// The fields that the table has; none where it is not there, or this token does not manage it.
    pub(super) fn fields_of(&self, table: &str) -> Result<Vec<FieldSpec>, Failure> {
        let asked = json!({ "op": "show_tables", "table": table });
        let shown = self.server.try_manage(&asked)?;
        match shown.status {
            200 => {}
            403 | 404 => return Ok(Vec::new()),
            _ => return Err(shown.failure()),
        }
        let fields = shown.body.pointer("/tables/0/fields");
        let fields = fields.and_then(Value::as_array).into_iter().flatten();
        let specs = fields.filter_map(|field| {
            let text = |key: &str| field.get(key).and_then(Value::as_str);
            Some(FieldSpec {
                name: text("name")?.to_owned(),
                field_type: FieldType::from_name(text("type")?)?,
            })
        });
        Ok(specs.collect())
    }

    pub(super) fn write(
        &mut self,
        parsed: &ParsedBatch,
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        let mut body = Vec::new();
        self.lines.begin_text();
        // Of each line that is sent, the line of the file that it was.
        let mut origins: Vec<u64> = Vec::new();
        for (entry, lines) in parsed.batch.entries().iter().zip(&parsed.lines) {
            self.settle(entry.name.table())?;
            let names = entry.fields.iter().map(|(name, _)| name.as_str());
            if let Err(error) = self.lines.start_stream(&entry.name, names) {
                for line in lines {
                    summary.count("E_NAME", 1);
                    summary.show(*line, "E_NAME", &error.to_string(), "");
                }
                continue;
            }
            for (row, time) in entry.times.iter().enumerate() {
                let before = body.len();
                let values = entry.fields.iter().map(|(_, column)| column.get(row));
                let at = Timestamp::from_nanos(*time);
                self.lines.write_row(&mut body, at, values);
                if body.len() > before {
                    origins.push(lines.get(row).copied().unwrap_or(0));
                }
            }
        }
        if body.is_empty() {
            return Ok(());
        }
        self.number += 1;
        self.send(&body, &origins, summary)
    }

    fn send(&self, body: &[u8], origins: &[u64], summary: &mut Summary) -> Result<(), Failure> {
        let number = self.number.to_string();
        let headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("X-Headwater-Producer", self.producer.as_str()),
            ("X-Headwater-Batch", number.as_str()),
        ];
        let mut tries = 0;
        let answered = loop {
            let answered = self.server.send("/write?precision=ns", body, &headers)?;
            tries += 1;
            if !matches!(answered.status, 429 | 503) || tries == TRIES {
                break answered;
            }
            std::thread::sleep(WAIT);
        };
        let body = &answered.body;
        summary.replaced += answered.replaced;
        match answered.code() {
            "" if answered.status == 204 => {
                summary.rows += u64::try_from(origins.len()).unwrap_or(u64::MAX)
            }
            "E_PARTIAL" | "E_REFUSED" | "E_PARSE" => {
                summary.rows += answered.number("written").unwrap_or(0);
                let by_code = body.get("rejected_by_code").and_then(Value::as_object);
                for (code, lines) in by_code.into_iter().flatten() {
                    summary.count(code, lines.as_u64().unwrap_or(0));
                }
                let lines = body.get("lines").and_then(Value::as_array);
                for refused in lines.into_iter().flatten() {
                    let sent = refused.get("line").and_then(Value::as_u64).unwrap_or(0);
                    let at = usize::try_from(sent.saturating_sub(1)).ok();
                    let origin = at.and_then(|at| origins.get(at));
                    let text = |key: &str| refused.get(key).and_then(Value::as_str).unwrap_or("");
                    let line = origin.copied().unwrap_or(0);
                    summary.show(line, text("code"), text("message"), "");
                }
            }
            _ => return Err(answered.failure()),
        }
        Ok(())
    }

    /// Makes a table before its first row, as `--duplicates` says and with the columns in their
    /// order. One that is there stays as it is, unless `--duplicates` says something else.
    fn settle(&mut self, table: &str) -> Result<(), Failure> {
        let is_plain = self.duplicates.is_none() && self.fields.is_empty();
        if is_plain || !self.settled_tables.insert(table.to_owned()) {
            return Ok(());
        }
        let asked = json!({ "op": "show_tables", "table": table });
        let shown = self.server.try_manage(&asked)?;
        let duplicates = self.duplicates.map(Duplicates::name);
        let known = shown.body.pointer("/tables/0/duplicates");
        let known = known.and_then(Value::as_str);
        match (shown.status, duplicates) {
            (200, None) => Ok(()),
            (200, Some(wanted)) if known == Some(wanted) => Ok(()),
            (200, Some(wanted)) => {
                let asked = json!({ "op": "alter_table", "table": table, "duplicates": wanted });
                self.server.manage(&asked).map(drop)
            }
            (404, _) if shown.code() == "E_NOT_FOUND" => {
                let fields = self.fields.iter();
                let fields: Vec<_> = fields.map(|f| (&f.name, f.field_type.name())).collect();
                let asked = json!({
                    "op": "create_table", "table": table, "fields": fields, "duplicates": duplicates,
                });
                self.server.manage(&asked).map(drop)
            }
            // With a token that may write and not manage, the first row makes the table.
            (403, None) => Ok(()),
            _ => Err(shown.failure()),
        }
    }

    /// Reports values that line protocol could not hold.
    pub(super) fn finish(&self) {
        let skipped = self.lines.skipped();
        for (count, what) in [
            (skipped.not_finite, "values that are NaN or infinite"),
            (skipped.bytes, "values of type bytes"),
            (skipped.rows, "rows without any other value"),
        ] {
            if count > 0 {
                eprintln!(
                    "headwater: {count} {what} were left out: data is sent to a server as line protocol, which cannot represent them"
                );
            }
        }
    }
}
