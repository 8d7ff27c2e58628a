//! New edges that are added together, in one replacement of the file.
//!
//! Invariants: all of them are added or none; every reason against it is named with the position of
//! its edge. Concurrency: plain data. Failure: a refused list leaves the registry unchanged.

use super::tag_set::{Tags, added};
use super::{
    EDGES_MAX, Edge, Edges, Invitation, List, RANKS_OF_EDGE, SECRET_PREFIX, check_name, secret,
};
use crate::error::{ClusterError, ClusterErrorKind};
use crate::subscription::StreamShare;
use headwater_shell::access::token::{hash, hex};
use headwater_types::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// A new edge of a list: a name, or an object with its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct NewEdge {
    /// Name of the edge.
    pub edge: String,
    /// Its subscription; `None` = that of the list.
    pub want: Option<StreamShare>,
    /// Seconds for which rows that it removes because of their age are retained here; `None` = for
    /// ever.
    pub keep_seconds: Option<u64>,
    /// Bytes of rows that are prefetched of streams with a subscription to summaries only.
    pub ahead_bytes: u64,
    /// Tags that are added to the names of its streams.
    pub tags: BTreeMap<String, String>,
}

/// The object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewEdgeObject {
    edge: String,
    want: Option<StreamShare>,
    keep_seconds: Option<u64>,
    #[serde(default)]
    ahead_bytes: u64,
    #[serde(default)]
    tags: Tags,
}

impl TryFrom<Value> for NewEdge {
    type Error = String;

    fn try_from(value: Value) -> Result<NewEdge, String> {
        if let Value::String(edge) = value {
            return Ok(NewEdge {
                edge,
                ..NewEdge::default()
            });
        }
        let read = serde_json::from_value::<NewEdgeObject>(value);
        let object = read.map_err(|error| {
            format!("{error}: expected the name of an edge, or an object such as {{\"edge\":\"pump-7\",\"want\":\"full\"}}")
        })?;
        Ok(NewEdge {
            edge: object.edge,
            want: object.want,
            keep_seconds: object.keep_seconds,
            ahead_bytes: object.ahead_bytes,
            tags: object.tags,
        })
    }
}

/// Reason why an edge of a list cannot be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEdgeFault {
    /// Its position in the list.
    pub at: usize,
    /// The reason.
    pub error: ClusterError,
}

impl Edges {
    /// All reasons why these edges cannot be added together.
    pub(crate) fn faults_of(&self, new: &[NewEdge]) -> Vec<NewEdgeFault> {
        let mut once: HashSet<&str> = HashSet::new();
        let room = EDGES_MAX.saturating_sub(self.list.edges.len());
        let mut faults = Vec::new();
        for (at, new) in new.iter().enumerate() {
            let name = new.edge.as_str();
            let taken = |why: String| ClusterError::new(ClusterErrorKind::NameExists, why);
            let error = match () {
                () if at >= room => Some(taken(format!(
                    "there are at most {EDGES_MAX} edges of one node"
                ))),
                () if !once.insert(name) => {
                    Some(ClusterError::invalid(format!("`{name}` is listed twice")))
                }
                () if self.positions.names.contains_key(name) => {
                    Some(taken(format!("the edge `{name}` already exists")))
                }
                () => check_name(name)
                    .and_then(|()| added(&new.tags).map(drop))
                    .err(),
            };
            faults.extend(error.map(|error| NewEdgeFault { at, error }));
        }
        faults
    }

    /// Adds edges with an invitation each, and returns the secrets of these in their order.
    pub(crate) fn invite_new(
        &mut self,
        new: &[NewEdge],
        want: Option<StreamShare>,
        now: Timestamp,
        valid: Duration,
    ) -> Result<Vec<String>, ClusterError> {
        let secrets = new.iter().map(|_| secret(SECRET_PREFIX));
        let secrets: Vec<String> = secrets.collect::<Result<_, _>>()?;
        let valid = i64::try_from(valid.as_nanos()).unwrap_or(i64::MAX);
        let ends_ns = now.as_nanos().saturating_add(valid);
        self.change(|list| {
            // Each has a rank of its own, with room for the closed parts before its copy.
            let created = (now.as_nanos()..).step_by(RANKS_OF_EDGE);
            for ((new, secret), created_ns) in new.iter().zip(&secrets).zip(created) {
                let invite = Invitation {
                    hash: hex(&hash(secret)),
                    ends_ns,
                    want: new.want.or(want),
                };
                list.add_new(new, created_ns, invite)?;
            }
            Ok(())
        })?;
        Ok(secrets)
    }
}

