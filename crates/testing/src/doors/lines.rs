//! Requests as line protocol.

use super::cases::{Request, Row};
use super::cell::Cell;

fn escaped(text: &str, marks: &[char]) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        if marks.contains(&letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

/// A row as a line, its time in nanoseconds.
fn line(row: &Row) -> String {
    let mut out = escaped(&row.table, &[',', ' ']);
    for (name, value) in &row.tags {
        let marks = [',', ' ', '='];
        out += &format!(",{}={}", escaped(name, &marks), escaped(value, &marks));
    }
    let fields = row.fields.iter().map(|(name, cell)| {
        let value = match cell {
            Cell::F64(value) => format!("{value:e}"),
            Cell::I64(value) => format!("{value}i"),
            Cell::U64(value) => format!("{value}u"),
            Cell::Bool(value) => value.to_string(),
            Cell::Text(value) => format!("\"{}\"", escaped(value, &['"', '\\'])),
        };
        format!("{}={value}", escaped(name, &[',', ' ', '=']))
    });
    out += &format!(" {}", fields.collect::<Vec<_>>().join(","));
    if let Some(time) = row.unix_ms() {
        out += &format!(" {time}000000");
    }
    out + "\n"
}

/// The rows as lines. A mark of the byte order stands before everything where a name begins with
/// that character.
pub fn lines(request: &Request) -> String {
    let lines: String = request.rows.iter().map(line).collect();
    let has_mark = lines.starts_with('\u{feff}');
    let mark = has_mark.then_some('\u{feff}').into_iter();
    mark.collect::<String>() + &lines
}
