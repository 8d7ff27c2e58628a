//! Options of reading a CSV file.

use headwater_types::FieldType;

/// Roles of the columns of a CSV file. Texts have the form of the command line.
#[derive(Clone, Debug)]
pub struct CsvOptions {
    /// Table of the rows.
    pub table: String,
    /// `COLUMN[:FORMAT]`, with `s ms us ns rfc3339` or a pattern for [`jiff::fmt::strtime`], which
    /// may end in `@ZONE`. The longest column name that fits is taken, so names may contain colons.
    pub time: String,
    /// Columns that name the stream. An empty cell leaves the tag out.
    pub tags: Vec<String>,
    /// `COLUMN[:TYPE]` of the columns to store; `None` is every other column.
    pub fields: Option<Vec<String>>,
    /// `COLUMN:TYPE` of columns with a declared type. Does not choose which columns are stored.
    pub types: Vec<String>,
    /// Fields that the table has already. Their types count like the inspected rows: a column of
    /// numbers remains numeric although a text is among them, and refuses only the text.
    pub known_types: Vec<(String, FieldType)>,
    /// Texts that mean absent. If any is set, an empty cell in a string column is the empty string.
    pub null_texts: Vec<String>,
    /// Between cells.
    pub delimiter: u8,
    /// Number of skipped lines at the beginning of the file.
    pub skip_lines: u64,
    /// Names of the columns, if no line of the file contains them.
    pub names: Option<Vec<String>>,
    /// Numbers are written with a decimal comma: `12,5`. A text with a decimal point is then not a
    /// number.
    pub decimal_comma: bool,
    /// Longest row, in bytes.
    pub record_bytes_max: usize,
    /// Longest string value, in bytes.
    pub string_bytes_max: usize,
    /// Maximum number of fields.
    pub fields_max: usize,
    /// A batch ends when its rows took this much text.
    pub batch_bytes_max: usize,
    /// Number of rows inspected to infer types.
    pub rows_inspected: usize,
    /// Memory for stream names cached from one batch to the next; above this limit all are dropped.
    pub cached_name_bytes_max: usize,
}

impl CsvOptions {
    /// Every column but `time` (as `COLUMN[:FORMAT]`) is a field of `table`; commas between cells.
    pub fn new(table: impl Into<String>, time: impl Into<String>) -> CsvOptions {
        CsvOptions {
            table: table.into(),
            time: time.into(),
            tags: Vec::new(),
            fields: None,
            types: Vec::new(),
            known_types: Vec::new(),
            null_texts: Vec::new(),
            delimiter: b',',
            skip_lines: 0,
            names: None,
            decimal_comma: false,
            record_bytes_max: 4 << 20,
            string_bytes_max: 1 << 20,
            fields_max: 1_024,
            batch_bytes_max: 4 << 20,
            rows_inspected: 10_000,
            cached_name_bytes_max: 16 << 20,
        }
    }
}
