//! Rules of requests: [`crate::File::submit_read`] and the other `submit_` methods.

use std::io;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;

use super::{content_is, create, done, fails, fails_as, same};
use crate::files::{File, Files, OpenMode};
use crate::request::Completion;

/// Bytes of one request.
const BYTES: usize = 3_001;
/// Requests on their way at once.
const COUNT: usize = 16;

/// Bytes of a request: they differ between numbers below 255.
fn part(number: usize) -> Vec<u8> {
    vec![u8::try_from(number + 1).unwrap_or(u8::MAX); BYTES]
}

/// Their offsets.
fn offset(number: usize) -> u64 {
    u64::try_from(number * BYTES).unwrap_or(u64::MAX)
}

pub(super) fn several(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let file = create(files, &dir.join("file"))?;
    let writes: Vec<_> = (0..COUNT)
        .map(|number| file.submit_write(offset(number), part(number)))
        .collect();
    for (number, write) in writes.into_iter().enumerate() {
        let back = done("a write on its way", write.wait())?;
        same("the bytes of a write", back == part(number), true)?;
    }
    let wanted: Vec<u8> = (0..COUNT).flat_map(part).collect();
    content_is(&*file, &wanted)?;
    done("a sync on its way", file.submit_sync().wait())?;
    // In reverse order: their answers do not depend on each other.
    let reads: Vec<_> = (0..COUNT)
        .map(|number| (number, file.submit_read(offset(number), vec![0; BYTES])))
        .collect();
    for (number, read) in reads.into_iter().rev() {
        let found = done("a read on its way", read.wait())?;
        same("the bytes of a read", found == part(number), true)?;
    }
    let nothing = done("a read of nothing", file.submit_read(5, Vec::new()).wait())?;
    same("the bytes of a read of nothing", nothing.len(), 0)?;
    // The completion is dropped; the request may be carried out or not.
    drop(file.submit_read(0, vec![0; 10]));
    content_is(&*file, &wanted)
}

pub(super) fn failed(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let path = dir.join("file");
    let file = create(files, &path)?;
    done("write", file.submit_write(0, b"abc".to_vec()).wait())?;
    fails_as(
        "a read beyond the end",
        file.submit_read(1, vec![0; 3]).wait(),
        io::ErrorKind::UnexpectedEof,
    )?;
    let reader = done("open", files.open(&path, OpenMode::Read))?;
    fails(
        "a write through a reader",
        reader.submit_write(0, b"x".to_vec()).wait(),
    )?;
    content_is(&*file, b"abc")
}

pub(super) fn edges(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let file = create(files, &dir.join("file"))?;
    done("write", file.submit_write(0, b"abcdef".to_vec()).wait())?;
    let whole = done("a read", file.submit_read(0, vec![0; 6]).wait())?;
    same("the whole file", whole, b"abcdef")?;
    let back = done("a read of the end", file.submit_read(4, vec![0; 2]).wait())?;
    same("the end", back, b"ef")?;
    for offset in [5, 6, 1_000_000] {
        fails_as(
            "a read over the end",
            file.submit_read(offset, vec![0; 2]).wait(),
            io::ErrorKind::UnexpectedEof,
        )?;
    }
    // The maximum offset has a special meaning in some queues.
    for offset in [u64::MAX, u64::MAX - 1, 1 << 63] {
        fails("a wild read", file.submit_read(offset, vec![0; 1]).wait())?;
        fails("a wild write", file.submit_write(offset, vec![9; 3]).wait())?;
        let synced = file.submit_write_and_sync(offset, vec![9; 3]);
        fails("a wild write with a sync", synced.wait())?;
    }
    content_is(&*file, b"abcdef")?;
    let nothing = file.submit_write(1_000, Vec::new());
    done("a write of nothing past the end", nothing.wait())?;
    content_is(&*file, b"abcdef")?;
    done("past the end", file.submit_write(8, b"x".to_vec()).wait())?;
    content_is(&*file, b"abcdef\0\0x")
}

