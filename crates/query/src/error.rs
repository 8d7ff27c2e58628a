//! Errors of statements, in words that the statement's author can act on.
//!
//! Invariants: [`Error::code`] is stable and never changes its meaning; `sqlstate` is the
//! corresponding PostgreSQL code; a message never names an object that the session may not see.

use datafusion::common::{DataFusionError, SchemaError};
use datafusion::sql::sqlparser::parser::ParserError;
use headwater_wire::zone::UnknownZone;
use std::fmt;
use std::num::NonZeroU32;

/// Why a statement failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Stable code.
    pub code: &'static str,
    /// PostgreSQL's five-character code.
    pub sqlstate: &'static str,
    /// Message: expected and actual.
    pub message: String,
    /// Suggested remedy.
    pub hint: Option<String>,
    /// Line and column of the error in the text, both from 1.
    pub at: Option<(u32, u32)>,
    /// Name of the affected object, if any.
    pub subject: Option<String>,
    /// Number of the affected row of the statement, from 1, if any.
    pub row: Option<NonZeroU32>,
}

/// Result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! codes {
    ($($name:ident: $variant:ident = $code:literal, $sqlstate:literal;)*) => {
        /// Kinds of errors. Kinds are added, never removed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $(
                #[doc = concat!("`", $code, "`, SQLSTATE ", $sqlstate)]
                $variant,
            )*
            /// A code of a front end or a client, not of this crate.
            Foreign,
        }

        impl Code {
            /// The kind of a stable code.
            fn of(code: &str) -> Code {
                match code {
                    $($code => Code::$variant,)*
                    _ => Code::Foreign,
                }
            }

            /// Every kind except [`Code::Foreign`].
            pub const ALL: &[Code] = &[$(Code::$variant),*];

            /// The stable code; for [`Code::Foreign`] use [`Error::code`].
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Code::$variant => $code,)*
                    Code::Foreign => "foreign",
                }
            }
        }

        impl Error {
            $(
                pub(crate) fn $name(message: impl Into<String>) -> Error {
                    Error::new($code, $sqlstate, message)
                }
            )*
        }
        /// Every code with its SQLSTATE, for the documentation and its test.
        pub const CODES: &[(&str, &str)] = &[$(($code, $sqlstate)),*];
    };
}

codes! {
    syntax: SyntaxError = "syntax_error", "42601";
    unknown_table: UnknownTable = "unknown_table", "42P01";
    unknown_column: UnknownColumn = "unknown_column", "42703";
    unknown_function: UnknownFunction = "unknown_function", "42883";
    unknown_setting: UnknownSetting = "unknown_setting", "42704";
    ambiguous_column: AmbiguousColumn = "ambiguous_column", "42702";
    table_exists: TableExists = "table_exists", "42P07";
    unknown_index: UnknownIndex = "unknown_index", "42704";
    index_exists: IndexExists = "index_exists", "42P07";
    unknown_snapshot: UnknownSnapshot = "unknown_snapshot", "42704";
    snapshot_exists: SnapshotExists = "snapshot_exists", "42P07";
    snapshot_gone: SnapshotGone = "snapshot_gone", "55000";
    unknown_watch: UnknownWatch = "unknown_watch", "42704";
    watch_exists: WatchExists = "watch_exists", "42P07";
    watch_unbounded: WatchUnbounded = "watch_unbounded", "42000";
    invalid: Invalid = "invalid", "42000";
    invalid_value: InvalidValue = "invalid_value", "22023";
    invalid_expression: InvalidRegularExpression = "invalid_regular_expression", "2201B";
    out_of_range: OutOfRange = "out_of_range", "22003";
    division_by_zero: DivisionByZero = "division_by_zero", "22012";
    type_mismatch: TypeMismatch = "type_mismatch", "42804";
    parameters: InvalidParameters = "invalid_parameters", "42P02";
    unsupported_statement: UnsupportedStatement = "unsupported_statement", "0A000";
    unsupported: Unsupported = "unsupported", "0A000";
    forbidden: Forbidden = "forbidden", "42501";
    read_only: ReadOnly = "read_only", "25006";
    refused: Refused = "refused", "22000";
    too_large: TooLarge = "too_large", "54000";
    too_many_rows: TooManyRows = "too_many_rows", "54000";
    memory_limit: MemoryLimit = "memory_limit", "53200";
    time_limit: TimeLimit = "time_limit", "57014";
    busy: Busy = "busy", "53300";
    closed: Closed = "closed", "57P03";
    elsewhere: Elsewhere = "elsewhere", "55000";
    full: Full = "full", "53100";
    io: Io = "io", "58030";
    corrupt: Corrupt = "corrupt", "XX001";
    internal: Internal = "internal", "XX000";
}

