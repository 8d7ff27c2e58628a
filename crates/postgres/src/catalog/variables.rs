//! The settings of a session that PostgreSQL's clients set and ask for.
//!
//! Invariants: an accepted value takes effect, or is harmless without effect; a value that would
//! change the form of answers but is not supported is refused. `RESET` restores the values from the
//! start of the session, as in PostgreSQL.

use headwater_wire::zone::{UnknownZone, Zone};
use std::collections::BTreeMap;
use std::time::Duration;

/// Reason for refusing a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VariableError {
    /// No setting has this name.
    #[error("unrecognized configuration parameter \"{0}\"")]
    Unknown(String),
    /// The setting reports a property of the server and cannot be set.
    #[error("parameter \"{0}\" cannot be changed")]
    Fixed(String),
    /// The setting cannot have this value.
    #[error("invalid value for parameter \"{name}\": \"{value}\"; allowed: {allowed}")]
    Value {
        /// Name of the setting.
        name: String,
        /// The value.
        value: String,
        /// The allowed values.
        allowed: &'static str,
    },
}

impl VariableError {
    /// PostgreSQL's code for the error.
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self {
            VariableError::Unknown(_) => "42704",
            VariableError::Fixed(_) => "55P02",
            VariableError::Value { .. } => "22023",
        }
    }
}

/// Allowed values of a setting.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Told, not set.
    Fixed,
    /// Any value, without effect.
    Any,
    /// One of these values, without regard to case; only the first word of a value counts.
    One(&'static [&'static str], &'static str),
    /// A number of milliseconds, or with a unit.
    Milliseconds,
    /// On or off.
    Switch,
    /// A time zone.
    Zone,
}

struct Known {
    /// As `SHOW` writes it.
    name: &'static str,
    default: &'static str,
    kind: Kind,
    /// True when changes are reported to clients.
    told: bool,
    about: &'static str,
}

const fn known(
    name: &'static str,
    default: &'static str,
    kind: Kind,
    told: bool,
    about: &'static str,
) -> Known {
    Known {
        name,
        default,
        kind,
        told,
        about,
    }
}

const ON: Kind = Kind::One(&["on", "true", "yes", "1"], "on");
/// `16` is the version for tools that depend on it; the rest names the product.
pub(crate) const SERVER_VERSION: &str = concat!("16.0 (Headwater ", env!("CARGO_PKG_VERSION"), ")");

