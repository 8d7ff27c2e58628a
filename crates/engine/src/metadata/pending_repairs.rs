//! `DIR/repairing`: the files that a repair is about to write, so that an interrupted repair leaves
//! no file that looks intact and may vanish. See docs/format/repair.md.
//!
//! Invariants: the list is durable, with its name, before the first of these files is changed, and
//! is removed when all of them are durable. The next owner of the database rewrites them unchanged,
//! and syncs them, before their contents are used. Failure: an incomplete list was never finished,
//! and no file was changed.

use crate::device::layout::{files_of, log_dir, meta_path, segment_dir};
use crate::metadata::tables::write_again;
use crate::{Error, Result};
use headwater_codec::checksum::crc32c;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_io::{Env, Files, OpenMode};
use std::io;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"HWREPAIR";
const VERSION: u8 = 1;

/// A file of the database, by the part that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    Metadata,
    /// A log file, by its name.
    Log(String),
    /// A file beside the segments, by its name.
    Segment(String),
}

impl Changed {
    fn kind(&self) -> (u8, &str) {
        match self {
            Changed::Metadata => (0, ""),
            Changed::Log(name) => (1, name),
            Changed::Segment(name) => (2, name),
        }
    }

    fn path(&self, env: &Env, dir: &Path) -> PathBuf {
        match self {
            Changed::Metadata => meta_path(dir),
            Changed::Log(name) => log_dir(env, dir).join(name),
            Changed::Segment(name) => segment_dir(dir).join(name),
        }
    }
}

fn marker_path(dir: &Path) -> PathBuf {
    dir.join("repairing")
}

pub(crate) fn encode(files: &[Changed]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.put_u8(VERSION);
    bytes.put_varint(headwater_types::invariant::wide(files.len()));
    for file in files {
        let (kind, name) = file.kind();
        bytes.put_u8(kind);
        bytes.put_prefixed(name.as_bytes());
    }
    let crc = crc32c(&bytes);
    bytes.put_u32(crc);
    bytes
}

/// `None` = the list is incomplete.
pub(crate) fn decode(bytes: &[u8]) -> Option<std::result::Result<Vec<Changed>, DecodeError>> {
    let (content, crc) = bytes.split_last_chunk::<4>()?;
    if *crc != crc32c(content).to_le_bytes() {
        return None;
    }
    Some(decode_content(content))
}

fn decode_content(content: &[u8]) -> std::result::Result<Vec<Changed>, DecodeError> {
    let mut cursor = Cursor::new(content);
    let version = match content.strip_prefix(&MAGIC) {
        Some(rest) => {
            cursor = Cursor::new(rest);
            cursor.u8("version of a repair's marker")?
        }
        None => 0,
    };
    if version != VERSION {
        return Err(cursor.expected("the marker of a repair, version 1"));
    }
    let most = headwater_types::invariant::wide(cursor.remaining());
    let count = cursor.varint_up_to(most, "number of files")?;
    let mut files = Vec::new();
    for _ in 0..count {
        let kind = cursor.u8("kind of a file")?;
        let name = cursor.text("name of a file")?.to_owned();
        files.push(match kind {
            0 if name.is_empty() => Changed::Metadata,
            1 if is_plain(&name) => Changed::Log(name),
            2 if is_plain(&name) => Changed::Segment(name),
            _ => return Err(cursor.expected("a file of the database")),
        });
    }
    cursor.finish()?;
    Ok(files)
}

/// True for the name of a file in its folder, without a path to elsewhere.
fn is_plain(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', '\0'])
}

/// Decodes a marker; `repair` = appends the right checksum first.
#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8], repair: bool) {
    let mut bytes = bytes.to_vec();
    if repair {
        let crc = crc32c(&bytes);
        bytes.put_u32(crc);
    }
    if let Some(Ok(files)) = decode(&bytes) {
        assert_eq!(decode(&encode(&files)), Some(Ok(files.clone())));
        for name in files.iter().map(|file| file.kind().1) {
            let path = Path::new("/db/log").join(name);
            assert!(path.components().count() <= 4, "{name:?} leads elsewhere");
        }
    }
}

fn sync_dir(files: &dyn Files, dir: &Path) -> Result<()> {
    files.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))
}

fn remove_if_there(files: &dyn Files, path: &Path) -> Result<()> {
    match files.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path, error))
        }
        _ => Ok(()),
    }
}

/// Records which files are about to be changed.
pub(crate) fn begin(env: &Env, dir: &Path, files: &[Changed]) -> Result<()> {
    let path = marker_path(dir);
    remove_if_there(&*env.files, &path)?;
    let file = env
        .files
        .open(&path, OpenMode::CreateNew)
        .map_err(|e| Error::io("create", &path, e))?;
    // The name first: a file with contents has a durable name.
    sync_dir(&*env.files, dir)?;
    file.write_all_at(0, &encode(files))
        .map_err(|e| Error::io("write", &path, e))?;
    file.sync_data().map_err(|e| Error::io("sync", &path, e))
}

/// Removes the list when all of the files are durable.
pub(crate) fn end(env: &Env, dir: &Path) -> Result<()> {
    remove_if_there(&*env.files, &marker_path(dir))?;
    sync_dir(&*env.files, dir)
}

/// Makes durable the output of an interrupted repair, as far as it exists. For the owner, in an
/// environment that resolves the location of each part.
pub(crate) fn settle(env: &Env, dir: &Path) -> Result<()> {
    let path = marker_path(dir);
    let read = |e| Error::io("read", &path, e);
    let bytes = match env.files.open(&path, OpenMode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => {
            let file = other.map_err(read)?;
            let len = file.len().map_err(read)?;
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
            file.read_exact_at(0, &mut bytes).map_err(read)?;
            bytes
        }
    };
    let files = match decode(&bytes) {
        Some(files) => files.map_err(|e| Error::decode(&path, 0, e))?,
        None => Vec::new(),
    };
    for changed in &files {
        let path = changed.path(env, dir);
        let file = match files_of(env, dir, &path).open(&path, OpenMode::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(|e| Error::io("open", &path, e))?,
        };
        write_again(&*file).map_err(|e| Error::io("rewrite", &path, e))?;
        tracing::info!(path = %path.display(), "rewrote the output of an interrupted repair");
    }
    sync_dir(&**env.segment_files(), &segment_dir(dir))?;
    sync_dir(&**env.log_files(), &log_dir(env, dir))?;
    end(env, dir)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_marker_is_read_as_it_was_written_and_not_when_it_is_cut_short() {
        let files = vec![
            Changed::Metadata,
            Changed::Log("17.log".to_owned()),
            Changed::Segment("4.seg".to_owned()),
            Changed::Segment("5.stub".to_owned()),
        ];
        let bytes = encode(&files);
        crate::golden::check("repairing", &bytes);
        assert_eq!(decode(&bytes).unwrap().unwrap(), files);
        for len in 0..bytes.len() {
            assert!(decode(bytes.get(..len).unwrap()).is_none(), "{len}");
        }
        // A path that leads elsewhere, or to the folder itself.
        for name in ["../x", "..", ".", "", "a/b", "a\\b", "1.log\0"] {
            for changed in [
                Changed::Log(name.to_owned()),
                Changed::Segment(name.to_owned()),
            ] {
                let outside = encode(&[changed]);
                assert!(decode(&outside).unwrap().is_err(), "{name:?}");
            }
        }
    }
}
