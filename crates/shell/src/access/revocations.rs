//! Recently revoked tokens, as other nodes report them: the list of tokens reaches other nodes only
//! when it is copied to them, and tickets of a revoked token must not be valid until then.
//!
//! The text is `LIST:ID` with commas between: the first version of the list without a token, and
//! the token's id. Dispatchers send it to nodes, and clouds to their edges.
//!
//! Invariants: the newest [`REVOKED_MAX`] revocations are stored; older ones end with their
//! tickets. A report removes rights and never adds any. Concurrency: plain data. Failure: a
//! malformed text is refused as a whole.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Maximum reported tokens.
pub(super) const REVOKED_MAX: usize = 256;
/// Longest id that is taken.
const ID_MAX: usize = 32;

/// Revoked tokens.
#[derive(Debug, Default)]
pub(super) struct Revocations {
    /// First version of the list without a token, by the token's id.
    revoked: BTreeMap<String, u64>,
}

fn parse_revocation(text: &str) -> Option<(u64, &str)> {
    let (list, id) = text.split_once(':')?;
    let is_id = (1..=ID_MAX).contains(&id.len()) && id.chars().all(|c| c.is_ascii_alphanumeric());
    let list = list.parse().ok().filter(|_| is_id)?;
    Some((list, id))
}

impl Revocations {
    /// Accepts a text of all revocations; false when the text is malformed.
    pub(super) fn merge(&mut self, text: &str) -> bool {
        if text.is_empty() {
            return true;
        }
        let all: Option<Vec<(u64, &str)>> = text.split(',').map(parse_revocation).collect();
        let Some(all) = all.filter(|all| all.len() <= REVOKED_MAX) else {
            return false;
        };
        for (list, id) in all {
            let known = self.revoked.entry(id.to_owned()).or_insert(list);
            *known = list.max(*known);
        }
        while self.revoked.len() > REVOKED_MAX {
            let oldest = self.revoked.iter().min_by_key(|(_, list)| **list);
            let Some(oldest) = oldest.map(|(id, _)| id.clone()) else {
                break;
            };
            self.revoked.remove(&oldest);
        }
        true
    }

    /// The first version of the list without a token, if it was reported.
    pub(super) fn since(&self, id: &str) -> Option<u64> {
        self.revoked.get(id).copied()
    }

    /// All revocations as text, including `own`.
    pub(super) fn text<'a>(&self, own: impl Iterator<Item = (u64, &'a str)>) -> String {
        let mut all: BTreeMap<&str, u64> = own.map(|(list, id)| (id, list)).collect();
        for (id, list) in &self.revoked {
            let known = all.entry(id).or_insert(*list);
            *known = (*list).max(*known);
        }
        let mut all: Vec<(u64, &str)> = all.into_iter().map(|(id, list)| (list, id)).collect();
        all.sort_unstable();
        let mut out = String::new();
        let beyond = all.len().saturating_sub(REVOKED_MAX);
        for (list, id) in all.into_iter().skip(beyond) {
            let comma = if out.is_empty() { "" } else { "," };
            // Writing to a `String` cannot fail.
            let _ = write!(out, "{comma}{list}:{id}");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_told_on_and_what_is_none_is_not_taken() {
        let mut told = Revocations::default();
        assert!(told.merge("") && told.merge("17:aa,18:bb") && told.merge("16:aa"));
        assert_eq!(
            (told.since("aa"), told.since("bb"), told.since("cc")),
            (Some(17), Some(18), None)
        );
        let own = [(20, "cc"), (19, "bb")];
        assert_eq!(told.text(own.into_iter()), "17:aa,19:bb,20:cc");
        for bad in [
            ",",
            "17:",
            ":aa",
            "x:aa",
            "17:a-b",
            "17:aa,",
            "-1:aa",
            "17:aa 18:bb",
        ] {
            assert!(!told.merge(bad), "{bad}");
        }
        assert!(!told.merge(&format!("1:{}", "a".repeat(33))));
        let many = |from: u64, count: u64| {
            let all = (from..from + count).map(|n| format!("{n}:id{n}"));
            all.collect::<Vec<_>>().join(",")
        };
        assert!(!told.merge(&many(100, 257)));
        assert!(told.merge(&many(100, 200)) && told.merge(&many(300, 200)));
        // The newest are retained.
        assert_eq!(
            (told.since("aa"), told.since("id243"), told.since("id244")),
            (None, None, Some(244))
        );
        assert_eq!(
            told.text(std::iter::empty()).split(',').count(),
            REVOKED_MAX
        );
    }
}
