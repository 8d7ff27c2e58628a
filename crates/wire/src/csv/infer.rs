//! What type a column has, told from its cells.
//!
//! Rule: `true` and `false` alone make bool; integers make i64, or u64 when one lies beyond i64 and none below zero; a point,
//! an exponent, minus zero, NaN or an infinity among numbers makes f64; everything else, and any mixture, is a string.
//! Texts that lose something as a number (leading zeros, a plus sign, more digits than u64 holds) are strings.

use crate::number::{Shape, shape_of};
use headwater_codec::FieldType;

/// What is known about the type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The user said so.
    Declared(FieldType),
    /// The first rows look so.
    Inferred(FieldType),
    /// No value yet.
    Unknown,
}

/// The shapes met in one column.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Votes {
    boolean: bool,
    negative: bool,
    signed: bool,
    unsigned: bool,
    float: bool,
    not_finite: bool,
    text: bool,
}

impl Votes {
    /// Takes in a cell that has a value.
    pub(super) fn add(&mut self, cell: &[u8]) {
        if self.text {
            return;
        }
        match shape_of(cell.trim_ascii()) {
            Shape::Bool(_) => self.boolean = true,
            Shape::I64(value) => {
                self.signed = true;
                self.negative |= value < 0;
            }
            Shape::U64(_) => self.unsigned = true,
            Shape::F64(_) => self.float = true,
            Shape::NotFinite(_) => self.not_finite = true,
            Shape::Text => self.text = true,
        }
    }

    pub(super) fn kind(self) -> Kind {
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
            return Kind::Unknown;
        };
        Kind::Inferred(field_type)
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
        let expected = expected.map_or(Kind::Unknown, Kind::Inferred);
        assert_eq!(votes.kind(), expected, "{cells:?}");
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
