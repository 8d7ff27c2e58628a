//! The data of `COPY` as text: rows as lines of text or of CSV, in both directions.
//!
//! Invariants: [`CopyRows`] reads the output of [`CopyFormat::put_row`] back unchanged, nulls
//! included. A row is read only when it is complete. The time for reading is proportional to the
//! bytes, regardless of their division into messages. Failure: [`CopyError`] names the line; the
//! reader is unusable after an error.
//!
//! Source: the page of `COPY` of PostgreSQL's documentation, "File Formats".

/// Form of written rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyFormat {
    /// CSV; otherwise PostgreSQL's text.
    pub csv: bool,
    /// Between the fields of a row.
    pub delimiter: u8,
    /// Text of a null.
    pub null: String,
    /// The first line has the names of the columns.
    pub header: bool,
    /// Around fields of CSV.
    pub quote: u8,
    /// Escape character before a quote within a quoted field of CSV.
    pub escape: u8,
}

impl CopyFormat {
    /// PostgreSQL's text: tabs between fields, `\N` for a null.
    #[must_use]
    pub fn text() -> CopyFormat {
        CopyFormat {
            csv: false,
            delimiter: b'\t',
            null: "\\N".to_owned(),
            header: false,
            quote: b'"',
            escape: b'"',
        }
    }

    /// CSV: commas between fields, an empty field for a null.
    #[must_use]
    pub fn csv() -> CopyFormat {
        CopyFormat {
            csv: true,
            delimiter: b',',
            null: String::new(),
            ..CopyFormat::text()
        }
    }

    /// The fault of a format that could not be read back, if any.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        let plain = |byte: u8| byte.is_ascii() && !matches!(byte, b'\n' | b'\r' | 0);
        if !plain(self.delimiter) {
            return Some("the delimiter must be one ASCII character other than the end of a line");
        }
        if self.csv {
            if !plain(self.quote) || !plain(self.escape) {
                return Some(
                    "quote and escape must be one ASCII character each, other than the end of a line",
                );
            }
            if self.quote == self.delimiter {
                return Some("delimiter and quote must differ");
            }
            // A row of the delimiter and little else would be a line that ends the data.
            if matches!(self.delimiter, b'\\' | b'.') {
                return Some("the delimiter must not be a backslash or a point");
            }
            if self.null == "\\." {
                return Some("the text for null must not be the end-of-data marker");
            }
            if self.null.bytes().any(|b| b == self.quote) {
                return Some("the quote must not be in the text for null");
            }
        } else if self.delimiter.is_ascii_alphanumeric() || matches!(self.delimiter, b'\\' | b'.') {
            return Some(
                "the delimiter of the text format must not be a letter, a digit, a backslash or a point",
            );
        }
        if self
            .null
            .bytes()
            .any(|b| matches!(b, b'\n' | b'\r') || b == self.delimiter)
        {
            return Some("neither the delimiter nor the end of a line may be in the text for null");
        }
        None
    }

    /// Appends a row with the end of its line; `None` = null.
    pub fn put_row<'a>(
        &self,
        fields: impl IntoIterator<Item = Option<&'a [u8]>>,
        out: &mut Vec<u8>,
    ) {
        let begin = out.len();
        let mut count = 0usize;
        for field in fields {
            if count > 0 {
                out.push(self.delimiter);
            }
            count += 1;
            match field {
                None => out.extend(self.null.as_bytes()),
                Some(field) if self.csv => self.put_quoted(field, out),
                Some(field) => self.put_escaped(field, out),
            }
        }
        // A line of CSV that is this alone would end the data.
        if self.csv && count == 1 && out.get(begin..) == Some(b"\\.".as_slice()) {
            out.truncate(begin);
            out.extend([self.quote, b'\\', b'.', self.quote]);
        }
        out.push(b'\n');
    }

    fn put_quoted(&self, field: &[u8], out: &mut Vec<u8>) {
        let special =
            |b: &u8| *b == self.delimiter || *b == self.quote || matches!(b, b'\n' | b'\r');
        if field != self.null.as_bytes() && !field.iter().any(special) {
            out.extend(field);
            return;
        }
        out.push(self.quote);
        for byte in field {
            if *byte == self.quote || *byte == self.escape {
                out.push(self.escape);
            }
            out.push(*byte);
        }
        out.push(self.quote);
    }

    fn put_escaped(&self, field: &[u8], out: &mut Vec<u8>) {
        let begin = out.len();
        self.put_letters(field, out);
        if let Some((first, rest)) = field.split_first()
            && out.get(begin..) == Some(self.null.as_bytes())
        {
            // Otherwise the text would be read as null. PostgreSQL parses this escape as a byte,
            // but some clients do not; with the usual null, whose backslash is doubled in a text,
            // the escape is never needed.
            out.truncate(begin);
            out.extend(format!("\\x{first:02x}").bytes());
            self.put_letters(rest, out);
        }
    }

    fn put_letters(&self, field: &[u8], out: &mut Vec<u8>) {
        for byte in field {
            let letter = match byte {
                0x08 => b'b',
                0x0c => b'f',
                b'\n' => b'n',
                b'\r' => b'r',
                b'\t' => b't',
                0x0b => b'v',
                b'\\' => b'\\',
                other if *other == self.delimiter => *other,
                other => {
                    out.push(*other);
                    continue;
                }
            };
            out.extend([b'\\', letter]);
        }
    }
}

