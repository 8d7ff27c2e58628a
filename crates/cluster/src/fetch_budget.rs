//! Budgets of readers: the bytes that a token may have fetched from edges on one day (UTC).
//!
//! Invariants: bytes are counted before they are requested, for the token whose read missed them.
//! The file counts some of them in advance, and is written again before more than these are
//! requested, so that a restart gives nothing of a budget back. When the clock returns to another
//! day, counting continues with the bytes of that day, if it is among the last few. Concurrency:
//! one lock, held while the file is written, on threads that may wait. Failure: nothing is
//! requested if the file cannot be written. Format: docs/format/fleet.md.

use crate::error::{ClusterError, ClusterErrorKind};
use crate::private::{self, VERSION};
use crate::status::{FetchStatus, TokenFetched};
use headwater_shell::access::tokens::FetchLimit;
use headwater_types::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Name of the file in the directory of a cloud's database.
const FILE: &str = "fetched.json";
const NANOS_A_DAY: i64 = 86_400_000_000_000;
/// Number of days that are remembered, the present one included.
const DAYS: usize = 4;
/// Part of a budget that the file counts in advance, as its divisor, and its bounds in bytes.
const AHEAD_PART: u64 = 64;
const AHEAD_MIN: u64 = 64 << 10;
const AHEAD_MAX: u64 = 4 << 20;

/// A reader of copies whose missing ranges may be fetched.
#[derive(Clone, Debug)]
pub struct FetchReader {
    /// Number of the reader, for [`headwater_engine::reading_for`].
    pub number: u64,
    /// Id of its token; empty where it has none.
    pub token: String,
    /// Budget of the token; `None` = that of the node.
    pub limit: Option<FetchLimit>,
}

/// A budget that does not suffice for what a reader misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverBudget {
    /// Bytes of the budget.
    pub per_day: u64,
    /// Bytes of it that are spent.
    pub spent: u64,
    /// Bytes that the answer needs next.
    pub needed: u64,
    /// Begin of the next day.
    pub until: Timestamp,
    /// Seconds until then.
    pub seconds: u32,
}

/// Result of fetching what a reader missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// Something arrived, so that a further read may succeed.
    Arrived,
    /// Nothing arrived in the time, or nothing can be fetched.
    Nothing,
    /// The budget of the reader does not suffice, and nothing was requested.
    OverBudget(OverBudget),
}

/// Bytes of a token on one day.
#[derive(Clone, Copy, Debug, Default)]
struct TokenSpending {
    bytes: u64,
    /// Bytes that the file counts.
    persisted: u64,
    /// Budget of the token when it was last used; `None` = that of the node.
    limit: Option<FetchLimit>,
    /// The last answer needed more than was left.
    is_spent: bool,
}

#[derive(Debug, Default)]
struct DaySpending {
    /// Days since 1970.
    day: i64,
    /// By the id of the token; empty = clients without a token.
    tokens: BTreeMap<String, TokenSpending>,
}

