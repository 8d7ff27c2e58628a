//! Stores to a mapping and their order: a recorder of stores, flushes and fences.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]
#![allow(
    unsafe_code,
    reason = "a recorder stands where instructions do, and stores as they would"
)]
#![deny(clippy::undocumented_unsafe_blocks)]

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::lines::LINE_BYTES;
use super::mapping::REGION_BYTES;
use super::*;
use crate::conformance;

/// Location of the newest bytes of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Cache,
    OnItsWay,
    Memory,
}

/// Stores, and records where each line is. Instructions named by the test are omitted.
#[derive(Debug, Default)]
struct Recorder {
    lines: Mutex<BTreeMap<usize, Stage>>,
    fences: Mutex<usize>,
    forgets_flushes: bool,
    forgets_fences: bool,
}

impl Recorder {
    fn touch(&self, at: *mut u8, len: usize, place: Stage) {
        let first = at.addr() / LINE_BYTES;
        let last = (at.addr() + len - 1) / LINE_BYTES;
        let mut lines = self.lines.lock();
        for line in first..=last {
            lines.insert(line, place);
        }
    }

    /// Number of lines that were stored to, and of lines that may not be in memory yet.
    fn count(&self) -> (usize, usize) {
        let lines = self.lines.lock();
        let missing = lines.values().filter(|place| **place != Stage::Memory);
        (lines.len(), missing.count())
    }
}

impl Lines for Recorder {
    unsafe fn stream(&self, to: *mut u8, from: &[u8]) {
        assert!(to.addr().is_multiple_of(LINE_BYTES), "{to:?}");
        assert!(from.len().is_multiple_of(LINE_BYTES), "{}", from.len());
        self.touch(to, from.len(), Stage::OnItsWay);
        // SAFETY: as the caller of this method vouches.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
    }

    unsafe fn store(&self, to: *mut u8, from: &[u8]) {
        let (first, last) = (to.addr(), to.addr() + from.len() - 1);
        assert_eq!(first / LINE_BYTES, last / LINE_BYTES, "a part of one line");
        self.touch(to, from.len(), Stage::Cache);
        // SAFETY: as the caller of this method vouches.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
    }

    unsafe fn flush(&self, at: *mut u8) {
        if !self.forgets_flushes {
            self.touch(at, 1, Stage::OnItsWay);
        }
    }

    fn fence(&self) {
        *self.fences.lock() += 1;
        if self.forgets_fences {
            return;
        }
        for place in self.lines.lock().values_mut() {
            if *place == Stage::OnItsWay {
                *place = Stage::Memory;
            }
        }
    }
}

/// Files that are mapped on any file system, and written with `lines`.
fn mapped(lines: Arc<dyn Lines>) -> PmemFiles {
    PmemFiles::of(Medium {
        lines: Some(lines),
        assumed: Some(Standing::Memory),
    })
}

/// A file of zeros, to be written over.
fn zeros(files: &PmemFiles, dir: &Path, len: u64) -> Arc<dyn File> {
    let file = files.open(&dir.join("file"), OpenMode::CreateNew).unwrap();
    file.set_len(len).unwrap();
    file
}

#[test]
fn a_sync_leaves_no_line_in_the_caches_at_any_alignment_and_length() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Arc::new(Recorder::default());
    let file = zeros(&mapped(recorder.clone()), dir.path(), 3 * REGION_BYTES);
    let lengths = (1..=200).chain([255, 256, 257, 4_095, 4_096, 10_000]);
    for len in lengths {
        let data: Vec<u8> = (0..len).map(|at| (at % 255) as u8 + 1).collect();
        for alignment in 0..64_usize {
            // Some writes cross the border of two windows.
            let offset = REGION_BYTES as usize - 64 + alignment;
            recorder.lines.lock().clear();
            file.write_all_at(offset as u64, &data).unwrap();
            file.sync_data().unwrap();
            let lines = (offset + len - 1) / 64 - offset / 64 + 1;
            assert_eq!(recorder.count(), (lines, 0), "{len} bytes at {offset}");
        }
        let mut found = vec![0; len];
        file.read_exact_at(REGION_BYTES - 1, &mut found).unwrap();
        assert_eq!(found, data);
    }
    // No write needed a call, so a sync is free; one fence for each write.
    assert_eq!(*recorder.fences.lock(), 206 * 64);
}

#[test]
fn the_recorder_finds_a_flush_or_a_fence_that_is_missing() {
    for (forgets_flushes, forgets_fences, missing) in [(true, false, 2), (false, true, 4)] {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Arc::new(Recorder {
            forgets_flushes,
            forgets_fences,
            ..Recorder::default()
        });
        let file = zeros(&mapped(recorder.clone()), dir.path(), 4_096);
        file.write_all_at(100, &[1; 200]).unwrap();
        file.sync_data().unwrap();
        assert_eq!(recorder.count(), (4, missing));
    }
}

