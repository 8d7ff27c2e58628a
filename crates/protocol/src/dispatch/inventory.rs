//! Inventory of a node, as bytes: all of it, or the changes since a version.
//!
//! Invariants: an encoded message is decoded to an equal one, in every version; a malformed message
//! is refused before more memory is allocated than its bytes justify. Lists are sorted, without
//! duplicates. Format: docs/format/held.md.

use crate::dispatch::filter::Filter;
use crate::dispatch::keys::{Reach, SHARD_BITS_MAX, StreamKey, TileKey};
use headwater_codec::checksum::crc32c;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::invariant::wide;
use headwater_types::{ClosedRange, Level, Timestamp};

const MAGIC: [u8; 6] = *b"HWHELD";
const VERSION: u16 = 2;
const CRC_BYTES: usize = 4;
/// Most spans of a stream.
pub const SPANS_MAX: usize = 16;

/// Identity of the answering database, to which a ticket is bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Database {
    /// Identity assigned at creation.
    pub identity: u64,
    /// Changes when the database is restored or repaired.
    pub incarnation: u64,
}

/// Address at which clients reach an edge directly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// `https://pump-7.example:7373`, without a path.
    pub url: String,
    /// Browsers may be sent there: its certificate is valid for all, and it lists the origin.
    pub for_browsers: bool,
}

/// A stream whose reach differs from its edge's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The stream.
    pub stream: StreamKey,
    /// Level from which on all of its tiles are present.
    pub reach: Reach,
    /// Up to when; [`Timestamp::MAX`] = all that there is.
    pub until: Timestamp,
}

/// A stretch of a stream of which more is present than its reach says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The stream.
    pub stream: StreamKey,
    /// Level from which on all tiles inside of the stretch are present.
    pub reach: Reach,
    /// The stretch.
    pub range: ClosedRange,
}

impl Span {
    fn key(&self) -> (StreamKey, Reach, Timestamp) {
        (self.stream, self.reach, self.range.first)
    }
}

/// Whether spans are in order, not empty, and few enough of each stream.
fn are_in_order(spans: &[Span]) -> bool {
    let rises = spans.is_sorted_by(|a, b| a.key() < b.key());
    let streams = spans.chunk_by(|a, b| a.stream == b.stream);
    let are_few = streams.into_iter().all(|of| of.len() <= SPANS_MAX);
    rises && are_few && spans.iter().all(|span| !span.range.is_empty())
}

/// Spans in the order of reports, as many of each stream as are reported: the finest.
pub(crate) fn in_order(mut spans: Vec<Span>) -> Vec<Span> {
    spans.retain(|span| !span.range.is_empty());
    spans.sort_by_key(Span::key);
    spans.dedup_by_key(|span| span.key());
    let streams = spans.chunk_by(|a, b| a.stream == b.stream);
    let few = streams.flat_map(|of| of.iter().take(SPANS_MAX).copied());
    few.collect()
}

/// Facts of an edge that a node reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeFacts {
    /// Name of the edge.
    pub name: String,
    /// The node's own streams, which belong to no edge.
    pub is_own: bool,
    /// The node has the edge's connection.
    pub is_connected: bool,
    /// Rank of the edge: of several edges with a stream, the one with the lowest rank is shown.
    pub rank: u64,
    /// Identity of the edge's database, once known.
    pub database: Option<Database>,
    /// Address at which clients reach the edge directly, if any.
    pub address: Option<Address>,
    /// Level from which on all tiles of its streams are present, but for the exceptions.
    pub reach: Reach,
    /// Up to when; [`Timestamp::MAX`] = all that there is.
    pub until: Timestamp,
    /// Streams with a different reach, sorted.
    pub exceptions: Vec<Exception>,
}

/// Change of an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The node does not have the edge any more.
    Removed,
    /// State of the edge.
    State {
        /// Facts of the edge.
        facts: EdgeFacts,
        /// Streams of the edge, sorted; `None` = unchanged.
        streams: Option<Vec<StreamKey>>,
        /// Stretches of which more is present, sorted; `None` = unchanged.
        spans: Option<Vec<Span>>,
    },
}

/// Change of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterChange {
    /// The filter is unchanged.
    Unchanged,
    /// The edge was removed.
    None,
    /// The filter is replaced by this one.
    Replaced(Filter),
}

