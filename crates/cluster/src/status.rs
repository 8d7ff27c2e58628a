//! Status between nodes, as reported over HTTP and on the command line. Names are a promise.

use crate::edges::EdgeAddress;
use crate::frame::{About, QuietCause};
use crate::prefetch::Prefetch;
use crate::rights::RightsStatus;
use crate::subscription::{StreamShare, WantRule};
use headwater_protocol::replication::ChallengeStats;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// State of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeState {
    /// Invited, and never connected.
    Invited,
    /// Not connected.
    Offline,
    /// Not connected, as the edge has announced: in its quiet hours, or with its budget spent.
    Quiet,
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
            EdgeState::Quiet => "quiet",
            EdgeState::Current => "current",
            EdgeState::Catching => "catching",
            EdgeState::Paused => "paused",
            EdgeState::Refused => "refused",
            EdgeState::Failed => "failed",
        }
    }
}

/// Whether an edge verifies its cloud by the certificates that the cloud is going to use next
/// (`tls.next_ca`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NextCaState {
    /// The edge has all of them.
    Has,
    /// The edge lacks some of them.
    Lacks,
    /// The edge has no certificates of its own: it goes by those that its system trusts.
    System,
    /// The connection of the edge has no TLS.
    Plaintext,
    /// The edge has not answered since this node was started, or is of an earlier version.
    Unknown,
}

impl NextCaState {
    /// All states.
    pub const ALL: [NextCaState; 5] = [
        NextCaState::Has,
        NextCaState::Lacks,
        NextCaState::System,
        NextCaState::Plaintext,
        NextCaState::Unknown,
    ];

    /// Reported name of the state.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            NextCaState::Has => "has",
            NextCaState::Lacks => "lacks",
            NextCaState::System => "system",
            NextCaState::Plaintext => "plaintext",
            NextCaState::Unknown => "unknown",
        }
    }

    /// True when the edge may refuse the next certificate.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, NextCaState::Lacks | NextCaState::Unknown)
    }
}

/// Reason for a lag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LagCause {
    /// The edge is not connected, and has not said why.
    NotConnected,
    /// Its hours of quiet.
    QuietHours,
    /// The cap of its day is spent.
    DayCap,
    /// The cap of its month is spent.
    MonthCap,
    /// Its rate, or another limit of the edge: it has asked to wait.
    Rate,
    /// Requests to it are paused here.
    Paused,
    /// Its database has another history than the copy.
    Refused,
    /// The device of this node refuses the copy.
    Failed,
    /// Ranges are in flight, or requests have failed.
    Link,
    /// Nothing that is missing is subscribed to.
    Planner,
}

impl LagCause {
    /// Reported name of the cause.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LagCause::NotConnected => "not_connected",
            LagCause::QuietHours => "quiet_hours",
            LagCause::DayCap => "day_cap",
            LagCause::MonthCap => "month_cap",
            LagCause::Rate => "rate",
            LagCause::Paused => "paused",
            LagCause::Refused => "refused",
            LagCause::Failed => "failed",
            LagCause::Link => "link",
            LagCause::Planner => "planner",
        }
    }

    /// The cause in words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            LagCause::NotConnected => "it is not connected",
            LagCause::QuietHours => "it has quiet hours",
            LagCause::DayCap => "the cap of its day is spent",
            LagCause::MonthCap => "the cap of its month is spent",
            LagCause::Rate => "its rate is used up for now",
            LagCause::Paused => "it is paused here",
            LagCause::Refused => "its database has another history than the copy",
            LagCause::Failed => "the device of this node refuses the copy",
            LagCause::Link => "it is on its way over the link",
            LagCause::Planner => "no rule subscribes to what is missing",
        }
    }
}

