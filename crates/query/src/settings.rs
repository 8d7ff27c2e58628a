//! Settings of a session, changed with `SET` and shown by `SHOW`.

use crate::error::{Error, Result, with_suggestion};
use datafusion::common::config::{ConfigExtension, ConfigOptions};
use datafusion::common::extensions_options;
use headwater_wire::zone::Zone;

/// The settings of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Settings {
    /// Answer aggregates from the pyramid where that is exact.
    pub(crate) use_pyramid: bool,
    /// Time zone in which text without an offset is read, and days begin.
    pub(crate) zone: Zone,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            use_pyramid: true,
            zone: Zone::utc(),
        }
    }
}

extensions_options! {
    /// Options for rules of the planner.
    pub(crate) struct Switches {
        /// Answer aggregates from the pyramid where that is exact.
        pub(crate) use_pyramid: bool, default = true
        /// The session's time zone, by its name.
        pub(crate) zone: String, default = "UTC".to_owned()
    }
}

impl ConfigExtension for Switches {
    const PREFIX: &'static str = "headwater";
}

/// Names of settings, with their descriptions.
pub(crate) const NAMES: [(&str, &str); 2] = [
    (
        "headwater.use_pyramid",
        "answer aggregates from stored ones where that is exact (on or off)",
    ),
    (
        "timezone",
        "time zone of timestamps without an offset, of days, of parts of times and of date_trunc",
    ),
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
            "timezone" => Ok(self.zone.name().to_owned()),
            _ => Err(unknown(name)),
        }
    }

    /// Changes a setting; `None` = reset to its default.
    pub(crate) fn set(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        let default = Settings::default();
        match (name, value) {
            ("headwater.use_pyramid", None) => self.use_pyramid = default.use_pyramid,
            ("headwater.use_pyramid", Some(value)) => self.use_pyramid = switch(name, value)?,
            ("timezone", None) => self.zone = default.zone,
            ("timezone", Some(value)) if value.eq_ignore_ascii_case("default") => {
                self.zone = default.zone;
            }
            ("timezone", Some(value)) => {
                self.zone = Zone::read(value).map_err(|why| {
                    let mut error = Error::unknown_zone(&why);
                    error.message = format!("`timezone`: {}", error.message);
                    error
                })?;
            }
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    pub(crate) fn apply(&self, options: &mut ConfigOptions) {
        options.extensions.insert(Switches {
            use_pyramid: self.use_pyramid,
            zone: self.zone.name().to_owned(),
        });
    }
}

fn switch(name: &str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Ok(true),
        "off" | "false" | "no" | "0" => Ok(false),
        _ => Err(Error::invalid_value(format!(
            "`{name}` must be on or off, found `{value}`"
        ))),
    }
}