/// Change of a shard of the tiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardChange {
    /// Which part.
    pub index: usize,
    /// Most of it.
    pub filter: FilterChange,
    /// Keys outside of the filter, sorted.
    pub exact: Vec<TileKey>,
}

/// Inventory that a node reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InventoryReport {
    /// The node's own database.
    pub database: Database,
    /// Versions are comparable within an epoch only; each start of the node has another.
    pub epoch: u64,
    /// Base version of the change; 0 = the whole inventory.
    pub since: u64,
    /// The version that it leads to.
    pub version: u64,
    /// Requests that the node is working on.
    pub load: u32,
    /// Changes of edges, by their numbers, which an epoch never uses twice.
    pub edges: Vec<(u32, Change)>,
    /// Number of key bits that select a tile's shard.
    pub shard_bits: u8,
    /// Changes of tiles.
    pub shards: Vec<ShardChange>,
}

const REMOVED: u8 = 1;
const OWN: u8 = 2;
const CONNECTED: u8 = 4;
const DATABASE: u8 = 8;
const ADDRESS: u8 = 16;
const FOR_BROWSERS: u8 = 32;
const STREAMS: u8 = 64;
/// Since version 2.
const SPANS: u8 = 128;

/// A flag, where it is so.
fn flag(is_so: bool, flag: u8) -> u8 {
    if is_so { flag } else { 0 }
}

fn put_reach(out: &mut Vec<u8>, reach: Reach, until: Timestamp) {
    match reach {
        Reach::None => out.put_u8(0),
        Reach::Rows => out.put_u8(1),
        Reach::Level(level) => {
            out.put_u8(2);
            out.put_signed(i64::from(level.get()));
        }
    }
    out.put_i64(until.as_nanos());
}

fn take_reach(from: &mut Cursor<'_>) -> Result<(Reach, Timestamp), DecodeError> {
    let reach = match from.u8("the reach of a stream")? {
        0 => Reach::None,
        1 => Reach::Rows,
        2 => {
            let level = from.signed("a level")?;
            let level = i32::try_from(level).ok().and_then(Level::new);
            Reach::Level(level.ok_or_else(|| from.expected("a level from -20 to 40"))?)
        }
        _ => return Err(from.expected("a reach: 0, 1 or 2")),
    };
    Ok((reach, Timestamp::from_nanos(from.i64("an instant")?)))
}

fn put_database(out: &mut Vec<u8>, database: Database) {
    out.put_u64(database.identity);
    out.put_u64(database.incarnation);
}

fn take_database(from: &mut Cursor<'_>) -> Result<Database, DecodeError> {
    Ok(Database {
        identity: from.u64("the identity of a database")?,
        incarnation: from.u64("its incarnation")?,
    })
}

/// Encodes keys of 8 bytes, sorted ascending.
fn put_keys(out: &mut Vec<u8>, keys: impl ExactSizeIterator<Item = u64>) {
    out.put_varint(wide(keys.len()));
    for key in keys {
        out.put_u64(key);
    }
}

fn take_keys<T>(
    from: &mut Cursor<'_>,
    what: &'static str,
    each: fn(u64) -> T,
) -> Result<Vec<T>, DecodeError> {
    let most = wide(from.remaining() / 8);
    let count = from.varint_up_to(most, what)?;
    let mut keys = Vec::with_capacity(count);
    let mut last = None;
    for _ in 0..count {
        let key = from.u64(what)?;
        if last.is_some_and(|last| last >= key) {
            return Err(from.expected("keys in ascending order"));
        }
        last = Some(key);
        keys.push(each(key));
    }
    Ok(keys)
}

