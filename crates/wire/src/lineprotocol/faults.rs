//! Refusals that several parts of the parser share.

use crate::refusal::{Fault, RefusalCode, shown};

#[cold]
pub(crate) fn line_too_long(bytes_max: usize) -> Fault {
    Fault::new(
        RefusalCode::LimitLine,
        format!("the line is longer than {bytes_max} bytes"),
    )
}

#[cold]
pub(super) fn no_fields() -> Fault {
    Fault::new(
        RefusalCode::Parse,
        "expected field=value after the table and its tags, found the end of the line; a line needs at least one field",
    )
}

#[cold]
pub(super) fn not_utf8(what: &str, bytes: &[u8]) -> Fault {
    Fault::new(
        RefusalCode::Utf8,
        format!("{what} is not UTF-8: {}; send text as UTF-8", shown(bytes)),
    )
}
