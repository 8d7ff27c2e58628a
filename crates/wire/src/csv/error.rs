//! Reason why a CSV file as a whole cannot be read.

use std::io;

/// A fault of the file or of its options, not of single lines.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CsvError {
    /// The reader failed.
    #[error("cannot read the input: {0}")]
    Io(#[from] io::Error),
    /// The input has no line at all.
    #[error("the input is empty: expected a header line with the names of the columns")]
    Empty,
    /// The header line is not UTF-8.
    #[error("the header line is not UTF-8")]
    HeaderNotUtf8,
    /// The header line does not end.
    #[error("the header line is longer than {0} bytes; is a quote left open?")]
    HeaderTooLong(usize),
    /// Commas between cells and in numbers.
    #[error(
        "a comma cannot be both the delimiter and the decimal separator: such files mostly use ; as the delimiter"
    )]
    CommaTwice,
    /// A column without a name.
    #[error("column {number} has no name in the header: {headers}")]
    UnnamedColumn {
        /// Number of the column, from 1.
        number: usize,
        /// Names of all columns.
        headers: String,
    },
    /// Two columns with one name.
    #[error("the header contains column `{name}` twice: {headers}")]
    DuplicateColumn {
        /// The name.
        name: String,
        /// Names of all columns.
        headers: String,
    },
    /// A requested column that does not exist.
    #[error("there is no column `{name}` for {role}; the header has: {headers}")]
    NoSuchColumn {
        /// The role of the cell: the time, a tag, a field.
        role: &'static str,
        /// The text that was to name it.
        name: String,
        /// Names of all columns.
        headers: String,
    },
    /// A column requested twice.
    #[error("column `{name}` is given twice as {role}")]
    RepeatedColumn {
        /// The role of the column.
        role: &'static str,
        /// The column.
        name: String,
    },
    /// No column remains for the fields.
    #[error("no column is left for fields beside the time and the tags; the header has: {headers}")]
    NoFields {
        /// Names of all columns.
        headers: String,
    },
    /// Too many columns are fields.
    #[error(
        "{count} columns would be fields; at most {max} are allowed: name those to keep with --field"
    )]
    TooManyFields {
        /// The number of them.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// Not a field type.
    #[error(
        "`{text}` is not a type for column `{column}`: expected f64, i64, u64, bool, string or bytes"
    )]
    FieldType {
        /// The column.
        column: String,
        /// The text of the argument.
        text: String,
    },
    /// Not a time format.
    #[error("`{text}` is not a time format: {reason}")]
    TimeFormat {
        /// The text of the argument.
        text: String,
        /// Reason for the refusal.
        reason: String,
    },
    /// The format was not specified and cannot be inferred from the values.
    #[error(
        "cannot infer the format of time column `{column}` from {example}; give it as {column}:FORMAT, with s, ms, us, ns, rfc3339 or a pattern such as %Y-%m-%d %H:%M:%S@Europe/Berlin"
    )]
    TimeUnclear {
        /// The column.
        column: String,
        /// First value of the column.
        example: String,
    },
}
