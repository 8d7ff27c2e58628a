//! Settings from keyword arguments.

use crate::errors::{Outcome, Problem};
use headwater::settings::{Setting, SettingKind, SettingValue};
use headwater::{Durability, Options};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::time::Duration;

/// A span of time from seconds.
pub(crate) fn seconds(what: &str, value: f64) -> Outcome<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| Problem::invalid(format!("{what}: expected 0 or more seconds, found {value}")))
}

/// `synced`, `written`, or a number of seconds.
fn durability(value: &Bound<'_, PyAny>) -> Outcome<Durability> {
    if let Ok(every) = value.extract::<f64>() {
        return Ok(Durability::Every(seconds("durability", every)?));
    }
    match value.extract::<String>()?.as_str() {
        "synced" => Ok(Durability::Synced),
        "written" => Ok(Durability::Written),
        other => Err(Problem::invalid(format!(
            "durability: expected 'synced', 'written' or the seconds between syncs, found {other:?}"
        ))),
    }
}

/// The settings of a database in `path`; those not named have their defaults.
pub(crate) fn options(path: PathBuf, settings: Option<&Bound<'_, PyDict>>) -> Outcome<Options> {
    let mut options = Options::new(path);
    let Some(settings) = settings else {
        return Ok(options);
    };
    for (key, value) in settings {
        let key: String = key.extract()?;
        match key.as_str() {
            "must_exist" => {
                options.must_exist = value.extract()?;
                continue;
            }
            "fast_dir" => {
                options.fast_dir = Some(value.extract()?);
                continue;
            }
            "fast_parts" => {
                let text: String = value.extract()?;
                options.fast_parts = text
                    .parse()
                    .map_err(|error: headwater::Error| Problem::invalid(error.to_string()))?;
                continue;
            }
            _ => {}
        }
        // Only the budget has another name here.
        let field = match key.as_str() {
            "memory_budget" => "memory_budget_bytes",
            other => other,
        };
        let Some(setting) = Setting::by_field(field) else {
            return Err(Problem::invalid(format!(
                "unknown setting {key:?}; see help(headwater.open)"
            )));
        };
        let value = read(setting, &key, &value)?;
        setting
            .set(&mut options, value)
            .map_err(|error| Problem::invalid(error.to_string()))?;
    }
    Ok(options)
}

/// A setting's value of a Python object; lengths of time are seconds.
fn read(setting: &Setting, key: &str, value: &Bound<'_, PyAny>) -> Outcome<SettingValue> {
    Ok(match &setting.kind {
        SettingKind::Bytes { .. } | SettingKind::Count(_) => SettingValue::Number(value.extract()?),
        SettingKind::Span { .. } => {
            let found: Option<f64> = value.extract()?;
            SettingValue::Span(found.map(|s| seconds(key, s)).transpose()?)
        }
        SettingKind::Durability(_) => SettingValue::Durability(durability(value)?),
        SettingKind::Policy => {
            let text: String = value.extract()?;
            let policy = text
                .parse()
                .map_err(|e| Problem::invalid(format!("{key}: {e}")))?;
            SettingValue::Policy(policy)
        }
        SettingKind::Choice(_) => SettingValue::Choice(value.extract()?),
    })
}