impl Code {
    /// The code of the server's other front ends for the same error.
    #[must_use]
    pub const fn same_as(self) -> &'static str {
        use headwater_ask::QueryErrorKind;
        match self {
            Code::SyntaxError
            | Code::UnknownFunction
            | Code::UnknownSetting
            | Code::AmbiguousColumn
            | Code::TableExists
            | Code::IndexExists
            | Code::SnapshotExists
            | Code::WatchExists
            | Code::WatchUnbounded
            | Code::InvalidValue
            | Code::InvalidRegularExpression
            | Code::OutOfRange
            | Code::DivisionByZero
            | Code::TypeMismatch
            | Code::InvalidParameters => QueryErrorKind::Query,
            Code::UnknownTable
            | Code::UnknownColumn
            | Code::UnknownIndex
            | Code::UnknownSnapshot
            | Code::UnknownWatch
            | Code::SnapshotGone => QueryErrorKind::NotFound,
            Code::Invalid | Code::Refused => QueryErrorKind::Invalid,
            Code::UnsupportedStatement | Code::Unsupported => QueryErrorKind::Unsupported,
            Code::Forbidden | Code::ReadOnly => QueryErrorKind::Access,
            Code::TooLarge | Code::TooManyRows | Code::MemoryLimit => QueryErrorKind::Limit,
            Code::TimeLimit => QueryErrorKind::Timeout,
            Code::Busy => QueryErrorKind::Busy,
            Code::Closed => QueryErrorKind::Closed,
            Code::Elsewhere => QueryErrorKind::Elsewhere,
            Code::Full => QueryErrorKind::Full,
            Code::Io | Code::Corrupt | Code::Internal | Code::Foreign => QueryErrorKind::Internal,
        }
        .as_str()
    }
}

