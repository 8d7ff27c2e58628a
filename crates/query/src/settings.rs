//! Settings of a session, changed with `SET` and told by `SHOW`.

use crate::error::{Error, Result, with_suggestion};
use datafusion::common::config::{ConfigExtension, ConfigOptions};
use datafusion::common::extensions_options;

/// The settings of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Settings {
    /// Answer aggregates from the pyramid where that is exact.
    pub(crate) use_pyramid: bool,
    /// The zone in which text without one is an instant, and in which instants are shown as text.
    pub(crate) time_zone: String,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            use_pyramid: true,
            time_zone: "+00:00".to_owned(),
        }
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
        "the zone of instants written as text without one, such as UTC or +02:00",
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
            "timezone" => Ok(self.time_zone.clone()),
            _ => Err(unknown(name)),
        }
    }

    /// Changes a setting; `None` = back to its default.
    pub(crate) fn set(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        let default = Settings::default();
        match (name, value) {
            ("headwater.use_pyramid", None) => self.use_pyramid = default.use_pyramid,
            ("headwater.use_pyramid", Some(value)) => self.use_pyramid = switch(name, value)?,
            ("timezone", None) => self.time_zone = default.time_zone,
            ("timezone", Some(value)) => {
                let zone = if value.eq_ignore_ascii_case("utc") || value == "Z" {
                    default.time_zone
                } else {
                    value.to_owned()
                };
                if zone.parse::<arrow::array::timezone::Tz>().is_err() {
                    return Err(Error::invalid_value(format!(
                        "`{value}` is no time zone: write UTC or an offset such as +02:00"
                    )));
                }
                self.time_zone = zone;
            }
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    pub(crate) fn apply(&self, options: &mut ConfigOptions) {
        options.execution.time_zone = Some(self.time_zone.clone());
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