impl List {
    fn add_new(
        &mut self,
        new: &NewEdge,
        created_ns: i64,
        invite: Invitation,
    ) -> Result<(), ClusterError> {
        check_name(&new.edge)?;
        added(&new.tags)?;
        self.invite(&new.edge, created_ns, invite, false)?;
        let edge: &mut Edge = self.edge_mut(&new.edge)?;
        edge.kept_seconds = new.keep_seconds;
        edge.migration.ahead_bytes = new.ahead_bytes;
        edge.tags.clone_from(&new.tags);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const NOW: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);
    const HOUR: Duration = Duration::from_secs(3600);

    fn new(text: &str) -> Result<Vec<NewEdge>, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn edges_of_a_list_have_their_settings_and_are_there_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let mut edges = Edges::open(dir.path()).unwrap();
        let list = new(
            r#"["a", {"edge":"b","want":{"summaries":12},"keep_seconds":60,"ahead_bytes":9,"tags":{"site":"4"}}]"#,
        );
        let list = list.unwrap();
        assert_eq!(edges.faults_of(&list), []);
        let want = Some(StreamShare::Summaries(6));
        let secrets = edges.invite_new(&list, want, NOW, HOUR).unwrap();
        assert_eq!(secrets.len(), 2);
        let edges = Edges::open(dir.path()).unwrap();
        let (a, b) = (edges.get("a").unwrap(), edges.get("b").unwrap());
        assert_eq!((a.want, a.kept_seconds), (StreamShare::Summaries(6), None));
        assert_eq!(
            (b.want, b.kept_seconds),
            (StreamShare::Summaries(12), Some(60))
        );
        assert_eq!((b.migration.ahead_bytes, b.tags["site"].as_str()), (9, "4"));
        assert!(a.rank() < b.rank() && a.is_invited() && b.is_invited());
    }

    #[test]
    fn each_fault_of_a_list_is_named_by_its_position() {
        let dir = tempfile::tempdir().unwrap();
        let mut edges = Edges::open(dir.path()).unwrap();
        edges.invite("old", None, NOW, HOUR, false).unwrap();
        let list = new(
            r#"["a", "old", "a", "x/y", "", {"edge":"t","tags":{"site":""}}, {"edge":"u","tags":{"a\nb":"c"}}, "z"]"#,
        );
        let list = list.unwrap();
        let faults = edges.faults_of(&list);
        let at: Vec<usize> = faults.iter().map(|fault| fault.at).collect();
        assert_eq!(at, [1, 2, 3, 4, 5, 6]);
        assert_eq!(faults[0].error.kind(), ClusterErrorKind::NameExists);
        assert!(faults[1].error.to_string().contains("twice"));
        // Without the check before, nothing is added either.
        assert!(edges.invite_new(&list, None, NOW, HOUR).is_err());
        assert_eq!(edges.all().len(), 1);
        for wrong in [
            r#"[7]"#,
            r#"[{"edge":"a","wants":"full"}]"#,
            r#"[{"want":"full"}]"#,
        ] {
            let error = new(wrong).unwrap_err().to_string();
            assert!(error.contains("expected the name of an edge"), "{error}");
        }
        let many: Vec<NewEdge> = (0..EDGES_MAX)
            .map(|n| NewEdge {
                edge: format!("e{n}"),
                ..NewEdge::default()
            })
            .collect();
        let faults = edges.faults_of(&many);
        assert_eq!(faults.len(), 1, "one edge is there already");
        assert_eq!(faults[0].at, EDGES_MAX - 1);
    }
}