/// Reason why the data of a copy cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct CopyError {
    /// The line where the row begins, from 1.
    pub line: u64,
    /// The fault.
    pub fault: CopyFault,
}

/// Faults of the data of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyFault {
    /// A field is not UTF-8.
    #[error("a field is not UTF-8")]
    Utf8,
    /// A quoted field does not end.
    #[error("a quoted field is not closed")]
    Quote,
    /// A row is longer than is allowed.
    #[error("a row has more than {0} bytes")]
    Long(usize),
}

/// Reads rows from bytes that arrive in parts.
#[derive(Debug)]
pub struct CopyRows {
    format: CopyFormat,
    /// Maximum bytes of a row.
    row_max: usize,
    bytes: Vec<u8>,
    /// Offset of the next row in `bytes`.
    at: usize,
    /// Bytes after `at` that were searched for the end of that row.
    scanned: usize,
    quoted: bool,
    escaped: bool,
    /// The line on which the row that was read last begins.
    line: u64,
    /// Ends of lines before `at`, and before `scanned`.
    lines: u64,
    lines_scanned: u64,
    ended: bool,
    skip_header: bool,
}

/// Fields of a row; `None` = null.
pub type CopyRow = Vec<Option<String>>;

impl CopyRows {
    /// A reader of rows of at most `row_max` bytes.
    #[must_use]
    pub fn new(format: CopyFormat, row_max: usize) -> CopyRows {
        CopyRows {
            skip_header: format.header,
            format,
            row_max,
            bytes: Vec::new(),
            at: 0,
            scanned: 0,
            quoted: false,
            escaped: false,
            line: 0,
            lines: 0,
            lines_scanned: 0,
            ended: false,
        }
    }