/// Lag of a copy behind its edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LagStatus {
    /// Seconds before which everything that the edge had stored is here; `None` = unknown since the
    /// start of this node.
    pub seconds: Option<u64>,
    /// Reason; `None` without a lag.
    pub cause: Option<LagCause>,
    /// End of the announced time without a connection, in nanoseconds since 1970.
    #[serde(default, with = "as_text_if_any")]
    pub until_ns: Option<i64>,
    /// Seconds until the missing bytes are here at the rate of the last hour; `None` = unknown.
    pub seconds_left: Option<u64>,
    /// Longest age in milliseconds that newest events, which the edge has not stored yet, had when
    /// they were last reported to arrive; `None` = the edge is not connected, or sends none.
    #[serde(default)]
    pub live_ms: Option<u64>,
    /// Clock of the edge minus that of this node in milliseconds; `None` as with `live_ms`.
    #[serde(default)]
    pub clock_ms: Option<i64>,
}

/// Reason why a range of a stream is here, or not yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeWhy {
    /// The segment.
    pub segment: u64,
    /// Offset in the segment.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// `here`, `requested`, `held_back` = the edge has asked to wait or requests have failed,
    /// `waiting` = other ranges come first, `not_subscribed` = no rule subscribes to rows of the
    /// stream in this segment.
    pub state: String,
    /// Content: `index`, `buckets`, `late_rows` or `rows`.
    pub needed_for: Option<String>,
    /// As in [`ReasonStatus`].
    pub reason: Option<String>,
    /// Share of the traffic that it is requested in.
    pub share: Option<String>,
    /// Priority of its rule.
    pub priority: u8,
    /// Number of its pin.
    pub pin: Option<u64>,
    /// Score among ranges of its share, as decimal text.
    pub score: Option<String>,
}

/// Reasons of the ranges of a stream in a span of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamWhy {
    /// The edge.
    pub edge: String,
    /// The stream.
    pub stream: String,
    /// Lag of the edge.
    pub lag: LagStatus,
    /// Reasons by segment and offset.
    pub ranges: Vec<RangeWhy>,
}

/// Announced time without a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuietStatus {
    /// Its end by the edge's clock, in nanoseconds since 1970.
    #[serde(with = "as_text")]
    pub until_ns: i64,
    /// Reason for it.
    pub cause: QuietCause,
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

/// Conflict of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamConflict {
    /// The stream.
    pub stream: String,
    /// Its table.
    pub table: String,
    /// The part that has rows beside a part of a smaller rank: the name of an edge or closed part.
    pub part: String,
    /// First instant of the shared stretches, in nanoseconds since 1970.
    #[serde(with = "as_text")]
    pub first_ns: i64,
    /// Last instant of the shared stretches, in nanoseconds since 1970.
    #[serde(with = "as_text")]
    pub last_ns: i64,
    /// Number of rows that are not shown; `None` = not counted.
    pub hidden_rows: Option<u64>,
}

/// Conflicts of one part, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictCounts {
    /// Number of streams that it shares with a part of a smaller rank, in the same stretch of time.
    pub streams: u64,
    /// Number of its rows that are known to be not shown.
    pub hidden_rows: u64,
    /// False when rows or streams were not counted.
    pub is_complete: bool,
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
    /// Tags that are added to the names of its streams.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Time of the last message received, in nanoseconds since 1970; `None` = no message since this
    /// node was started.
    #[serde(with = "as_text_if_any")]
    pub heard_ns: Option<i64>,
    /// Announced time without a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet: Option<QuietStatus>,
    /// Number of the list of rights that it has; `None` = it takes no list, or has not connected
    /// since this node was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rights: Option<u64>,
    /// Whether it has the next certificates of this node; `None` without any (`tls.next_ca`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_ca: Option<NextCaState>,
    /// Lag of the copy.
    #[serde(default)]
    pub lag: LagStatus,
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
    /// Streams that another database has, too, in the same stretch of time; omitted = none is
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflicts: Option<ConflictCounts>,
    /// Why it is refused, or the copy cannot be used, or a warning: another machine uses its key.
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
    /// There is none in quiet hours, or with the budget spent.
    Quiet,
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
    /// The cloud is of an earlier version, which answers no challenges: upgrade it.
    NoChallenges,
    /// The cloud has not answered the last challenges.
    Unanswered,
    /// The cloud has confirmed segments, and cannot prove that it has them: an alarm. Their rows
    /// stay here; others are freed.
    Refuted,
}

