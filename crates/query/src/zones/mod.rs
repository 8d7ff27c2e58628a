//! Time zones of sessions.
//!
//! Instants are stored, compared and computed in UTC, whatever a session's zone is, so that
//! conditions are pushed down unchanged. The zone matters where an instant is converted to local
//! time, or back: text without an offset, days, times of day and timestamps without zone, the parts
//! of `EXTRACT`, and the truncation of `date_trunc`. The SQL library, which supports only UTC
//! there, calls functions of this module instead.
//!
//! Invariants: in UTC statements are unchanged. Types of columns are the same in every zone.
//! Failure: an instant whose local time does not fit 64-bit nanoseconds is an error of the
//! statement.

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
use crate::functions::ZoneFunctions;
use crate::settings::Switches;

/// `timezone(zone, time)`, which is also written `AT TIME ZONE`.
pub(crate) fn timezone() -> Arc<ScalarUDF> {
    functions::timezone()
}

/// Functions of a time zone: local time, and intervals.
pub(crate) const ZONE_FUNCTIONS: ZoneFunctions = ZoneFunctions {
    shown: functions::convert,
    begin: functions::begin,
    first: functions::first,
};

/// The zone of the session for which a plan is made; `None` = UTC.
fn of_session(options: &ConfigOptions) -> datafusion::common::Result<Option<Zone>> {
    let Some(switches) = options.extensions.get::<Switches>() else {
        return Ok(None);
    };
    let zone = Zone::read(&switches.zone).map_err(|why| Error::unknown_zone(&why))?;
    Ok(Some(zone).filter(|zone| !zone.is_utc()))
}
