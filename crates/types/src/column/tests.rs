//! Columns preserve values and absent rows.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn integers(values: &[Option<i64>]) -> Column {
    let mut column = Column::new(FieldType::I64);
    for value in values {
        match value {
            Some(v) => assert!(column.push(ValueRef::I64(*v))),
            None => column.push_absent(1),
        }
    }
    column
}

#[test]
fn a_value_of_another_type_is_refused_and_changes_nothing() {
    let mut column = integers(&[Some(1)]);
    assert!(!column.push(ValueRef::F64(1.0)));
    assert_eq!(column.to_values(), [Some(Value::I64(1))]);
}

#[test]
fn slices_gathers_and_joins_keep_values_and_gaps() {
    let column = integers(&[Some(1), None, Some(3), Some(4), None]);
    assert_eq!(column.present_count(), 3);
    assert_eq!(column.slice(1..4), integers(&[None, Some(3), Some(4)]));
    assert!(column.slice(2..4).presence().is_none());
    assert_eq!(
        column.gather(&[4, 0, 2]),
        integers(&[None, Some(1), Some(3)])
    );
    let mut joined = column.slice(0..1);
    joined.extend_from(&column, 1..5);
    assert_eq!(joined, column);
}

#[test]
fn a_widened_column_joins_its_integers() {
    let integers = integers(&[Some(1), None]);
    let floats = Column::from_values(Values::F64(vec![0.5]));
    let (mut a, mut b) = (integers.clone(), floats.clone());
    a.extend_from(&floats, 0..1);
    b.extend_from(&integers, 0..2);
    assert_eq!(
        a.to_values(),
        [Some(Value::F64(1.0)), None, Some(Value::F64(0.5))]
    );
    assert_eq!(
        b.to_values(),
        [Some(Value::F64(0.5)), Some(Value::F64(1.0)), None]
    );
}

#[test]
fn strings_that_split_a_character_are_refused() {
    let text = |ends: &[u32]| VarBytes::from_parts(ends.to_vec(), "aö".into()).unwrap();
    assert!(Column::from_parts(Values::String(text(&[1, 3])), None).is_some());
    assert!(Column::from_parts(Values::String(text(&[2, 3])), None).is_none());
    assert!(Column::from_parts(Values::Bytes(text(&[2, 3])), None).is_some());
    assert!(VarBytes::from_parts(vec![2, 1], vec![0]).is_none());
    assert!(VarBytes::from_parts(vec![2], vec![0]).is_none());
}

#[test]
fn strings_join_by_ranges() {
    let text = VarBytes::from_parts(vec![1, 1, 4, 6], b"abcdef".to_vec()).unwrap();
    let mut out = VarBytes::new();
    out.push(b"x");
    out.extend_from(&text, 1..3);
    out.extend_from(&text, 3..6);
    let found: Vec<&[u8]> = (0..out.len()).map(|i| out.get(i)).collect();
    assert_eq!(found, [b"x".as_slice(), b"", b"bcd", b"ef", b"", b""]);
}
