//! Superblocks: finding one, and making a device.
//!
//! Invariants: a superblock exists only if the device's sets are durable, including their names;
//! sets with written data are never created again. Concurrency: the creator holds the device's
//! lock. Failure: a failed attempt is repeated by the next one.

use std::io;
use std::path::{Path, PathBuf};

use headwater_io::{Env, Files, OpenMode};

use super::DeviceOptions;
use crate::BLOCK_BYTES;
use crate::error::BlockError;
use crate::format::{HEADER_BYTES, REDO_BLOCKS_MAX, Superblock};
use crate::layout::Layout;
use crate::numbers::long;
use crate::store::{SetLayout, create, is_unwritten};

/// Maximum size of a device: offsets in files of that size still fit `i64`.
const SIZE_MAX: u64 = 1 << 46;
const SETS_MAX: u32 = 64;
const STRIPE_BYTES_MAX: u32 = 1 << 30;

pub(super) fn superblock_path(dir: &Path) -> PathBuf {
    dir.join("block.super")
}

pub(super) fn set_path(dir: &Path, set: u32) -> PathBuf {
    dir.join(format!("block.set.{set}"))
}

/// The superblock; `None` if there is no readable one.
pub(super) fn read_superblock(
    files: &dyn Files,
    dir: &Path,
) -> Result<Option<Superblock>, BlockError> {
    let path = superblock_path(dir);
    let read = files.open(&path, OpenMode::Read).and_then(|file| {
        let mut buf = vec![0; HEADER_BYTES];
        file.read_exact_at(0, &mut buf).map(|()| buf)
    });
    match read {
        Ok(bytes) => Ok(Superblock::decode(&bytes).filter(|found| check(found).is_ok())),
        // Not there, or not wholly.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(BlockError::io("read", &path, error)),
    }
}

/// Returns the superblock of the device if it fits the options.
pub(super) fn checked(
    found: Superblock,
    options: &DeviceOptions,
) -> Result<Superblock, BlockError> {
    let mismatch = |what: &str, is: u64, asked: u64| {
        Err(BlockError::invalid(format!(
            "the device in {} has {what} {is}, requested was {asked}: omit it to open the device as it is; it cannot be changed",
            options.dir.display()
        )))
    };
    match (options.size, options.sets) {
        (Some(size), _) if size != found.layout.size => mismatch("size", found.layout.size, size),
        (_, Some(sets)) if sets != found.layout.sets => {
            mismatch("sets", u64::from(found.layout.sets), u64::from(sets))
        }
        _ => Ok(found),
    }
}

/// Checks the values of a superblock.
fn check(superblock: &Superblock) -> Result<(), String> {
    let block_bytes = long(BLOCK_BYTES);
    let Layout {
        size,
        sets,
        stripe_bytes,
    } = superblock.layout;
    if size == 0 || !size.is_multiple_of(block_bytes) || size > SIZE_MAX {
        return Err(format!(
            "size {size}: expected a multiple of {block_bytes} from {block_bytes} to {SIZE_MAX} bytes"
        ));
    }
    if sets == 0 || sets > SETS_MAX {
        return Err(format!("{sets} sets: expected 1 to {SETS_MAX}"));
    }
    let whole = u64::from(stripe_bytes).is_multiple_of(block_bytes);
    if stripe_bytes == 0 || !whole || stripe_bytes > STRIPE_BYTES_MAX {
        return Err(format!(
            "stripes of {stripe_bytes}: expected a multiple of {block_bytes} up to {STRIPE_BYTES_MAX} bytes"
        ));
    }
    // A block and its page of the map must fit in, and neighbours should.
    if !(4..=REDO_BLOCKS_MAX).contains(&superblock.redo_blocks) {
        return Err(format!(
            "a redo slot of {} blocks: expected 4 to {REDO_BLOCKS_MAX}",
            superblock.redo_blocks
        ));
    }
    Ok(())
}

/// Creates a device. A superblock exists only if the device's sets are durable, including their
/// names. Sets without a readable superblock are left over from a failed attempt, if no data was
/// ever written to them; otherwise they are another user's data.
pub(super) fn make(env: &Env, options: &DeviceOptions) -> Result<Superblock, BlockError> {
    let (files, dir) = (&*env.files, options.dir.as_path());
    require_unwritten(files, dir)?;
    let Some(size) = options.size else {
        return Err(no_size(files, dir)?);
    };
    let mut identity = [0; 16];
    for part in identity.chunks_exact_mut(8) {
        part.copy_from_slice(&env.chance.next_u64().to_le_bytes());
    }
    let superblock = Superblock {
        identity,
        layout: Layout {
            size,
            sets: options.sets.unwrap_or(4),
            stripe_bytes: options.stripe_bytes,
        },
        redo_blocks: options.redo_blocks,
    };
    check(&superblock).map_err(BlockError::invalid)?;
    remove_unfinished(files, dir)?;
    for set in 0..superblock.layout.sets {
        create(files, &set_path(dir, set), SetLayout::of(&superblock, set))?;
    }
    let sync_dir = || {
        let synced = files.sync_dir(dir);
        synced.map_err(|error| BlockError::io("sync", dir, error))
    };
    sync_dir()?;
    let path = superblock_path(dir);
    let written = files.open(&path, OpenMode::CreateNew).and_then(|file| {
        file.write_all_at(0, &superblock.encode())?;
        file.sync_data()
    });
    let written = written.map_err(|error| BlockError::io("make", &path, error));
    if let Err(error) = written.and_then(|()| sync_dir()) {
        // The file may be visible without being on the medium; no later sync would report that.
        if let Err(error) = files.remove(&path) {
            tracing::warn!(%error, file = %path.display(), "cannot remove an incomplete superblock");
        }
        return Err(error);
    }
    Ok(superblock)
}

/// Error for a new device without a size.
fn no_size(files: &dyn Files, dir: &Path) -> Result<BlockError, BlockError> {
    let path = superblock_path(dir);
    let is_there = files.exists(&path);
    if is_there.map_err(|error| BlockError::io("look for", &path, error))? {
        let expected = "the superblock of a device, version 1, with a valid checksum (nothing was ever written to this one: specify its size to recreate it)";
        return Ok(BlockError::corrupt(&path, 0, expected));
    }
    Ok(BlockError::invalid(format!(
        "{} contains no block device: specify its size to create one",
        dir.display()
    )))
}

/// Files of a device in a directory, without its lock.
fn own_files(files: &dyn Files, dir: &Path) -> Result<Vec<PathBuf>, BlockError> {
    let names = files.list(dir);
    let mut names = names.map_err(|error| BlockError::io("list", dir, error))?;
    names.retain(|name| name.starts_with("block.set.") || name == "block.super");
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

fn require_unwritten(files: &dyn Files, dir: &Path) -> Result<(), BlockError> {
    for path in own_files(files, dir)? {
        // A superblock is shorter than the skipped bytes.
        let is_unwritten = is_unwritten(files, &path);
        if !is_unwritten.map_err(|error| BlockError::io("read", &path, error))? {
            let expected = format!(
                "the superblock of a device, version 1, with a valid checksum, beside {}, which was written to",
                path.display()
            );
            return Err(BlockError::corrupt(&superblock_path(dir), 0, &expected));
        }
    }
    Ok(())
}

fn remove_unfinished(files: &dyn Files, dir: &Path) -> Result<(), BlockError> {
    for path in own_files(files, dir)? {
        let removed = files.remove(&path);
        removed.map_err(|error| BlockError::io("remove", &path, error))?;
    }
    Ok(())
}
