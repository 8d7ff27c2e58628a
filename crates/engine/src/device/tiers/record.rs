//! The file that records the tiers of a database: `DIR/tier`, and `tier` in the folder of the fast
//! one. See docs/format/tier.md.
//!
//! Invariants: two slots, each with a checksum, written in turn, so that one of them is complete at
//! any time; of the complete slots the one with the greater number is valid. A slot is a block of
//! the medium, so that writing one does not affect the other. The name is synced before the first
//! write, so a file with a record has a durable name. A record that was read is rewritten
//! unchanged, and synced, before it is used: its writer may have been killed before the sync, or
//! that sync may have failed. Failure: a file without a complete slot was never finished, and has
//! no record. A write that failed is repeated in the same slot, and never in the slot of the valid
//! record.

use crate::{Error, Result};
use headwater_codec::checksum::crc32c;
use headwater_codec::{Cursor, PutBytes};
use headwater_io::{Files, OpenMode};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

const MAGIC: [u8; 8] = *b"HWTIER\x00\x01";
/// Bytes of a slot.
const SLOT_BYTES: usize = 4096;
/// The same as an offset.
const SLOT: u64 = 4096;
/// Maximum bytes of a path.
const PATH_BYTES_MAX: usize = 3072;

/// Parts of a database in the fast tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierParts {
    /// The commit log.
    pub log: bool,
    /// Rows that open snapshots keep, and memory has no room for; `buffers` in earlier versions.
    pub pins: bool,
    /// A copy of the index in segments, which locates their rows, and of the pyramid.
    pub index: bool,
    /// Copies of the newest segments, from which the newest rows are read.
    pub newest: bool,
}

impl TierParts {
    const LOG: u8 = 1;
    const PINS: u8 = 2;
    const INDEX: u8 = 4;
    const NEWEST: u8 = 8;

    /// No parts.
    pub const NONE: TierParts = TierParts {
        log: false,
        pins: false,
        index: false,
        newest: false,
    };

    /// True without any part.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == TierParts::NONE
    }

    /// Each part and its name.
    fn named(self) -> [(&'static str, bool); 4] {
        [
            ("log", self.log),
            ("pins", self.pins),
            ("index", self.index),
            ("newest", self.newest),
        ]
    }

    fn bits(self) -> u8 {
        u8::from(self.log) * TierParts::LOG
            + u8::from(self.pins) * TierParts::PINS
            + u8::from(self.index) * TierParts::INDEX
            + u8::from(self.newest) * TierParts::NEWEST
    }

    fn of_bits(bits: u8) -> Option<TierParts> {
        let parts = TierParts {
            log: bits & TierParts::LOG != 0,
            pins: bits & TierParts::PINS != 0,
            index: bits & TierParts::INDEX != 0,
            newest: bits & TierParts::NEWEST != 0,
        };
        (parts.bits() == bits).then_some(parts)
    }
}

/// The names of the parts, separated by commas; `none` without parts.
///
/// ```
/// use headwater_engine::TierParts;
/// let parts: TierParts = "log, pins".parse()?;
/// assert!(parts.log && parts.pins && !parts.index);
/// assert_eq!(parts.to_string(), "log,pins");
/// assert_eq!("index,log".parse::<TierParts>()?.to_string(), "log,index");
/// assert_eq!("buffers,log".parse::<TierParts>()?, parts);
/// assert!("log,newest".parse::<TierParts>()?.newest);
/// assert_eq!("none".parse::<TierParts>()?, TierParts::NONE);
/// assert!("segments".parse::<TierParts>().is_err());
/// # Ok::<(), headwater_engine::Error>(())
/// ```
impl fmt::Display for TierParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.named().into_iter().filter(|(_, there)| *there);
        let names: Vec<&str> = named.map(|(name, _)| name).collect();
        match names.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&names.join(",")),
        }
    }
}

impl FromStr for TierParts {
    type Err = Error;

    fn from_str(text: &str) -> Result<TierParts> {
        let mut parts = TierParts::NONE;
        if text.trim() == "none" {
            return Ok(parts);
        }
        for name in text.split(',') {
            match name.trim() {
                "log" => parts.log = true,
                // The name of earlier versions.
                "pins" | "buffers" => parts.pins = true,
                "index" => parts.index = true,
                "newest" => parts.newest = true,
                other => {
                    return Err(Error::invalid(format!(
                        "parts of a fast tier: expected a comma-separated list of log, pins, index and newest, found `{other}`"
                    )));
                }
            }
        }
        Ok(parts)
    }
}

/// Content of the file of a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TierRecord {
    /// Number of writes of the file.
    pub(crate) serial: u64,
    /// Number of the database, the same in all of its tiers; drawn when the first one was made.
    pub(crate) set: u64,
    /// Drawn at each opening, the same in all tiers.
    pub(crate) token: u64,
    /// The next token; the token itself when none is being drawn.
    pub(crate) next: u64,
    pub(crate) parts: TierParts,
    /// Folder of the database.
    pub(crate) bulk: PathBuf,
    /// Folder of the fast tier.
    pub(crate) fast: PathBuf,
    /// Log files up to this generation were started in the tier; 0 = none. The value in the tier's
    /// own file is valid.
    pub(crate) begun: u64,
    /// The log in the tier may have records that bulk does not. The value in the database's file is
    /// valid.
    pub(crate) unsettled: bool,
    /// Not stored: this process wrote and synced the record.
    pub(crate) is_synced: bool,
}

