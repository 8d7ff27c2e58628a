//! Status between nodes, as reported over HTTP and on the command line. Names are a promise.

use crate::edges::EdgeAddress;
use crate::frame::About;
use crate::prefetch::Prefetch;
use crate::subscription::{StreamShare, WantRule};
use serde::{Deserialize, Serialize};

/// State of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeState {
    /// Invited, and never connected.
    Invited,
    /// Not connected.
    Offline,
    /// Connected, and every subscribed range of its newest state is here.
    Current,
    /// Connected, and something is in flight.
    Catching,
    /// Connected, with requests paused.
    Paused,
    /// The edge's database has another history than the copy.
    Refused,
    /// The device of this node refuses the copy.
    Failed,
}

impl EdgeState {
    /// True when requests can be sent to it now.
    #[must_use]
    pub fn is_connected(self) -> bool {
        matches!(
            self,
            EdgeState::Current | EdgeState::Catching | EdgeState::Paused
        )
    }

    /// Reported name of the state.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            EdgeState::Invited => "invited",
            EdgeState::Offline => "offline",
            EdgeState::Current => "current",
            EdgeState::Catching => "catching",
            EdgeState::Paused => "paused",
            EdgeState::Refused => "refused",
            EdgeState::Failed => "failed",
        }
    }
}

/// Status of the copy of an edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyStatus {
    /// The database it is of.
    pub identity: String,
    /// Incarnation of the database.
    pub incarnation: String,
    /// The number of the newest state.
    pub state: u64,
    /// Bytes that are here.
    pub bytes: u64,
    /// Subscribed bytes that are known to be missing.
    pub missing_bytes: u64,
    /// Bytes of complete segments whose hash, computed from this node's device since its start,
    /// equals the hash computed by the edge when it wrote them.
    pub proven_bytes: u64,
    /// Partitions that are shown as the newest state has them.
    pub shown: usize,
    /// Partitions that are shown in a version before.
    pub shown_older: usize,
    /// Partitions with retained rows that the edge has removed because of their age.
    pub kept: usize,
    /// The newest events, which the edge has not stored yet, are here up to the edge's last report
    /// (`sync.live` at the edge).
    #[serde(default)]
    pub is_live: bool,
}

/// Present and subscribed bytes of an edge, for a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonStatus {
    /// `asked` = requested by a reader, `summaries` = needed for tiles of the subscribed level and
    /// above, `pinned`, `rows` = all rows of the stream are subscribed to, `ahead` = rows that may
    /// be prefetched.
    pub reason: String,
    /// Bytes subscribed to for it, present or not.
    pub wanted_bytes: u64,
    /// The missing ones of them.
    pub missing_bytes: u64,
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifiedStatus {
    /// When it was through, in nanoseconds since 1970.
    #[serde(with = "as_text")]
    pub at_ns: i64,
    /// Bytes that are the same on both devices.
    pub equal: u64,
    /// Bytes that are not.
    pub different: u64,
    /// Subscribed bytes that are missing.
    pub missing: u64,
}

/// Status of an edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeStatus {
    /// Name of the edge.
    pub name: String,
    /// State of the edge.
    pub state: EdgeState,
    /// The subscription where no rule fits.
    pub want: StreamShare,
    /// Subscriptions of some of its streams.
    pub rules: Vec<WantRule>,
    /// The prefetch policy.
    pub migration: Prefetch,
    /// Additional seconds for which rows that the edge removes because of their age are retained
    /// here; `None` = forever.
    pub kept_seconds: Option<u64>,
    /// Address at which clients reach the edge directly.
    #[serde(default)]
    pub address: Option<EdgeAddress>,
    /// Time of the last message received, in nanoseconds since 1970; `None` = no message since this
    /// node was started.
    #[serde(with = "as_text_if_any")]
    pub heard_ns: Option<i64>,
    /// Time, in nanoseconds since 1970, since which all data that the edge had by then is here.
    #[serde(with = "as_text_if_any")]
    pub current_ns: Option<i64>,
    /// Status of the copy.
    pub copy: Option<CopyStatus>,
    /// Why it is here: of the copy, while it is open.
    #[serde(default)]
    pub reasons: Vec<ReasonStatus>,
    /// Facts that the edge reports.
    pub about: Option<About>,
    /// Whether a comparison is running.
    pub is_verifying: bool,
    /// Result of the newest comparison.
    pub verified: Option<VerifiedStatus>,
    /// Nodes through which the data of a relayed edge passes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<String>,
    /// Why it is refused, or the copy cannot be used.
    pub error: Option<String>,
}