fn put_edge(out: &mut Vec<u8>, number: u32, change: &Change) {
    out.put_varint(u64::from(number));
    let (facts, (streams, spans)) = match change {
        Change::Removed => return out.put_u8(REMOVED),
        Change::State {
            facts,
            streams,
            spans,
        } => (facts, (streams, spans)),
    };
    let browsers = facts.address.as_ref().is_some_and(|a| a.for_browsers);
    out.put_u8(
        flag(facts.is_own, OWN)
            | flag(facts.is_connected, CONNECTED)
            | flag(facts.database.is_some(), DATABASE)
            | flag(facts.address.is_some(), ADDRESS)
            | flag(browsers, FOR_BROWSERS)
            | flag(streams.is_some(), STREAMS)
            | flag(spans.is_some(), SPANS),
    );
    out.put_prefixed(facts.name.as_bytes());
    out.put_varint(facts.rank);
    if let Some(database) = facts.database {
        put_database(out, database);
    }
    if let Some(address) = &facts.address {
        out.put_prefixed(address.url.as_bytes());
    }
    put_reach(out, facts.reach, facts.until);
    out.put_varint(wide(facts.exceptions.len()));
    for exception in &facts.exceptions {
        out.put_u64(exception.stream.0);
        put_reach(out, exception.reach, exception.until);
    }
    if let Some(streams) = streams {
        put_keys(out, streams.iter().map(|key| key.0));
    }
    if let Some(spans) = spans {
        put_spans(out, spans);
    }
}

fn put_spans(out: &mut Vec<u8>, spans: &[Span]) {
    out.put_varint(wide(spans.len()));
    for span in spans {
        out.put_u64(span.stream.0);
        put_reach(out, span.reach, span.range.first);
        out.put_i64(span.range.last.as_nanos());
    }
}

fn take_spans(from: &mut Cursor<'_>) -> Result<Vec<Span>, DecodeError> {
    // The shortest entry has 25 bytes.
    let most = wide(from.remaining() / 25);
    let count = from.varint_up_to(most, "the number of spans")?;
    let mut spans: Vec<Span> = Vec::with_capacity(count);
    for _ in 0..count {
        let stream = StreamKey(from.u64("a stream")?);
        let (reach, first) = take_reach(from)?;
        let last = Timestamp::from_nanos(from.i64("an instant")?);
        spans.push(Span {
            stream,
            reach,
            range: ClosedRange { first, last },
        });
    }
    match are_in_order(&spans) {
        true => Ok(spans),
        false => Err(from.expected("spans in ascending order, at most 16 of a stream")),
    }
}

fn take_exceptions(from: &mut Cursor<'_>) -> Result<Vec<Exception>, DecodeError> {
    // The shortest entry has 17 bytes.
    let most = wide(from.remaining() / 17);
    let count = from.varint_up_to(most, "the number of exceptions")?;
    let mut all: Vec<Exception> = Vec::with_capacity(count);
    for _ in 0..count {
        let stream = StreamKey(from.u64("a stream")?);
        if all.last().is_some_and(|last| last.stream >= stream) {
            return Err(from.expected("streams in ascending order"));
        }
        let (reach, until) = take_reach(from)?;
        all.push(Exception {
            stream,
            reach,
            until,
        });
    }
    Ok(all)
}

fn take_edge(from: &mut Cursor<'_>, version: u16) -> Result<(u32, Change), DecodeError> {
    let number = from.varint("the number of an edge")?;
    let number = u32::try_from(number).map_err(|_| from.expected("a number of 32 bits"))?;
    let flags = from.u8("flags of an edge")?;
    if flags == REMOVED {
        return Ok((number, Change::Removed));
    }
    let has = |flag: u8| flags & flag != 0;
    if (version == 1 && has(SPANS)) || has(REMOVED) || (has(FOR_BROWSERS) && !has(ADDRESS)) {
        return Err(from.expected("a valid combination of flags"));
    }
    let name = from.text("the name of an edge")?.to_owned();
    let rank = from.varint("the rank of an edge")?;
    let database = has(DATABASE).then(|| take_database(from)).transpose()?;
    let url = has(ADDRESS).then(|| from.text("an address")).transpose()?;
    let address = url.map(|url| Address {
        url: url.to_owned(),
        for_browsers: has(FOR_BROWSERS),
    });
    let (reach, until) = take_reach(from)?;
    let facts = EdgeFacts {
        name,
        is_own: has(OWN),
        is_connected: has(CONNECTED),
        rank,
        database,
        address,
        reach,
        until,
        exceptions: take_exceptions(from)?,
    };
    let streams = has(STREAMS).then(|| take_keys(from, "streams of an edge", StreamKey));
    let streams = streams.transpose()?;
    let spans = has(SPANS).then(|| take_spans(from)).transpose()?;
    let change = Change::State {
        facts,
        streams,
        spans,
    };
    Ok((number, change))
}