#[derive(Debug, Default)]
struct Counted {
    /// The present day first, then the others, the newest use first.
    days: Vec<DaySpending>,
    /// Bytes that were requested since the start.
    fetched: u64,
    /// Answers since the start that needed more than was left of a budget.
    refused: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredDay {
    day: i64,
    tokens: BTreeMap<String, u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredFile {
    version: u32,
    days: Vec<StoredDay>,
}

/// Budgets of the readers of a cloud node.
#[derive(Debug)]
pub(crate) struct FetchBudgets {
    path: PathBuf,
    /// Budget of tokens that have none of their own.
    per_day: Mutex<FetchLimit>,
    counted: Mutex<Counted>,
    readers: AtomicU64,
}

fn damaged(path: &Path, reason: &str) -> ClusterError {
    ClusterError::new(
        ClusterErrorKind::Io,
        format!(
            "{}: {reason}; the file counts the bytes that tokens had fetched today: remove it to reset the counts",
            path.display()
        ),
    )
}

/// Begin of the day after this one.
fn next_day(day: i64) -> Timestamp {
    Timestamp::from_nanos(day.saturating_add(1).saturating_mul(NANOS_A_DAY))
}

/// Bytes that the file is to count for a token.
fn ahead(bytes: u64, limit: FetchLimit) -> u64 {
    match limit {
        FetchLimit::Unlimited => bytes.saturating_add(AHEAD_MAX),
        FetchLimit::Bytes(most) => {
            let step = (most / AHEAD_PART).clamp(AHEAD_MIN, AHEAD_MAX);
            bytes.saturating_add(step).min(most.max(bytes))
        }
    }
}

impl Counted {
    /// Makes a day the present one.
    fn begin(&mut self, day: i64) {
        if self.days.first().is_some_and(|now| now.day == day) {
            return;
        }
        let known = self.days.iter().position(|known| known.day == day);
        let now = match known {
            Some(at) => self.days.remove(at),
            None => DaySpending {
                day,
                tokens: BTreeMap::new(),
            },
        };
        self.days.insert(0, now);
        self.days.truncate(DAYS);
    }

    /// The file of these counts.
    fn stored(&self) -> StoredFile {
        let days = self.days.iter().map(|day| StoredDay {
            day: day.day,
            tokens: day
                .tokens
                .iter()
                .filter(|(_, spending)| spending.persisted > 0)
                .map(|(token, spending)| (token.clone(), spending.persisted))
                .collect(),
        });
        StoredFile {
            version: VERSION,
            days: days.collect(),
        }
    }
}

impl FetchBudgets {
    /// Opens the counts in the directory of a database.
    ///
    /// # Errors
    /// `io` when the file cannot be read, or is damaged.
    pub(crate) fn open(dir: &Path) -> Result<FetchBudgets, ClusterError> {
        let path = dir.join(FILE);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(ClusterError::io(&path, &error)),
        };
        let mut counted = Counted::default();
        if !text.is_empty() {
            let stored: StoredFile =
                serde_json::from_slice(&text).map_err(|e| damaged(&path, &e.to_string()))?;
            if stored.version != VERSION {
                let reason = format!(
                    "it has version {}; this program reads version {VERSION}",
                    stored.version
                );
                return Err(damaged(&path, &reason));
            }
            counted.days = stored
                .days
                .into_iter()
                .take(DAYS)
                .map(day_of_file)
                .collect();
        }
        Ok(FetchBudgets {
            path,
            per_day: Mutex::new(FetchLimit::Unlimited),
            counted: Mutex::new(counted),
            readers: AtomicU64::new(1),
        })
    }

    /// Sets the budget of tokens that have none of their own.
    pub(crate) fn set_limit(&self, limit: FetchLimit) {
        *self.per_day.lock() = limit;
    }

    /// Number of a new reader.
    pub(crate) fn next_reader(&self) -> u64 {
        self.readers.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts bytes that are to be requested for a reader. `Some` if they are more than is left of
    /// its budget; then they are not counted.
    ///
    /// # Errors
    /// `io` when the counts cannot be stored; then they are not counted either.
    pub(crate) fn take(
        &self,
        reader: &FetchReader,
        bytes: u64,
        now: Timestamp,
    ) -> Result<Option<OverBudget>, ClusterError> {
        let limit = reader.limit.unwrap_or(*self.per_day.lock());
        let day = now.as_nanos().div_euclid(NANOS_A_DAY);
        let mut guard = self.counted.lock();
        let counted = &mut *guard;
        counted.begin(day);
        let Some(today) = counted.days.first_mut() else {
            return Ok(None);
        };
        let spending = today.tokens.entry(reader.token.clone()).or_default();
        let before = *spending;
        spending.limit = reader.limit;
        let next = spending.bytes.saturating_add(bytes);
        if let FetchLimit::Bytes(per_day) = limit
            && next > per_day
        {
            spending.is_spent = true;
            let spent = spending.bytes;
            counted.refused = counted.refused.saturating_add(1);
            return Ok(Some(over((per_day, spent, bytes), day, now)));
        }
        (spending.bytes, spending.is_spent) = (next, false);
        if next > spending.persisted {
            spending.persisted = ahead(next, limit);
            if let Err(error) = private::replace(&self.path, &counted.stored()) {
                let today = counted.days.first_mut();
                let spending = today.and_then(|today| today.tokens.get_mut(&reader.token));
                spending.into_iter().for_each(|spending| *spending = before);
                return Err(error);
            }
        }
        counted.fetched = counted.fetched.saturating_add(bytes);
        Ok(None)
    }

    /// Stores the exact counts, for an orderly stop.
    ///
    /// # Errors
    /// `io`.
    pub(crate) fn settle(&self) -> Result<(), ClusterError> {
        let mut counted = self.counted.lock();
        let mut is_ahead = false;
        let days = counted.days.iter_mut();
        for spending in days.flat_map(|day| day.tokens.values_mut()) {
            is_ahead |= spending.persisted != spending.bytes;
            spending.persisted = spending.bytes;
        }
        match is_ahead {
            true => private::replace(&self.path, &counted.stored()),
            false => Ok(()),
        }
    }

    /// Status of the present day.
    pub(crate) fn status(&self, now: Timestamp) -> FetchStatus {
        let node = *self.per_day.lock();
        let bytes_of = |limit: FetchLimit| match limit {
            FetchLimit::Unlimited => None,
            FetchLimit::Bytes(bytes) => Some(bytes),
        };
        let mut counted = self.counted.lock();
        counted.begin(now.as_nanos().div_euclid(NANOS_A_DAY));
        let today = counted.days.first();
        let tokens = today.into_iter().flat_map(|today| &today.tokens);
        let tokens = tokens.map(|(token, spending)| TokenFetched {
            token: (!token.is_empty()).then(|| token.clone()),
            bytes: spending.bytes,
            per_day: bytes_of(spending.limit.unwrap_or(node)),
            is_spent: spending.is_spent,
        });
        FetchStatus {
            per_day: bytes_of(node),
            bytes: counted.fetched,
            refused: counted.refused,
            tokens: tokens.collect(),
        }
    }
}

fn day_of_file(stored: StoredDay) -> DaySpending {
    let spending = |bytes: u64| TokenSpending {
        bytes,
        persisted: bytes,
        ..TokenSpending::default()
    };
    let tokens = stored.tokens.into_iter();
    DaySpending {
        day: stored.day,
        tokens: tokens.map(|(id, bytes)| (id, spending(bytes))).collect(),
    }
}

fn over((per_day, spent, needed): (u64, u64, u64), day: i64, now: Timestamp) -> OverBudget {
    let until = next_day(day);
    let left = until.as_nanos().saturating_sub(now.as_nanos()).max(0);
    let seconds = left.saturating_add(999_999_999) / 1_000_000_000;
    OverBudget {
        per_day,
        spent,
        needed,
        until,
        seconds: u32::try_from(seconds).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Noon of a day.
    fn noon(day: i64) -> Timestamp {
        Timestamp::from_nanos(day * NANOS_A_DAY + NANOS_A_DAY / 2)
    }

    fn reader(token: &str, limit: Option<FetchLimit>) -> FetchReader {
        FetchReader {
            number: 1,
            token: token.to_owned(),
            limit,
        }
    }

    fn spent(budgets: &FetchBudgets, token: &str, day: i64) -> u64 {
        let status = budgets.status(noon(day));
        let id = (!token.is_empty()).then(|| token.to_owned());
        let found = status.tokens.iter().find(|one| one.token == id);
        found.map_or(0, |one| one.bytes)
    }

    #[test]
    fn a_budget_is_of_one_token_and_one_day() {
        let dir = tempfile::tempdir().unwrap();
        let budgets = FetchBudgets::open(dir.path()).unwrap();
        budgets.set_limit(FetchLimit::Bytes(1_000));
        let take = |token: &str, bytes, day| {
            let taken = budgets.take(&reader(token, None), bytes, noon(day));
            taken.unwrap()
        };
        assert_eq!(take("a", 600, 20_000), None);
        let over = take("a", 401, 20_000).unwrap();
        assert_eq!((over.per_day, over.spent, over.needed), (1_000, 600, 401));
        assert_eq!((over.until, over.seconds), (next_day(20_000), 43_200));
        // What was refused is not counted, and the rest may be spent to the byte.
        assert_eq!(take("a", 400, 20_000), None);
        assert!(take("a", 1, 20_000).is_some());
        assert_eq!(take("b", 1_000, 20_000), None);
        assert_eq!(take("", 1_000, 20_000), None);
        assert_eq!(take("a", 1_000, 20_001), None);
        // A clock that is set back goes on with what was spent on that day.
        assert!(take("a", 1, 20_000).is_some() && take("a", 1, 20_001).is_some());
        let status = budgets.status(noon(20_001));
        assert_eq!((status.bytes, status.refused), (4_000, 4));
        assert_eq!(status.per_day, Some(1_000));
        assert!(status.tokens.iter().any(|one| one.is_spent));
    }

    #[test]
    fn a_token_has_a_budget_of_its_own_and_no_number_overflows() {
        let dir = tempfile::tempdir().unwrap();
        let budgets = FetchBudgets::open(dir.path()).unwrap();
        budgets.set_limit(FetchLimit::Bytes(10));
        let take = |limit, bytes| budgets.take(&reader("a", limit), bytes, noon(1)).unwrap();
        assert_eq!(take(Some(FetchLimit::Bytes(50)), 50), None);
        assert!(take(Some(FetchLimit::Bytes(50)), 1).is_some());
        assert_eq!(take(Some(FetchLimit::Unlimited), u64::MAX), None);
        assert_eq!(take(Some(FetchLimit::Unlimited), u64::MAX), None);
        assert_eq!(take(Some(FetchLimit::Bytes(u64::MAX)), u64::MAX), None);
        assert!(take(Some(FetchLimit::Bytes(0)), 1).is_some());
        let far = [Timestamp::MIN, Timestamp::MAX];
        for now in far {
            let nothing = reader("b", Some(FetchLimit::Bytes(0)));
            assert!(budgets.take(&nothing, 1, now).unwrap().is_some());
            assert_eq!(budgets.take(&reader("c", None), 10, now).unwrap(), None);
        }
    }

    #[test]
    fn a_restart_gives_nothing_back_and_takes_little() {
        let dir = tempfile::tempdir().unwrap();
        let limit = Some(FetchLimit::Bytes(64 << 20));
        let budgets = FetchBudgets::open(dir.path()).unwrap();
        budgets
            .take(&reader("a", limit), 5_000, noon(20_000))
            .unwrap();
        // Killed: the file counts a part of the budget in advance.
        let killed = FetchBudgets::open(dir.path()).unwrap();
        assert_eq!(spent(&killed, "a", 20_000), 5_000 + (1 << 20));
        let written = || std::fs::metadata(dir.path().join(FILE)).unwrap().modified();
        let before = written().unwrap();
        killed.take(&reader("a", limit), 0, noon(20_000)).unwrap();
        assert_eq!(written().unwrap(), before, "a write for each request");
        killed.take(&reader("a", limit), 1, noon(20_000)).unwrap();
        // Stopped in order: nothing is counted in advance.
        killed.settle().unwrap();
        let stopped = FetchBudgets::open(dir.path()).unwrap();
        assert_eq!(spent(&stopped, "a", 20_000), 5_001 + (1 << 20));
        // The file never counts more than the budget.
        let small = Some(FetchLimit::Bytes(100));
        stopped.take(&reader("b", small), 60, noon(20_000)).unwrap();
        let again = FetchBudgets::open(dir.path()).unwrap();
        assert_eq!(spent(&again, "b", 20_000), 100);
    }

    #[test]
    fn the_file_has_the_form_that_it_always_had_and_a_damaged_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let budgets = FetchBudgets::open(dir.path()).unwrap();
        for (token, day) in [("0a1b2c3d", 20_000), ("", 20_001), ("0a1b2c3d", 20_001)] {
            let taken = budgets.take(&reader(token, None), 70_000, noon(day));
            assert_eq!(taken.unwrap(), None);
        }
        budgets.settle().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, include_str!("../tests/golden/fetched.json"));
        let again = FetchBudgets::open(dir.path()).unwrap();
        assert_eq!(spent(&again, "", 20_001), 70_000);
        for wrong in [
            "{",
            "[]",
            "{\"version\":2,\"days\":[]}",
            "{\"version\":1,\"days\":[{\"day\":1,\"tokens\":{\"a\":-1}}]}",
            "{\"version\":1,\"days\":[{\"day\":1,\"tokens\":{\"a\":1.5}}]}",
            "{\"version\":1,\"days\":[],\"more\":1}",
        ] {
            std::fs::write(&path, wrong).unwrap();
            let error = FetchBudgets::open(dir.path()).unwrap_err();
            assert_eq!(error.kind(), ClusterErrorKind::Io, "{wrong}");
            assert!(error.to_string().contains("remove it"), "{error}");
        }
    }

    #[test]
    fn nothing_is_granted_if_it_cannot_be_stored() {
        let dir = tempfile::tempdir().unwrap();
        let budgets = FetchBudgets::open(dir.path()).unwrap();
        std::fs::create_dir(dir.path().join(FILE)).unwrap();
        let taken = budgets.take(&reader("a", None), 5, noon(1));
        assert_eq!(taken.unwrap_err().kind(), ClusterErrorKind::Io);
        assert_eq!(spent(&budgets, "a", 1), 0);
        std::fs::remove_dir(dir.path().join(FILE)).unwrap();
        assert_eq!(budgets.take(&reader("a", None), 5, noon(1)).unwrap(), None);
        assert_eq!(spent(&budgets, "a", 1), 5);
    }
}
