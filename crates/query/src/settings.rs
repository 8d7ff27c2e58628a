//! Settings of a session, changed with `SET` and told by `SHOW`.

use crate::error::{Error, Result, with_suggestion};
use datafusion::common::config::{ConfigExtension, ConfigOptions};
use datafusion::common::extensions_options;

/// The settings of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Settings {
    /// Answer aggregates from the pyramid where that is exact.
    pub(crate) use_pyramid: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { use_pyramid: true }
    }
}

extensions_options! {
    /// What rules of the planner look at.
    pub(crate) struct Switches {
        /// Answer aggregates from the pyramid where that is exact.
        pub(crate) use_pyramid: bool, default = true
    }
}

impl ConfigExtension for Switches {
    const PREFIX: &'static str = "headwater";
}

/// Names with what they mean.
pub(crate) const NAMES: [(&str, &str); 2] = [
    (
        "headwater.use_pyramid",
        "answer aggregates from stored ones where that is exact (on or off)",
    ),
    (
        "timezone",
        "the zone of instants written as text without one: always UTC",
    ),
];

/// What the one zone may be called. Another one would have to count wherever text becomes an instant, and back.
const UTC: [&str; 10] = [
    "utc",
    "gmt",
    "z",
    "zulu",
    "universal",
    "etc/utc",
    "+00:00",
    "+00",
    "0",
    "default",
];

fn unknown(name: &str) -> Error {
    let names = NAMES.map(|(name, _)| name);
    let error = Error::unknown_setting(format!("there is no setting `{name}`"));
    with_suggestion(error, name, &names)
}

impl Settings {
    /// The value of a setting.
    pub(crate) fn get(&self, name: &str) -> Result<String> {
        match name {
            "headwater.use_pyramid" => Ok(if self.use_pyramid { "on" } else { "off" }.to_owned()),
            "timezone" => Ok("UTC".to_owned()),
            _ => Err(unknown(name)),
        }
    }

    /// Changes a setting; `None` = back to its default.
    pub(crate) fn set(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        let default = Settings::default();
        match (name, value) {
            ("headwater.use_pyramid", None) => self.use_pyramid = default.use_pyramid,
            ("headwater.use_pyramid", Some(value)) => self.use_pyramid = switch(name, value)?,
            ("timezone", None) => {}
            ("timezone", Some(value)) if UTC.contains(&value.to_ascii_lowercase().as_str()) => {}
            ("timezone", Some(value)) => {
                return Err(Error::invalid_value(format!(
                    "the time zone is UTC and cannot be `{value}`"
                ))
                .with_hint("write instants with their offset, as in '2024-05-01T12:00:00+02:00'"));
            }
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    pub(crate) fn apply(&self, options: &mut ConfigOptions) {
        options.extensions.insert(Switches {
            use_pyramid: self.use_pyramid,
        });
    }
}

fn switch(name: &str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Ok(true),
        "off" | "false" | "no" | "0" => Ok(false),
        _ => Err(Error::invalid_value(format!(
            "`{name}` is on or off, found `{value}`"
        ))),
    }
}
