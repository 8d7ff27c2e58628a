//! The settings that a session knows, with their defaults and allowed values.
//!
//! Invariants: names are lower case, and each is in the table once. Concurrency: constants.
//! Failure: a name that is not in the table is an error.

use super::VariableError;

/// Allowed values of a setting.
#[derive(Debug, Clone, Copy)]
pub(super) enum AllowedValues {
    /// Told, not set.
    Fixed,
    /// Any value, without effect.
    Any,
    /// One of these values, without regard to case; only the first word of a value counts.
    OneOf(&'static [&'static str], &'static str),
    /// One of these values, without regard to case.
    Word(&'static [&'static str], &'static str),
    /// A number of milliseconds, or with a unit.
    Milliseconds,
    /// On or off.
    Switch,
    /// A time zone.
    Zone,
}

pub(super) struct Definition {
    /// As `SHOW` writes it.
    pub(super) name: &'static str,
    pub(super) default: &'static str,
    pub(super) kind: AllowedValues,
    /// True when changes are reported to clients.
    pub(super) is_reported: bool,
    pub(super) about: &'static str,
}

const fn definition(
    name: &'static str,
    default: &'static str,
    kind: AllowedValues,
    is_reported: bool,
    about: &'static str,
) -> Definition {
    Definition {
        name,
        default,
        kind,
        is_reported,
        about,
    }
}

/// Prefix of the names of settings that PostgreSQL does not have.
pub(super) const OWN_PREFIX: &str = "headwater.";
/// Setting that permits answers without copies that cannot be read.
pub(super) const PARTIAL: &str = "headwater.partial";
/// Setting that answers aggregates from stored ones.
pub(super) const USE_PYRAMID: &str = "headwater.use_pyramid";
const ON: AllowedValues = AllowedValues::OneOf(&["on", "true", "yes", "1"], "on");
/// `16` is the version for tools that depend on it; the rest names the product.
pub(crate) const SERVER_VERSION: &str = concat!("16.0 (Headwater ", env!("CARGO_PKG_VERSION"), ")");

