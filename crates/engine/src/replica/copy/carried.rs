//! Export and restoration of a copy, to move it elsewhere: its description, and ranges.
//!
//! Invariants: a restored copy equals the described one: it shows, retains and contains the same. A
//! restoration whose description is not written yet contains no data. Concurrency: a description is
//! taken under the copy's lock; a restoration has one owner. Failure: bytes that are not a
//! description, and device errors; the restoration must be started again. Format:
//! docs/format/copy.md.

use super::index::{Index, Packs, RawIndex, index_path};
use super::pack::{Present, pack_dir, pack_path};
use super::receive::Receiving;
use super::{RemoteCopy, progress};
use crate::common::error::Damage;
use crate::common::ids::SegmentId;
use crate::replication::state::StateName;
use crate::{Error, Result};
use headwater_codec::checksum::crc32c;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_io::{Env, File, OpenMode};
use headwater_types::ByteRange;
use headwater_types::byte_range::joined;
use headwater_types::invariant::wide;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: [u8; 6] = *b"HWCOPY";
const VERSION: u8 = 1;
const CRC_BYTES: usize = 4;

/// A copy at one instant, without the bytes of its segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarriedCopy {
    /// The newest state of the copy.
    pub state: StateName,
    /// Segments with all of their subscribed ranges present, and the bytes that the state names.
    pub complete: Vec<(u64, u64)>,
    /// The value of [`RemoteCopy::changes`] at that instant.
    pub changes: u64,
    /// Description of the copy, which suffices to restore it except for bytes of segments.
    pub description: Vec<u8>,
    /// The present ranges of segments, by id and offset.
    pub present: Vec<(u64, ByteRange)>,
    /// The ranges that were forgotten since the last export; they may have been fetched again with
    /// other contents.
    pub forgotten: Vec<(u64, ByteRange)>,
}

impl RemoteCopy {
    /// Exports the present copy. Bytes that were put and not committed are left out.
    ///
    /// # Errors
    /// `io`.
    pub fn carried(&self) -> Result<CarriedCopy> {
        let mut receiving = self.inner.receiving.lock();
        receiving.check()?;
        let progress = progress(&receiving);
        let mut segments = receiving.state.segments();
        let complete = progress.complete.iter().filter_map(|id| {
            let found = segments.find(|s| s.id == *id)?;
            Some((found.id, found.bytes))
        });
        let complete = complete.collect();
        drop(segments);
        Ok(CarriedCopy {
            state: progress.state,
            complete,
            changes: receiving.changes,
            description: encode(&receiving.described()?),
            present: present(&receiving),
            forgotten: std::mem::take(&mut receiving.forgotten),
        })
    }
}

/// Adjacent ranges are joined.
fn present(receiving: &Receiving) -> Vec<(u64, ByteRange)> {
    let packs = receiving.packs.iter();
    let all = packs.flat_map(|(id, pack)| {
        let ranges = joined(pack.present()).into_iter();
        ranges.map(|range| (id.0, range))
    });
    all.collect()
}

fn encode(raw: &RawIndex) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.put_u8(VERSION);
    out.put_prefixed(&raw.state);
    for table in [&raw.shown, &raw.deleted, &raw.retained, &raw.pins] {
        out.put_varint(wide(table.len()));
        for (key, value) in table {
            out.put_varint(*key);
            out.put_prefixed(value);
        }
    }
    let crc = crc32c(&out);
    out.put_u32(crc);
    out
}

fn decode(bytes: &[u8]) -> std::result::Result<RawIndex, DecodeError> {
    let split = bytes.len().checked_sub(CRC_BYTES);
    let (body, crc) = match split.and_then(|at| bytes.split_at_checked(at)) {
        Some(parts) => parts,
        None => return Err(Cursor::new(bytes).expected("a description of a copy")),
    };
    if crc != crc32c(body).to_le_bytes() {
        return Err(Cursor::new(bytes).expected("the checksum of a description"));
    }
    let mut cursor = Cursor::new(body);
    if cursor.take(MAGIC.len(), "a description")? != MAGIC {
        return Err(cursor.expected("HWCOPY at the beginning"));
    }
    if cursor.u8("version of a description")? != VERSION {
        return Err(cursor.expected("version 1 of a description"));
    }
    let mut raw = RawIndex {
        state: cursor.prefixed("state")?.to_vec(),
        ..RawIndex::default()
    };
    for table in [
        &mut raw.shown,
        &mut raw.deleted,
        &mut raw.retained,
        &mut raw.pins,
    ] {
        let count = cursor.varint_up_to(wide(cursor.remaining()), "number of rows")?;
        for _ in 0..count {
            let key = cursor.varint("key of a row")?;
            table.push((key, cursor.prefixed("a row")?.to_vec()));
        }
    }
    cursor.finish()?;
    Ok(raw)
}

