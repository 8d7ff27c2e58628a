//! Values of the engine's settings as text.
//!
//! Invariant: a shown value reads back as the same value.

use super::values::{parse_count, parse_duration, parse_size, show_duration, show_size};
use headwater::settings::{Setting, SettingKind, SettingValue};
use headwater::{Durability, Options};

const NO_VALUE: &str = "none";

/// Parses a value and sets it in the options.
pub(super) fn set(setting: &Setting, options: &mut Options, text: &str) -> Result<(), String> {
    let value = match &setting.kind {
        SettingKind::Bytes { or_none: true, .. } if text == NO_VALUE => SettingValue::Number(None),
        SettingKind::Bytes { .. } => SettingValue::Number(Some(parse_size(text)?)),
        SettingKind::Count(_) => SettingValue::Number(Some(parse_count(text)?)),
        SettingKind::Span { or_none: true, .. } if text == NO_VALUE => SettingValue::Span(None),
        SettingKind::Span { .. } => SettingValue::Span(Some(parse_duration(text)?)),
        SettingKind::Durability(_) => SettingValue::Durability(match text {
            "synced" => Durability::Synced,
            "written" => Durability::Written,
            _ => Durability::Every(parse_duration(text)?),
        }),
        SettingKind::Policy => SettingValue::Policy(
            text.parse()
                .map_err(|error: headwater::late::InvalidSetting| error.to_string())?,
        ),
        SettingKind::Choice(_) => SettingValue::Choice(text.to_owned()),
    };
    let out_of_range = |_| match &setting.kind {
        SettingKind::Bytes { .. } => "the size is out of range".to_owned(),
        SettingKind::Span { .. } | SettingKind::Durability(_) => {
            "the duration is out of range".to_owned()
        }
        SettingKind::Count(_) | SettingKind::Policy => format!("{text} is out of range"),
        SettingKind::Choice(words) => format!("{text} is not one of {}", words.join(", ")),
    };
    setting.set_within(options, value).map_err(out_of_range)
}

/// Shows a value, in the form that sets it.
pub(super) fn show(setting: &Setting, options: &Options) -> String {
    match (setting.get(options), &setting.kind) {
        (SettingValue::Number(None) | SettingValue::Span(None), _) => NO_VALUE.to_owned(),
        (SettingValue::Number(Some(bytes)), SettingKind::Bytes { .. }) => show_size(bytes),
        (SettingValue::Number(Some(number)), _) => number.to_string(),
        (SettingValue::Span(Some(span)), _) => show_duration(span),
        (SettingValue::Durability(durability), _) => match durability {
            Durability::Synced => "synced".to_owned(),
            Durability::Written => "written".to_owned(),
            Durability::Every(interval) => show_duration(interval),
        },
        (SettingValue::Policy(policy), _) => policy.to_string(),
        (SettingValue::Choice(word), _) => word,
    }
}