static KNOWN: &[Known] = &[
    known(
        "application_name",
        "",
        Kind::Any,
        true,
        "Name of the program that is connected.",
    ),
    known(
        "bytea_output",
        "hex",
        Kind::One(&["hex"], "hex"),
        false,
        "How bytes are written as text.",
    ),
    known(
        "client_encoding",
        "UTF8",
        Kind::One(&["utf8", "utf-8", "unicode"], "UTF8"),
        true,
        "How text is encoded.",
    ),
    known(
        "client_min_messages",
        "notice",
        Kind::Any,
        false,
        "Taken and not looked at.",
    ),
    known(
        "datestyle",
        "ISO, MDY",
        Kind::One(&["iso", "mdy", "ymd", "dmy"], "ISO"),
        true,
        "How instants are written as text.",
    ),
    known(
        "default_table_access_method",
        "heap",
        Kind::Any,
        false,
        "Taken and not looked at: tables are stored in one way.",
    ),
    known(
        "default_tablespace",
        "",
        Kind::Any,
        false,
        "Taken and not looked at: tables are in the database's directory.",
    ),
    known(
        "default_transaction_deferrable",
        "off",
        Kind::Any,
        false,
        "Taken and not looked at: there are no transactions.",
    ),
    known(
        "default_transaction_isolation",
        "read committed",
        Kind::Any,
        false,
        "Taken and not looked at: there are no transactions.",
    ),
    known(
        "default_transaction_read_only",
        "off",
        Kind::Any,
        true,
        "Taken and not looked at: there are no transactions.",
    ),
    known(
        "extra_float_digits",
        "1",
        Kind::Any,
        false,
        "Taken and not looked at: floats are always written so that they read back.",
    ),
    known(
        "idle_in_transaction_session_timeout",
        "0",
        Kind::Any,
        false,
        "Taken and not looked at: there are no transactions.",
    ),
    known("in_hot_standby", "off", Kind::Fixed, true, "Always off."),
    known("integer_datetimes", "on", Kind::Fixed, true, "Always on."),
    known(
        "intervalstyle",
        "postgres",
        Kind::One(&["postgres"], "postgres"),
        true,
        "How intervals are written as text.",
    ),
    known(
        "is_superuser",
        "off",
        Kind::Fixed,
        true,
        "Always off: rights come from tokens.",
    ),
    known("jit", "off", Kind::Any, false, "Taken and not looked at."),
    known(
        "lc_collate",
        "C",
        Kind::Fixed,
        false,
        "Text is compared by its bytes.",
    ),
    known(
        "lc_ctype",
        "C",
        Kind::Fixed,
        false,
        "Text is compared by its bytes.",
    ),
    known(
        "lc_messages",
        "C",
        Kind::Any,
        false,
        "Taken and not looked at.",
    ),
    known(
        "lock_timeout",
        "0",
        Kind::Any,
        false,
        "Taken and not looked at: readers wait for no lock.",
    ),
    known(
        "max_connections",
        "0",
        Kind::Fixed,
        false,
        "See the setting postgres.connections_max.",
    ),
    known(
        "max_identifier_length",
        "63",
        Kind::Fixed,
        false,
        "What tools may count on.",
    ),
    known(
        "max_index_keys",
        "32",
        Kind::Fixed,
        false,
        "What tools may count on.",
    ),
    known(
        "nanoseconds",
        "off",
        Kind::Switch,
        false,
        "Whether times are told as text with nine digits behind the second, else with six.",
    ),
    known(
        "plan_cache_mode",
        "auto",
        Kind::Any,
        false,
        "Taken and not looked at.",
    ),
    known(
        "row_security",
        "on",
        Kind::Any,
        false,
        "What a token may not read is never there, whatever this says.",
    ),
    known(
        "search_path",
        "\"$user\", public",
        Kind::Any,
        false,
        "Taken and not looked at: tables are in public.",
    ),
    known(
        "server_encoding",
        "UTF8",
        Kind::Fixed,
        true,
        "Text is UTF-8.",
    ),
    known(
        "server_version",
        SERVER_VERSION,
        Kind::Fixed,
        true,
        "The version of PostgreSQL that tools may count on, and what this is.",
    ),
    known(
        "server_version_num",
        "160000",
        Kind::Fixed,
        false,
        "The same as a number.",
    ),
    known(
        "session_authorization",
        "",
        Kind::Fixed,
        true,
        "The user named at the start.",
    ),
    known(
        "ssl",
        "",
        Kind::Fixed,
        false,
        "Whether this connection is under TLS.",
    ),
    known(
        "standard_conforming_strings",
        "on",
        Kind::One(&["on", "true", "yes", "1"], "on"),
        true,
        "Always on.",
    ),
    known(
        "statement_timeout",
        "0",
        Kind::Milliseconds,
        false,
        "Longest time of a statement, in milliseconds; 0 = what the server allows.",
    ),
    known(
        "synchronous_commit",
        "on",
        Kind::Any,
        false,
        "Taken and not looked at: the server's durability counts.",
    ),
    known(
        "synchronize_seqscans",
        "on",
        Kind::Any,
        false,
        "Taken and not looked at.",
    ),
    known(
        "timezone",
        "UTC",
        Kind::Zone,
        true,
        "The zone instants are told in, and by whose clocks text is read.",
    ),
    known(
        "transaction_deferrable",
        "off",
        Kind::Any,
        false,
        "Taken and not looked at: there are no transactions.",
    ),
    known(
        "transaction_isolation",
        "read committed",
        Kind::Any,
        false,
        "Each statement sees one state of the database.",
    ),
    known(
        "transaction_read_only",
        "off",
        Kind::Any,
        false,
        "Taken and not looked at: there are no transactions.",
    ),
    known(
        "work_mem",
        "4MB",
        Kind::Any,
        false,
        "Taken and not looked at: see sql.memory.",
    ),
    known(
        "check_function_bodies",
        "on",
        ON,
        false,
        "Taken and not looked at.",
    ),
];

/// The names with capitals, as PostgreSQL writes them.
fn shown(name: &str) -> &str {
    match name {
        "datestyle" => "DateStyle",
        "intervalstyle" => "IntervalStyle",
        "timezone" => "TimeZone",
        name => name,
    }
}

fn find(name: &str) -> Result<&'static Known, VariableError> {
    let small = name.to_ascii_lowercase();
    KNOWN
        .iter()
        .find(|known| known.name == small)
        .ok_or_else(|| VariableError::Unknown(name.to_owned()))
}