/// A pack that is being filled.
#[derive(Debug)]
struct PackWriter {
    file: Arc<dyn File>,
    present: Vec<Present>,
    end: u64,
}

/// A copy that is being restored; incomplete before [`CopyRestoration::finish`].
#[derive(Debug)]
pub struct CopyRestoration {
    env: Env,
    dir: PathBuf,
    packs: BTreeMap<SegmentId, PackWriter>,
}

impl CopyRestoration {
    /// Begins to restore a copy in a directory. Files of an unfinished restoration there are
    /// overwritten.
    ///
    /// # Errors
    /// `invalid` when there is a copy, `io`.
    pub fn begin(env: Env, dir: &Path) -> Result<CopyRestoration> {
        for folder in [dir, &pack_dir(dir)] {
            let made = env.files.create_dir_all(folder);
            made.map_err(|e| Error::io("create", folder, e))?;
        }
        if Index::open(&env, dir)?.is_some() {
            return Err(Error::invalid(format!(
                "{}: a copy already exists here: move it away before it is restored",
                dir.display()
            )));
        }
        let folder = pack_dir(dir);
        let names = env.files.list(&folder);
        let packs = names.map_err(|e| Error::io("list", &folder, e))?;
        let left = packs.iter().map(|name| folder.join(name));
        for path in left.chain([index_path(dir)]) {
            match env.files.remove(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", &path, error));
                }
                _ => {}
            }
        }
        Ok(CopyRestoration {
            env,
            dir: dir.to_owned(),
            packs: BTreeMap::new(),
        })
    }

    /// Writes bytes of a segment. The ranges of a segment must be passed by ascending offset, each
    /// once.
    ///
    /// # Errors
    /// `full`, `io`.
    pub fn put(&mut self, segment: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let id = SegmentId(segment);
        let path = pack_path(&self.dir, id);
        let filling = match self.packs.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(slot) => {
                let opened = self.env.files.open(&path, OpenMode::CreateNew);
                slot.insert(PackWriter {
                    file: opened.map_err(|e| Error::io("create", &path, e))?,
                    present: Vec::new(),
                    end: 0,
                })
            }
        };
        let written = filling.file.write_all_at(filling.end, bytes);
        written.map_err(|e| Error::io("write", &path, e))?;
        let len = wide(bytes.len());
        match filling.present.last_mut() {
            Some(last) if last.offset + last.bytes == offset => last.bytes += len,
            _ => filling.present.push(Present {
                offset,
                bytes: len,
                pack_offset: filling.end,
            }),
        }
        filling.end += len;
        Ok(())
    }

    /// Finishes the restoration: the copy exists now.
    ///
    /// # Errors
    /// `corrupt` for bytes that are not a description, `full`, `io`.
    pub fn finish(self, description: &[u8]) -> Result<()> {
        let raw = decode(description).map_err(|e| {
            Error::damage(Damage {
                file: self.dir.clone(),
                offset: 0,
                expected: e.expected.to_owned(),
                found: "bytes that do not describe a copy".to_owned(),
            })
        })?;
        for (id, filling) in &self.packs {
            let path = pack_path(&self.dir, *id);
            let synced = filling.file.sync_data();
            synced.map_err(|e| Error::io("sync", &path, e))?;
        }
        let folder = pack_dir(&self.dir);
        let synced = self.env.files.sync_dir(&folder);
        synced.map_err(|e| Error::io("sync", &folder, e))?;
        let packs: Packs = self
            .packs
            .into_iter()
            .map(|(id, filling)| (id, (filling.present, filling.end)))
            .collect();
        // Read as at an opening, so that an inconsistent description is refused now.
        Index::create_with(&self.env, &self.dir, &raw, &packs)?.load()?;
        Ok(())
    }
}

