//! Values that end at an instant given with their write.
//!
//! Each field of a write that expires has a companion column with the instants, under a separate
//! field number. The companion follows the field's values everywhere, through the log, memory,
//! leaves, merges and buckets; so a value has the expiry of its own write, also after another write
//! has replaced its neighbours. Where two writes of a field have the same time the later one
//! counts, with its expiry or without one; the earlier value does not reappear when the later one
//! has expired. Source: the expiry of GOLSM's entries, by value instead of by entry.

use headwater_types::{Column, Extremes, FieldId, FieldType, Rows, Timestamp, Values};

/// Field numbers stay below it.
const COMPANION: u32 = 1 << 31;

/// The field number of a field's expiries.
pub(crate) fn expiry_of(field: FieldId) -> FieldId {
    FieldId(field.0 | COMPANION)
}

/// The field of these expiries, if the number is a companion's.
pub(crate) fn owner_of(field: FieldId) -> Option<FieldId> {
    (field.0 & COMPANION != 0).then_some(FieldId(field.0 & !COMPANION))
}

/// The fields and their companions, sorted ascending.
pub(crate) fn with_expiries(fields: &[FieldId]) -> Vec<FieldId> {
    let mut out: Vec<FieldId> = fields.iter().flat_map(|f| [*f, expiry_of(*f)]).collect();
    out.sort_unstable();
    out.dedup();
    out
}

/// Sets an expiry for every value of the rows.
pub(crate) fn add_expiry(rows: &mut Rows, at: Timestamp) {
    let mut added = Vec::with_capacity(rows.columns.len());
    for (field, column) in &rows.columns {
        let mut instants = Column::with_capacity(FieldType::I64, rows.times.len());
        for row in 0..column.len() {
            if column.is_present(row) {
                instants.push(headwater_types::ValueRef::I64(at.as_nanos()));
            } else {
                instants.push_absent(1);
            }
        }
        added.push((expiry_of(*field), instants));
    }
    rows.columns.append(&mut added);
    rows.columns.sort_by_key(|(f, _)| *f);
}

fn instant(expiries: &Column, row: usize) -> Option<Timestamp> {
    match expiries.values() {
        Values::I64(instants) if expiries.is_present(row) => {
            instants.get(row).map(|at| Timestamp::from_nanos(*at))
        }
        _ => None,
    }
}

/// Removes expired values, and rows that have lost all their values. Companions of remaining values
/// stay.
pub(crate) fn without_expired(rows: Rows, now: Timestamp) -> Rows {
    let count = rows.len();
    let has_expired =
        |expiries: &Column| (0..count).any(|r| instant(expiries, r).is_some_and(|i| i <= now));
    let touched: Vec<FieldId> = rows
        .columns
        .iter()
        .filter(|(f, column)| owner_of(*f).is_some() && has_expired(column))
        .map(|(f, _)| *f)
        .collect();
    if touched.is_empty() {
        return rows;
    }
    let mut lost = vec![false; count];
    let mut out = Rows {
        times: rows.times.clone(),
        columns: Vec::with_capacity(rows.columns.len()),
    };
    for (field, column) in &rows.columns {
        let companion = if owner_of(*field).is_some() {
            *field
        } else {
            expiry_of(*field)
        };
        let expiries = rows
            .column(companion)
            .filter(|_| touched.contains(&companion));
        let Some(expiries) = expiries else {
            out.columns.push((*field, column.clone()));
            continue;
        };
        let mut left = Column::with_capacity(column.field_type(), count);
        for row in 0..count {
            let expired = instant(expiries, row).is_some_and(|i| i <= now);
            match column.get(row) {
                Some(value) if !expired => {
                    left.push(value);
                }
                found => {
                    if let Some(lost) = lost.get_mut(row)
                        && found.is_some()
                    {
                        *lost = true;
                    }
                    left.push_absent(1);
                }
            }
        }
        out.columns.push((*field, left));
    }
    let empty = |row: usize| !out.columns.iter().any(|(_, c)| c.is_present(row));
    let stay: Vec<u32> = (0u32..)
        .zip(&lost)
        .filter(|(row, lost)| !(**lost && empty(*row as usize)))
        .map(|(row, _)| row)
        .collect();
    if stay.len() < count {
        out = out.gather(&stay);
    }
    out
}

/// Removes the companions: rows as readers get them.
pub(crate) fn without_companions(mut rows: Rows) -> Rows {
    rows.columns.retain(|(f, _)| owner_of(*f).is_none());
    rows
}

/// Span of the expiries of some rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExpirySpan {
    /// The smallest expiry; `None` = no value expires.
    pub(crate) first: Option<Timestamp>,
    /// The largest; meaningless when some value never expires.
    last: Option<Timestamp>,
    /// Some value never expires.
    some_never: bool,
}

impl ExpirySpan {
    /// The instant from which on all values have expired.
    pub(crate) fn end(&self) -> Option<Timestamp> {
        self.last.filter(|_| !self.some_never)
    }

    /// Includes more rows.
    pub(crate) fn add(&mut self, rows: &Rows) {
        for (field, column) in &rows.columns {
            if owner_of(*field).is_none() {
                let with = rows
                    .column(expiry_of(*field))
                    .map_or(0, Column::present_count);
                self.some_never |= with < column.present_count();
                continue;
            }
            for row in 0..column.len() {
                if let Some(instant) = instant(column, row) {
                    self.first = Some(self.first.map_or(instant, |f| f.min(instant)));
                    self.last = self.last.max(Some(instant));
                }
            }
        }
    }

    /// The joined span of previously stored rows and these.
    pub(crate) fn joined(self, first: Option<Timestamp>, end: Option<Timestamp>) -> ExpirySpan {
        ExpirySpan {
            first: match (self.first, first) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            },
            last: self.last.max(end),
            some_never: self.some_never || end.is_none(),
        }
    }
}

/// The smallest expiry in a bucket, from its aggregate of a companion.
pub(crate) fn first_expiry(extremes: Extremes) -> Option<Timestamp> {
    match extremes {
        Extremes::I64(first, _) => Some(Timestamp::from_nanos(first)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn rows(times: &[i64], a: &[f64]) -> Rows {
        Rows {
            times: times.to_vec(),
            columns: vec![(FieldId(3), Column::from_values(Values::F64(a.to_vec())))],
        }
    }

    #[test]
    fn values_go_when_their_time_has_come_and_rows_with_them() {
        let mut early = rows(&[1, 2], &[1.0, 2.0]);
        let ns = Timestamp::from_nanos;
        add_expiry(&mut early, ns(100));
        let mut all = rows(&[3], &[3.0]);
        all.extend_from(&early, 0..2);
        let at = |now| without_companions(without_expired(all.clone(), ns(now))).times;
        assert_eq!(at(99), [3, 1, 2]);
        assert_eq!(at(100), [3]);
        let mut span = ExpirySpan::default();
        span.add(&early);
        assert_eq!((span.first, span.end()), (Some(ns(100)), Some(ns(100))));
        span.add(&all);
        assert_eq!((span.first, span.end()), (Some(ns(100)), None));
        assert_eq!(span.joined(Some(ns(7)), Some(ns(8))).first, Some(ns(7)));
    }

    #[test]
    fn companions_are_numbers_of_their_own() {
        let field = FieldId(1023);
        assert_eq!(owner_of(expiry_of(field)), Some(field));
        assert_eq!(owner_of(field), None);
        assert_eq!(
            with_expiries(&[FieldId(1), FieldId(0)]),
            [
                FieldId(0),
                FieldId(1),
                expiry_of(FieldId(0)),
                expiry_of(FieldId(1))
            ]
        );
    }
}
