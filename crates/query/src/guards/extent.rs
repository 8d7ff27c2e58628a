//! Sizes of values, without visiting each of them.
//!
//! Invariant: an extent is the size of the values themselves, not of the buffers that they share
//! with other values.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ColumnarValue;

/// Bytes of the values of an array between two rows.
pub(super) fn extent(array: &dyn Array, from: usize, to: usize) -> usize {
    let rows = to.saturating_sub(from);
    let within = |offsets: &OffsetBuffer<i32>| {
        let at = |row: usize| {
            let offset = offsets.get(row).copied().unwrap_or(0);
            usize::try_from(offset).unwrap_or(0)
        };
        (at(from), at(to))
    };
    let within_large = |offsets: &OffsetBuffer<i64>| {
        let at = |row: usize| {
            let offset = offsets.get(row).copied().unwrap_or(0);
            usize::try_from(offset).unwrap_or(0)
        };
        (at(from), at(to))
    };
    let between = |(begin, end): (usize, usize)| end.saturating_sub(begin);
    let lists = |values: &ArrayRef, (begin, end): (usize, usize)| {
        let places = between((begin, end)).saturating_mul(place_bytes(values));
        let places = places.saturating_add(rows.saturating_mul(4));
        extent(values, begin, end).saturating_add(places)
    };
    match array.data_type() {
        DataType::Utf8 => between(within(array.as_string::<i32>().offsets())),
        DataType::Binary => between(within(array.as_binary::<i32>().offsets())),
        DataType::LargeUtf8 => between(within_large(array.as_string::<i64>().offsets())),
        DataType::LargeBinary => between(within_large(array.as_binary::<i64>().offsets())),
        DataType::Utf8View => views(array.as_string_view().views(), from, to),
        DataType::BinaryView => views(array.as_binary_view().views(), from, to),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            lists(list.values(), within(list.offsets()))
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            lists(list.values(), within_large(list.offsets()))
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let (begin, end) = within(map.offsets());
            extent(map.entries(), begin, end).saturating_add(rows.saturating_mul(4))
        }
        DataType::FixedSizeList(_, size) => {
            let list = array.as_fixed_size_list();
            let size = usize::try_from(*size).unwrap_or(0);
            extent(
                list.values(),
                from.saturating_mul(size),
                to.saturating_mul(size),
            )
        }
        DataType::FixedSizeBinary(size) => rows.saturating_mul(usize::try_from(*size).unwrap_or(0)),
        DataType::Struct(_) => {
            let columns = array.as_struct().columns().iter();
            columns.fold(rows, |sum, column| {
                sum.saturating_add(extent(column, from, to))
            })
        }
        DataType::Dictionary(key, _) => rows.saturating_mul(key.primitive_width().unwrap_or(8)),
        // A null or a bit becomes a word when it is printed.
        DataType::Null | DataType::Boolean => rows.saturating_mul(4),
        other => match other.primitive_width() {
            Some(width) => rows.saturating_mul(width),
            None => array
                .slice(from, rows)
                .to_data()
                .get_slice_memory_size()
                .unwrap_or(usize::MAX),
        },
    }
}

/// Bytes of the offsets of texts: for many short texts these are larger than the texts.
fn place_bytes(values: &ArrayRef) -> usize {
    match values.data_type() {
        DataType::Utf8 | DataType::Binary => 4,
        DataType::LargeUtf8 | DataType::LargeBinary => 8,
        _ => 0,
    }
}

fn views(views: &[u128], from: usize, to: usize) -> usize {
    let views = views.get(from..to).unwrap_or_default();
    // The lower half of a view is its length.
    let length = |view: &u128| usize::try_from(*view & u128::from(u32::MAX)).unwrap_or(0);
    views.iter().map(length).sum::<usize>() + views.len() * 16
}

/// Bytes of a batch.
pub(super) fn of_batch(batch: &RecordBatch) -> usize {
    let rows = batch.num_rows();
    batch.columns().iter().fold(0, |sum: usize, column| {
        sum.saturating_add(extent(column, 0, rows))
    })
}

/// True when values of this type have individual sizes.
pub(super) fn varies(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::List(_)
        | DataType::LargeList(_)
        | DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::Map(..)
        | DataType::Union(..)
        | DataType::RunEndEncoded(..) => true,
        DataType::Struct(fields) => fields.iter().any(|field| varies(field.data_type())),
        DataType::FixedSizeList(item, _) => varies(item.data_type()),
        _ => false,
    }
}

/// Upper bound of the bytes of a row of the batch, without fixed widths; computed exactly if it may
/// exceed `enough`.
pub(super) fn widest(batch: &RecordBatch, enough: usize) -> usize {
    let rows = batch.num_rows();
    let columns = || {
        let columns = batch.columns().iter();
        columns.filter(|column| varies(column.data_type()))
    };
    let all = columns().fold(0usize, |sum, column| {
        sum.saturating_add(extent(column, 0, rows))
    });
    if all <= enough {
        return all;
    }
    columns().fold(0, |sum: usize, column| {
        let widest = match column.data_type() {
            DataType::Utf8 => longest(column.as_string::<i32>().offsets()),
            DataType::Binary => longest(column.as_binary::<i32>().offsets()),
            _ => {
                let each = (0..rows).map(|row| extent(column, row, row + 1));
                each.max().unwrap_or(0)
            }
        };
        sum.saturating_add(widest)
    })
}

fn longest(offsets: &OffsetBuffer<i32>) -> usize {
    offsets.lengths().max().unwrap_or(0)
}

/// Bytes of one value.
pub(super) fn of_scalar(value: &ScalarValue) -> usize {
    match value {
        ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text) | ScalarValue::Utf8View(text) => {
            text.as_ref().map_or(0, String::len)
        }
        ScalarValue::Binary(bytes)
        | ScalarValue::LargeBinary(bytes)
        | ScalarValue::BinaryView(bytes)
        | ScalarValue::FixedSizeBinary(_, bytes) => bytes.as_ref().map_or(0, Vec::len),
        ScalarValue::List(array) => extent(array.as_ref(), 0, array.len()),
        ScalarValue::LargeList(array) => extent(array.as_ref(), 0, array.len()),
        ScalarValue::FixedSizeList(array) => extent(array.as_ref(), 0, array.len()),
        ScalarValue::Struct(array) => extent(array.as_ref(), 0, array.len()),
        ScalarValue::Map(array) => extent(array.as_ref(), 0, array.len()),
        ScalarValue::Dictionary(_, value) => of_scalar(value),
        _ => 16,
    }
}

/// Bytes of an argument or result of a function for `rows` rows.
pub(super) fn of_value(value: &ColumnarValue) -> usize {
    match value {
        ColumnarValue::Array(array) => extent(array, 0, array.len()),
        ColumnarValue::Scalar(value) => of_scalar(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ListArray, StringArray};
    use arrow::datatypes::Field;
    use std::sync::Arc;

    #[test]
    fn a_list_of_short_texts_takes_what_says_where_they_begin() {
        let texts = StringArray::from(vec!["x"; 1_000]);
        let item = Arc::new(Field::new("item", DataType::Utf8, true));
        let offsets = OffsetBuffer::from_lengths([1_000]);
        let list = ListArray::new(item, offsets, Arc::new(texts), None);
        let all = list.get_buffer_memory_size();
        let counted = extent(&list, 0, 1);
        assert!(counted >= 5_000 && counted <= all, "{counted} of {all}");
    }
}
