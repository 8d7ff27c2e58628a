//! Rows of many streams of a table as one sequence in the order of time.
//!
//! Invariants: all that one replay gives is of one snapshot; a row comes once.
//! Concurrency: one call at a time for each replay.
//! Failure: the first error ends it; what follows is its end.

use crate::column::{Layout, hw_column};
use crate::handles::{self, Handled};
use crate::query::{Query, Subject, hw_query};
use crate::rows::FieldNames;
use crate::scan::range;
use crate::snapshot::{Sight, hw_snapshot, view_of};
use crate::status::{Outcome, guard, hw_error, invalid, lock, out, write_result};
use crate::stream::{Named, hw_stream_name};
use crate::text::{hw_str, pointer, slice};
use headwater::{
    Column, ReplayChunk, ReplayCursor, ReplaySpec, ReplaySteps, ScanSpec, StreamName, Timestamp,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A replay: the rows of the streams of a table, by time. To end with hw_release.
pub type hw_replay = u64;

/// Names a row of a replay, to go on behind it later: in the same snapshot, or in a later one,
/// which does not show what has come before it since.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_replay_cursor {
    /// The row's time.
    pub time_ns: i64,
    /// Which of the rows of its stream and time it is, from 1 on: numbers of hw_replay_rows.
    pub number: u64,
    /// Its stream, as "table,tag=value,…".
    pub stream: hw_str,
}

/// Rows of a replay. Release the handle when they have been read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_replay_rows {
    /// To release. 0 = the replay is at its end; the rest is zeros then.
    pub handle: u64,
    /// The number of rows.
    pub row_count: usize,
    /// Their times, ns since 1970, rising.
    pub times_ns: *const i64,
    /// For each row the index of its stream in streams.
    pub places: *const u32,
    /// For each row which of the rows of its stream and time it is, from 1 on.
    pub numbers: *const u64,
    /// Columns: those asked for, in that order.
    pub column_count: usize,
    /// Each with row_count rows.
    pub columns: *const hw_column,
    /// Streams of these rows.
    pub stream_count: usize,
    /// Their names, each once.
    pub streams: *const hw_stream_name,
}

impl hw_replay_rows {
    const END: hw_replay_rows = hw_replay_rows {
        handle: 0,
        row_count: 0,
        times_ns: std::ptr::null(),
        places: std::ptr::null(),
        numbers: std::ptr::null(),
        column_count: 0,
        columns: std::ptr::null(),
        stream_count: 0,
        streams: std::ptr::null(),
    };
}

/// Rows of a replay behind a handle.
struct ReplayRows {
    times: Vec<i64>,
    places: Vec<u32>,
    numbers: Vec<u64>,
    views: Vec<hw_column>,
    streams: Vec<hw_stream_name>,
    _memory: ViewMemory,
}

/// Memory that the views point into.
struct ViewMemory {
    _columns: Vec<Column>,
    _layouts: Vec<Layout>,
    _fields: FieldNames,
    _streams: Vec<Arc<Named>>,
}

// SAFETY: the pointers in `views` and `streams` lead into `_memory`, which lives as long, is never
// changed, and may be read by any thread.
unsafe impl Send for ReplayRows {}
// SAFETY: as above.
unsafe impl Sync for ReplayRows {}

impl ReplayRows {
    fn hand_out(self) -> hw_replay_rows {
        let (handle, rows) = handles::register_result(self);
        hw_replay_rows {
            handle,
            row_count: rows.times.len(),
            times_ns: pointer(&rows.times),
            places: pointer(&rows.places),
            numbers: pointer(&rows.numbers),
            column_count: rows.views.len(),
            columns: pointer(&rows.views),
            stream_count: rows.streams.len(),
            streams: pointer(&rows.streams),
        }
    }
}

/// A replay behind a handle.
struct Replay(Mutex<Playing>);

struct Playing {
    view: Sight,
    steps: ReplaySteps,
    fields: FieldNames,
    /// Names of the streams that came up, by their indexes among those of the replay.
    streams_by_index: HashMap<u32, Arc<Named>>,
}

impl Handled for Replay {
    const KIND: &'static str = "a replay";
}

impl Playing {
    fn next(&mut self) -> Outcome<Option<ReplayRows>> {
        match self.steps.next_chunk(&self.view) {
            None => Ok(None),
            Some(chunk) => Ok(Some(self.rows(chunk?)?)),
        }
    }

