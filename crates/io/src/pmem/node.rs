//! A file as all its handles in this process share it: its windows, and what is left to be synced.
//!
//! Invariants: one [`Node`] per file of the machine, as long as a handle of it is open; a window is
//! ready below the length of the file only. A write by calls is counted when the call has returned,
//! and synced up to a count.
//! Concurrency: stores, and writes by calls, hold the windows for reading; making windows ready, or
//! changing the length, holds them for writing. The registry's lock is held for no other.
//! Failure: a sync that failed is tried by the next one again, which says nothing about what was
//! lost.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

use super::lines::Lines;
use super::windows::{self, WINDOW_BYTES, Window};
use super::{Medium, Standing};
use crate::files::File;
use crate::system::{FileId, SystemFile, id_of};

/// The files that are open.
static NODES: Mutex<BTreeMap<FileId, Weak<Node>>> = Mutex::new(BTreeMap::new());

/// A file.
#[derive(Debug)]
pub(super) struct Node {
    medium: Medium,
    windows: RwLock<Windows>,
    /// Writes by calls and changes of the length that have returned, and one for those before the
    /// file was opened here.
    calls: AtomicU64,
    /// Number of those calls whose writes were made durable.
    synced: Mutex<u64>,
}

#[derive(Debug, Default)]
struct Windows {
    /// Known once a window was requested.
    standing: Option<Standing>,
    /// By where they begin in the file.
    by_start: BTreeMap<u64, Window>,
}

impl Node {
    /// The node of an open file.
    pub(super) fn of(file: &SystemFile, medium: &Medium) -> io::Result<Arc<Node>> {
        let id = id_of(&file.0.metadata()?);
        let mut nodes = NODES.lock();
        if let Some(node) = nodes.get(&id).and_then(Weak::upgrade) {
            return Ok(node);
        }
        nodes.retain(|_, node| node.strong_count() > 0);
        let node = Arc::new(Node {
            medium: medium.clone(),
            windows: RwLock::default(),
            calls: AtomicU64::new(1),
            synced: Mutex::new(0),
        });
        nodes.insert(id, Arc::downgrade(&node));
        Ok(node)
    }

    /// Writes through the windows what lies in them, and by a call what does not.
    pub(super) fn write(&self, file: &SystemFile, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = u64::try_from(data.len())
            .ok()
            .and_then(|len| offset.checked_add(len));
        let (Some(lines), Some(end)) = (&self.medium.lines, end) else {
            return self.write_by_call(file, offset, data);
        };
        {
            let windows = self.windows.read();
            if windows.are_ready(offset, end) {
                windows.write(&**lines, offset, end, data);
                return Ok(());
            }
            if windows.standing == Some(Standing::Calls) || end > file.len()? {
                return self.write_by_call(file, offset, data);
            }
        }
        let mut windows = self.windows.write();
        match windows.make_ready(file, &self.medium, offset, end) {
            Ok(true) => {
                windows.write(&**lines, offset, end, data);
                Ok(())
            }
            // Why something cannot be mapped, a full file system for example, matters to the caller
            // only if it cannot be written either; then the call says so.
            Ok(false) | Err(_) => self.write_by_call(file, offset, data),
        }
    }

    fn write_by_call(&self, file: &SystemFile, offset: u64, data: &[u8]) -> io::Result<()> {
        let written = file.write_all_at(offset, data);
        // After an error, too, a part may have been written.
        self.calls.fetch_add(1, Ordering::AcqRel);
        written
    }

    /// Changes the length.
    pub(super) fn set_len(&self, file: &SystemFile, len: u64) -> io::Result<()> {
        let mut windows = self.windows.write();
        windows.cut(len);
        let changed = file.set_len(len);
        self.calls.fetch_add(1, Ordering::AcqRel);
        changed
    }

    /// Makes durable what is not yet: stores are when they return, so what went by calls.
    pub(super) fn sync(&self, file: &SystemFile) -> io::Result<()> {
        let mut synced = self.synced.lock();
        let calls = self.calls.load(Ordering::Acquire);
        if *synced < calls {
            file.sync_data()?;
            *synced = calls;
        }
        Ok(())
    }
}

impl Windows {
    fn are_ready(&self, offset: u64, end: u64) -> bool {
        parts(offset, end).all(|part| {
            self.by_start
                .get(&part.window)
                .is_some_and(|window| part.end() <= window.ready())
        })
    }

    /// Stores to windows that are ready, and waits until it is in memory.
    fn write(&self, lines: &dyn Lines, offset: u64, end: u64, data: &[u8]) {
        let mut rest = data;
        for part in parts(offset, end) {
            let (here, behind) = rest.split_at(part.len);
            let window = self.by_start.get(&part.window);
            assert!(window.is_some(), "a window at {} is ready", part.window);
            if let Some(window) = window {
                window.write(lines, part.at, here);
            }
            rest = behind;
        }
        lines.fence();
    }

    /// Makes everything of the file ready in the windows of a range; false when it cannot be.
    fn make_ready(
        &mut self,
        file: &SystemFile,
        medium: &Medium,
        offset: u64,
        end: u64,
    ) -> io::Result<bool> {
        let len = file.len()?;
        if end > len {
            return Ok(false);
        }
        let standing = match self.standing.or(medium.assumed) {
            Some(standing) => standing,
            None => windows::standing_of(&file.0)?,
        };
        self.standing = Some(standing);
        if standing == Standing::Calls {
            return Ok(false);
        }
        for part in parts(offset, end) {
            let in_file = len.saturating_sub(part.window).min(WINDOW_BYTES);
            let in_file = usize::try_from(in_file).unwrap_or(usize::MAX);
            let window = match self.by_start.entry(part.window) {
                std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::btree_map::Entry::Vacant(free) => {
                    free.insert(Window::map(&file.0, part.window, standing)?)
                }
            };
            window.make_ready(&file.0, part.window, in_file)?;
        }
        Ok(true)
    }

    /// The file is going to have this length.
    fn cut(&mut self, len: u64) {
        self.by_start.retain(|start, _| *start < len);
        for (start, window) in &mut self.by_start {
            window.cut(usize::try_from(len.saturating_sub(*start)).unwrap_or(usize::MAX));
        }
    }
}

/// The part of a range that lies in one window.
struct Part {
    /// Offset of the window in the file.
    window: u64,
    /// Offset of the part in the window.
    at: usize,
    len: usize,
}

impl Part {
    fn end(&self) -> usize {
        self.at.saturating_add(self.len)
    }
}

fn parts(offset: u64, end: u64) -> impl Iterator<Item = Part> {
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let inside = at % WINDOW_BYTES;
        let len = (WINDOW_BYTES - inside).min(end - at);
        let part = Part {
            window: at - inside,
            at: usize::try_from(inside).unwrap_or(usize::MAX),
            len: usize::try_from(len).unwrap_or(usize::MAX),
        };
        at = at.saturating_add(len);
        Some(part)
    })
}
