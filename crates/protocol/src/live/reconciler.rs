//! Which access lists of topics are to be applied at a server next.
//!
//! Invariants: a topic from whose list an account is removed, or gets fewer rights, comes before
//! all others. A topic that no list names any more gets an empty list. A list is applied once the
//! server has confirmed it, and is compared again every [`CHECK_EVERY`]. Concurrency: plain data,
//! one owner. Failure: a topic that the server refuses is tried again after [`RETRY_AFTER`]; others
//! go on.

use crate::notice::{Lists, TopicRight};
use std::collections::BTreeMap;
use std::time::Duration;

/// Interval of comparing an applied list again.
const CHECK_EVERY: Duration = Duration::from_secs(3_600);
/// Pause after a failure, for the topic that failed.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Accounts of a topic.
pub type TopicAccounts = BTreeMap<String, TopicRight>;

#[derive(Debug, Default)]
struct ReconciledTopic {
    /// The list at the server; `None` = unknown.
    at_server: Option<TopicAccounts>,
    checked: Duration,
    not_before: Duration,
    /// Since when the list differs from the wanted one.
    behind_since: Option<Duration>,
}

/// Lists as wanted, and as they are at the server.
#[derive(Debug, Default)]
pub struct ListReconciler {
    wanted: Lists,
    topics: BTreeMap<String, ReconciledTopic>,
}

/// Urgency of a topic, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    Revoked,
    Unknown,
    Granted,
    Check,
}

/// True when an account has fewer rights in `wanted`.
fn revokes(at_server: &TopicAccounts, wanted: &TopicAccounts) -> bool {
    at_server
        .iter()
        .any(|(account, right)| wanted.get(account).is_none_or(|now| now < right))
}

impl ListReconciler {
    /// Records topics that exist at the server, with unknown lists.
    pub fn found(&mut self, topics: impl IntoIterator<Item = String>) {
        for topic in topics {
            self.topics.entry(topic).or_default();
        }
    }

    /// Sets the wanted lists.
    pub fn want(&mut self, now: Duration, lists: Lists) {
        for topic in lists.keys() {
            if !self.topics.contains_key(topic) {
                self.topics
                    .insert(topic.clone(), ReconciledTopic::default());
            }
        }
        self.wanted = lists;
        let nobody = TopicAccounts::new();
        for (topic, of) in &mut self.topics {
            let wanted = self.wanted.get(topic).unwrap_or(&nobody);
            of.behind_since = match of.at_server.as_ref() == Some(wanted) {
                true => None,
                false => of.behind_since.or(Some(now)),
            };
        }
    }

    fn urgency(&self, now: Duration, topic: &str, of: &ReconciledTopic) -> Option<Urgency> {
        if of.not_before > now {
            return None;
        }
        let nobody = TopicAccounts::new();
        let wanted = self.wanted.get(topic).unwrap_or(&nobody);
        match &of.at_server {
            None => Some(Urgency::Unknown),
            Some(there) if revokes(there, wanted) => Some(Urgency::Revoked),
            Some(there) if there != wanted => Some(Urgency::Granted),
            Some(_) if now >= of.checked + CHECK_EVERY => Some(Urgency::Check),
            Some(_) => None,
        }
    }

    /// The topic whose list is to be applied next, with the list; `None` = all are as wanted, or
    /// have to wait.
    #[must_use]
    pub fn next(&self, now: Duration) -> Option<(String, TopicAccounts)> {
        let due = self.topics.iter().filter_map(|(topic, of)| {
            let urgency = self.urgency(now, topic, of)?;
            Some((urgency, of.not_before, topic))
        });
        let (_, _, topic) = due.min()?;
        let wanted = self.wanted.get(topic);
        Some((
            topic.clone(),
            wanted.map_or_else(TopicAccounts::new, Clone::clone),
        ))
    }

    /// Records that the server has this list.
    pub fn applied(&mut self, now: Duration, topic: &str, list: TopicAccounts) {
        let Some(of) = self.topics.get_mut(topic) else {
            return;
        };
        let wanted = self.wanted.get(topic);
        if wanted.is_none() && list.is_empty() {
            // Nobody is left there.
            self.topics.remove(topic);
            return;
        }
        if wanted == Some(&list) {
            of.behind_since = None;
        }
        of.at_server = Some(list);
        (of.checked, of.not_before) = (now, Duration::ZERO);
    }

    /// Records that the server has refused a list: what it has is unknown.
    pub fn failed(&mut self, now: Duration, topic: &str) {
        if let Some(of) = self.topics.get_mut(topic) {
            (of.at_server, of.not_before) = (None, now + RETRY_AFTER);
            of.behind_since = of.behind_since.or(Some(now));
        }
    }

    /// Number of topics whose list at the server is not the wanted one, and how long the oldest of
    /// them has waited.
    #[must_use]
    pub fn behind(&self, now: Duration) -> (usize, Duration) {
        let since = self.topics.values().filter_map(|of| of.behind_since);
        let oldest = since.clone().min();
        let age = oldest.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        (since.count(), age)
    }

    /// Number of topics.
    #[must_use]
    pub fn len(&self) -> usize {
        self.topics.len()
    }

    /// True without a topic.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }
}
