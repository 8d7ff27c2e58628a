//! Encoding of a leaf: presence and values of each column, then the header in front of them.

use super::encoding_cache::EncodingCache;
use super::header::{self, Encoded};
use super::pages::Pages;
use super::{COLUMNS_MAX, PAGE_ROWS, ROWS_MAX, codec, floats, integers, presence, text};
use crate::pack::pack_bools;
use crate::presence::compact;
use headwater_types::Rows;
use headwater_types::{Column, Values};
use headwater_types::{FieldId, FieldType};

pub(super) fn leaf(rows: &Rows, encodings: &mut EncodingCache) -> Vec<u8> {
    assert!(rows.len() <= ROWS_MAX, "at most 65,536 rows in a leaf");
    assert!(
        rows.columns.len() <= COLUMNS_MAX,
        "at most 4,096 columns in a leaf"
    );
    let page_first_times: Vec<i64> = rows.times.iter().step_by(PAGE_ROWS).copied().collect();
    let mut columns = Vec::with_capacity(rows.columns.len() + 1);
    let pages = Pages::new(rows.len(), None);
    let mut payload = Vec::new();
    let codec = integers::put(
        &rows.times,
        &pages,
        &mut encodings.times().integers,
        &mut payload,
    );
    columns.push(Encoded {
        field: FieldId(0),
        field_type: FieldType::I64,
        presence: presence::ALL,
        codec,
        payload,
    });
    let mut last = None;
    for (field, value) in &rows.columns {
        assert!(last < Some(*field), "columns rise by field");
        last = Some(*field);
        assert!(
            value.len() == rows.len(),
            "columns are as long as the times"
        );
        columns.extend(column(*field, value, &pages, encodings));
    }
    header::write(rows.len(), &page_first_times, &columns)
}

/// Encodes a column; `None` if it has no present rows.
fn column(
    field: FieldId,
    column: &Column,
    all: &Pages,
    encodings: &mut EncodingCache,
) -> Option<Encoded> {
    let values = compact(column);
    if values.is_empty() {
        return None;
    }
    let mut payload = Vec::new();
    let presence = presence::put(column.presence(), &mut payload);
    let own;
    let pages = match column.presence() {
        None => all,
        bits => {
            own = Pages::new(column.len(), bits);
            &own
        }
    };
    let known = encodings.column(field);
    let out = &mut payload;
    let codec = match &*values {
        Values::F64(v) => floats::put(v, pages, known, out),
        Values::I64(v) => integers::put(v, pages, &mut known.integers, out),
        Values::U64(v) => {
            let signed: Vec<i64> = v.iter().map(|v| *v as i64).collect();
            integers::put(&signed, pages, &mut known.integers, out)
        }
        Values::Bool(v) => bools(v, out),
        Values::String(v) | Values::Bytes(v) => text::put(v, pages, out),
    };
    Some(Encoded {
        field,
        field_type: column.field_type(),
        presence,
        codec,
        payload,
    })
}

fn bools(values: &[bool], out: &mut Vec<u8>) -> u8 {
    if let Some((first, rest)) = values.split_first()
        && rest.iter().all(|v| v == first)
    {
        out.push(u8::from(*first));
        return codec::CONSTANT;
    }
    pack_bools(values, out);
    codec::BITS
}
