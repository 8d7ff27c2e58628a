//! What is said to be needed, against what a reader touches.

use super::edge::{Edge, FIELDS, streams, tiles};
use headwater_engine::{NeededFor, Reader};
use headwater_io::{Env, File, Files, OpenMode};
use headwater_types::Level;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// File, offset and length of reads.
type Reads = Arc<Mutex<Vec<(PathBuf, u64, u64)>>>;

/// Files that remember what is read.
#[derive(Debug)]
struct Recording {
    files: Arc<dyn Files>,
    reads: Reads,
}

#[derive(Debug)]
struct RecordingFile {
    file: Arc<dyn File>,
    path: PathBuf,
    reads: Reads,
}

impl File for RecordingFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let read = (self.path.clone(), offset, buf.len() as u64);
        self.reads.lock().unwrap().push(read);
        self.file.read_at(offset, buf)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
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

impl Files for Recording {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(RecordingFile {
            file: self.files.open(path, mode)?,
            path: path.to_owned(),
            reads: Arc::clone(&self.reads),
        }))
    }

    headwater_io::pass_on_files!(files; remove list create_dir_all sync_dir exists lock lock_file);
}

/// Ranges joined where they meet, by offset.
fn joined(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (offset, bytes) in ranges {
        match out.last_mut() {
            Some((at, len)) if *at + *len >= offset => *len = (*len).max(offset + bytes - *at),
            _ => out.push((offset, bytes)),
        }
    }
    out
}

/// Reads tiles at a level and above of all that a database holds, from files; gives the reads.
fn read_tiles(edge: &Edge, level: Level) -> Vec<(PathBuf, u64, u64)> {
    let reads: Reads = Arc::default();
    let env = Env {
        files: Arc::new(Recording {
            files: Arc::clone(&edge.env.files),
            reads: Arc::clone(&reads),
        }),
        ..edge.env.clone()
    };
    let reader = Reader::open_in(env, edge.options.clone()).unwrap();
    let snapshot = reader.snapshot();
    for stream in streams(&snapshot) {
        for above in [0, 1, 2, 3, 5, 9] {
            let level = Level::clamped(level.get() + above);
            for offset in tiles(level, &edge.span()) {
                for field in FIELDS {
                    let known = snapshot.field_type(&stream, field).is_ok();
                    assert!(!known || snapshot.tile(&stream, field, level, offset).is_ok());
                }
            }
        }
    }
    let reads = reads.lock().unwrap();
    reads.clone()
}

#[test]
fn a_reader_of_tiles_touches_what_is_said_to_be_needed_and_nothing_else() {
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut least, mut all) = (0, 0);
    for seed in 1..=6 {
        let mut edge = Edge::new(seed);
        for _ in 0..4 {
            for _ in 0..60 {
                edge.step();
            }
            edge.db().flush().unwrap();
            let held = edge.db().hold_state(None).unwrap();
            for level in [1, 4, 7] {
                let level = Level::clamped(level);
                let mut needed = BTreeMap::new();
                for segment in held.state().segments() {
                    let ranges = held.needed(segment.id, level).unwrap();
                    for range in &ranges {
                        let kind = match range.needed_for {
                            NeededFor::Frame => "frames",
                            NeededFor::Buckets(_) => "buckets",
                            NeededFor::LateRows => "late rows",
                            NeededFor::Rows => "rows",
                        };
                        *kinds.entry(kind).or_default() += 1;
                        if level == Level::clamped(7) {
                            least += range.bytes;
                        }
                    }
                    if level == Level::clamped(7) {
                        all += segment.bytes;
                    }
                    let ranges = ranges.iter().map(|r| (r.offset, r.bytes));
                    let name = format!("{}.seg", segment.id);
                    needed.insert(name, joined(ranges.collect()));
                }
                for (path, offset, bytes) in read_tiles(&edge, level) {
                    if path.extension().is_some_and(|e| e == "seg") {
                        let name = path.file_name().unwrap().to_str().unwrap();
                        let is_needed = needed.get(name).is_some_and(|ranges| {
                            let mut ranges = ranges.iter();
                            ranges.any(|(at, len)| *at <= offset && offset + bytes <= at + len)
                        });
                        assert!(
                            is_needed,
                            "seed {seed}, {level:?}: {bytes} bytes at {offset} of {name} are read, and not needed: {:?}",
                            needed.get(name)
                        );
                    }
                }
            }
        }
    }
    for kind in ["frames", "buckets", "late rows", "rows"] {
        assert!(kinds.contains_key(kind), "no {kind} are ever needed");
    }
    assert!(
        least * 2 < all,
        "{least} of {all} bytes are needed for coarse tiles"
    );
}