impl Error {
    /// An error with a code of the caller.
    #[must_use]
    pub fn new(code: &'static str, sqlstate: &'static str, message: impl Into<String>) -> Error {
        Error {
            code,
            sqlstate,
            message: message.into(),
            hint: None,
            at: None,
            subject: None,
            row: None,
        }
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> Code {
        Code::of(self.code)
    }

    /// Error for a table that does not exist or may not be seen.
    pub(crate) fn no_table(name: &str) -> Error {
        Error {
            subject: Some(name.to_owned()),
            ..Error::unknown_table(format!("there is no table `{name}`"))
        }
    }

    /// Error for a time zone that does not exist.
    pub(crate) fn unknown_zone(why: &UnknownZone) -> Error {
        Error::invalid_value(why.to_string()).with_hint(format!("a zone is {}", UnknownZone::FORMS))
    }

    /// Sets the row of the statement; the argument counts from 0.
    pub(crate) fn of_row(self, row: u64) -> Error {
        let number = u32::try_from(row.saturating_add(1)).ok();
        Error {
            row: number.and_then(NonZeroU32::new),
            ..self
        }
    }

    /// Sets the hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the position, unless the error has one.
    #[must_use]
    pub fn located(mut self, at: Option<(u32, u32)>) -> Error {
        self.at = self.at.or(at);
        self
    }

    /// Moves the position, as if the text began at this line and column (from 1) of a longer text.
    #[must_use]
    pub fn moved_to(mut self, line: u32, column: u32) -> Error {
        self.at = self.at.map(|(l, c)| {
            if l == 1 {
                (line, c + column - 1)
            } else {
                (l + line - 1, c)
            }
        });
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some((line, column)) = self.at {
            write!(f, " (line {line}, column {column})")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<headwater::Error> for Error {
    fn from(error: headwater::Error) -> Error {
        use headwater::ErrorKind;
        let message = error.to_string();
        match error.kind() {
            ErrorKind::Invalid => Error::invalid(message),
            ErrorKind::NotFound => Error::unknown_table(message),
            ErrorKind::Busy | ErrorKind::Locked => Error::busy(message),
            ErrorKind::Closed => Error::closed(message),
            ErrorKind::Elsewhere => Error::elsewhere(message),
            ErrorKind::Corrupt => Error::corrupt(message),
            ErrorKind::Full => Error::full(message),
            ErrorKind::Io => Error::io(message),
            ErrorKind::ReadOnly => Error::read_only(message),
            _ => Error::internal(message),
        }
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> DataFusionError {
        DataFusionError::External(Box::new(error))
    }
}

/// Wraps an engine error as an error of the SQL library.
pub(crate) fn external(error: headwater::Error) -> DataFusionError {
    DataFusionError::External(Box::new(Error::from(error)))
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Error {
        let mut error = convert(&error);
        // Start of the text of a nested error.
        if let Some(at) = error.message.find("This issue was likely caused by a bug") {
            let kept = error.message.get(..at).unwrap_or_default();
            error.message = kept.trim_end().replace("Internal error: ", "");
        }
        error
    }
}

fn convert(error: &DataFusionError) -> Error {
    match error {
        DataFusionError::Context(_, inner) => convert(inner),
        DataFusionError::Shared(inner) => convert(inner),
        DataFusionError::Collection(all) => match all.first() {
            Some(first) => convert(first),
            None => Error::internal("no error was given"),
        },
        DataFusionError::Diagnostic(diagnostic, inner) => {
            let mut converted = convert(inner);
            if let (None, Some(span)) = (converted.at, diagnostic.span) {
                converted.at = u32::try_from(span.start.line)
                    .ok()
                    .zip(u32::try_from(span.start.column).ok());
            }
            if converted.hint.is_none() {
                converted.hint = diagnostic.helps.first().map(|h| h.message.clone());
            }
            converted
        }
        DataFusionError::External(source) => match source.downcast_ref::<Error>() {
            Some(own) => own.clone(),
            None => match source.downcast_ref::<DataFusionError>() {
                Some(inner) => convert(inner),
                None => {
                    let text = source.to_string();
                    of_regular_expression(&text).unwrap_or_else(|| Error::internal(text))
                }
            },
        },
        DataFusionError::SQL(parser, _) => of_parser(parser),
        DataFusionError::SchemaError(schema, _) => of_schema(schema),
        DataFusionError::NotImplemented(message) => of_missing(message),
        DataFusionError::Plan(message) => of_plan(message),
        DataFusionError::Configuration(message) => Error::invalid_value(message),
        DataFusionError::ResourcesExhausted(message) => Error::memory_limit(message),
        DataFusionError::Execution(message) => of_execution(message),
        DataFusionError::ArrowError(arrow, _) => of_arrow(arrow),
        DataFusionError::ExecutionJoin(join) => Error::internal(join.to_string()),
        DataFusionError::Internal(message) => of_internal(message),
        other => Error::internal(other.strip_backtrace()),
    }
}

/// Error for an operation that the SQL library does not implement. A subquery that remains in a
/// plan is reported as a subquery, not by the library's name for it.
fn of_missing(message: &str) -> Error {
    let left = message.strip_prefix("Physical plan does not support logical expression ");
    let is_subquery = left.is_some_and(|left| {
        [
            "OuterReferenceColumn",
            "ScalarSubquery",
            "InSubquery",
            "Exists",
            "SetComparison",
        ]
        .iter()
        .any(|kind| left.starts_with(kind))
    });
    if !is_subquery {
        return Error::unsupported(message);
    }
    Error::unsupported("a correlated subquery of this form")
        .with_hint("correlate it by equal columns only (`u.id = t.id`), or write a join, DISTINCT ON or a window")
}

fn of_arrow(error: &arrow::error::ArrowError) -> Error {
    use arrow::error::ArrowError;
    match error {
        ArrowError::DivideByZero => Error::division_by_zero("division by zero"),
        ArrowError::ArithmeticOverflow(message) => Error::out_of_range(message),
        ArrowError::CastError(message) | ArrowError::ParseError(message) => {
            Error::invalid_value(message)
        }
        ArrowError::InvalidArgumentError(message) | ArrowError::ComputeError(message) => {
            of_regular_expression(message).unwrap_or_else(|| Error::invalid_value(message))
        }
        ArrowError::ExternalError(source) => match source.downcast_ref::<DataFusionError>() {
            Some(inner) => convert(inner),
            None => match source.downcast_ref::<Error>() {
                Some(own) => own.clone(),
                None => Error::internal(source.to_string()),
            },
        },
        ArrowError::NotYetImplemented(message) => Error::unsupported(message),
        other => Error::internal(other.to_string()),
    }
}

fn of_execution(message: &str) -> Error {
    if message.contains("Overflow") || message.contains("overflow") {
        return Error::out_of_range(message);
    }
    of_regular_expression(message).unwrap_or_else(|| Error::invalid_value(message))
}

/// Error for a regular expression that the library refuses; the library's message has several
/// lines.
fn of_regular_expression(text: &str) -> Option<Error> {
    if text.contains("CompiledTooBig") || text.contains("Compiled regex exceeds size limit") {
        let error = Error::too_large("the regular expression is too large");
        return Some(error.with_hint("write smaller counts in {…}, or fewer alternatives"));
    }
    let is_one = text.contains("regex parse error")
        || text.contains("Regular expression did not compile")
        || text.contains("Invalid regex");
    if !is_one {
        return None;
    }
    let why = text.lines().find_map(|line| line.strip_prefix("error: "));
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    let message = format!("the regular expression is not valid{why}");
    let hint = r"put a \ before ( [ { * + ? | . that are meant literally";
    Some(Error::invalid_expression(message).with_hint(hint))
}

/// Error for a failure that the planner reports as internal; usually the statement is wrong.
fn of_internal(message: &str) -> Error {
    if message.contains("failed to match any signature") {
        return of_signature(message);
    }
    let first = message.lines().next().unwrap_or_default();
    Error::internal(format!("internal error: {first}")).with_hint(
        "this is a bug in Headwater, not an error in the statement: another form of it may work",
    )
}

/// Error for an existing function with arguments of wrong types.
fn of_signature(message: &str) -> Error {
    let after = |before: &str, end: &[char]| {
        let rest = message.split(before).nth(1)?;
        rest.split(end).next().filter(|found| !found.is_empty())
    };
    let called = after("argument types '", &['\'']).and_then(|called| called.split('(').next());
    let name = after("Function '", &['\''])
        .or(called)
        .unwrap_or("function");
    let given = after("argument types '", &['\''])
        .map(|called| format!(": {}", in_words(called)))
        .or_else(|| {
            after("but received ", &[' ', '(']).map(|found| format!(", found {}", in_words(found)))
        });
    Error::type_mismatch(format!(
        "`{name}` does not accept arguments of these types{}",
        given.unwrap_or_default()
    ))
    .with_hint("convert them with CAST, for example CAST(x AS DOUBLE)")
}

/// Replaces Arrow type names in a text by SQL type names.
fn in_words(text: &str) -> String {
    const NAMES: [(&str, &str); 16] = [
        ("Dictionary(Int32, Utf8)", "TEXT"),
        ("LargeUtf8", "TEXT"),
        ("Utf8View", "TEXT"),
        ("Utf8", "TEXT"),
        ("Float64", "DOUBLE"),
        ("Float32", "REAL"),
        ("UInt64", "BIGINT UNSIGNED"),
        ("Int64", "BIGINT"),
        ("Int32", "INT"),
        ("Boolean", "BOOLEAN"),
        ("Binary", "BYTEA"),
        ("Date32", "DATE"),
        ("Timestamp(ns, \"UTC\")", "TIMESTAMPTZ"),
        ("Timestamp(ns)", "TIMESTAMP"),
        ("Interval(MonthDayNano)", "INTERVAL"),
        ("Null", "NULL"),
    ];
    let told = text.to_owned();
    NAMES
        .iter()
        .fold(told, |told, (arrow, name)| told.replace(arrow, name))
}

/// Converts an error of the parser, with the position in its text.
fn of_parser(error: &ParserError) -> Error {
    let text = match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text.as_str(),
        ParserError::RecursionLimitExceeded => {
            return Error::too_large("the statement is nested too deeply");
        }
    };
    let (message, at) = match text.rfind(" at Line: ") {
        Some(place) => (
            text.get(..place).unwrap_or(text),
            text.get(place..).and_then(located),
        ),
        None => (text, None),
    };
    Error::syntax(message).located(at)
}

/// Parses ` at Line: 1, Column: 8`.
fn located(text: &str) -> Option<(u32, u32)> {
    let rest = text.strip_prefix(" at Line: ")?;
    let (line, rest) = rest.split_once(", Column: ")?;
    let column: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((line.trim().parse().ok()?, column.parse().ok()?))
}

fn of_schema(error: &SchemaError) -> Error {
    match error {
        SchemaError::FieldNotFound {
            field,
            valid_fields,
        } => {
            let names: Vec<&str> = valid_fields.iter().map(|f| f.name.as_str()).collect();
            let error = Error::unknown_column(format!("there is no column `{}`", field.name));
            with_suggestion(error, &field.name, &names)
        }
        SchemaError::AmbiguousReference { field } => Error::ambiguous_column(format!(
            "column reference `{}` is ambiguous: write the table before it",
            field.name
        )),
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => {
            Error::ambiguous_column(format!("two columns are named `{name}`"))
        }
    }
}

fn of_plan(message: &str) -> Error {
    if message.contains("No function matches the given name and argument types")
        || message.contains("failed to match any signature")
    {
        return of_signature(message);
    }
    if let Some(rest) = message.strip_prefix("Invalid function '") {
        let name = rest.split('\'').next().unwrap_or(rest);
        let error = Error {
            subject: Some(name.to_owned()),
            ..Error::unknown_function(format!("there is no function `{name}`"))
        };
        return match rest
            .split("Did you mean '")
            .nth(1)
            .and_then(|r| r.split('\'').next())
        {
            Some(near) => error.with_hint(format!("did you mean `{near}`?")),
            None => error,
        };
    }
    if let Some(rest) = message
        .strip_prefix("table '")
        .and_then(|r| r.strip_suffix("' not found"))
    {
        let name = rest.rsplit('.').next().unwrap_or(rest);
        return Error::no_table(name);
    }
    if ["Cannot coerce", "cannot be cast", "Cannot infer common"]
        .iter()
        .any(|types| message.contains(types))
    {
        return Error::type_mismatch(in_words(message));
    }
    Error::invalid(message)
}

/// Adds the nearest name as a hint, or all names if there are few.
pub(crate) fn with_suggestion(error: Error, wanted: &str, known: &[&str]) -> Error {
    if let Some(near) = nearest(wanted, known) {
        return error.with_hint(format!("did you mean `{near}`?"));
    }
    if known.is_empty() || known.len() > 20 {
        return error;
    }
    let mut unique: Vec<&str> = Vec::new();
    for name in known {
        if !unique.contains(name) {
            unique.push(name);
        }
    }
    error.with_hint(format!("there are: {}", unique.join(", ")))
}

/// The known name with the smallest edit distance, if small; among equals the alphabetically first.
pub(crate) fn nearest<'a>(wanted: &str, known: &[&'a str]) -> Option<&'a str> {
    let lower = wanted.to_lowercase();
    let best = known
        .iter()
        .map(|name| (strsim::osa_distance(&lower, &name.to_lowercase()), *name))
        .min()?;
    (best.0 * 3 <= wanted.chars().count().max(3)).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_suggested_and_a_far_one_is_not() {
        assert_eq!(nearest("tmep", &["time", "temp", "site"]), Some("temp"));
        assert_eq!(nearest("volume", &["time", "temp"]), None);
        assert_eq!(nearest("sun", &["sum", "son", "sin"]), Some("sin"));
        let error = with_suggestion(Error::unknown_column("x"), "q", &["time", "temp"]);
        assert_eq!(error.hint.as_deref(), Some("there are: time, temp"));
    }

    #[test]
    fn mistakes_that_the_planner_takes_for_its_own_are_told_in_words_for_users() {
        let internal = |text: &str| Error::from(DataFusionError::Internal(text.to_owned()));
        let types = internal(
            "Function 'avg' failed to match any signature, errors: Error during planning: No function matches the given name and argument types 'avg(Utf8)'. You might need to add explicit type casts.",
        );
        assert_eq!(types.code, "type_mismatch");
        assert!(types.message.ends_with("avg(TEXT)"), "{types}");
        let other = internal("index 3 out of 2\nThis issue was likely caused by a bug");
        assert_eq!(other.code, "internal");
        assert!(!other.message.contains("bug"), "{other}");
    }

    #[test]
    fn a_regular_expression_that_cannot_be_read_is_told_with_its_reason() {
        let parsed = "regex parse error:\n    (\n    ^\nerror: unclosed group";
        let debug = format!("Regular expression did not compile: Syntax(\n~~\n{parsed}\n~~\n)");
        for text in [parsed, &debug] {
            let error = of_regular_expression(text);
            let told = error.as_ref().map(|e| (e.code, e.message.as_str()));
            let message = "the regular expression is not valid: unclosed group";
            assert_eq!(told, Some(("invalid_regular_expression", message)));
        }
        let large = of_regular_expression("Compiled regex exceeds size limit of 10485760 bytes.");
        assert_eq!(large.map(|e| e.code), Some("too_large"));
        assert_eq!(of_regular_expression("invalid input"), None);
    }

    #[test]
    fn a_kind_is_known_by_its_code_and_a_table_by_its_name() {
        for code in Code::ALL {
            assert_eq!(Code::of(code.as_str()), *code);
        }
        let foreign = Error::new("unreachable", "08001", "no");
        assert_eq!(foreign.kind(), Code::Foreign);
        let plan = DataFusionError::Plan("table 'headwater.public.pu`mp' not found".to_owned());
        let error = Error::from(plan);
        assert_eq!(
            (error.kind(), error.subject.as_deref()),
            (Code::UnknownTable, Some("pu`mp"))
        );
    }

    #[test]
    fn a_place_is_read_and_moved() {
        assert_eq!(located(" at Line: 3, Column: 14"), Some((3, 14)));
        let error = Error::syntax("x").located(Some((1, 4)));
        assert_eq!(error.clone().moved_to(5, 3).at, Some((5, 6)));
        assert_eq!(
            Error::syntax("x").located(Some((2, 4))).moved_to(5, 3).at,
            Some((6, 4))
        );
    }
}
