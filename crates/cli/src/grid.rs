//! Text in aligned columns.

/// A column: its heading and on which side its cells stand.
#[derive(Clone, Debug)]
pub(crate) struct Heading {
    text: String,
    is_number: bool,
}

impl Heading {
    /// Of words: cells stand on the left.
    pub(crate) fn text(text: impl Into<String>) -> Heading {
        Heading {
            text: text.into(),
            is_number: false,
        }
    }

    /// Of numbers: cells stand on the right.
    pub(crate) fn number(text: impl Into<String>) -> Heading {
        Heading {
            text: text.into(),
            is_number: true,
        }
    }
}

/// True for a character that changes what a terminal does or in which order it shows a line.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text with control characters escaped, as it may be printed to a terminal.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match is_control(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

/// Rows under headings, two blanks between columns, with control characters escaped.
pub(crate) fn render(headings: &[Heading], rows: &[Vec<String>]) -> String {
    let escaped = |row: &Vec<String>| row.iter().map(|cell| printable(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(escaped).collect();
    let mut widths: Vec<usize> = headings.iter().map(|h| h.text.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    let heading_cells: Vec<String> = headings.iter().map(|h| h.text.clone()).collect();
    for row in std::iter::once(&heading_cells).chain(&rows) {
        let start = out.len();
        for (index, cell) in row.iter().enumerate() {
            let width = widths.get(index).copied().unwrap_or(0);
            let blanks = " ".repeat(width.saturating_sub(cell.chars().count()));
            let is_number = headings.get(index).is_some_and(|h| h.is_number);
            if index > 0 {
                out.push_str("  ");
            }
            if is_number {
                out.push_str(&blanks);
            }
            out.push_str(cell);
            if !is_number {
                out.push_str(&blanks);
            }
        }
        out.truncate(out.trim_end_matches(' ').len().max(start));
        out.push('\n');
    }
    out
}

/// `1234567` as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number of bytes in a unit that keeps it short.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let name = UNITS.get(unit).unwrap_or(&"B");
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.1} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [
            vec!["é".to_owned(), "1".to_owned()],
            vec!["abc".to_owned(), "100".to_owned()],
        ];
        assert_eq!(
            render(&[Heading::text("name"), Heading::number("n")], &rows),
            "name    n\né       1\nabc   100\n"
        );
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        let rows = [vec!["a\u{1b}[2J\n\u{9b}1m\u{202e}é".to_owned()]];
        assert_eq!(
            render(&[Heading::text("version")], &rows),
            "version\na\\u{1b}[2J\\n\\u{9b}1m\\u{202e}é\n"
        );
    }

    #[test]
    fn large_numbers_are_readable() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(bytes(900), "900 B");
        assert_eq!(bytes(1_572_864), "1.5 MiB");
    }
}