fn put_shard(out: &mut Vec<u8>, change: &ShardChange) {
    out.put_varint(wide(change.index));
    match &change.filter {
        FilterChange::Unchanged => out.put_u8(0),
        FilterChange::None => out.put_u8(1),
        FilterChange::Replaced(filter) => {
            out.put_u8(2);
            filter.put(out);
        }
    }
    put_keys(out, change.exact.iter().map(|key| key.0));
}

fn take_shard(from: &mut Cursor<'_>, bits: u8) -> Result<ShardChange, DecodeError> {
    let most = (1u64 << bits) - 1;
    let index = from.varint_up_to(most, "the number of a shard")?;
    let filter = match from.u8("the change of a filter")? {
        0 => FilterChange::Unchanged,
        1 => FilterChange::None,
        2 => FilterChange::Replaced(Filter::take(from)?),
        _ => return Err(from.expected("the change of a filter: 0, 1 or 2")),
    };
    Ok(ShardChange {
        index,
        filter,
        exact: take_keys(from, "tiles", TileKey)?,
    })
}

/// Encodes an inventory.
#[must_use]
pub fn encode(held: &InventoryReport) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.put_u16(VERSION);
    put_database(&mut out, held.database);
    out.put_u64(held.epoch);
    out.put_varint(held.since);
    out.put_varint(held.version);
    out.put_varint(u64::from(held.load));
    out.put_varint(wide(held.edges.len()));
    for (number, change) in &held.edges {
        put_edge(&mut out, *number, change);
    }
    out.put_u8(held.shard_bits);
    out.put_varint(wide(held.shards.len()));
    for shard in &held.shards {
        put_shard(&mut out, shard);
    }
    out.put_u32(crc32c(&out));
    out
}

/// Decodes the bytes of [`encode`], also those of earlier versions.
///
/// # Errors
/// If the bytes are not a valid message.
pub fn decode(bytes: &[u8]) -> Result<InventoryReport, DecodeError> {
    let body = bytes.len().saturating_sub(CRC_BYTES);
    let (body, crc) = bytes.split_at_checked(body).unwrap_or((bytes, &[]));
    let mut from = Cursor::new(body);
    if from.take(MAGIC.len(), "HWHELD")? != MAGIC {
        return Err(from.expected("HWHELD"));
    }
    let format = from.u16("a version")?;
    if !(1..=VERSION).contains(&format) {
        return Err(from.expected("version 1 or 2: dispatchers are upgraded before nodes"));
    }
    if Cursor::new(crc).u32("a checksum") != Ok(crc32c(body)) {
        return Err(from.expected("the checksum of the message at its end"));
    }
    let database = take_database(&mut from)?;
    let epoch = from.u64("an epoch")?;
    let since = from.varint("the version before")?;
    let version = from.varint("the version")?;
    let load = match format {
        1 => 0,
        _ => from.varint("the load of the node")?,
    };
    let load = u32::try_from(load).map_err(|_| from.expected("a number of 32 bits"))?;
    // The shortest change of an edge has two bytes, the shortest change of a shard three.
    let most = wide(from.remaining() / 2);
    let count = from.varint_up_to(most, "the number of changed edges")?;
    let mut edges: Vec<(u32, Change)> = Vec::new();
    for _ in 0..count {
        let edge = take_edge(&mut from, format)?;
        if edges.last().is_some_and(|(last, _)| *last >= edge.0) {
            return Err(from.expected("numbers in ascending order"));
        }
        edges.push(edge);
    }
    let shard_bits = from.u8("the bits that divide tiles")?;
    if shard_bits > SHARD_BITS_MAX {
        return Err(from.expected("at most 14 bits"));
    }
    let most = wide(from.remaining() / 3);
    let count = from.varint_up_to(most, "the number of changed shards")?;
    let mut shards: Vec<ShardChange> = Vec::new();
    for _ in 0..count {
        let shard = take_shard(&mut from, shard_bits)?;
        if shards.last().is_some_and(|last| last.index >= shard.index) {
            return Err(from.expected("numbers in ascending order"));
        }
        shards.push(shard);
    }
    from.finish()?;
    Ok(InventoryReport {
        database,
        epoch,
        since,
        version,
        load,
        edges,
        shard_bits,
        shards,
    })
}