/// Path of the file in a folder.
pub(crate) fn path_in(folder: &Path) -> PathBuf {
    folder.join("tier")
}

impl TierRecord {
    fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.put_u64(self.serial);
        bytes.put_u64(self.set);
        bytes.put_u64(self.token);
        bytes.put_u64(self.next);
        bytes.put_u8(self.parts.bits());
        for path in [&self.bulk, &self.fast] {
            let text = path
                .to_str()
                .filter(|text| text.len() * 2 <= PATH_BYTES_MAX);
            let text = text.ok_or_else(|| {
                Error::invalid(format!(
                    "{}: the path of a tier folder must be UTF-8 of at most {} bytes",
                    path.display(),
                    PATH_BYTES_MAX / 2
                ))
            })?;
            bytes.put_prefixed(text.as_bytes());
        }
        bytes.put_u64(self.begun);
        bytes.put_u8(u8::from(self.unsettled));
        bytes.resize(SLOT_BYTES - 4, 0);
        bytes.put_u32(crc32c(&bytes));
        Ok(bytes)
    }

    /// `None` = the slot is incomplete.
    pub(crate) fn decode(slot: &[u8]) -> Option<TierRecord> {
        let (content, crc) = slot.split_at_checked(SLOT_BYTES - 4)?;
        if crc != crc32c(content).to_le_bytes() {
            return None;
        }
        let mut cursor = Cursor::new(content.strip_prefix(&MAGIC)?);
        let mut numbers = [0u64; 4];
        for number in &mut numbers {
            *number = cursor.u64("a number of a tier").ok()?;
        }
        let [serial, set, token, next] = numbers;
        let parts = TierParts::of_bits(cursor.u8("the parts in a tier").ok()?)?;
        let bulk = PathBuf::from(cursor.text("the folder of the database").ok()?);
        let fast = PathBuf::from(cursor.text("the folder of the fast tier").ok()?);
        // Zero in records of versions that did not write them.
        let begun = cursor.u64("the newest log file").ok()?;
        let unsettled = cursor.u8("state of the log").ok()? & 1 == 1;
        Some(TierRecord {
            serial,
            set,
            token,
            next,
            parts,
            bulk,
            fast,
            begun,
            unsettled,
            is_synced: false,
        })
    }

    /// A record that has not been written yet.
    pub(crate) fn new(
        set: u64,
        token: u64,
        parts: TierParts,
        (bulk, fast): (&Path, &Path),
    ) -> Self {
        TierRecord {
            serial: 0,
            set,
            token,
            next: token,
            parts,
            bulk: bulk.to_owned(),
            fast: fast.to_owned(),
            begun: 0,
            unsettled: false,
            is_synced: false,
        }
    }

    /// Reads the file in a folder; `None` without one, or when it was never finished.
    pub(crate) fn read(files: &dyn Files, folder: &Path) -> Result<Option<TierRecord>> {
        let path = path_in(folder);
        let failed = |e| Error::io("read", &path, e);
        let file = match files.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(failed)?,
        };
        let mut newest: Option<TierRecord> = None;
        for slot in 0..2u64 {
            let mut bytes = vec![0; SLOT_BYTES];
            match file.read_exact_at(slot * SLOT, &mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
                other => other.map_err(failed)?,
            }
            let found = TierRecord::decode(&bytes);
            if found.is_none() {
                check_version(&path, &bytes)?;
            }
            newest = newest.into_iter().chain(found).max_by_key(|r| r.serial);
        }
        Ok(newest)
    }

    /// Reads like [`TierRecord::read`], for the owner, which relies on the record: it is durable
    /// from now on.
    pub(crate) fn take_over(files: &dyn Files, folder: &Path) -> Result<Option<TierRecord>> {
        let mut found = TierRecord::read(files, folder)?;
        if let Some(record) = &mut found {
            record.settle(files, folder)?;
        }
        Ok(found)
    }

    /// Makes the record durable, in case the process that wrote it did not.
    pub(crate) fn settle(&mut self, files: &dyn Files, folder: &Path) -> Result<()> {
        // Earlier versions synced the name last.
        files
            .sync_dir(folder)
            .map_err(|e| Error::io("sync", folder, e))?;
        self.put(files, folder)
    }

    /// Replaces the record by a new one, durably, and makes it the newest.
    pub(crate) fn write(&mut self, files: &dyn Files, folder: &Path) -> Result<()> {
        let is_synced = std::mem::take(&mut self.is_synced);
        // A record that does not fit is refused before there is a file.
        self.encode()?;
        let newest = TierRecord::read(files, folder)?;
        let before = newest.as_ref().map_or(0, |newest| newest.serial);
        match newest {
            None => name_file(files, folder)?,
            // Its slot must stay valid until the other one is.
            Some(mut newest) if !is_synced || before != self.serial => {
                newest.settle(files, folder)?;
            }
            Some(_) => {}
        }
        self.serial = before + 1;
        self.put(files, folder)
    }

    /// Writes the slot of the record, and syncs it.
    fn put(&mut self, files: &dyn Files, folder: &Path) -> Result<()> {
        let path = path_in(folder);
        let failed = |e| Error::io("write", &path, e);
        let bytes = self.encode()?;
        let file = files.open(&path, OpenMode::Write).map_err(failed)?;
        file.write_all_at((self.serial % 2) * SLOT, &bytes)
            .map_err(failed)?;
        file.sync_data().map_err(failed)?;
        self.is_synced = true;
        Ok(())
    }
}

