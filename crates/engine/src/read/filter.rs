//! Value filters: on rows, and on aggregates to skip parts that cannot match.

use crate::metadata::catalog::Table;
use crate::storage::index::{FieldBounds, ValueBound};
use crate::{Error, Result};
use headwater_types::{
    Aggregate, Column, Extremes, FieldId, FieldType, Rows, Value, ValueRef, Values,
};
use std::cmp::Ordering;

/// Comparison of a field with a value.
///
/// The `Total` comparisons order all floats, as PostgreSQL does: NaN of either sign equals itself
/// and is above all numbers, and -0 equals 0. For other types they equal the plain comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    TotalEqual,
    TotalNotEqual,
    TotalLess,
    TotalLessOrEqual,
    TotalGreater,
    TotalGreaterOrEqual,
}

impl Comparison {
    /// The plain comparison, and true if floats are compared by their total order.
    fn plain(self) -> (Comparison, bool) {
        match self {
            Comparison::TotalEqual => (Comparison::Equal, true),
            Comparison::TotalNotEqual => (Comparison::NotEqual, true),
            Comparison::TotalLess => (Comparison::Less, true),
            Comparison::TotalLessOrEqual => (Comparison::LessOrEqual, true),
            Comparison::TotalGreater => (Comparison::Greater, true),
            Comparison::TotalGreaterOrEqual => (Comparison::GreaterOrEqual, true),
            plain => (plain, false),
        }
    }
}

/// A condition on one field. Rows without a value in the field never match, and neither does NaN
/// (except with [`Comparison::NotEqual`] and the comparisons by total order).
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// The field.
    pub field: String,
    /// The comparison.
    pub comparison: Comparison,
    /// The value to compare with, of the field's type; an i64 is accepted for an f64 field too.
    pub value: Value,
}

/// Alternative conditions, of which at least one must match; an empty clause matches no row.
#[derive(Clone, Debug)]
pub(crate) struct Clause {
    alternatives: Vec<Condition>,
}

impl Clause {
    /// The clauses of a scan: one for each filter, and one for each list of alternatives.
    pub(crate) fn all(
        filters: &[Filter],
        any_of: &[Vec<Filter>],
        table: &Table,
    ) -> Result<Vec<Clause>> {
        let plain = filters.iter().map(std::slice::from_ref);
        let lists = plain.chain(any_of.iter().map(Vec::as_slice));
        lists.map(|list| Clause::of(list, table)).collect()
    }

    fn of(filters: &[Filter], table: &Table) -> Result<Clause> {
        let alternatives = filters.iter().map(|filter| Condition::new(filter, table));
        Ok(Clause {
            alternatives: alternatives.collect::<Result<_>>()?,
        })
    }

