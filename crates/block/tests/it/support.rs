//! What the tests share: small devices, and commands in few words.

use headwater_block::{Answer, Command, Device, DeviceOptions, Extent};
use headwater_io::{Chance, Env, FaultyFiles, Files, NoThreads, SeededChance, SystemThreads};
use std::io;
use std::sync::Arc;

pub(crate) const BLOCK: u64 = 4096;

/// A world on a simulated disk, where everything happens on the caller's thread.
pub(crate) fn env(disk: &FaultyFiles) -> Env {
    Env {
        files: Arc::new(disk.clone()),
        chance: Arc::new(SeededChance::new(11)),
        threads: Arc::new(NoThreads),
        ..Env::memory()
    }
}

/// As [`env`], with threads and their clock.
pub(crate) fn env_with_threads(files: impl Files + 'static) -> Env {
    Env {
        files: Arc::new(files),
        chance: Arc::new(SeededChance::new(11)),
        threads: Arc::new(SystemThreads),
        ..Env::system()
    }
}

/// A device so small that slots are filled and stripes crossed all the time.
pub(crate) fn small() -> DeviceOptions {
    DeviceOptions {
        size: Some(32 * BLOCK),
        sets: Some(2),
        stripe_bytes: 8192,
        redo_blocks: 5,
        ..DeviceOptions::new("/dev")
    }
}

pub(crate) fn open(disk: &FaultyFiles) -> Device {
    Device::open(&env(disk), &small()).unwrap()
}

pub(crate) fn read(device: &Device, offset: u64, length: u64) -> Vec<u8> {
    match device.call(Command::Read { offset, length }).unwrap() {
        Answer::Data(data) => data,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn write(device: &Device, offset: u64, data: &[u8]) -> io::Result<()> {
    let data = data.to_vec();
    let fua = false;
    let written = device.call(Command::Write { offset, data, fua });
    written.map(|answer| assert_eq!(answer, Answer::Done))
}

pub(crate) fn flush(device: &Device) -> io::Result<()> {
    device.call(Command::Flush).map(drop)
}

pub(crate) fn extents(device: &Device, offset: u64, length: u64) -> Vec<(u64, bool)> {
    match device.call(Command::Status { offset, length }).unwrap() {
        Answer::Extents(extents) => extents
            .into_iter()
            .map(|Extent { length, is_written }| (length, is_written))
            .collect(),
        other => panic!("{other:?}"),
    }
}

/// Numbers from a seed.
pub(crate) struct Dice(SeededChance);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(SeededChance::new(seed))
    }

    pub(crate) fn below(&self, limit: u64) -> u64 {
        self.0.next_u64() % limit
    }

    /// An offset and a length within `size`, aligned half of the time.
    pub(crate) fn range(&self, size: u64, length_max: u64) -> (u64, u64) {
        let length = 1 + self.below(length_max.min(size));
        let offset = self.below(size - length + 1);
        if self.below(2) == 0 {
            return (offset, length);
        }
        let offset = offset / BLOCK * BLOCK;
        (offset, length.next_multiple_of(BLOCK).min(size - offset))
    }
}