/// The settings of one session.
#[derive(Debug, Clone, Default)]
pub struct Variables {
    /// Settings that differ from their defaults; also settings of tools, which have a dot in the
    /// name.
    set: BTreeMap<String, String>,
    /// The settings that the session began with.
    first: BTreeMap<String, String>,
    zone: Zone,
}

impl Variables {
    /// The settings of a session of this user.
    #[must_use]
    pub fn new(user: &str, tls: bool) -> Variables {
        let mut variables = Variables::default();
        let ssl = if tls { "on" } else { "off" };
        for (name, value) in [("session_authorization", user), ("ssl", ssl)] {
            variables.set.insert(name.to_owned(), value.to_owned());
        }
        variables
    }

    /// Makes the present settings the values to which `RESET` returns.
    pub fn begin(&mut self) {
        self.first.clone_from(&self.set);
    }

    /// The time zone.
    #[must_use]
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The value to which `RESET` returns.
    fn default_of<'a>(&'a self, known: &Known) -> &'a str {
        self.first
            .get(known.name)
            .map_or(known.default, String::as_str)
    }

    /// Parses the zone again after a reset to defaults; the names were parsed before, so this
    /// cannot fail.
    fn renew_zone(&mut self) {
        let name = self.get("timezone").unwrap_or_default();
        self.zone = Zone::read(name).unwrap_or_default();
    }

    /// Value of a setting.
    ///
    /// # Errors
    /// When no setting has this name.
    pub fn get(&self, name: &str) -> Result<&str, VariableError> {
        let small = name.to_ascii_lowercase();
        match (self.set.get(&small), find(name)) {
            (Some(value), _) => Ok(value),
            (None, Ok(known)) => Ok(known.default),
            (None, Err(error)) => Err(error),
        }
    }

    /// Sets a setting. Returns its report to the client, if any.
    ///
    /// # Errors
    /// When no setting has this name, or the value is not allowed.
    pub fn set(
        &mut self,
        name: &str,
        value: &str,
    ) -> Result<Option<(&'static str, String)>, VariableError> {
        let small = name.to_ascii_lowercase();
        if small.contains('.') {
            // Tools store their own settings in sessions.
            self.set.insert(small, value.to_owned());
            return Ok(None);
        }
        let known = find(name)?;
        let wrong = |allowed| VariableError::Value {
            name: name.to_owned(),
            value: value.to_owned(),
            allowed,
        };
        let value = match known.kind {
            Kind::Fixed => return Err(VariableError::Fixed(name.to_owned())),
            Kind::Any => value.to_owned(),
            Kind::One(words, allowed) => {
                let first = value
                    .split([',', ' '])
                    .next()
                    .unwrap_or_default()
                    .to_ascii_lowercase();
                if !words.contains(&first.as_str()) {
                    return Err(wrong(allowed));
                }
                known.default.to_owned()
            }
            Kind::Switch => match value.trim().to_ascii_lowercase().as_str() {
                "on" | "true" | "yes" | "1" => "on".to_owned(),
                "off" | "false" | "no" | "0" => "off".to_owned(),
                _ => return Err(wrong("on or off")),
            },
            Kind::Zone if is_default(value) => self.default_of(known).to_owned(),
            Kind::Zone => match Zone::read(value) {
                Ok(zone) => zone.name().to_owned(),
                Err(_) => return Err(wrong(UnknownZone::FORMS)),
            },
            Kind::Milliseconds => match milliseconds(value) {
                Some(ms) => ms.to_string(),
                None => {
                    return Err(wrong(
                        "a number of milliseconds, or one with ms, s, min or h",
                    ));
                }
            },
        };
        self.set.insert(small, value.clone());
        if matches!(known.kind, Kind::Zone) {
            self.renew_zone();
        }
        Ok(known.told.then(|| (shown(known.name), value)))
    }

    /// Resets a setting to its value at the beginning of the session. Returns its report to the
    /// client, if any.
    ///
    /// # Errors
    /// When no setting has this name.
    pub fn reset(&mut self, name: &str) -> Result<Option<(&'static str, String)>, VariableError> {
        let small = name.to_ascii_lowercase();
        let first = self.first.get(&small).cloned();
        if small.contains('.') {
            match first {
                Some(value) => self.set.insert(small, value),
                None => self.set.remove(&small),
            };
            return Ok(None);
        }
        let known = find(name)?;
        if !matches!(known.kind, Kind::Fixed) {
            match first {
                Some(value) => self.set.insert(small, value),
                None => self.set.remove(&small),
            };
        }
        self.renew_zone();
        Ok(known
            .told
            .then(|| (shown(known.name), self.default_of(known).to_owned())))
    }

    /// Resets all settings to the values from the start of the session.
    pub fn reset_all(&mut self) {
        self.set.clone_from(&self.first);
        self.renew_zone();
    }

    /// True when times are sent with nanoseconds.
    #[must_use]
    pub fn nanoseconds(&self) -> bool {
        self.get("nanoseconds") == Ok("on")
    }

    /// The time limit of a statement, if the session sets one.
    #[must_use]
    pub fn statement_timeout(&self) -> Option<Duration> {
        let ms = self.get("statement_timeout").ok()?.parse().ok()?;
        (ms > 0).then(|| Duration::from_millis(ms))
    }

    /// The settings that are reported to clients at the start.
    pub fn told(&self) -> impl Iterator<Item = (&'static str, &str)> {
        KNOWN.iter().filter(|known| known.told).map(|known| {
            let value = self
                .set
                .get(known.name)
                .map_or(known.default, String::as_str);
            (shown(known.name), value)
        })
    }

    /// All settings: name, value and description.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &str, &'static str)> {
        KNOWN.iter().map(|known| {
            let value = self
                .set
                .get(known.name)
                .map_or(known.default, String::as_str);
            (shown(known.name), value, known.about)
        })
    }
}

