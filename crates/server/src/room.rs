//! Room on a full disk of an edge that prefers new rows to old ones (`sync.full = lose-raw`).
//!
//! Invariants: nothing is lost while writes are accepted, and rows that the cloud has, safe from
//! its own loss, are freed before rows are lost, if it proves within [`PROVING_MAX`] that it has
//! them. No more is lost than makes room: after each share of the rows the disk is tried again.
//! Each loss is recorded by the engine and logged.
//! Concurrency: one worker, away from the runtime. Failure: where nothing more may be lost, writes
//! stay refused, which is logged once.

use crate::app::App;
use crate::error::ApiError;
use headwater::ErrorKind;
use headwater_cluster::MadeRoom;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Interval of looking at the space.
const LOOK: Duration = Duration::from_millis(250);
/// Bytes that are freed before the disk is tried again: these, or this share of all segments where
/// that is less.
const ROOM: u64 = 64 << 20;
const ROOM_SHARE: u64 = 16;
/// Longest time in which the database finds that there is room again, and interval of looking.
const TRYING_MAX: Duration = Duration::from_secs(1);
const TRYING_LOOK: Duration = Duration::from_millis(50);
/// Longest time for which nothing is lost, and writes are refused, while the cloud proves that it
/// has rows.
const PROVING_MAX: Duration = Duration::from_secs(10);
/// Maximum partitions of one turn.
const TURN: u64 = 256;

/// Outcome of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// There is room.
    Room,
    /// The disk is full, and the cloud is proving that it has rows.
    Proving,
    /// The disk is full, and nothing more may be lost.
    Stuck,
}

/// Makes room until the server stops.
pub(crate) async fn run(app: Arc<App>) {
    let mut stopping = app.shell.stopping();
    let mut was_stuck = false;
    let mut proving_since: Option<Instant> = None;
    loop {
        tokio::select! {
            // An error means that the server has stopped.
            _ = stopping.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let may_wait = proving_since.is_none_or(|at| at.elapsed() < PROVING_MAX);
        let is_stuck = match app.blocking(move |app| make_room(app, may_wait)).await {
            Ok(turn) => {
                proving_since = match turn {
                    Turn::Proving => proving_since.or_else(|| Some(Instant::now())),
                    Turn::Room | Turn::Stuck => None,
                };
                turn == Turn::Stuck
            }
            Err(error) => {
                tracing::warn!(?error, "no room can be made for new rows");
                continue;
            }
        };
        if is_stuck && !was_stuck {
            tracing::error!(
                "the disk is full, and no old rows may be lost to make room: writes are refused"
            );
        }
        was_stuck = is_stuck;
    }
}

/// Makes room on a full disk; loses nothing while the cloud is proving that it has rows, if this
/// `may_wait`.
fn make_room(app: &App, may_wait: bool) -> Result<Turn, ApiError> {
    let db = app.db();
    let is_full = || match db.check_space() {
        Err(error) if error.kind() == ErrorKind::Full => Ok(true),
        other => other.map(|()| false),
    };
    if !is_full()? {
        return Ok(Turn::Room);
    }
    let made = match &app.uplink {
        Some(uplink) => uplink.make_room()?,
        None => MadeRoom::default(),
    };
    let mut freed = made.bytes;
    let goal = (db.stats()?.segment_bytes / ROOM_SHARE).clamp(1, ROOM);
    if may_wait && made.is_proving && (freed < goal || is_full()?) {
        return Ok(Turn::Proving);
    }
    for _ in 0..TURN {
        if freed >= goal {
            if !stays_full(&is_full)? {
                return Ok(Turn::Room);
            }
            freed = 0;
        }
        match db.lose_oldest_rows() {
            Ok(lost) if lost.partitions > 0 => freed = freed.saturating_add(lost.bytes),
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::Full => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(match stays_full(&is_full)? {
        true => Turn::Stuck,
        false => Turn::Room,
    })
}

/// Whether the disk is full after space was freed: the database tries to use it after a while.
fn stays_full(is_full: &dyn Fn() -> headwater::Result<bool>) -> headwater::Result<bool> {
    let began = Instant::now();
    loop {
        if !is_full()? {
            return Ok(false);
        }
        if began.elapsed() >= TRYING_MAX {
            return Ok(true);
        }
        std::thread::sleep(TRYING_LOOK);
    }
}
