//! One setting: its names, its allowed values, and its conversion from and to text.

use super::values::{parse_duration, parse_size, show_duration};
use super::{Settings, engine_text};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Entry of the table of settings.
#[derive(Debug)]
pub struct Setting {
    /// Name in the file; a dot separates section and key.
    pub key: &'static str,
    /// Kind of its value, as a help text shows it: `SIZE`, `DURATION`, `N`.
    pub kind: &'static str,
    /// Description of the allowed values.
    pub allowed: &'static str,
    /// Effect, in one or two sentences.
    pub about: &'static str,
    pub(super) codec: Codec,
}

/// Conversion of a setting from and to text.
#[derive(Debug)]
pub(super) enum Codec {
    /// Converted by separate functions.
    Own {
        set: fn(&mut Settings, &str) -> Result<(), String>,
        show: fn(&Settings) -> String,
    },
    /// As the engine describes it.
    Engine(&'static headwater::settings::Setting),
}

impl Setting {
    /// Flag without the leading dashes.
    #[must_use]
    pub fn flag(&self) -> String {
        self.key.replace(['.', '_'], "-")
    }

    /// Environment variable of the setting.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("HEADWATER_{}", self.key.replace('.', "_").to_uppercase())
    }

    /// Value, in the form that sets it.
    #[must_use]
    pub fn value(&self, settings: &Settings) -> String {
        match &self.codec {
            Codec::Own { show, .. } => show(settings),
            Codec::Engine(setting) => engine_text::show(setting, &settings.engine),
        }
    }

    /// Sets its value. The caller adds the allowed values to an error.
    ///
    /// # Errors
    /// Reason of the refusal.
    pub(super) fn set(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        match &self.codec {
            Codec::Own { set, .. } => set(settings, text),
            Codec::Engine(setting) => engine_text::set(setting, &mut settings.engine, text),
        }
    }

    /// True for an on/off setting, whose flag does not need a value.
    #[must_use]
    pub fn is_switch(&self) -> bool {
        self.kind == SWITCH
    }
}

pub(super) const SWITCH: &str = "true|false";

/// Checks a bound; the caller adds the allowed values to an error.
pub(super) fn within<T: PartialOrd + Display>(
    value: T,
    range: RangeInclusive<T>,
) -> Result<T, String> {
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(format!("{value} is out of range"))
    }
}

pub(super) fn size_within(text: &str, range: RangeInclusive<u64>) -> Result<usize, String> {
    let bytes = parse_size(text)?;
    if !range.contains(&bytes) {
        return Err("the size is out of range".to_owned());
    }
    usize::try_from(bytes).map_err(|_| "the size is out of range".to_owned())
}

pub(super) fn duration_within(
    text: &str,
    range: RangeInclusive<Duration>,
) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if range.contains(&duration) {
        Ok(duration)
    } else {
        Err("the duration is out of range".to_owned())
    }
}

/// Text for a duration that never ends.
const NEVER: &str = "never";

/// A duration within bounds, or `never`.
pub(super) fn or_never(
    text: &str,
    range: RangeInclusive<Duration>,
) -> Result<Option<Duration>, String> {
    match text {
        NEVER => Ok(None),
        _ => duration_within(text, range).map(Some),
    }
}

/// Such a length of time as text.
pub(super) fn show_or_never(found: Option<Duration>) -> String {
    found.map_or_else(|| NEVER.to_owned(), show_duration)
}
