//! Inference of a column's type from its cells.
//!
//! Rule: `true` and `false` alone make bool; integers make i64, or u64 when one is beyond i64 and
//! no other is below zero; a point, an exponent, minus zero, NaN or an infinity among numbers makes
//! f64; everything else, and any mixture, is a string. Texts that lose information as a number
//! (leading zeros, a plus sign, more digits than u64 holds) are strings. Where the table has the
//! field already, its type precedes the inferred type, except that numbers of another type are
//! allowed for integers: the table decides whether the field can store them, or widens.

use crate::number::{Shape, shape_of};
use headwater_types::FieldType;

/// Longer texts are not treated as a marker for absent values.
const LONE_TEXT_BYTES_MAX: usize = 12;

/// Knowledge about the type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnType {
    /// Declared by the user.
    Declared(FieldType),
    /// The first rows look so.
    Inferred(FieldType),
    /// The table has this type, and the first rows look different.
    Existing(FieldType),
    /// No value yet.
    Unknown,
}

impl ColumnType {
    /// The type of an inferred kind where the table has the field with this type.
    pub(super) fn in_table(self, known: FieldType) -> ColumnType {
        use FieldType::{F64, I64, U64};
        match (known, self) {
            (I64 | U64, ColumnType::Inferred(I64 | U64 | F64)) => self,
            (I64 | U64, ColumnType::Unknown) => ColumnType::Inferred(known),
            (_, ColumnType::Inferred(inferred)) if inferred == known => self,
            _ => ColumnType::Existing(known),
        }
    }
}

/// Shapes found in one column.
#[derive(Debug, Default)]
pub(super) struct Votes {
    boolean: bool,
    negative: bool,
    signed: bool,
    unsigned: bool,
    float: bool,
    not_finite: bool,
    text: bool,
    numbers: u64,
    /// The first text, and whether all texts were the same.
    first_text: Vec<u8>,
    has_other_texts: bool,
}

impl Votes {
    /// Takes in a cell that has a value.
    pub(super) fn add(&mut self, cell: &[u8]) {
        let shape = shape_of(cell.trim_ascii());
        self.numbers += u64::from(matches!(
            shape,
            Shape::I64(_) | Shape::U64(_) | Shape::F64(_)
        ));
        match shape {
            Shape::Bool(_) => self.boolean = true,
            Shape::I64(value) => {
                self.signed = true;
                self.negative |= value < 0;
            }
            Shape::U64(_) => self.unsigned = true,
            Shape::F64(_) => self.float = true,
            Shape::NotFinite(_) => self.not_finite = true,
            Shape::Text => self.add_text(cell),
        }
    }

    /// Counts a cell as text, whatever its shape.
    pub(super) fn add_text(&mut self, cell: &[u8]) {
        if !self.text {
            self.first_text = cell
                .get(..cell.len().min(LONE_TEXT_BYTES_MAX + 1))
                .unwrap_or_default()
                .to_vec();
        }
        self.has_other_texts |= self.first_text != cell;
        self.text = true;
    }

    /// The only text among numbers, such as `NA`, when it is unique and short.
    pub(super) fn lone_text(&self) -> Option<&str> {
        let is_lone = self.text
            && !self.has_other_texts
            && self.numbers > 0
            && self.first_text.len() <= LONE_TEXT_BYTES_MAX
            && !self.first_text.iter().any(u8::is_ascii_digit);
        std::str::from_utf8(&self.first_text)
            .ok()
            .filter(|_| is_lone)
    }

    pub(super) fn kind(&self) -> ColumnType {
        let is_number = self.signed || self.unsigned || self.float || self.not_finite;
        let field_type = if self.text || (self.boolean && is_number) {
            FieldType::String
        } else if self.boolean {
            FieldType::Bool
        } else if self.float || self.not_finite {
            FieldType::F64
        } else if self.unsigned && self.negative {
            FieldType::String
        } else if self.unsigned {
            FieldType::U64
        } else if self.signed {
            FieldType::I64
        } else {
            return ColumnType::Unknown;
        };
        ColumnType::Inferred(field_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cells: &[&str], expected: Option<FieldType>) {
        let mut votes = Votes::default();
        for cell in cells {
            votes.add(cell.as_bytes());
        }
        let expected = expected.map_or(ColumnType::Unknown, ColumnType::Inferred);
        assert_eq!(votes.kind(), expected, "{cells:?}");
    }

    #[test]
    fn a_tables_type_goes_before_what_cells_look_like() {
        use FieldType::{Bool, F64, I64, String, U64};
        for (cells, known, expected) in [
            (&["1.5", "NA"][..], F64, ColumnType::Existing(F64)),
            (&["1", "2"], F64, ColumnType::Existing(F64)),
            (&["1.5"], F64, ColumnType::Inferred(F64)),
            (&[], F64, ColumnType::Existing(F64)),
            (&["1.5"], I64, ColumnType::Inferred(F64)),
            (&["18446744073709551615"], I64, ColumnType::Inferred(U64)),
            (&["7"], U64, ColumnType::Inferred(I64)),
            (&[], I64, ColumnType::Inferred(I64)),
            (&["7", "x"], I64, ColumnType::Existing(I64)),
            (&["7"], String, ColumnType::Existing(String)),
            (&["true", "maybe"], Bool, ColumnType::Existing(Bool)),
        ] {
            let mut votes = Votes::default();
            cells.iter().for_each(|cell| votes.add(cell.as_bytes()));
            assert_eq!(votes.kind().in_table(known), expected, "{cells:?} {known}");
        }
    }

    #[test]
    fn a_mark_for_absent_values_is_noticed() {
        let lone = |cells: &[&str]| {
            let mut votes = Votes::default();
            cells.iter().for_each(|cell| votes.add(cell.as_bytes()));
            votes.lone_text().map(str::to_owned)
        };
        assert_eq!(lone(&["1", "NA", "2.5", "NA"]), Some("NA".to_owned()));
        assert_eq!(lone(&["NA", "1"]), Some("NA".to_owned()));
        assert_eq!(lone(&["1", "NA", "none"]), None);
        assert_eq!(lone(&["NA", "NA"]), None);
        assert_eq!(lone(&["12", "0012"]), None);
    }

    #[test]
    fn columns_get_the_narrowest_type_that_loses_nothing() {
        check(&[], None);
        check(&["1", "-2"], Some(FieldType::I64));
        check(&["1", "18446744073709551615"], Some(FieldType::U64));
        check(&["-1", "18446744073709551615"], Some(FieldType::String));
        check(&["1", " 2.5"], Some(FieldType::F64));
        check(&["1", "NaN"], Some(FieldType::F64));
        check(&["true", "false"], Some(FieldType::Bool));
        check(&["true", "1"], Some(FieldType::String));
        check(&["True"], Some(FieldType::String));
        check(&["12", "0012"], Some(FieldType::String));
        check(&["07000048", "D2010048"], Some(FieldType::String));
        check(&["1e5", "1e5abc"], Some(FieldType::String));
        check(&["0.5", ".5", "5.", "1e-7"], Some(FieldType::F64));
        check(&["99999999999999999999"], Some(FieldType::String));
    }
}
