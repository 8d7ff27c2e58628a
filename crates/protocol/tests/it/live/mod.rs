//! Live values over a bus: items as XML, what is published and heard, who may.

mod items;
mod listening;
mod lists;
mod publishing;
mod reconciling;

use headwater_protocol::live::FieldValue;
use headwater_types::{Timestamp, Value};

pub(crate) fn value(field: &str, time: i64, value: impl Into<Value>) -> FieldValue {
    FieldValue {
        field: field.to_owned(),
        time: Timestamp::from_nanos(time),
        value: value.into(),
    }
}