/// Decodes a description and discards it: for tests with random bytes.
#[doc(hidden)]
pub fn description_decodes(bytes: &[u8]) -> bool {
    decode(bytes).is_ok_and(|raw| decode(&encode(&raw)) == Ok(raw))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{Database, Options, TableSpec};
    use headwater_io::{NoThreads, SeededChance};
    use headwater_types::{Batch, Level, StreamName, Value};

    fn rows(env: &Env, dir: &str) -> usize {
        let copy = RemoteCopy::open(env.clone(), Path::new(dir), Level::MIN).unwrap();
        let reader = copy.reader(Options::new("/")).unwrap();
        let snapshot = reader.snapshot();
        let streams = snapshot.streams("m", &[]).unwrap();
        let last = streams.iter().map(|s| snapshot.last(s).unwrap().len());
        last.sum()
    }

    #[test]
    fn a_copy_that_was_carried_is_the_same_one() {
        let env = Env::memory();
        let source = Env {
            chance: Arc::new(SeededChance::new(1)),
            threads: Arc::new(NoThreads),
            ..Env::memory()
        };
        let db = Database::open_in(source, Options::new("/db")).unwrap();
        db.create_table(&TableSpec::new("m")).unwrap();
        let mut batch = Batch::new();
        let rows_of = batch.stream(&StreamName::new("m", [("id", "a")]));
        rows_of.row(5, [("v", Value::F64(1.0))]).unwrap();
        db.commit(batch).unwrap();
        db.flush().unwrap();
        let held = db.hold_state(None).unwrap();
        let copy = RemoteCopy::begin(env.clone(), Path::new("/a"), held.state(), Level::MIN);
        let copy = copy.unwrap();
        while let Some(missing) = copy.missing(1).first() {
            let range = missing.range;
            let bytes = u32::try_from(range.bytes).unwrap();
            let found = held.read(missing.segment, range.offset, bytes).unwrap();
            copy.put(missing.segment, range.offset, &found).unwrap();
            copy.commit().unwrap();
        }
        let carried = copy.carried().unwrap();
        assert_eq!(carried.complete.len(), 1);
        let mut again = CopyRestoration::begin(env.clone(), Path::new("/b")).unwrap();
        for (segment, range) in &carried.present {
            let bytes = u32::try_from(range.len()).unwrap();
            let bytes = copy.read(*segment, range.start(), bytes).unwrap();
            again.put(*segment, range.start(), &bytes).unwrap();
        }
        // Until it is finished there is no copy; and then it is started again.
        assert!(RemoteCopy::open(env.clone(), Path::new("/b"), Level::MIN).is_err());
        let mut damaged = carried.description.clone();
        damaged[20] ^= 1;
        assert!(again.finish(&damaged).is_err());
        let mut again = CopyRestoration::begin(env.clone(), Path::new("/b")).unwrap();
        for (segment, range) in &carried.present {
            let bytes = u32::try_from(range.len()).unwrap();
            let bytes = copy.read(*segment, range.start(), bytes).unwrap();
            again.put(*segment, range.start(), &bytes).unwrap();
        }
        again.finish(&carried.description).unwrap();
        assert_eq!((rows(&env, "/a"), rows(&env, "/b")), (1, 1));
        let restored = RemoteCopy::open(env.clone(), Path::new("/b"), Level::MIN).unwrap();
        let then = restored.carried().unwrap();
        assert_eq!(then.description, carried.description);
        assert_eq!(then.present, carried.present);
        assert!(CopyRestoration::begin(env, Path::new("/b")).is_err());
    }

    #[test]
    fn a_description_has_these_bytes() {
        let raw = RawIndex {
            state: b"state".to_vec(),
            shown: vec![(3, b"shown".to_vec())],
            deleted: Vec::new(),
            retained: vec![(300, b"kept".to_vec())],
            pins: vec![(1, b"pin".to_vec())],
        };
        let encoded = encode(&raw);
        crate::golden::check("carried_copy", &encoded);
        assert!(description_decodes(&encoded));
        for at in 0..encoded.len() {
            let mut other = encoded.clone();
            other[at] ^= 2;
            assert!(decode(&other).is_err() && decode(&encoded[..at]).is_err());
        }
    }
}