#[test]
fn mapped_files_pass_the_conformance_tests_with_every_flush_of_this_processor() {
    let recorder: Arc<dyn Lines> = Arc::new(Recorder::default());
    let mut all = vec![recorder];
    #[cfg(target_arch = "x86_64")]
    for flush in lines::x86::Flush::of_this_processor() {
        all.push(Arc::new(lines::x86::X86(flush)));
    }
    for lines in all {
        let dir = tempfile::tempdir().unwrap();
        conformance::check_files(|| Arc::new(mapped(lines.clone())), dir.path()).unwrap();
    }
}

#[test]
fn what_lies_in_the_file_goes_through_the_mapping_and_what_makes_it_longer_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Arc::new(Recorder::default());
    let files = mapped(recorder.clone());
    let file = files
        .open(&dir.path().join("file"), OpenMode::CreateNew)
        .unwrap();
    file.write_all_at(0, &[1; 1_000]).unwrap();
    assert_eq!(recorder.count().0, 0);
    file.write_all_at(10, &[2; 20]).unwrap();
    assert_eq!(recorder.count().0, 1);
    file.write_all_at(990, &[3; 20]).unwrap();
    assert_eq!(recorder.count().0, 1);
    file.write_all_at(1_000, &[4; 10]).unwrap();
    assert_eq!(recorder.count().0, 2);
    let mut wanted = vec![1; 1_010];
    wanted[10..30].fill(2);
    wanted[990..1_000].fill(3);
    wanted[1_000..].fill(4);
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), wanted);
    // Each of the other handles shares the windows; a read-only handle does not.
    let reader = files
        .open(&dir.path().join("file"), OpenMode::Read)
        .unwrap();
    assert!(reader.write_all_at(0, &[9]).is_err());
    assert_eq!(recorder.count().0, 2);
}

#[test]
fn a_file_that_is_cut_and_grown_under_its_mapping_keeps_what_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Arc::new(Recorder::default());
    let file = zeros(&mapped(recorder), dir.path(), 2 * REGION_BYTES + 100);
    // Other files beside it, with handles of their own.
    let other = mapped(Arc::new(Recorder::default()))
        .open(&dir.path().join("file"), OpenMode::Write)
        .unwrap();
    let mut wanted = vec![0_u8; 2 * REGION_BYTES as usize + 100];
    for (step, len) in [4_097, 10, REGION_BYTES + 5, 0, 3 * REGION_BYTES, 70_000]
        .into_iter()
        .enumerate()
    {
        let mark = [step as u8 + 1; 3];
        for at in [0, 5_000, REGION_BYTES - 1, 2 * REGION_BYTES + 97] {
            if at + 3 <= wanted.len() as u64 {
                file.write_all_at(at, &mark).unwrap();
                wanted[at as usize..][..3].copy_from_slice(&mark);
            }
        }
        other.set_len(len).unwrap();
        wanted.resize(len as usize, 0);
        let mut found = vec![0; wanted.len()];
        file.read_exact_at(0, &mut found).unwrap();
        assert!(found == wanted, "after step {step}");
    }
}

#[test]
fn threads_write_to_one_file_while_its_length_changes() {
    let dir = tempfile::tempdir().unwrap();
    let files = PmemFiles::of(Medium {
        lines: lines::of_this_processor(),
        assumed: Some(Standing::Memory),
    });
    let file = zeros(&files, dir.path(), 4 * REGION_BYTES);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let file = &file;
            scope.spawn(move || {
                for round in 0..200_u64 {
                    let at = u64::from(thread) * 700_000 + round * 3_001;
                    file.write_all_at(at, &[thread + 1; 3_001]).unwrap();
                    file.sync_data().unwrap();
                }
            });
        }
        scope.spawn(|| {
            for round in 0..200 {
                file.set_len(4 * REGION_BYTES + round * 10_000).unwrap();
                file.set_len(4 * REGION_BYTES).unwrap();
            }
        });
    });
    let content = std::fs::read(dir.path().join("file")).unwrap();
    for thread in 0..4 {
        let part = &content[thread * 700_000..][..200 * 3_001];
        assert!(
            part.iter().all(|byte| *byte == thread as u8 + 1),
            "{thread}"
        );
    }
}

#[test]
fn where_files_are_worth_what_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let files = PmemFiles::new();
    let standing = files.standing(dir.path()).unwrap();
    assert_eq!(standing.is_emulated(), standing != Standing::Persistent);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    assert!(files.standing(&dir.path().join("nowhere")).is_err());
    // A file system in memory that nearly every Linux has.
    let memory = Path::new("/dev/shm");
    if cfg!(target_arch = "x86_64") && memory.is_dir() {
        assert_eq!(files.standing(memory).unwrap(), Standing::Memory);
        let dir = tempfile::tempdir_in(memory).unwrap();
        conformance::check_files(|| Arc::new(PmemFiles::new()), dir.path()).unwrap();
    }
}