pub(super) static DEFINITIONS: &[Definition] = &[
    definition(
        "application_name",
        "",
        AllowedValues::Any,
        true,
        "Name of the connected program.",
    ),
    definition(
        "bytea_output",
        "hex",
        AllowedValues::OneOf(&["hex"], "hex"),
        false,
        "How bytes are written as text.",
    ),
    definition(
        "client_encoding",
        "UTF8",
        AllowedValues::OneOf(&["utf8", "utf-8", "unicode"], "UTF8"),
        true,
        "How text is encoded.",
    ),
    definition(
        "client_min_messages",
        "notice",
        AllowedValues::Any,
        false,
        "Accepted and ignored.",
    ),
    definition(
        "datestyle",
        "ISO, MDY",
        AllowedValues::OneOf(&["iso", "mdy", "ymd", "dmy"], "ISO"),
        true,
        "How instants are written as text.",
    ),
    definition(
        "default_table_access_method",
        "heap",
        AllowedValues::Any,
        false,
        "Accepted and ignored: tables have only one storage format.",
    ),
    definition(
        "default_tablespace",
        "",
        AllowedValues::Any,
        false,
        "Accepted and ignored: tables are in the database's directory.",
    ),
    definition(
        "default_transaction_deferrable",
        "off",
        AllowedValues::Any,
        false,
        "Accepted and ignored: there are no transactions.",
    ),
    definition(
        "default_transaction_isolation",
        "read committed",
        AllowedValues::Any,
        false,
        "Accepted and ignored: there are no transactions.",
    ),
    definition(
        "default_transaction_read_only",
        "off",
        AllowedValues::Any,
        true,
        "Accepted and ignored: there are no transactions.",
    ),
    definition(
        "extra_float_digits",
        "1",
        AllowedValues::Any,
        false,
        "Accepted and ignored: floats are always written in a form that reads back exactly.",
    ),
    definition(
        PARTIAL,
        "refuse",
        AllowedValues::Word(&["refuse", "allow"], "refuse or allow"),
        false,
        "Whether answers may leave out copies that this node cannot read.",
    ),
    definition(
        USE_PYRAMID,
        "on",
        AllowedValues::Switch,
        false,
        "Whether aggregates are answered from stored ones where that is exact.",
    ),
    definition(
        "idle_in_transaction_session_timeout",
        "0",
        AllowedValues::Any,
        false,
        "Accepted and ignored: there are no transactions.",
    ),
    definition(
        "in_hot_standby",
        "off",
        AllowedValues::Fixed,
        true,
        "Always off.",
    ),
    definition(
        "integer_datetimes",
        "on",
        AllowedValues::Fixed,
        true,
        "Always on.",
    ),
    definition(
        "intervalstyle",
        "postgres",
        AllowedValues::OneOf(&["postgres"], "postgres"),
        true,
        "How intervals are written as text.",
    ),
    definition(
        "is_superuser",
        "off",
        AllowedValues::Fixed,
        true,
        "Always off: rights come from tokens.",
    ),
    definition(
        "jit",
        "off",
        AllowedValues::Any,
        false,
        "Accepted and ignored.",
    ),
    definition(
        "lc_collate",
        "C",
        AllowedValues::Fixed,
        false,
        "Text is compared by its bytes.",
    ),
    definition(
        "lc_ctype",
        "C",
        AllowedValues::Fixed,
        false,
        "Text is compared by its bytes.",
    ),
    definition(
        "lc_messages",
        "C",
        AllowedValues::Any,
        false,
        "Accepted and ignored.",
    ),
    definition(
        "lock_timeout",
        "0",
        AllowedValues::Any,
        false,
        "Accepted and ignored: readers never wait for locks.",
    ),
    definition(
        "max_connections",
        "0",
        AllowedValues::Fixed,
        false,
        "See the setting postgres.connections_max.",
    ),
    definition(
        "max_identifier_length",
        "63",
        AllowedValues::Fixed,
        false,
        "Reported to tools.",
    ),
    definition(
        "max_index_keys",
        "32",
        AllowedValues::Fixed,
        false,
        "Reported to tools.",
    ),
    definition(
        "nanoseconds",
        "off",
        AllowedValues::Switch,
        false,
        "Whether times are written as text with nine fractional digits, or with six.",
    ),
    definition(
        "plan_cache_mode",
        "auto",
        AllowedValues::Any,
        false,
        "Accepted and ignored.",
    ),
    definition(
        "row_security",
        "on",
        AllowedValues::Any,
        false,
        "Accepted and ignored: rows that a token may not read are never visible.",
    ),
    definition(
        "search_path",
        "\"$user\", public",
        AllowedValues::Any,
        false,
        "Accepted and ignored: tables are in public.",
    ),
    definition(
        "server_encoding",
        "UTF8",
        AllowedValues::Fixed,
        true,
        "Text is UTF-8.",
    ),
    definition(
        "server_version",
        SERVER_VERSION,
        AllowedValues::Fixed,
        true,
        "The version of PostgreSQL reported to tools, and that of Headwater.",
    ),
    definition(
        "server_version_num",
        "160000",
        AllowedValues::Fixed,
        false,
        "The same version as a number.",
    ),
    definition(
        "session_authorization",
        "",
        AllowedValues::Fixed,
        true,
        "The user name given at the start of the session.",
    ),
    definition(
        "ssl",
        "",
        AllowedValues::Fixed,
        false,
        "Whether this connection uses TLS.",
    ),
    definition(
        "standard_conforming_strings",
        "on",
        AllowedValues::OneOf(&["on", "true", "yes", "1"], "on"),
        true,
        "Always on.",
    ),
    definition(
        "statement_timeout",
        "0",
        AllowedValues::Milliseconds,
        false,
        "Longest time of a statement, in milliseconds; 0 = the limit of the server.",
    ),
    definition(
        "synchronous_commit",
        "on",
        AllowedValues::Any,
        false,
        "Accepted and ignored: the durability of the server applies.",
    ),
    definition(
        "synchronize_seqscans",
        "on",
        AllowedValues::Any,
        false,
        "Accepted and ignored.",
    ),
    definition(
        "timezone",
        "UTC",
        AllowedValues::Zone,
        true,
        "The time zone in which timestamps are written and read.",
    ),
    definition(
        "transaction_deferrable",
        "off",
        AllowedValues::Any,
        false,
        "Accepted and ignored: there are no transactions.",
    ),
    definition(
        "transaction_isolation",
        "read committed",
        AllowedValues::Any,
        false,
        "Each statement sees one state of the database.",
    ),
    definition(
        "transaction_read_only",
        "off",
        AllowedValues::Any,
        false,
        "Accepted and ignored: there are no transactions.",
    ),
    definition(
        "work_mem",
        "4MB",
        AllowedValues::Any,
        false,
        "Accepted and ignored: see sql.memory.",
    ),
    definition(
        "check_function_bodies",
        "on",
        ON,
        false,
        "Accepted and ignored.",
    ),
];

/// The names with capitals, as PostgreSQL writes them.
pub(super) fn shown(name: &str) -> &str {
    match name {
        "datestyle" => "DateStyle",
        "intervalstyle" => "IntervalStyle",
        "timezone" => "TimeZone",
        name => name,
    }
}

pub(super) fn find(name: &str) -> Result<&'static Definition, VariableError> {
    let small = name.to_ascii_lowercase();
    DEFINITIONS
        .iter()
        .find(|known| known.name == small)
        .ok_or_else(|| VariableError::Unknown(name.to_owned()))
}
