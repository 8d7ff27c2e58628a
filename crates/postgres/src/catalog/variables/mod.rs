//! The settings of a session that PostgreSQL's clients set and ask for.
//!
//! Invariants: an accepted value takes effect, or is harmless without effect; a value that would
//! change the form of answers but is not supported is refused. `RESET` restores the values from the
//! start of the session, as in PostgreSQL.

mod definitions;

pub(crate) use definitions::SERVER_VERSION;

use definitions::{
    AllowedValues, DEFINITIONS, Definition, OWN_PREFIX, PARTIAL, USE_PYRAMID, find, shown,
};
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

/// True for a setting that a tool stores in its session: its name has a prefix, not this product's.
fn is_of_a_tool(name: &str) -> bool {
    name.contains('.') && !name.starts_with(OWN_PREFIX)
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
    fn default_of<'a>(&'a self, known: &Definition) -> &'a str {
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
        if is_of_a_tool(&small) {
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
            AllowedValues::Fixed => return Err(VariableError::Fixed(name.to_owned())),
            AllowedValues::Any => value.to_owned(),
            AllowedValues::OneOf(words, allowed) => {
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
            AllowedValues::Word(words, allowed) => {
                let small = value.trim().to_ascii_lowercase();
                if !words.contains(&small.as_str()) {
                    return Err(wrong(allowed));
                }
                small
            }
            AllowedValues::Switch => match value.trim().to_ascii_lowercase().as_str() {
                "on" | "true" | "yes" | "1" => "on".to_owned(),
                "off" | "false" | "no" | "0" => "off".to_owned(),
                _ => return Err(wrong("on or off")),
            },
            AllowedValues::Zone if is_default(value) => self.default_of(known).to_owned(),
            AllowedValues::Zone => match Zone::read(value) {
                Ok(zone) => zone.name().to_owned(),
                Err(_) => return Err(wrong(UnknownZone::FORMS)),
            },
            AllowedValues::Milliseconds => match milliseconds(value) {
                Some(ms) => ms.to_string(),
                None => {
                    return Err(wrong(
                        "a number of milliseconds, or one with ms, s, min or h",
                    ));
                }
            },
        };
        self.set.insert(small, value.clone());
        if matches!(known.kind, AllowedValues::Zone) {
            self.renew_zone();
        }
        Ok(known.is_reported.then(|| (shown(known.name), value)))
    }

    /// Resets a setting to its value at the beginning of the session. Returns its report to the
    /// client, if any.
    ///
    /// # Errors
    /// When no setting has this name.
    pub fn reset(&mut self, name: &str) -> Result<Option<(&'static str, String)>, VariableError> {
        let small = name.to_ascii_lowercase();
        let first = self.first.get(&small).cloned();
        if is_of_a_tool(&small) {
            match first {
                Some(value) => self.set.insert(small, value),
                None => self.set.remove(&small),
            };
            return Ok(None);
        }
        let known = find(name)?;
        if !matches!(known.kind, AllowedValues::Fixed) {
            match first {
                Some(value) => self.set.insert(small, value),
                None => self.set.remove(&small),
            };
        }
        self.renew_zone();
        Ok(known
            .is_reported
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

    /// Whether aggregates are answered from stored ones where that is exact.
    #[must_use]
    pub fn uses_pyramid(&self) -> bool {
        self.get(USE_PYRAMID) == Ok("on")
    }

    /// Whether answers may leave out copies that cannot be read.
    #[must_use]
    pub fn allows_partial(&self) -> bool {
        self.get(PARTIAL) == Ok("allow")
    }

    /// The time limit of a statement, if the session sets one.
    #[must_use]
    pub fn statement_timeout(&self) -> Option<Duration> {
        let ms = self.get("statement_timeout").ok()?.parse().ok()?;
        (ms > 0).then(|| Duration::from_millis(ms))
    }

    /// The settings that are reported to clients at the start.
    pub fn reported(&self) -> impl Iterator<Item = (&'static str, &str)> {
        DEFINITIONS
            .iter()
            .filter(|known| known.is_reported)
            .map(|known| {
                let value = self
                    .set
                    .get(known.name)
                    .map_or(known.default, String::as_str);
                (shown(known.name), value)
            })
    }

    /// All settings: name, value and description.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &str, &'static str)> {
        DEFINITIONS.iter().map(|known| {
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
