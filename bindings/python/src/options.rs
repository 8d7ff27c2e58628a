//! Settings from keyword arguments.

use crate::errors::{Outcome, Problem};
use headwater::{Durability, Options, PolicyChoice};
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

/// The settings of a database in `path`; those not named keep their defaults.
pub(crate) fn options(path: PathBuf, settings: Option<&Bound<'_, PyDict>>) -> Outcome<Options> {
    let mut options = Options::new(path);
    let Some(settings) = settings else {
        return Ok(options);
    };
    for (key, value) in settings {
        let key: String = key.extract()?;
        let value = &value;
        let optional_seconds = || -> Outcome<Option<Duration>> {
            let found: Option<f64> = value.extract()?;
            found.map(|s| seconds(&key, s)).transpose()
        };
        match key.as_str() {
            "must_exist" => options.must_exist = value.extract()?,
            "memory_budget" => options.memory_budget_bytes = value.extract()?,
            "shards" => options.shards = value.extract()?,
            "durability" => options.durability = durability(value)?,
            "late_policy" => {
                let text: String = value.extract()?;
                options.late_policy = text
                    .parse::<PolicyChoice>()
                    .map_err(|e| Problem::invalid(format!("late_policy: {e}")))?;
            }
            "late_merge_interval" => options.late_merge_interval = optional_seconds()?,
            "late_runs_max" => options.late_runs_max = value.extract()?,
            "partition_target_bytes" => options.partition_target_bytes = value.extract()?,
            "partition_bytes_max" => options.partition_bytes_max = value.extract()?,
            "leaf_events" => options.leaf_events = value.extract()?,
            "compaction_bytes_per_second" => {
                options.compaction_bytes_per_second = value.extract()?;
            }
            "compaction_bytes_per_day" => options.compaction_bytes_per_day = value.extract()?,
            "log_file_bytes" => options.log_file_bytes = value.extract()?,
            "busy_timeout" => {
                options.busy_timeout = seconds(&key, value.extract()?)?;
            }
            "batch_bytes_max" => options.batch_bytes_max = value.extract()?,
            "string_bytes_max" => options.string_bytes_max = value.extract()?,
            "tables_max" => options.tables_max = value.extract()?,
            "fields_max" => options.fields_max = value.extract()?,
            "streams_max" => options.streams_max = value.extract()?,
            "max_future" => options.max_future = optional_seconds()?,
            "reserve_bytes" => options.reserve_bytes = value.extract()?,
            "open_files_max" => options.open_files_max = value.extract()?,
            other => {
                return Err(Problem::invalid(format!(
                    "there is no setting {other:?}; see help(headwater.open)"
                )));
            }
        }
    }
    Ok(options)
}