    /// Takes more bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.ended {
            return;
        }
        self.bytes.drain(..self.at);
        self.scanned -= self.at;
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The line on which the row that was read last begins, from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    /// The next row; `None` = the row is incomplete, or, with `is_all`, no rows remain.
    ///
    /// # Errors
    /// When the row is malformed.
    pub fn next_row(&mut self, is_all: bool) -> Result<Option<CopyRow>, CopyError> {
        while !self.ended {
            let end = match self.row_end() {
                Some(end) => end,
                None if self.bytes.len() - self.at > self.row_max => {
                    return Err(self.error(CopyFault::Long(self.row_max)));
                }
                None if !is_all || self.at == self.bytes.len() => return Ok(None),
                None if self.quoted => return Err(self.error(CopyFault::Quote)),
                None => self.bytes.len(),
            };
            let row = self.bytes.get(self.at..end).unwrap_or_default();
            let row = row.strip_suffix(b"\r").unwrap_or(row);
            if row.len() > self.row_max {
                return Err(self.error(CopyFault::Long(self.row_max)));
            }
            let fields = if row == b"\\." {
                self.ended = true;
                None
            } else if self.skip_header {
                self.skip_header = false;
                None
            } else if self.format.csv {
                Some(self.quoted_fields(row))
            } else {
                Some(self.escaped_fields(row))
            };
            if fields == Some(None) {
                return Err(self.error(CopyFault::Utf8));
            }
            self.at = (end + 1).min(self.bytes.len());
            self.scanned = self.at;
            self.line = self.lines + 1;
            self.lines = self.lines_scanned;
            (self.quoted, self.escaped) = (false, false);
            if let Some(Some(fields)) = fields {
                return Ok(Some(fields));
            }
        }
        Ok(None)
    }

    fn error(&self, fault: CopyFault) -> CopyError {
        CopyError {
            line: self.lines + 1,
            fault,
        }
    }

    /// Offset of the end of the row, if its end has arrived.
    fn row_end(&mut self) -> Option<usize> {
        while let Some(byte) = self.bytes.get(self.scanned).copied() {
            let here = self.scanned;
            self.scanned += 1;
            if byte == b'\n' {
                self.lines_scanned += 1;
            }
            if self.escaped {
                self.escaped = false;
                continue;
            }
            if !self.format.csv {
                match byte {
                    b'\\' => self.escaped = true,
                    b'\n' => return Some(here),
                    _ => {}
                }
                continue;
            }
            if self.quoted && byte == self.format.escape && byte != self.format.quote {
                self.escaped = true;
            } else if byte == self.format.quote {
                // A doubled quote ends the field and begins it again.
                self.quoted = !self.quoted;
            } else if byte == b'\n' && !self.quoted {
                return Some(here);
            }
        }
        None
    }

    /// The fields of a line of text; `None` = a field is not UTF-8.
    fn escaped_fields(&self, row: &[u8]) -> Option<CopyRow> {
        let mut fields = Vec::new();
        let mut field = Vec::new();
        let mut begin = 0;
        let mut at = 0;
        loop {
            let byte = row.get(at).copied();
            match byte {
                Some(b'\\') => {
                    at += 1;
                    at += unescape(row.get(at..).unwrap_or_default(), &mut field);
                }
                Some(byte) if byte != self.format.delimiter => {
                    field.push(byte);
                    at += 1;
                }
                _ => {
                    let whole = row.get(begin..at).unwrap_or_default();
                    let bytes = std::mem::take(&mut field);
                    fields.push(if whole == self.format.null.as_bytes() {
                        None
                    } else {
                        Some(String::from_utf8(bytes).ok()?)
                    });
                    if byte.is_none() {
                        return Some(fields);
                    }
                    at += 1;
                    begin = at;
                }
            }
        }
    }

    /// The fields of a row of CSV; `None` = a field is not UTF-8.
    fn quoted_fields(&self, row: &[u8]) -> Option<CopyRow> {
        let CopyFormat {
            delimiter,
            quote,
            escape,
            ..
        } = self.format;
        let mut fields = Vec::new();
        let mut field = Vec::new();
        let (mut within, mut was_quoted) = (false, false);
        let mut bytes = row.iter().copied().peekable();
        loop {
            let byte = bytes.next();
            match byte {
                Some(byte) if within => {
                    let next = bytes.peek().copied();
                    if byte == escape && next.is_some_and(|next| next == quote || next == escape) {
                        field.extend(bytes.next());
                    } else if byte == quote {
                        within = false;
                    } else {
                        field.push(byte);
                    }
                }
                Some(byte) if byte == quote => {
                    within = true;
                    was_quoted = true;
                }
                Some(byte) if byte != delimiter => field.push(byte),
                _ => {
                    let found = std::mem::take(&mut field);
                    let is_null = !was_quoted && found == self.format.null.as_bytes();
                    was_quoted = false;
                    fields.push(if is_null {
                        None
                    } else {
                        Some(String::from_utf8(found).ok()?)
                    });
                    if byte.is_none() {
                        return Some(fields);
                    }
                }
            }
        }
    }
}

