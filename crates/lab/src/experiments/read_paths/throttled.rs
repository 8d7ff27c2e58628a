//! Segments on a device with channels: an emulation, which sleeps for the duration of a request.
//! Other files, and all syncs, have the speed of the underlying files.

use headwater_io::{File, Files, OpenMode, pass_on_files};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// State that all files of the device share.
#[derive(Debug)]
struct Device {
    /// Requests that are served at once; the others wait in the order of their arrival.
    channels: u64,
    /// Latency of up to 4 KiB; a quarter more for each further 4 KiB. A write takes twice as long.
    read: Duration,
    line: Mutex<Line>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Line {
    next_ticket: u64,
    now_serving: u64,
}

impl Device {
    fn serve(&self, is_write: bool, bytes: usize) {
        if self.read.is_zero() {
            return;
        }
        let mut line = self.line.lock();
        let number = line.next_ticket;
        line.next_ticket += 1;
        while number >= line.now_serving + self.channels {
            self.moved.wait(&mut line);
        }
        drop(line);
        let more = u32::try_from(bytes.saturating_sub(1) / 4096).unwrap_or(u32::MAX);
        let read = self.read + self.read / 4 * more;
        std::thread::sleep(if is_write { read * 2 } else { read });
        self.line.lock().now_serving += 1;
        self.moved.notify_all();
    }
}

/// Files with segments on the device.
#[derive(Debug)]
pub(super) struct Throttled {
    below: Arc<dyn Files>,
    device: Arc<Device>,
}

impl Throttled {
    /// A device over other files; without read latency there is no device.
    pub(super) fn new(below: Arc<dyn Files>, channels: u64, read: Duration) -> Throttled {
        Throttled {
            below,
            device: Arc::new(Device {
                channels,
                read,
                line: Mutex::default(),
                moved: Condvar::new(),
            }),
        }
    }
}

impl Files for Throttled {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.below.open(path, mode)?;
        let is_segment = path.extension().is_some_and(|name| name == "seg");
        if !is_segment || self.device.read.is_zero() {
            return Ok(file);
        }
        Ok(Arc::new(ThrottledFile {
            file,
            device: Arc::clone(&self.device),
        }))
    }

    pass_on_files!(below; remove list create_dir_all sync_dir exists is_same_dir lock lock_file);
}

#[derive(Debug)]
struct ThrottledFile {
    file: Arc<dyn File>,
    device: Arc<Device>,
}

impl File for ThrottledFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.device.serve(false, buf.len());
        self.file.read_at(offset, buf)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.device.serve(true, data.len());
        self.file.write_all_at(offset, data)
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
