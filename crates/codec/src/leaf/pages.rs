//! Values of a column in each page, when only present values are stored: prefix sums of the number
//! of present values before each page, the last of which is the total.

use super::PAGE_ROWS;
use crate::bytes::{Cursor, DecodeError};
use crate::pack::{put_integers, take_integers};
use headwater_types::Bitmap;
use std::ops::Range;

/// Numbers of values before each page, and in all.
///
/// Invariant: `starts` begins with 0 and ascends in steps of at most 256.
#[derive(Debug)]
pub(super) struct Pages {
    starts: Vec<usize>,
}

/// Values to read of a column, and the pages that contain them.
#[derive(Debug)]
pub(super) struct Selection {
    /// Values, by index among the present ones.
    pub(super) values: Range<usize>,
    /// Pages to decode.
    pub(super) pages: Range<usize>,
}

impl Pages {
    pub(super) fn new(rows: usize, presence: Option<&Bitmap>) -> Pages {
        let mut starts = vec![0];
        let mut total = 0;
        for first in (0..rows).step_by(PAGE_ROWS) {
            let page = first..(first + PAGE_ROWS).min(rows);
            total += match presence {
                None => page.len(),
                Some(bits) => bits.count_ones_in(page),
            };
            starts.push(total);
        }
        Pages { starts }
    }

    /// Values in all pages.
    pub(super) fn total(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Values of page `page`.
    pub(super) fn values_of(&self, page: usize) -> Range<usize> {
        match self.starts.get(page..page + 2) {
            Some([from, to]) => *from..*to,
            _ => 0..0,
        }
    }

    /// Values of each page that has any.
    pub(super) fn filled(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.starts.windows(2).filter_map(|pair| match pair {
            [from, to] if from < to => Some(*from..*to),
            _ => None,
        })
    }

    /// Selects the values of rows `rows`.
    pub(super) fn selection(&self, rows: Range<usize>, presence: Option<&Bitmap>) -> Selection {
        let values = match presence {
            None => rows.clone(),
            Some(bits) => {
                let page = rows.start / PAGE_ROWS;
                let before =
                    self.values_of(page).start + bits.count_ones_in(page * PAGE_ROWS..rows.start);
                before..before + bits.count_ones_in(rows.clone())
            }
        };
        let pages = if rows.is_empty() {
            0..0
        } else {
            rows.start / PAGE_ROWS..rows.end.div_ceil(PAGE_ROWS)
        };
        Selection { values, pages }
    }

    /// Decodes the selected pages with `page(payload, slots)` and returns the selected values.
    /// Payloads are as [`put_payloads`] wrote them.
    pub(super) fn read<T: Copy + Default>(
        &self,
        cursor: &mut Cursor<'_>,
        selection: &Selection,
        mut page: impl FnMut(&[u8], &mut [T]) -> Result<(), &'static str>,
    ) -> Result<Vec<T>, DecodeError> {
        let payloads = self.payloads(cursor)?;
        let first = self.values_of(selection.pages.start).start;
        let last = match selection.pages.end.checked_sub(1) {
            Some(last) => self.values_of(last).end,
            None => first,
        };
        let mut out = vec![T::default(); last.saturating_sub(first)];
        let mut rest = out.as_mut_slice();
        for at in selection.pages.clone() {
            let len = self.values_of(at).len();
            let Some((slots, more)) = rest.split_at_mut_checked(len) else {
                break;
            };
            rest = more;
            if let Some(payload) = payloads.get(at)
                && !slots.is_empty()
            {
                page(payload, slots).map_err(|expected| cursor.expected(expected))?;
            }
        }
        out.truncate(selection.values.end.saturating_sub(first));
        out.drain(..selection.values.start.saturating_sub(first).min(out.len()));
        Ok(out)
    }

    /// The payload of each page, empty for a page without values.
    pub(super) fn payloads<'a>(
        &self,
        cursor: &mut Cursor<'a>,
    ) -> Result<Vec<&'a [u8]>, DecodeError> {
        let filled = self.filled().count();
        let lengths = take_integers(cursor, filled.saturating_sub(1))?;
        let mut lengths = lengths.into_iter();
        let mut out = Vec::with_capacity(self.starts.len());
        for pair in self.starts.windows(2) {
            if pair.first() == pair.last() {
                out.push(&[][..]);
                continue;
            }
            let len = match lengths.next() {
                Some(len) => {
                    usize::try_from(len).map_err(|_| cursor.expected("the length of a page"))?
                }
                None => cursor.remaining(),
            };
            out.push(cursor.take(len, "a page of a column")?);
        }
        Ok(out)
    }
}

/// Writes the payloads of the filled pages: lengths of all but the last, then the payloads. `ends`
/// are the ends of the payloads in `bytes`.
pub(super) fn put_payloads(bytes: &[u8], ends: &[usize], out: &mut Vec<u8>) {
    let mut before = 0;
    let mut lengths: Vec<i64> = ends
        .iter()
        .map(|end| (*end - std::mem::replace(&mut before, *end)) as i64)
        .collect();
    lengths.pop();
    put_integers(&lengths, out);
    out.extend_from_slice(bytes);
}
