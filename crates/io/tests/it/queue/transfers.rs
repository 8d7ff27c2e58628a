//! Transfers over files: what arrives, what errors say, and what a sync covers.

use headwater_io::queue::{Direction, Request, SetOptions, Sets, Transfer};
use headwater_io::{
    FaultKind, FaultyFiles, File, Files, MemoryFiles, NoThreads, OpenMode, SystemThreads, Threads,
};
use std::path::Path;
use std::sync::Arc;

fn sets(threads: &dyn Threads) -> Sets<Transfer> {
    Sets::start(&SetOptions::default(), threads).unwrap()
}

fn write(stream: u64, place: u64) -> Request {
    Request::of_caller(stream, place, 3, Direction::Write)
}

fn read(stream: u64, place: u64, length: usize) -> Request {
    Request::of_caller(stream, place, length as u64, Direction::Read)
}

fn file(files: &dyn Files) -> Arc<dyn File> {
    files.open(Path::new("/a"), OpenMode::CreateNew).unwrap()
}

#[test]
fn what_was_answered_is_read_by_others() {
    for threads in [&SystemThreads as &dyn Threads, &NoThreads] {
        let sets = sets(threads);
        let file = file(&MemoryFiles::new());
        let writes: Vec<_> = (0..100)
            .map(|n| sets.write(&write(n, n * 3), &file, vec![n as u8; 3]))
            .collect();
        for (n, written) in writes.into_iter().enumerate() {
            assert_eq!(written.wait().unwrap(), vec![n as u8; 3]);
        }
        for n in 0..100 {
            let found = sets.read(&read(n + 7, n * 3, 3), &file, vec![0; 3]);
            assert_eq!(found.wait().unwrap(), vec![n as u8; 3]);
        }
    }
}

#[test]
fn errors_are_those_of_the_medium() {
    let files = FaultyFiles::new(3);
    let file = file(&files);
    let sets = sets(&SystemThreads);
    let past_the_end = sets.read(&read(1, 10, 2), &file, vec![0; 2]).wait();
    assert_eq!(
        past_the_end.unwrap_err().kind(),
        std::io::ErrorKind::UnexpectedEof
    );
    files.capacity(2);
    let full = sets.write(&write(1, 0), &file, vec![1; 3]).wait();
    assert_eq!(full.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    files.fail_next(FaultKind::SyncError, 0);
    assert!(sets.sync(&write(1, 0), &file).wait().is_err());
    sets.shut_down();
    let late = sets.read(&read(1, 0, 1), &file, vec![0; 1]).wait();
    assert!(late.unwrap_err().to_string().contains("shut down"));
}

#[test]
fn a_sync_covers_what_was_answered_before_it_through_any_set() {
    let files = FaultyFiles::new(3);
    let file = file(&files);
    files.sync_dir(Path::new("/")).unwrap();
    let sets = sets(&SystemThreads);
    for stream in 0..16 {
        let written = sets.write(&write(stream, stream * 3), &file, vec![7; 3]);
        written.wait().unwrap();
    }
    sets.sync(&write(99, 0), &file).wait().unwrap();
    files.crash_now();
    assert_eq!(files.after_crash(0).read_file("/a").unwrap(), vec![7; 48]);
}
