//! How it stands between nodes, as it is told over HTTP and on the command line. Names are a
//! promise.

use crate::edges::EdgeAddress;
use crate::frame::About;
use crate::migration::Migration;
use crate::wants::{Want, WantRule};
use serde::{Deserialize, Serialize};

/// How it stands with an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeState {
    /// It was invited and has not come.
    Invited,
    /// It is not connected.
    Offline,
    /// It is connected, and everything that is wanted of its newest state is here.
    Current,
    /// It is connected, and something is on its way.
    Catching,
    /// It is connected, and nothing is asked of it for now.
    Paused,
    /// Its database is of another history than the copy.
    Refused,
    /// The medium of this node refuses the copy.
    Failed,
}

impl EdgeState {
    /// Whether it can be asked for something now.
    #[must_use]
    pub fn is_connected(self) -> bool {
        matches!(
            self,
            EdgeState::Current | EdgeState::Catching | EdgeState::Paused
        )
    }

    /// As it is told.
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

/// What is here of an edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyStatus {
    /// The database it is of.
    pub identity: String,
    /// Its incarnation.
    pub incarnation: String,
    /// The number of the newest state.
    pub state: u64,
    /// Bytes that are here.
    pub bytes: u64,
    /// Bytes that are wanted and not here, as far as is known.
    pub missing_bytes: u64,
    /// Bytes of whole segments whose hash, computed from this node's medium since it was started,
    /// is that which the edge computed when it wrote them.
    pub proven_bytes: u64,
    /// Partitions that are shown as the newest state has them.
    pub shown: usize,
    /// Partitions that are shown in a version before.
    pub shown_older: usize,
    /// Partitions of which something is kept that the edge has cut away because of its age.
    pub kept: usize,
    /// The newest events, which the edge has not stored yet, are here up to what it said last
    /// (`sync.live` at the edge).
    #[serde(default)]
    pub is_live: bool,
}

/// How much of an edge is here, or wanted, for a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonStatus {
    /// `asked` = a reader asked for it, `summaries` = tiles of the level that is wanted and above
    /// need it, `pinned`, `rows` = all rows of its stream are wanted, `ahead` = rows that may be
    /// fetched before somebody looks at them.
    pub reason: String,
    /// Bytes that are wanted for it, here or not.
    pub wanted_bytes: u64,
    /// Those of them that are not here.
    pub missing_bytes: u64,
}

/// What a comparison found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifiedStatus {
    /// When it was through, in nanoseconds since 1970.
    #[serde(with = "as_text")]
    pub at_ns: i64,
    /// Bytes that are the same on both media.
    pub equal: u64,
    /// Bytes that are not.
    pub different: u64,
    /// Bytes that are wanted and not here.
    pub missing: u64,
}

/// All that is known of an edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeStatus {
    /// What it is called.
    pub name: String,
    /// How it stands.
    pub state: EdgeState,
    /// What is wanted of it where no rule fits.
    pub want: Want,
    /// What is wanted of some of its streams.
    pub rules: Vec<WantRule>,
    /// What is copied before somebody asks for it.
    pub migration: Migration,
    /// For how many seconds what it cuts away because of its age is kept here beyond that; nothing
    /// = for ever.
    pub kept_seconds: Option<u64>,
    /// Where clients reach it themselves.
    #[serde(default)]
    pub address: Option<EdgeAddress>,
    /// When something was heard of it last, in nanoseconds since 1970; nothing since this node was
    /// started if there is none.
    #[serde(with = "as_text_if_any")]
    pub heard_ns: Option<i64>,
    /// Since when everything it had by then is here, in nanoseconds since 1970.
    #[serde(with = "as_text_if_any")]
    pub current_ns: Option<i64>,
    /// What is here.
    pub copy: Option<CopyStatus>,
    /// Why it is here: of the copy, while it is open.
    #[serde(default)]
    pub reasons: Vec<ReasonStatus>,
    /// What it tells of itself.
    pub about: Option<About>,
    /// True while a comparison goes on.
    pub is_verifying: bool,
    /// What the newest comparison found.
    pub verified: Option<VerifiedStatus>,
    /// The nodes through which it comes, where it is relayed by another cloud.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<String>,
    /// Why it is refused, or the copy cannot be used.
    pub error: Option<String>,
}

/// How it stands with the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UplinkState {
    /// No cloud was joined.
    NotJoined,
    /// A connection is being made, or will be.
    Offline,
    /// There is one.
    Connected,
    /// Nothing is sent for now.
    Paused,
    /// The cloud refuses this database.
    Refused,
}

/// Whether an edge frees rows that its cloud has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FreeStatus {
    /// It does not, and did once.
    Never,
    /// It does: what the cloud confirms survives the cloud.
    Confirmed,
    /// It would, but nothing says that what the cloud has survives the cloud: it is not connected,
    /// or keeps its copies on its own medium only.
    NotSafe,
}

/// What an edge has freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreedStatus {
    /// Whether it goes on.
    pub state: FreeStatus,
    /// Partitions whose rows are at the cloud only.
    pub partitions: u64,
    /// Bytes of them that were freed.
    pub bytes: u64,
}

/// All that an edge knows of its cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UplinkStatus {
    /// How it stands.
    pub state: UplinkState,
    /// The address of the cloud.
    pub url: Option<String>,
    /// What the cloud calls this edge.
    pub edge: Option<String>,
    /// Since when it stands so, in nanoseconds since 1970.
    #[serde(with = "as_text")]
    pub since_ns: i64,
    /// The number of the state of this database.
    pub state_number: u64,
    /// The number of the newest state of which the cloud has confirmed something.
    pub confirmed_number: Option<u64>,
    /// For how many seconds there has been something stored here that the cloud has not confirmed,
    /// as far as was seen since the start; nothing as long as it has confirmed nothing.
    #[serde(default)]
    pub lag_seconds: Option<u64>,
    /// Bytes of newest events that were sent along since the start, before they were stored.
    #[serde(default)]
    pub live_bytes: u64,
    /// Segments, and their bytes, of which the cloud has everything that it wants, on its medium.
    pub confirmed_segments: usize,
    /// See `confirmed_segments`.
    pub confirmed_bytes: u64,
    /// Segments of which the cloud has computed another hash from its medium: an alarm.
    pub differing_segments: usize,
    /// Bytes sent on this day of the clock.
    pub sent_today: u64,
    /// Bytes sent in this month.
    pub sent_this_month: u64,
    /// What was freed here since the cloud has it; nothing where that is not wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freed: Option<FreedStatus>,
    /// True while a comparison that was asked for here goes on.
    pub is_verifying: bool,
    /// What the newest comparison found that was asked for here.
    pub verified: Option<VerifiedStatus>,
    /// Why there is no connection, or what the cloud said.
    pub error: Option<String>,
}

/// How it stands with the cloud that an edge is passed on to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayStatus {
    /// What the edge is called here.
    pub edge: String,
    /// How it stands with the other cloud.
    pub to: UplinkStatus,
}

/// How a node stands with others, as it tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its role: `single`, `edge` or `cloud`.
    pub role: String,
    /// Of an edge: how it stands with its cloud.
    pub cloud: Option<UplinkStatus>,
    /// Of a cloud: how it stands with each edge.
    pub edges: Option<Vec<EdgeStatus>>,
    /// Of a cloud: the edges that it passes on to another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<RelayStatus>,
}

/// Nanoseconds as decimal text, since programs that read JSON may not have 64 bits for a number.
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

/// The same, where there may be none.
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
