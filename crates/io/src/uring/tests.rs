//! Requests that the kernel completes only partly, and requests without a waiter. On machines
//! without io_uring only the refusal is tested.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![allow(unsafe_code, reason = "a process can be forked by a call only")]
#![deny(clippy::undocumented_unsafe_blocks)]

use std::sync::mpsc;

use rustix::io::Errno;

use super::flight::KernelResult;
use super::*;

/// A file of this machine with some content.
fn file_of(content: &[u8]) -> (tempfile::TempDir, Arc<SystemFile>) {
    let dir = tempfile::tempdir().unwrap();
    let file = SystemFile::open(&dir.path().join("file"), OpenMode::CreateNew).unwrap();
    file.write_all_at(0, content).unwrap();
    (dir, Arc::new(file))
}

fn read_ended_by(said: KernelResult, len: usize) -> io::Result<Vec<u8>> {
    let (_dir, file) = file_of(b"abcdefgh");
    let (completion, completer) = Completion::pending();
    // Bytes read by the kernel are in the buffer by then.
    let mut buf = vec![0; len];
    buf.iter_mut()
        .zip(b"cdefgh")
        .take(2)
        .for_each(|(to, from)| *to = *from);
    let work = Work::Read {
        offset: 2,
        buf,
        completer,
    };
    Flight::new(file, work).finish(said, KernelResult::Undone);
    completion.wait()
}

#[test]
fn what_the_kernel_did_not_read_is_read_by_calls() {
    assert_eq!(read_ended_by(KernelResult::of(2), 2).unwrap(), b"cd");
    assert_eq!(read_ended_by(KernelResult::of(2), 5).unwrap(), b"cdefg");
    for undone in [Errno::CANCELED, Errno::INTR, Errno::AGAIN] {
        let said = KernelResult::of(-undone.raw_os_error());
        assert_eq!(read_ended_by(said, 6).unwrap(), b"cdefgh");
    }
    let over_the_end = read_ended_by(KernelResult::of(2), 9).unwrap_err();
    assert_eq!(over_the_end.kind(), io::ErrorKind::UnexpectedEof);
    let damaged = read_ended_by(KernelResult::of(-Errno::IO.raw_os_error()), 5).unwrap_err();
    assert_eq!(damaged.raw_os_error(), Some(Errno::IO.raw_os_error()));
}

/// Ends a write of "xyz" at 1, of which the kernel has written a prefix, and a linked sync.
fn write_ended_by(first: i32, then: i32) -> (io::Result<Vec<u8>>, Vec<u8>) {
    let (_dir, file) = file_of(b"abcdef");
    let (completion, completer) = Completion::pending();
    let written = usize::try_from(first).unwrap_or(0);
    file.write_all_at(1, b"xyz".get(..written).unwrap())
        .unwrap();
    let work = Work::Write {
        offset: 1,
        data: b"xyz".to_vec(),
        then_sync: true,
        completer,
    };
    Flight::new(Arc::clone(&file), work).finish(KernelResult::of(first), KernelResult::of(then));
    let mut content = vec![0; 6];
    file.read_exact_at(0, &mut content).unwrap();
    (completion.wait(), content)
}

#[test]
fn what_the_kernel_did_not_write_is_written_by_calls_and_synced_then() {
    let canceled = -Errno::CANCELED.raw_os_error();
    let damaged = -Errno::IO.raw_os_error();
    for (first, then) in [(3, 0), (2, canceled), (canceled, canceled), (3, canceled)] {
        let (answer, content) = write_ended_by(first, then);
        assert_eq!(answer.unwrap(), b"xyz", "{first} {then}");
        assert_eq!(content, b"axyzef", "{first} {then}");
    }
    // A failed write is not retried, and neither is a failed sync.
    let (answer, content) = write_ended_by(damaged, canceled);
    assert_eq!(answer.unwrap_err().raw_os_error(), Some(-damaged));
    assert_eq!(content, b"abcdef");
    let (answer, _) = write_ended_by(3, damaged);
    assert_eq!(answer.unwrap_err().raw_os_error(), Some(-damaged));
}

