//! A model of the speed of persistent memory, before files on something faster.
//!
//! Purpose: experiments on machines without such memory. A file system in memory reads and writes
//! at the speed of DRAM, at which 64 bytes and 1 KiB cost the same; rates measured there say little
//! about persistent memory. This is a **model**, not the device: it delays callers as long as the
//! device would, by published measurements, and does not model the device's caches, interleaving,
//! wear or durability. Invariants: reads and writes have the results of the underlying files.
//! Concurrency: latencies overlap; all files of a [`PmemModel`] share one bandwidth, and later
//! callers wait for earlier ones. Failure: as in the underlying files; a failed call costs as much
//! as a successful one.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::files::{File, Files, OpenMode};

/// Costs of reading and writing on the device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PmemCosts {
    /// The first bytes of a read that does not go on where the last one of the file ended.
    pub random_read: Duration,
    /// The first bytes of a read that does.
    pub sequential_read: Duration,
    /// Latency of a write, until it is in the domain that survives a power cut.
    pub write: Duration,
    /// Bytes a second that all reads together get.
    pub read_bandwidth: f64,
    /// Bytes a second that all writes together get.
    pub write_bandwidth: f64,
    /// Block that the device reads or writes inside at once: a part of it costs a whole one.
    pub block_bytes: u64,
}

impl PmemCosts {
    /// Intel Optane DC persistent memory as the authors of the event store on three layers measured
    /// it (their table 2: 174 ns and 325 ns, 32 GB/s and 13 GB/s; blocks of 256 bytes). The table
    /// has no latency of a write; 90 ns is the value that others published for a store past the
    /// caches with a fence.
    pub const OPTANE: PmemCosts = PmemCosts {
        random_read: Duration::from_nanos(325),
        sequential_read: Duration::from_nanos(174),
        write: Duration::from_nanos(90),
        read_bandwidth: 32e9,
        write_bandwidth: 13e9,
        block_bytes: 256,
    };
}

/// Files that are as slow as persistent memory, by a model.
///
/// ```
/// use headwater_io::{Files, MemoryFiles, OpenMode, PmemCosts, PmemModel};
/// let files = PmemModel::new(std::sync::Arc::new(MemoryFiles::new()), PmemCosts::OPTANE);
/// let file = files.open("/log".as_ref(), OpenMode::CreateNew)?;
/// file.write_and_sync(0, &[1; 64])?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PmemModel {
    below: Arc<dyn Files>,
    device: Arc<Device>,
}

/// State that all files of the device share.
#[derive(Debug)]
struct Device {
    costs: PmemCosts,
    reads: Channel,
    writes: Channel,
}

/// Bandwidth: each transfer uses all of it until its bytes are moved.
#[derive(Debug)]
struct Channel {
    bytes_per_second: f64,
    free_from: Mutex<Instant>,
}

impl PmemModel {
    /// Wraps files with the model; intended for a [`crate::PmemFiles`] in a file system in memory.
    #[must_use]
    pub fn new(below: Arc<dyn Files>, costs: PmemCosts) -> PmemModel {
        PmemModel {
            below,
            device: Arc::new(Device {
                reads: Channel::new(costs.read_bandwidth),
                writes: Channel::new(costs.write_bandwidth),
                costs,
            }),
        }
    }
}

impl Channel {
    fn new(bytes_per_second: f64) -> Channel {
        Channel {
            bytes_per_second,
            free_from: Mutex::new(Instant::now()),
        }
    }

    /// Instant at which a transfer of `bytes` that starts now is complete.
    fn moved(&self, bytes: u64) -> Instant {
        // The bytes of one call are far below the range of a 53-bit mantissa.
        let bytes = u32::try_from(bytes).map_or(f64::from(u32::MAX), f64::from);
        let time = Duration::try_from_secs_f64(bytes / self.bytes_per_second);
        let mut free_from = self.free_from.lock();
        *free_from = (*free_from).max(Instant::now()) + time.unwrap_or_default();
        *free_from
    }
}

impl Device {
    /// Bytes that move inside of the device for a range of bytes.
    fn inside(&self, offset: u64, len: usize) -> u64 {
        let block = self.costs.block_bytes.max(1);
        let end = offset.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
        let first = offset / block;
        end.div_ceil(block)
            .saturating_sub(first)
            .saturating_mul(block)
    }
}

/// Waits without sleeping: a thread that sleeps wakes later than the device would answer.
fn wait_until(instant: Instant) {
    while Instant::now() < instant {
        std::hint::spin_loop();
    }
}

#[derive(Debug)]
struct ModelFile {
    file: Arc<dyn File>,
    device: Arc<Device>,
    /// End of the last read.
    read_to: Mutex<u64>,
}

impl File for ModelFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let costs = &self.device.costs;
        let end = offset.saturating_add(u64::try_from(buf.len()).unwrap_or(u64::MAX));
        let before = std::mem::replace(&mut *self.read_to.lock(), end);
        let latency = if before == offset {
            costs.sequential_read
        } else {
            costs.random_read
        };
        let moved = self
            .device
            .reads
            .moved(self.device.inside(offset, buf.len()));
        let read = self.file.read_at(offset, buf);
        wait_until(moved.max(Instant::now()) + latency);
        read
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let inside = self.device.inside(offset, data.len());
        let moved = self.device.writes.moved(inside);
        let written = self.file.write_all_at(offset, data);
        wait_until(moved.max(Instant::now()) + self.device.costs.write);
        written
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}

impl Files for PmemModel {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(ModelFile {
            file: self.below.open(path, mode)?,
            device: Arc::clone(&self.device),
            read_to: Mutex::new(0),
        }))
    }

    crate::pass_on_files!(
        below; remove list create_dir_all sync_dir exists is_same_dir lock lock_file
    );
}