/// Recreates the file, without a record: the sync of its name may have failed, and a later sync
/// does not repair that.
fn name_file(files: &dyn Files, folder: &Path) -> Result<()> {
    let path = path_in(folder);
    match files.remove(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io("remove", &path, error));
        }
        _ => {}
    }
    files
        .open(&path, OpenMode::CreateNew)
        .map_err(|e| Error::io("create", &path, e))?;
    files
        .sync_dir(folder)
        .map_err(|e| Error::io("sync", folder, e))
}

/// Refuses a complete slot of another version.
fn check_version(path: &Path, slot: &[u8]) -> Result<()> {
    let [kind @ .., _] = &MAGIC;
    let whole = slot
        .split_at_checked(SLOT_BYTES - 4)
        .is_some_and(|(content, crc)| crc == crc32c(content).to_le_bytes());
    match slot.strip_prefix(kind) {
        Some([version, ..]) if whole && *version != 1 => Err(Error::invalid(format!(
            "{}: format version {version} is not supported, this version of Headwater ({}) reads version 1: use the version that wrote it",
            path.display(),
            env!("CARGO_PKG_VERSION")
        ))),
        _ => Ok(()),
    }
}

/// Decodes a slot that begins with these bytes.
#[cfg(fuzzing)]
pub(crate) fn fuzz_record(bytes: &[u8], repair: bool) {
    let mut slot = bytes.to_vec();
    if repair {
        slot.resize(SLOT_BYTES - 4, 0);
        slot.put_u32(crc32c(&slot));
    }
    if let Some(record) = TierRecord::decode(&slot)
        && let Ok(again) = record.encode()
    {
        assert_eq!(TierRecord::decode(&again), Some(record));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use headwater_io::MemoryFiles;

    fn record() -> TierRecord {
        TierRecord {
            serial: 6,
            set: 0x1122_3344_5566_7788,
            token: 11,
            next: 12,
            parts: TierParts {
                log: true,
                ..TierParts::NONE
            },
            bulk: "/srv/data".into(),
            fast: "/mnt/fast/data".into(),
            begun: 0,
            unsettled: false,
            is_synced: false,
        }
    }

    fn read(files: &MemoryFiles, folder: &Path) -> Option<TierRecord> {
        TierRecord::read(files, folder).unwrap()
    }

    /// The record after encoding and decoding.
    fn read_as(record: &TierRecord) -> Option<TierRecord> {
        Some(TierRecord {
            is_synced: false,
            ..record.clone()
        })
    }

    #[test]
    fn the_bytes_of_a_record_stay_what_they_are() {
        let in_use = TierRecord {
            begun: 0x0102_0304_0506_0708,
            unsettled: true,
            ..record()
        };
        // The first is the record of versions without log files in it.
        let mut with_index = in_use.clone();
        with_index.parts.index = true;
        for (name, record) in [
            ("tier", record()),
            ("tier_in_use", in_use),
            ("tier_with_index", with_index),
        ] {
            let bytes = record.encode().unwrap();
            assert_eq!(bytes.len(), SLOT_BYTES);
            crate::golden::check(name, &bytes);
            assert_eq!(TierRecord::decode(&bytes), Some(record));
        }
    }

    #[test]
    fn what_is_not_whole_says_nothing_and_the_slot_before_counts() {
        let files = MemoryFiles::new();
        let folder = Path::new("/");
        assert_eq!(read(&files, folder), None);
        let mut record = record();
        record.write(&files, folder).unwrap();
        let before = read_as(&record);
        record.token = 99;
        record.write(&files, folder).unwrap();
        assert_eq!(read(&files, folder), read_as(&record));
        let file = files.open(&path_in(folder), OpenMode::Write).unwrap();
        for at in [0, 9, 60, SLOT - 1] {
            let at = (record.serial % 2) * SLOT + at;
            let mut byte = [0];
            file.read_exact_at(at, &mut byte).unwrap();
            file.write_all_at(at, &[!byte[0]]).unwrap();
            assert_eq!(read(&files, folder), before, "byte {at}");
            file.write_all_at(at, &byte).unwrap();
        }
        file.set_len(100).unwrap();
        assert_eq!(read(&files, folder), None);
    }

    #[test]
    fn a_folder_whose_name_does_not_fit_is_refused() {
        let mut record = record();
        record.fast = "x".repeat(2000).into();
        assert_eq!(
            record.encode().unwrap_err().kind(),
            crate::ErrorKind::Invalid
        );
    }
}