/// Words for the zone that a session began with.
fn is_default(zone: &str) -> bool {
    ["default", "local"].contains(&zone.to_ascii_lowercase().as_str())
}

fn milliseconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..end].parse().ok()?;
    number.checked_mul(match text[end..].trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn settings_are_obeyed_harmless_or_refused() {
        let mut variables = Variables::new("ann", false);
        variables.begin();
        assert_eq!(variables.get("DateStyle"), Ok("ISO, MDY"));
        assert_eq!(
            variables.set("datestyle", "ISO"),
            Ok(Some(("DateStyle", "ISO, MDY".to_owned())))
        );
        assert_eq!(variables.set("statement_timeout", "2min"), Ok(None));
        assert_eq!(
            variables.statement_timeout(),
            Some(Duration::from_secs(120))
        );
        assert_eq!(variables.set("my.thing", "x"), Ok(None));
        assert_eq!(variables.get("my.thing"), Ok("x"));
        for (name, value, sqlstate) in [
            ("TimeZone", "Europe/Nowhere", "22023"),
            ("bytea_output", "escape", "22023"),
            ("client_encoding", "LATIN1", "22023"),
            ("server_version", "1", "55P02"),
            ("no_such", "1", "42704"),
            ("statement_timeout", "-1", "22023"),
        ] {
            let error = variables.set(name, value).unwrap_err();
            assert_eq!(error.sqlstate(), sqlstate, "{error}");
        }
        variables.reset_all();
        assert_eq!(variables.statement_timeout(), None);
        assert_eq!(variables.get("session_authorization"), Ok("ann"));
        assert!(variables.get("my.thing").is_err());
    }

    #[test]
    fn settings_go_back_to_what_the_session_began_with() {
        let mut variables = Variables::new("ann", false);
        assert!(variables.set("TimeZone", "america/new_york").is_ok());
        assert!(variables.set("my.thing", "x").is_ok());
        variables.begin();
        let told = |name: &str| Ok(Some(("TimeZone", name.to_owned())));
        assert_eq!(variables.set("timezone", "-7"), told("<-07>+07"));
        assert_eq!(variables.zone().offset_seconds(0), -7 * 3_600);
        assert_eq!(
            variables.set("timezone", "Europe/Berlin"),
            told("Europe/Berlin")
        );
        assert_eq!(variables.get("timezone"), Ok("Europe/Berlin"));
        let error = variables.set("timezone", "+02:00").unwrap_err().to_string();
        assert!(
            error.contains("\"timezone\"") && error.contains("Europe/Berlin"),
            "{error}"
        );
        assert_eq!(variables.zone().name(), "Europe/Berlin");
        assert_eq!(variables.set("timezone", "LOCAL"), told("America/New_York"));
        assert_eq!(variables.set("my.thing", "y"), Ok(None));
        assert_eq!(variables.set("timezone", "UTC"), told("UTC"));
        assert_eq!(variables.reset("TimeZone"), told("America/New_York"));
        variables.set("timezone", "Asia/Tokyo").unwrap();
        variables.reset_all();
        assert_eq!(variables.zone().name(), "America/New_York");
        assert_eq!(variables.get("my.thing"), Ok("x"));
    }
}