pub(super) fn read_at_once(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let file = create(files, &dir.join("file"))?;
    let content = part(3);
    done("write", file.write_all_at(0, &content))?;
    let end = u64::try_from(BYTES).unwrap_or(u64::MAX);
    for (offset, len) in [(0, BYTES), (7, 100), (end - 1, 1)] {
        let mut buf = vec![0; len];
        if file.try_read_cached(offset, &mut buf) {
            let from = usize::try_from(offset).unwrap_or(usize::MAX);
            let wanted = content.get(from..from.saturating_add(len));
            same("what was read at once", Some(&*buf), wanted)?;
        }
    }
    // Missing bytes cannot be returned without an error, which this call does not report.
    for offset in [end - 1, end, u64::MAX, 1 << 63] {
        let mut buf = [0; 2];
        let is_there = file.try_read_cached(offset, &mut buf);
        same("a read at once beyond the end", is_there, false)?;
    }
    // A read at once never returns bytes from before a write.
    done("write", file.write_all_at(5, b"new"))?;
    let mut buf = [0; 3];
    let is_old = file.try_read_cached(5, &mut buf) && &buf != b"new";
    same("old bytes at once", is_old, false)
}

pub(super) fn buffers(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let file = create(files, &dir.join("file"))?;
    let mut buf = Vec::with_capacity(10_000);
    buf.resize(5_000, 7);
    let (at, capacity) = (buf.as_ptr(), buf.capacity());
    let is_same = |what: &str, buf: &Vec<u8>| {
        same(what, buf.len(), 5_000)?;
        same(what, (buf.as_ptr(), buf.capacity()), (at, capacity))
    };
    let buf = done("write", file.submit_write(3, buf).wait())?;
    is_same("the buffer of a write", &buf)?;
    let buf = done("write", file.submit_write_and_sync(0, buf).wait())?;
    is_same("the buffer of a write with a sync", &buf)?;
    let mut buf = done("read", file.submit_read(3, buf).wait())?;
    is_same("the buffer of a read", &buf)?;
    same("what was read", buf.iter().all(|byte| *byte == 7), true)?;
    buf.clear();
    let buf = done("read of nothing", file.submit_read(0, buf).wait())?;
    same("the capacity", buf.capacity(), capacity)
}

pub(super) fn written_and_synced(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let path = dir.join("file");
    let file = create(files, &path)?;
    done("write_and_sync", file.write_and_sync(2, b"cd"))?;
    content_is(&*file, b"\0\0cd")?;
    done("write_and_sync of nothing", file.write_and_sync(0, b""))?;
    let both = file.submit_write_and_sync(0, b"ab".to_vec());
    let back = done("a write with a sync on its way", both.wait())?;
    same("the bytes of a write with a sync", back, b"ab")?;
    content_is(&*file, b"abcd")?;
    let reader = done("open", files.open(&path, OpenMode::Read))?;
    content_is(&*reader, b"abcd")?;
    fails("through a reader", reader.write_and_sync(0, b"x"))?;
    let both = reader.submit_write_and_sync(0, b"x".to_vec());
    fails("on its way through a reader", both.wait())?;
    content_is(&*file, b"abcd")
}

pub(super) fn syncs_among(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let file = create(files, &dir.join("file"))?;
    let mut writes = Vec::new();
    let mut syncs = Vec::new();
    for number in 0..COUNT {
        writes.push(if number % 3 == 0 {
            file.submit_write_and_sync(offset(number), part(number))
        } else {
            file.submit_write(offset(number), part(number))
        });
        syncs.push(file.submit_sync());
    }
    for sync in syncs.into_iter().rev() {
        done("a sync among writes", sync.wait())?;
    }
    // Calls that wait go on beside requests.
    done("sync_data", file.sync_data())?;
    for (number, write) in writes.into_iter().enumerate() {
        let back = done("a write among syncs", write.wait())?;
        same("the bytes of a write", back == part(number), true)?;
        let mut found = vec![0; BYTES];
        done("read", file.read_exact_at(offset(number), &mut found))?;
        same("the bytes in the file", found == part(number), true)?;
    }
    let wanted: Vec<u8> = (0..COUNT).flat_map(part).collect();
    content_is(&*file, &wanted)
}