    fn rows(&mut self, chunk: ReplayChunk) -> Outcome<ReplayRows> {
        let mut names: Vec<Arc<Named>> = Vec::new();
        let mut place_of: HashMap<u32, u32> = HashMap::new();
        let mut places = Vec::with_capacity(chunk.times.len());
        for stream in &chunk.streams {
            let place = match place_of.get(stream) {
                Some(place) => *place,
                None => {
                    let place = u32::try_from(names.len())
                        .map_err(|_| invalid("more than 2^32 streams in a part of a replay"))?;
                    names.push(self.named(*stream)?);
                    place_of.insert(*stream, place);
                    place
                }
            };
            places.push(place);
        }
        let numbers = chunk.rows().map(|row| row.number).collect();
        let columns = chunk.columns;
        let layouts: Vec<Layout> = columns.iter().map(Layout::of).collect();
        let shown = layouts.iter().zip(&columns).zip(self.fields.iter());
        Ok(ReplayRows {
            views: shown
                .map(|((layout, column), name)| layout.view(name, column))
                .collect(),
            streams: names.iter().map(|named| named.view()).collect(),
            times: chunk.times,
            places,
            numbers,
            _memory: ViewMemory {
                _columns: columns,
                _layouts: layouts,
                _fields: Arc::clone(&self.fields),
                _streams: names,
            },
        })
    }

    fn named(&mut self, stream: u32) -> Outcome<Arc<Named>> {
        if let Some(named) = self.streams_by_index.get(&stream) {
            return Ok(Arc::clone(named));
        }
        let name = self.steps.stream(stream).cloned();
        let name =
            name.ok_or_else(|| invalid("a row of a stream that is not part of the replay"))?;
        let named = Arc::new(Named::new(name));
        self.streams_by_index.insert(stream, Arc::clone(&named));
        Ok(named)
    }
}

/// The cursor that a caller gave; NULL = none.
fn cursor(after: *const hw_replay_cursor) -> Outcome<Option<ReplayCursor>> {
    if after.is_null() {
        return Ok(None);
    }
    let [after] = slice(after, 1, "after")? else {
        return Ok(None);
    };
    let text = after.stream.read("after.stream")?;
    let stream = StreamName::parse(text).ok_or_else(|| {
        invalid(format!(
            "after.stream: expected `table,tag=value,…`, found `{text}`"
        ))
    })?;
    if after.number == 0 {
        return Err(invalid(
            "after.number: expected the number of a row, from 1 on, found 0",
        ));
    }
    Ok(Some(ReplayCursor {
        time: Timestamp::from_nanos(after.time_ns),
        stream,
        row: after.number,
    }))
}

/// Begins a replay of a query for a table (hw_query_table), from first_ns to last_ns, both
/// included: the rows of all its streams as one sequence by time; of equal times by stream, in the
/// order of hw_streams_list, and of one stream by arrival. after = the row to go on behind; NULL =
/// from the first one on. memory_bytes bounds the rows in memory at once; 0 = a share of the
/// quarter of memory_budget_bytes that all replays have together. snapshot 0 = as it is now; the
/// replay keeps what it reads, the snapshot may be released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_replay_open(
    query: hw_query,
    snapshot: hw_snapshot,
    first_ns: i64,
    last_ns: i64,
    after: *const hw_replay_cursor,
    memory_bytes: usize,
    replay: *mut hw_replay,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(replay, "replay")?;
        let query = handles::get::<Query>(query)?;
        let Subject::Table { table, tags } = &query.subject else {
            return Err(invalid(
                "the query is for one stream: create one for a table with hw_query_table, and filter by the stream's tags",
            ));
        };
        let view = view_of(&query.store, snapshot)?;
        let after = cursor(after)?;
        let spec = |asked: &ScanSpec| {
            let mut spec = ReplaySpec::new(table.clone());
            spec.tags = tags.clone();
            spec.fields = asked.fields.clone();
            spec.filters = asked.filters.clone();
            spec.range = asked.range;
            spec.after = after;
            if memory_bytes > 0 {
                spec.memory_bytes = memory_bytes;
            }
            view.replay_steps(&spec, None)
        };
        let steps = query.read_range(range(first_ns, last_ns), spec)?;
        let fields = steps.fields().iter();
        let playing = Playing {
            fields: fields.map(|(name, _)| name.as_str().into()).collect(),
            view,
            steps,
            streams_by_index: HashMap::new(),
        };
        write_result(
            replay,
            handles::register(Replay(Mutex::new(playing))).0,
            "replay",
        )
    })
}

/// The next rows of a replay, at least one; at its end rows->handle is 0. An error ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_replay_next(
    replay: hw_replay,
    rows: *mut hw_replay_rows,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(rows, "rows")?;
        let replay = handles::get::<Replay>(replay)?;
        let next = lock(&replay.0)?.next()?;
        write_result(
            rows,
            next.map_or(hw_replay_rows::END, ReplayRows::hand_out),
            "rows",
        )
    })
}
