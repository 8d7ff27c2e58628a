//! Moves pinned chunks to files, where they use more than their share of memory.
//!
//! Failure: see [`crate::memory::pins`].

use crate::common::ids::StreamId;
use crate::core::Core;
use crate::core::shard::Shard;
use crate::memory::chunk::Chunk;
use crate::memory::pins::PinnedChunkFiles;
use crate::{ErrorKind, Result};
use std::sync::Arc;

/// Share (1/n) of the budget that pinned chunks may use in memory.
const BUDGET_PART: usize = 4;

/// Moves pinned chunks to a file where they use more than their share of the budget.
pub(super) fn bound_pins(core: &Core) -> Result<()> {
    let most = core.options.memory_budget_bytes / BUDGET_PART;
    if core.shards.pinned_bytes().chunks <= most || core.check_space().is_err() {
        return Ok(());
    }
    let mut files = core.pin_files.lock();
    // Another job may have moved them meanwhile.
    if core.shards.pinned_bytes().chunks <= most {
        return Ok(());
    }
    let moved = core.shards.iter().try_for_each(|shard| {
        let chunks = shard.state.lock().pinned_chunks();
        move_pins(&mut files, shard, &chunks)
    });
    match moved {
        Err(error) if error.kind() == ErrorKind::Full => {
            tracing::warn!(%error, "no space for the pinned events of open snapshots: they stay in memory");
            Ok(())
        }
        Err(error) => {
            core.log.latch(error.clone());
            Err(error)
        }
        Ok(()) => Ok(()),
    }
}

fn move_pins(
    files: &mut PinnedChunkFiles,
    shard: &Shard,
    chunks: &[(StreamId, Arc<Chunk>)],
) -> Result<()> {
    if chunks.is_empty() {
        return Ok(());
    }
    let places = files.write(chunks.iter().map(|(_, chunk)| &**chunk))?;
    // Dropped after the lock is released: the last owner removes the file.
    let mut state = shard.state.lock();
    for ((stream, chunk), place) in chunks.iter().zip(&places) {
        if let Some(place) = place {
            state.pin_moved(*stream, chunk, place);
        }
    }
    Ok(())
}