    pub(crate) fn alternatives(&self) -> &[Condition] {
        &self.alternatives
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = FieldId> {
        self.alternatives.iter().map(|condition| condition.field)
    }

    /// The condition, if there is exactly one.
    pub(super) fn single(&self) -> Option<&Condition> {
        match &*self.alternatives {
            [one] => Some(one),
            _ => None,
        }
    }

    /// Retains in `picked`, which is sorted, the rows that match.
    pub(crate) fn retain(&self, rows: &Rows, picked: &mut Vec<u32>) {
        let retain =
            |condition: &Condition, picked: &mut Vec<u32>| match rows.column(condition.field) {
                Some(column) => condition.retain(column, picked),
                None => picked.clear(),
            };
        if let Some(one) = self.single() {
            return retain(one, picked);
        }
        // Each condition is evaluated for the rows that no earlier one has matched.
        let mut left = std::mem::take(picked);
        for condition in &self.alternatives {
            let mut taken = left.clone();
            retain(condition, &mut taken);
            if !taken.is_empty() {
                let mut next = taken.iter().peekable();
                left.retain(|row| next.next_if_eq(&row).is_none());
                picked.append(&mut taken);
            }
            if left.is_empty() {
                break;
            }
        }
        picked.sort_unstable();
    }

    /// False when no row can match, by the bounds of each field's values in `known`.
    pub(crate) fn may_match(&self, known: impl Fn(FieldId) -> Option<Aggregate>) -> bool {
        let mut all = self.alternatives.iter();
        all.any(|condition| condition.may_match(known(condition.field).as_ref()))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub(crate) field: FieldId,
    /// Always a plain comparison.
    comparison: Comparison,
    /// True when floats are compared by their total order.
    total: bool,
    value: Value,
}

impl Condition {
    pub(crate) fn new(filter: &Filter, table: &Table) -> Result<Condition> {
        let Some((id, field)) = table
            .field_id(&filter.field)
            .and_then(|id| Some((id, table.field(id)?)))
        else {
            return Err(Error::not_found(format!(
                "table `{}` has no field `{}`",
                table.name, filter.field
            )));
        };
        let value = match (field.field_type, &filter.value) {
            (FieldType::F64, Value::I64(v)) => Value::F64(*v as f64),
            (FieldType::U64, Value::I64(v)) if *v >= 0 => Value::U64(v.unsigned_abs()),
            (_, value) => value.clone(),
        };
        let found = value.as_ref().field_type();
        if found != field.field_type {
            return Err(Error::invalid(format!(
                "filter on `{}`: the field is {}, the value is {found}",
                filter.field, field.field_type
            )));
        }
        let (comparison, total) = filter.comparison.plain();
        Ok(Condition {
            field: id,
            comparison,
            total,
            value,
        })
    }

    /// Bounds of the values that match; `None` when matching values are on both sides of others.
    pub(super) fn bounds(&self) -> Option<FieldBounds<'_>> {
        let bound = |inclusive| {
            let value = self.value.as_ref();
            Some(ValueBound { value, inclusive })
        };
        let (low, high) = match self.comparison {
            Comparison::Equal => (bound(true), bound(true)),
            Comparison::Less => (None, bound(false)),
            Comparison::LessOrEqual => (None, bound(true)),
            Comparison::Greater => (bound(false), None),
            Comparison::GreaterOrEqual => (bound(true), None),
            _ => return None,
        };
        Some(FieldBounds {
            low,
            high,
            is_equal: self.comparison == Comparison::Equal,
        })
    }

    fn floats(&self, a: f64, b: f64) -> Option<Ordering> {
        let numbers = a.partial_cmp(&b);
        match self.total {
            true => numbers.or_else(|| Some(a.is_nan().cmp(&b.is_nan()))),
            false => numbers,
        }
    }

    fn accepts(&self, ordering: Option<Ordering>) -> bool {
        let Some(ordering) = ordering else {
            return self.comparison == Comparison::NotEqual;
        };
        match self.comparison {
            Comparison::Equal => ordering == Ordering::Equal,
            Comparison::NotEqual => ordering != Ordering::Equal,
            Comparison::Less => ordering == Ordering::Less,
            Comparison::LessOrEqual => ordering != Ordering::Greater,
            Comparison::Greater => ordering == Ordering::Greater,
            Comparison::GreaterOrEqual => ordering != Ordering::Less,
            // `plain` returns no other comparison.
            _ => true,
        }
    }

    /// Retains in `picked` the rows that match. Numbers are compared as slices, without a check of
    /// each value's type.
    fn retain(&self, column: &Column, picked: &mut Vec<u32>) {
        let presence = column.presence();
        let present = |row: u32| presence.is_none_or(|bits| bits.get(row as usize));
        macro_rules! numbers {
            ($values:expr, $holds:expr) => {
                picked.retain(|row| present(*row) && $values.get(*row as usize).is_some_and($holds))
            };
        }
        match (column.values(), &self.value) {
            (Values::F64(values), Value::F64(v)) => {
                numbers!(values, |x| self.accepts(self.floats(*x, *v)));
            }
            (Values::I64(values), Value::I64(v)) => {
                numbers!(values, |x| self.accepts(Some(x.cmp(v))));
            }
            (Values::U64(values), Value::U64(v)) => {
                numbers!(values, |x| self.accepts(Some(x.cmp(v))));
            }
            _ => picked.retain(|row| self.matches(column, *row as usize)),
        }
    }

    /// True when row `row` matches.
    fn matches(&self, column: &Column, row: usize) -> bool {
        let Some(value) = column.get(row) else {
            return false;
        };
        let ordering = match (value, self.value.as_ref()) {
            (ValueRef::F64(a), ValueRef::F64(b)) => self.floats(a, b),
            (ValueRef::I64(a), ValueRef::I64(b)) => Some(a.cmp(&b)),
            (ValueRef::U64(a), ValueRef::U64(b)) => Some(a.cmp(&b)),
            // The field was widened to floats: either operand may be older than that.
            (ValueRef::I64(a), ValueRef::F64(b)) => self.floats(a as f64, b),
            (ValueRef::F64(a), ValueRef::I64(b)) => self.floats(a, b as f64),
            (ValueRef::Bool(a), ValueRef::Bool(b)) => Some(a.cmp(&b)),
            (ValueRef::String(a), ValueRef::String(b)) => Some(a.cmp(b)),
            (ValueRef::Bytes(a), ValueRef::Bytes(b)) => Some(a.cmp(b)),
            _ => return false,
        };
        self.accepts(ordering)
    }

    /// False when no value in the aggregate can match. `None` = no value of the field.
    fn may_match(&self, aggregate: Option<&Aggregate>) -> bool {
        let Some(aggregate) = aggregate.filter(|a| a.count > 0) else {
            return false;
        };
        if aggregate.finite() < aggregate.count {
            return true;
        }
        let (low, high) = match (aggregate.extremes, self.value.as_ref()) {
            (Extremes::F64(min, max), ValueRef::F64(v)) => {
                (self.floats(min, v), self.floats(max, v))
            }
            (Extremes::I64(min, max), ValueRef::I64(v)) => (Some(min.cmp(&v)), Some(max.cmp(&v))),
            (Extremes::U64(min, max), ValueRef::U64(v)) => (Some(min.cmp(&v)), Some(max.cmp(&v))),
            (Extremes::I64(min, max), ValueRef::Bool(v)) => {
                (Some(min.cmp(&i64::from(v))), Some(max.cmp(&i64::from(v))))
            }
            _ => return true,
        };
        let (Some(low), Some(high)) = (low, high) else {
            return self.comparison == Comparison::NotEqual;
        };
        match self.comparison {
            Comparison::Equal => low != Ordering::Greater && high != Ordering::Less,
            Comparison::NotEqual => !(low == Ordering::Equal && high == Ordering::Equal),
            Comparison::Less => low == Ordering::Less,
            Comparison::LessOrEqual => low != Ordering::Greater,
            Comparison::Greater => high == Ordering::Greater,
            Comparison::GreaterOrEqual => high != Ordering::Less,
            _ => true,
        }
    }
}
