//! The policy of a table for all of its indexes: whether indexes are created automatically, and
//! their maximum bytes together.
//!
//! Invariants: an automatically created index is identified by its number and its name, so that an
//! index that is created again with either counts as created by a user. Format:
//! docs/format/index.md.

use super::definition::{IndexDefinition, IndexId, number};
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::invariant::wide;

/// Limit of the bytes of a table's indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexBudget {
    /// Percentage of the bytes of the table's segments.
    Percent(u32),
    /// Number of bytes.
    Bytes(u64),
}

impl IndexBudget {
    /// Maximum bytes of the indexes of a table of `table_bytes` bytes.
    #[must_use]
    pub fn bytes_of(self, table_bytes: u64) -> u64 {
        match self {
            IndexBudget::Percent(percent) => {
                let bytes = u128::from(table_bytes) * u128::from(percent) / 100;
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
            IndexBudget::Bytes(bytes) => bytes,
        }
    }
}

/// The policy of a table for its indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexPolicy {
    /// Indexes are created, and dropped again, according to the rows that filters read in vain.
    pub auto: bool,
    /// Limit for all indexes of the table, including indexes created by users; `None` = 10 % where
    /// indexes are created automatically, otherwise no limit.
    pub budget: Option<IndexBudget>,
}

/// The budget where it is not set, and indexes are created automatically.
const BUDGET: IndexBudget = IndexBudget::Percent(10);

impl IndexPolicy {
    /// The budget that is in force.
    #[must_use]
    pub fn budget_in_force(&self) -> Option<IndexBudget> {
        self.budget.or_else(|| self.auto.then_some(BUDGET))
    }
}

/// A policy, with the indexes that it has created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicyRecord {
    pub(crate) policy: IndexPolicy,
    pub(crate) created: Vec<(IndexId, String)>,
}

const VERSION: u8 = 1;

impl PolicyRecord {
    /// True for an index that was created automatically.
    pub(crate) fn has_created(&self, index: &IndexDefinition) -> bool {
        let mut made = self.created.iter();
        made.any(|(id, name)| *id == index.id && *name == index.name)
    }

    /// The bytes of its record; the table is the key.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, u8::from(self.policy.auto)];
        let (kind, value) = match self.policy.budget {
            None => (0, 0),
            Some(IndexBudget::Percent(percent)) => (1, u64::from(percent)),
            Some(IndexBudget::Bytes(bytes)) => (2, bytes),
        };
        out.put_u8(kind);
        out.put_varint(value);
        out.put_varint(wide(self.created.len()));
        for (id, name) in &self.created {
            out.put_varint(u64::from(id.0));
            out.put_prefixed(name.as_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<PolicyRecord, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        if cursor.u8("version of a policy of indexes")? != VERSION {
            return Err(cursor.expected("a policy of indexes of version 1"));
        }
        let auto = match cursor.u8("automatic indexes")? {
            0 => false,
            1 => true,
            _ => return Err(cursor.expected("automatic indexes, 0 or 1")),
        };
        let kind = cursor.u8("kind of a budget")?;
        let value = cursor.varint("a budget")?;
        let budget = match (kind, u32::try_from(value)) {
            (0, Ok(0)) => None,
            (1, Ok(percent)) => Some(IndexBudget::Percent(percent)),
            (2, _) => Some(IndexBudget::Bytes(value)),
            _ => return Err(cursor.expected("a budget of kind 0 to 2")),
        };
        let count = cursor.varint_up_to(wide(AUTOMATIC_MAX), "number of automatic indexes")?;
        let mut created = Vec::new();
        for _ in 0..count {
            let id = IndexId(number(&mut cursor, "number of an index")?);
            created.push((id, cursor.text("name of an index")?.to_owned()));
        }
        cursor.finish()?;
        Ok(PolicyRecord {
            policy: IndexPolicy { auto, budget },
            created,
        })
    }
}

/// Maximum number of indexes that are created automatically for a table.
pub(crate) const AUTOMATIC_MAX: usize = 8;