/// State of the connection to the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UplinkState {
    /// No cloud was joined.
    NotJoined,
    /// A connection is being made, or will be.
    Offline,
    /// There is one.
    Connected,
    /// Sending is paused.
    Paused,
    /// The cloud refuses this database.
    Refused,
}

/// Whether an edge frees rows that its cloud has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FreeStatus {
    /// The cloud does not, and did once.
    Never,
    /// The cloud does: confirmed ranges survive the cloud.
    Confirmed,
    /// The cloud's copy is not known to survive the loss of the cloud: the cloud is not connected,
    /// or stores its copies on its own device only.
    NotSafe,
}

/// Rows that an edge has freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreedStatus {
    /// Whether freeing continues.
    pub state: FreeStatus,
    /// Number of partitions whose rows are at the cloud only.
    pub partitions: u64,
    /// Bytes of them that were freed.
    pub bytes: u64,
}

/// Status of an edge's connection to its cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UplinkStatus {
    /// State of the connection.
    pub state: UplinkState,
    /// The address of the cloud.
    pub url: Option<String>,
    /// The cloud's name for this edge.
    pub edge: Option<String>,
    /// Time of the last change of the state, in nanoseconds since 1970.
    #[serde(with = "as_text")]
    pub since_ns: i64,
    /// The number of the state of this database.
    pub state_number: u64,
    /// Number of the newest state of which the cloud has confirmed a part.
    pub confirmed_number: Option<u64>,
    /// Seconds for which there has been stored data here that the cloud has not confirmed, as
    /// observed since the start; `None` before the first confirmation.
    #[serde(default)]
    pub lag_seconds: Option<u64>,
    /// Bytes of newest events that were sent along since the start, before they were stored.
    #[serde(default)]
    pub live_bytes: u64,
    /// Number of segments, and their bytes, of which the cloud has every subscribed range on its
    /// device.
    pub confirmed_segments: usize,
    /// See `confirmed_segments`.
    pub confirmed_bytes: u64,
    /// Number of segments of which the cloud has computed another hash from its device: an alarm.
    pub differing_segments: usize,
    /// Bytes sent on this day of the clock.
    pub sent_today: u64,
    /// Bytes sent in this month.
    pub sent_this_month: u64,
    /// Rows that were freed here since the cloud has them; `None` if freeing is not configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freed: Option<FreedStatus>,
    /// Whether a comparison that was requested here is running.
    pub is_verifying: bool,
    /// Result of the newest comparison that was requested here.
    pub verified: Option<VerifiedStatus>,
    /// Reason why there is no connection, or the cloud's refusal.
    pub error: Option<String>,
}

/// Status of a relay of an edge to another cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayStatus {
    /// The name of the edge here.
    pub edge: String,
    /// Status of the connection to the other cloud.
    pub to: UplinkStatus,
}

/// Status of a node among others, as it reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Role of the node: `single`, `edge` or `cloud`.
    pub role: String,
    /// Of an edge: the status of its cloud connection.
    pub cloud: Option<UplinkStatus>,
    /// Of a cloud: the status of each edge.
    pub edges: Option<Vec<EdgeStatus>>,
    /// Of a cloud: the edges that it relays to another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<RelayStatus>,
}

/// Nanoseconds as decimal text, since readers of JSON may not support 64-bit numbers.
mod as_text {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(ns: &i64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(ns)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Optional nanoseconds as decimal text.
mod as_text_if_any {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(ns: &Option<i64>, to: S) -> Result<S::Ok, S::Error> {
        ns.map(|ns| ns.to_string()).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        let read = text.map(|text| text.parse().map_err(serde::de::Error::custom));
        read.transpose()
    }
}
