//! Options of reading a CSV file.

use headwater_types::FieldType;

/// Roles of the columns of a CSV file. Texts have the form they have on the command line.
#[derive(Clone, Debug)]
pub struct CsvOptions {
    /// The table the rows go to.
    pub table: String,
    /// `COLUMN[:FORMAT]`, with `s ms us ns rfc3339` or a pattern for [`jiff::fmt::strtime`], which
    /// may end in `@ZONE`. The longest column name that fits is taken, so names may contain colons.
    pub time: String,
    /// Columns that name the stream. An empty cell leaves the tag out.
    pub tags: Vec<String>,
    /// `COLUMN[:TYPE]` of the columns to store; `None` is every other column.
    pub fields: Option<Vec<String>>,
    /// `COLUMN:TYPE` of columns whose type is not to be guessed. Does not choose which columns are
    /// stored.
    pub types: Vec<String>,
    /// Fields that the table has already. Their types count like the rows that were looked at: a
    /// column of numbers stays one although a text is among them, and refuses the text alone.
    pub known_types: Vec<(String, FieldType)>,
    /// Texts that mean absent. With one given, an empty cell in a string column is the empty
    /// string.
    pub null_texts: Vec<String>,
    /// Between cells.
    pub delimiter: u8,
    /// Lines in front of everything that are passed over.
    pub skip_lines: u64,
    /// The names of the columns, where no line of the file has them.
    pub names: Option<Vec<String>>,
    /// Numbers are written with a comma for the point: `12,5`. With a point they are none.
    pub decimal_comma: bool,
    /// Longest row, in bytes.
    pub record_bytes_max: usize,
    /// Longest string value, in bytes.
    pub string_bytes_max: usize,
    /// Most fields.
    pub fields_max: usize,
    /// A batch ends when its rows took this much text.
    pub batch_bytes_max: usize,
    /// Rows looked at to guess types.
    pub rows_inspected: usize,
    /// Memory for stream names cached from one batch to the next; beyond it all are dropped.
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