/// Counts of challenges: before rows are freed, the cloud proves with their bytes that it has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChallengeStatus {
    /// Number of challenges since the start.
    pub sent: u64,
    /// Bytes that the cloud has proven to have, since the start.
    pub proven_bytes: u64,
    /// Answers since the start that were wrong: the cloud claims to have bytes that it does not
    /// have.
    pub wrong: u64,
    /// Answers since the start by which the cloud says that it lacks bytes that it has confirmed.
    pub lacking: u64,
    /// Challenges since the start that were not answered in time.
    pub unanswered: u64,
    /// Number of segments that the cloud confirms now, and whose last answer was wrong or lacking.
    pub refuted_segments: u64,
}

impl From<ChallengeStats> for ChallengeStatus {
    fn from(stats: ChallengeStats) -> ChallengeStatus {
        ChallengeStatus {
            sent: stats.sent,
            proven_bytes: stats.proven_bytes,
            wrong: stats.wrong,
            lacking: stats.lacking,
            unanswered: stats.unanswered,
            refuted_segments: stats.refuted_segments,
        }
    }
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
    /// Counts of challenges.
    #[serde(default)]
    pub challenges: ChallengeStatus,
}

/// Rows that an edge has lost on a full disk, to make room for new ones. Their aggregates stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostStatus {
    /// Number of partitions that lost their rows.
    pub partitions: u64,
    /// Number of the rows.
    pub rows: u64,
    /// Bytes that were freed.
    pub bytes: u64,
    /// Start of the span of these partitions, in nanoseconds since 1970.
    #[serde(with = "as_text")]
    pub first_ns: i64,
    /// End of the span of these partitions, in nanoseconds since 1970.
    #[serde(with = "as_text")]
    pub last_ns: i64,
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
    /// Rows that were lost on a full disk (`sync.full`); omitted = none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostStatus>,
    /// Announced time without a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet: Option<QuietStatus>,
    /// Whether a comparison that was requested here is running.
    pub is_verifying: bool,
    /// Result of the newest comparison that was requested here.
    pub verified: Option<VerifiedStatus>,
    /// Last instant at which the certificates of the cloud are valid, as of the last connection, in
    /// nanoseconds since 1970; `None` without TLS.
    #[serde(default, with = "as_text_if_any")]
    pub certificate_ends_ns: Option<i64>,
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
    /// Of a cloud: identity of its own database, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Of a cloud: its peer, which gets a copy of everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerStatus>,
    /// The list of rights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rights: Option<RightsStatus>,
    /// Of a cloud: what was fetched from edges for readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched: Option<FetchStatus>,
    /// Of a cloud: the edges that it relays to another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<RelayStatus>,
}

/// Counts of what was fetched from edges for readers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchStatus {
    /// Bytes a day of each token that has no budget of its own; `None` = unlimited.
    pub per_day: Option<u64>,
    /// Bytes that were requested since the start.
    pub bytes: u64,
    /// Answers since the start that needed more than was left of a budget.
    pub refused: u64,
    /// The tokens for which something was fetched, or refused, on this day (UTC).
    pub tokens: Vec<TokenFetched>,
}

/// Counts of what was fetched for a token on a day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenFetched {
    /// Id of the token; `None` = clients without one.
    pub token: Option<String>,
    /// Bytes that count as requested.
    pub bytes: u64,
    /// Budget of the token; `None` = unlimited.
    pub per_day: Option<u64>,
    /// The last answer needed more than was left.
    pub is_spent: bool,
}

/// Status of the peer of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Address of the peer.
    pub url: String,
    /// Number of databases that are relayed there.
    pub relayed: usize,
    /// Reason why others are not relayed yet, if any.
    pub error: Option<String>,
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