/// Files with all reads through the queue; `None` if the kernel has no queue, as reported by the
/// fallback.
fn files() -> Option<UringFiles> {
    match UringFiles::with(false) {
        Ok(files) => Some(files),
        Err(refused) => {
            let (files, why) = UringFiles::or_system();
            assert_eq!(why.map(|why| why.to_string()), Some(refused.to_string()));
            assert!(files.exists(Path::new("/")).unwrap());
            None
        }
    }
}

#[test]
fn files_whose_reads_all_go_through_the_queue_pass_the_conformance_tests() {
    if files().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    crate::conformance::check_files(|| Arc::new(files().unwrap()), dir.path()).unwrap();
    let one = Arc::new(files().unwrap());
    crate::conformance::check_files(move || one.clone(), &dir.path().join("one queue")).unwrap();
}

#[test]
fn more_requests_than_the_queue_holds_are_all_carried_out() {
    let Some(files) = files() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = files
        .open(&dir.path().join("file"), OpenMode::CreateNew)
        .unwrap();
    let part = |number: u64| vec![(number % 251) as u8; 512];
    let writes: Vec<_> = (0..1_000)
        .map(|number| file.submit_write(number * 512, part(number)))
        .collect();
    for write in writes {
        write.wait().unwrap();
    }
    let reads: Vec<_> = (0..1_000)
        .map(|number| file.submit_read(number * 512, vec![0; 512]))
        .collect();
    for (number, read) in (0..1_000).zip(reads) {
        assert_eq!(read.wait().unwrap(), part(number));
    }
}

#[test]
fn requests_that_nobody_waits_for_are_carried_out_before_the_last_handle_is_gone() {
    let Some(files) = files() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let file = files.open(&path, OpenMode::CreateNew).unwrap();
    for number in 0..40_u64 {
        drop(file.submit_write_and_sync(number * 4_096, vec![7; 4_096]));
        drop(file.submit_read(0, vec![0; 1_000_000]));
    }
    drop((file, files));
    let content = std::fs::read(&path).unwrap();
    assert_eq!(content, vec![7; 40 * 4_096]);
}

#[test]
fn requests_of_a_thread_that_ended_are_answered() {
    let Some(files) = files() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = files
        .open(&dir.path().join("file"), OpenMode::CreateNew)
        .unwrap();
    for round in 0..20_u64 {
        let (sender, receiver) = mpsc::channel();
        let by = Arc::clone(&file);
        let thread = std::thread::spawn(move || {
            for number in 0..16_u64 {
                let offset = (round * 16 + number) * 8_192;
                sender
                    .send(by.submit_write_and_sync(offset, vec![3; 8_192]))
                    .unwrap();
            }
        });
        thread.join().unwrap();
        for write in receiver {
            assert_eq!(write.wait().unwrap().len(), 8_192);
        }
    }
    assert_eq!(file.len().unwrap(), 20 * 16 * 8_192);
    assert_eq!(
        std::fs::read(dir.path().join("file")).unwrap(),
        vec![3; 20 * 16 * 8_192]
    );
}

#[cfg(target_os = "linux")]
#[test]
fn in_a_forked_process_requests_go_by_calls_and_those_of_the_parent_fail() {
    let Some(files) = files() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let file = files.open(&path, OpenMode::CreateNew).unwrap();
    let of_parent = file.submit_write(0, vec![1; 4_096]);
    // SAFETY: the child leaves by `_exit` and takes no lock that another thread of its parent may
    // have had, save those of the allocator, which the system's library makes free in a child.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_told = of_parent.is_done() && of_parent.wait().is_err();
        let write = file.submit_write_and_sync(4_096, vec![2; 4_096]).wait();
        let read = file.submit_read(4_096, vec![0; 4_096]).wait();
        let is_right = is_told && write.is_ok() && read.is_ok_and(|read| read == [2; 4_096]);
        drop((file, files));
        // SAFETY: it ends the process.
        unsafe { libc::_exit(if is_right { 0 } else { 1 }) }
    }
    let mut status = 0;
    // SAFETY: it writes to the number, which is there.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0));
    assert_eq!(of_parent.wait().unwrap(), [1; 4_096]);
    let read = file.submit_read(4_096, vec![0; 4_096]).wait().unwrap();
    assert_eq!(read, [2; 4_096]);
}
