//! A file with the latencies of a device with channels: an emulation, which sleeps.

use headwater_io::File;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Costs of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// Number of requests served at once; the others wait in the order of their arrival.
    pub(super) channels: u64,
    /// Latency of up to 4 KiB; a quarter more for each further 4 KiB.
    pub(super) read: Duration,
    pub(super) write: Duration,
}

impl Costs {
    /// Time of a request of `bytes` bytes.
    pub(super) fn of(&self, is_write: bool, bytes: u64) -> Duration {
        let base = if is_write { self.write } else { self.read };
        let more = u32::try_from(bytes.saturating_sub(1) / 4096).unwrap_or(u32::MAX);
        base + base / 4 * more
    }
}

/// A file on such a device.
#[derive(Debug)]
pub(super) struct Throttled {
    inner: Arc<dyn File>,
    costs: Costs,
    line: Mutex<Line>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Line {
    next_ticket: u64,
    now_serving: u64,
}

impl Throttled {
    pub(super) fn new(inner: Arc<dyn File>, costs: Costs) -> Throttled {
        Throttled {
            inner,
            costs,
            line: Mutex::new(Line::default()),
            moved: Condvar::new(),
        }
    }

    fn serve(&self, is_write: bool, bytes: usize) {
        let mut line = self.line.lock();
        let number = line.next_ticket;
        line.next_ticket += 1;
        while number >= line.now_serving + self.costs.channels {
            self.moved.wait(&mut line);
        }
        drop(line);
        std::thread::sleep(
            self.costs
                .of(is_write, u64::try_from(bytes).unwrap_or(u64::MAX)),
        );
        self.line.lock().now_serving += 1;
        self.moved.notify_all();
    }
}

impl File for Throttled {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.serve(false, buf.len());
        self.inner.read_at(offset, buf)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.serve(true, data.len());
        self.inner.write_all_at(offset, data)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.serve(true, 0);
        self.inner.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }
}