/// Appends the byte of an escape sequence, given the bytes after its backslash. Returns the number
/// of consumed bytes.
fn unescape(rest: &[u8], field: &mut Vec<u8>) -> usize {
    let digits = |from: usize, most: usize, radix: u32| {
        let digits = rest.iter().skip(from).take(most);
        let digits = digits.map_while(|b| char::from(*b).to_digit(radix));
        digits.fold((0usize, 0u32), |(count, value), digit| {
            (count + 1, value * radix + digit)
        })
    };
    let Some(first) = rest.first() else {
        // A backslash at the very end is a plain backslash.
        field.push(b'\\');
        return 0;
    };
    let mut taken = 1;
    field.push(match first {
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        b'0'..=b'7' => {
            let (count, value) = digits(0, 3, 8);
            taken = count;
            // Only the lowest eight bits of three octal digits count.
            (value & 0xff) as u8
        }
        b'x' => match digits(1, 2, 16) {
            (0, _) => b'x',
            (count, value) => {
                taken = 1 + count;
                (value & 0xff) as u8
            }
        },
        other => *other,
    });
    taken
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use proptest::prelude::*;

    fn all(format: &CopyFormat, bytes: &[u8], step: usize) -> Result<Vec<CopyRow>, CopyError> {
        let mut reader = CopyRows::new(format.clone(), 1 << 20);
        let mut rows = Vec::new();
        for part in bytes.chunks(step.max(1)) {
            reader.feed(part);
            while let Some(row) = reader.next_row(false)? {
                rows.push(row);
            }
        }
        while let Some(row) = reader.next_row(true)? {
            rows.push(row);
        }
        Ok(rows)
    }

    fn row(fields: &[Option<&str>]) -> CopyRow {
        fields.iter().map(|f| f.map(str::to_owned)).collect()
    }

    #[test]
    fn text_is_read_as_postgresql_writes_it() {
        let text = b"a\\tb\t\\N\t\\\\N\n\t\\x41\\101\\q\r\nx\\\ny\n\\.\nnothing\n";
        let wanted = vec![
            row(&[Some("a\tb"), None, Some("\\N")]),
            row(&[Some(""), Some("AAq")]),
            row(&[Some("x\ny")]),
        ];
        for step in [1, 3, 100] {
            assert_eq!(all(&CopyFormat::text(), text, step).unwrap(), wanted);
        }
    }

    #[test]
    fn a_text_that_looks_like_null_is_no_null() {
        let format = CopyFormat {
            null: "nil".to_owned(),
            ..CopyFormat::text()
        };
        let mut written = Vec::new();
        format.put_row([Some(&b"nil"[..]), None], &mut written);
        assert_eq!(written, b"\\x6eil\tnil\n");
        let wanted = [row(&[Some("nil"), None])];
        assert_eq!(all(&format, &written, 1).unwrap(), wanted);
        // Clients with their own parser, such as psycopg, know only letters after a backslash.
        written.clear();
        CopyFormat::text().put_row([Some(&b"\\N"[..]), None], &mut written);
        assert_eq!(written, b"\\\\N\t\\N\n");
        let wanted = [row(&[Some("\\N"), None])];
        assert_eq!(all(&CopyFormat::text(), &written, 1).unwrap(), wanted);
    }

    #[test]
    fn csv_is_read_with_its_quotes() {
        let csv = b"h,i,j\n1,,\"\"\n\"a \"\"b\"\"\nc\",\"x,y\",z\r\nlast,\"o\"ne,";
        let format = CopyFormat {
            header: true,
            ..CopyFormat::csv()
        };
        let wanted = vec![
            row(&[Some("1"), None, Some("")]),
            row(&[Some("a \"b\"\nc"), Some("x,y"), Some("z")]),
            row(&[Some("last"), Some("one"), None]),
        ];
        for step in [1, 4, 100] {
            assert_eq!(all(&format, csv, step).unwrap(), wanted);
        }
        let escaped = CopyFormat {
            escape: b'\\',
            quote: b'\'',
            delimiter: b';',
            null: "-".to_owned(),
            ..CopyFormat::csv()
        };
        assert_eq!(
            all(&escaped, b"'a\\'b\\\\';-;'-'\n", 2).unwrap(),
            [row(&[Some("a'b\\"), None, Some("-")])]
        );
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_line() {
        for (bytes, line, fault) in [
            (&b"a\nb\n\"c\nd"[..], 3, CopyFault::Quote),
            (b"a\n\"b\nc\"\n\xff\n", 4, CopyFault::Utf8),
        ] {
            let error = all(&CopyFormat::csv(), bytes, 2).unwrap_err();
            assert_eq!((error.line, error.fault), (line, fault));
        }
        let mut reader = CopyRows::new(CopyFormat::text(), 8);
        reader.feed(b"short\nmuch too long");
        assert!(reader.next_row(false).unwrap().is_some());
        assert_eq!(
            reader.next_row(false).unwrap_err().fault,
            CopyFault::Long(8)
        );
    }

    #[test]
    fn formats_that_could_not_be_read_back_are_refused() {
        for format in [
            CopyFormat {
                delimiter: b'\n',
                ..CopyFormat::text()
            },
            CopyFormat {
                delimiter: b'a',
                ..CopyFormat::text()
            },
            CopyFormat {
                delimiter: b'"',
                ..CopyFormat::csv()
            },
            CopyFormat {
                null: "a,b".to_owned(),
                ..CopyFormat::csv()
            },
            CopyFormat {
                null: "\"".to_owned(),
                ..CopyFormat::csv()
            },
            CopyFormat {
                quote: b'\r',
                ..CopyFormat::csv()
            },
            // A row with a single point would be the line that ends the data.
            CopyFormat {
                delimiter: b'\\',
                ..CopyFormat::csv()
            },
            CopyFormat {
                delimiter: b'.',
                ..CopyFormat::csv()
            },
            CopyFormat {
                null: "\\.".to_owned(),
                ..CopyFormat::csv()
            },
        ] {
            assert!(format.fault().is_some(), "{format:?}");
        }
        assert_eq!(CopyFormat::text().fault(), None);
        assert_eq!(CopyFormat::csv().fault(), None);
    }

    fn format() -> impl Strategy<Value = CopyFormat> {
        let csv = prop_oneof![Just(b','), Just(b';'), Just(b'\t'), Just(b'a')];
        let escape = prop_oneof![Just(b'"'), Just(b'\\'), Just(b'x')];
        let null = prop_oneof![
            Just(String::new()),
            Just("-".to_owned()),
            Just("NULL".to_owned())
        ];
        let csv = (csv, escape, null).prop_map(|(delimiter, escape, null)| CopyFormat {
            delimiter,
            escape,
            null,
            ..CopyFormat::csv()
        });
        let text = prop_oneof![Just(b'\t'), Just(b'|'), Just(b',')];
        let text = text.prop_map(|delimiter| CopyFormat {
            delimiter,
            ..CopyFormat::text()
        });
        prop_oneof![csv, text]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_read_back(
            format in format(),
            columns in 1..4usize,
            fields in proptest::collection::vec(proptest::option::of("[a-cxN,;|\"\\\\.\t\n\r\u{e4}-]{0,6}"), 0..24),
            step in 1..20usize,
        ) {
            prop_assume!(format.fault().is_none());
            let rows: Vec<CopyRow> = fields.chunks_exact(columns).map(<[_]>::to_vec).collect();
            let mut bytes = Vec::new();
            for row in &rows {
                format.put_row(row.iter().map(|f| f.as_ref().map(String::as_bytes)), &mut bytes);
            }
            prop_assert_eq!(all(&format, &bytes, step).unwrap(), rows);
        }

        #[test]
        fn no_bytes_make_a_reader_panic(format in format(), bytes in proptest::collection::vec(any::<u8>(), 0..200), step in 1..50usize) {
            let _ = all(&format, &bytes, step);
        }
    }
}
