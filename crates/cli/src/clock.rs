//! The clock of this machine, as instants.

use headwater::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

/// Now; 1970 before that.
pub(crate) fn now() -> Timestamp {
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX));
    Timestamp::from_nanos(nanos)
}
