//! Texts of refused values: a value of another type, a number that its field cannot represent.
//! Every front end returns them; their codes are in `common/refused`.

use super::entry::EntryCheck;
use crate::common::refused::REFUSED_TYPE;
use crate::metadata::catalog::Table;
use headwater_types::{Column, FieldType, Values};

/// Refuses integers that a float field cannot represent.
pub(super) fn refuse_inexact(name: &str, column: &Column, accepting: &mut EntryCheck) {
    if let Values::I64(values) = column.values() {
        for (row, value) in values.iter().enumerate() {
            if column.is_present(row) && i128::from(*value) != (*value as f64) as i128 {
                accepting.refuse(row, REFUSED_TYPE, || {
                    format!("field `{name}` is f64, which cannot represent {value} exactly: write it as a float")
                });
            }
        }
    }
}

/// The refusal of a row whose value has another type than its field.
pub(super) fn mixed_types(
    table: &Table,
    name: &str,
    expected: FieldType,
    found: FieldType,
) -> String {
    format!(
        "field `{name}` of table `{}` is {expected}, found {found}: send {expected}, or use another field",
        table.name
    )
}
