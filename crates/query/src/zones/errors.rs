//! Errors of conversions between instants and local time of a zone.

use crate::error::Error;
use datafusion::common::DataFusionError;
use headwater_wire::zone::Zone;

/// `out_of_range`: an instant whose local time does not fit 64-bit nanoseconds.
pub(super) fn out_of_range(zone: &Zone) -> DataFusionError {
    let text = format!(
        "a local time is out of range in the time zone {}: it must be from 1677 to 2262",
        zone.name()
    );
    Error::out_of_range(text).into()
}