pub(super) fn looked_at(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let file = create(files, &dir.join("file"))?;
    let writes: Vec<_> = (0..COUNT)
        .map(|number| file.submit_write_and_sync(offset(number), vec![1; BYTES]))
        .collect();
    for write in writes {
        until_done(&write);
        done("a write that is done", write.wait())?;
    }
    content_is(&*file, &vec![1; COUNT * BYTES])
}

fn until_done<T>(request: &Completion<T>) {
    while !request.is_done() {
        thread::yield_now();
    }
}

pub(super) fn dropped(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let path = dir.join("file");
    let file = create(files, &path)?;
    done("write", file.write_all_at(0, &vec![1; COUNT * BYTES]))?;
    for _ in 0..COUNT {
        for number in 0..COUNT {
            drop(file.submit_read(offset(number), vec![0; BYTES]));
        }
        // Memory that was freed too early is most likely allocated again here.
        let others: Vec<Vec<u8>> = (0..COUNT).map(|_| vec![9; BYTES]).collect();
        drop(file.submit_sync());
        done("sync", file.submit_sync().wait())?;
        let is_whole = others.iter().flatten().all(|byte| *byte == 9);
        same("memory of others", is_whole, true)?;
    }
    let write = file.submit_write(0, vec![2; BYTES]);
    let read = file.submit_read(offset(1), vec![0; BYTES]);
    drop(file);
    let found = done("a read whose handle is gone", read.wait())?;
    same("its bytes", found == vec![1; BYTES], true)?;
    done("a write whose handle is gone", write.wait())?;
    let mut wanted = vec![1; COUNT * BYTES];
    wanted.iter_mut().take(BYTES).for_each(|byte| *byte = 2);
    content_is(&*done("open", files.open(&path, OpenMode::Read))?, &wanted)
}

/// Threads that submit.
const THREADS: usize = 4;
/// Rounds of each of them.
const ROUNDS: usize = 24;

pub(super) fn of_threads(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let path = dir.join("file");
    let file = create(files, &path)?;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let handle = files.open(&path, OpenMode::Write);
                scope.spawn(move || of_thread(&*done("open", handle)?, number))
            })
            .collect();
        let mut ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended.try_for_each(|ended| ended.unwrap_or_else(|_| Err("a thread panicked".to_owned())))
    })?;
    let wanted: Vec<u8> = (0..THREADS)
        .flat_map(|thread| (0..ROUNDS).flat_map(move |round| part_of(thread, round)))
        .collect();
    content_is(&*file, &wanted)?;
    of_ended_threads(&file, &wanted)
}

fn part_of(thread: usize, round: usize) -> Vec<u8> {
    part(thread * ROUNDS + round)
}

fn of_thread(file: &dyn File, thread: usize) -> Result<(), String> {
    for round in 0..ROUNDS {
        let offset = offset(thread * ROUNDS + round);
        let part = part_of(thread, round);
        let (write, sync) = if round % 2 == 0 {
            let write = file.submit_write(offset, part.clone());
            (write, file.submit_sync())
        } else {
            let write = file.submit_write_and_sync(offset, part.clone());
            (write, file.submit_sync())
        };
        done("a sync of a thread", sync.wait())?;
        done("a write of a thread", write.wait())?;
        let found = done(
            "a read of a thread",
            file.submit_read(offset, vec![0; BYTES]).wait(),
        )?;
        same("what a thread reads", found == part, true)?;
    }
    Ok(())
}

/// Requests are waited for here that threads submitted which are not there any more.
fn of_ended_threads(file: &Arc<dyn File>, wanted: &[u8]) -> Result<(), String> {
    let (sender, receiver) = mpsc::channel();
    let by = Arc::clone(file);
    let submitting = thread::spawn(move || {
        for round in 0..ROUNDS {
            let write = by.submit_write_and_sync(offset(round), part_of(0, round));
            let read = by.submit_read(offset(round), vec![0; BYTES]);
            // After an earlier violation the receiver is dropped.
            let _ = sender.send((write, read));
        }
    });
    let ended = submitting.join();
    same("the thread that submits", ended.is_ok(), true)?;
    for (round, (write, read)) in receiver.iter().enumerate() {
        let found = done("a read of a thread that ended", read.wait())?;
        same("what it read", found == part_of(0, round), true)?;
        done("a write of a thread that ended", write.wait())?;
    }
    content_is(&**file, wanted)
}
