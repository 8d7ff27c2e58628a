//! Time zones of sessions.
//!
//! Instants are stored, compared and computed in UTC, whatever a session's zone is, so that what
//! the engine takes over stays the same. The zone counts where an instant becomes something that
//! clocks show, or the other way round: text without an offset, days, times of day and timestamps
//! without zone, the parts that `EXTRACT` takes, and what `date_trunc` cuts off. There the SQL
//! library, which knows UTC only here, is given functions of this module to call.
//!
//! Invariants: in UTC no statement is changed. Types of columns are the same in every zone.
//! Failure: an instant that has no time on the zone's clocks within 64-bit nanoseconds is an error
//! of the statement.

mod compare;
mod errors;
mod functions;
mod read;
mod rule;

use datafusion::config::ConfigOptions;
use datafusion::logical_expr::ScalarUDF;
use headwater_wire::zone::Zone;
use std::sync::Arc;

pub(crate) use compare::CompareInZone;
pub(crate) use read::cast_in;
pub(crate) use rule::InZone;

use crate::error::Error;
use crate::functions::Clocks;
use crate::settings::Switches;

/// `timezone(zone, time)`, which `AT TIME ZONE` is another way to write.
pub(crate) fn timezone() -> Arc<ScalarUDF> {
    functions::timezone()
}

/// Functions of the clocks of a zone: the time at an instant, and the intervals.
pub(crate) const CLOCKS: Clocks = Clocks {
    shown: functions::convert,
    begin: functions::begin,
    first: functions::first,
};

/// The zone of the session that a plan is made for; `None` = UTC.
fn of_session(options: &ConfigOptions) -> datafusion::common::Result<Option<Zone>> {
    let Some(switches) = options.extensions.get::<Switches>() else {
        return Ok(None);
    };
    let zone = Zone::read(&switches.zone).map_err(|why| Error::unknown_zone(&why))?;
    Ok(Some(zone).filter(|zone| !zone.is_utc()))
}
