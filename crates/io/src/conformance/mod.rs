//! Conformance tests of [`Files`]: rules that every back end keeps, as a suite that runs against
//! any of them.
//!
//! Purpose: one meaning of "file" for the engine, whatever the back end. Power cuts are not
//! covered. Invariants: each test works in a directory of its own below the given root, so tests do
//! not disturb each other. Concurrency: the caller's thread, and for the tests about threads
//! additional ones, which end before the test does. Failure: the first broken rule is returned as a
//! [`ConformanceError`]; no test panics. Files of a failed test are not removed.

mod locks;
mod requests;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::files::{File, Files, OpenMode};

/// A rule that a back end breaks.
#[derive(Debug, thiserror::Error)]
#[error("the rule of files \"{rule}\" is broken: {found}")]
pub struct ConformanceError {
    /// The rule, in words.
    pub rule: &'static str,
    /// The behaviour that was observed instead.
    pub found: String,
}

type Check = fn(&dyn Files, &Path) -> Result<(), String>;

const CHECKS: &[(&str, &str, Check)] = &[
    (
        "dirs",
        "directories are created with all those above them, again and again",
        dirs,
    ),
    (
        "dir_in_the_way",
        "files and directories do not stand in for each other",
        dir_in_the_way,
    ),
    ("missing", "what does not exist is not found", missing),
    (
        "create_new",
        "a new file is empty, and its name cannot be created again",
        create_new,
    ),
    (
        "round_trip",
        "bytes are read as they were written",
        round_trip,
    ),
    ("overwrite", "writes replace exactly their bytes", overwrite),
    ("ends", "reads stop at the end of the file", ends),
    ("holes", "bytes never written read as zeros", holes),
    (
        "set_len",
        "lengths can be cut and grown, and growth is zeros",
        set_len,
    ),
    (
        "wild_offset",
        "an offset no file can have is an error",
        wild_offset,
    ),
    (
        "read_only_handle",
        "a handle opened to read cannot write",
        read_only_handle,
    ),
    (
        "handles",
        "all handles of a file see the same bytes",
        handles,
    ),
    ("reopen", "opening keeps the content", reopen),
    (
        "list",
        "listing names the files of one directory, sorted",
        list,
    ),
    (
        "remove",
        "a removed file is gone, and its handles go on",
        remove,
    ),
    (
        "recreate",
        "a name can be created again after its removal, as another file",
        recreate,
    ),
    (
        "sync",
        "syncs succeed and change nothing that can be seen",
        sync,
    ),
    (
        "requests",
        "several requests on their way do what the calls that wait do, and give buffers back",
        requests::several,
    ),
    (
        "failed_requests",
        "a request that cannot be carried out fails when it is waited for",
        requests::failed,
    ),
    (
        "edges_of_requests",
        "requests do at the ends of files and of offsets what the calls that wait do",
        requests::edges,
    ),
    (
        "read_at_once",
        "what is read without waiting is what a read that waits finds",
        requests::read_at_once,
    ),
    (
        "buffers_of_requests",
        "a buffer comes back with its answer as the same piece of memory",
        requests::buffers,
    ),
    (
        "written_and_synced",
        "a write with a sync behind it has written all bytes when it is answered",
        requests::written_and_synced,
    ),
    (
        "syncs_among_requests",
        "syncs and writes on their way at once are answered in any order of waiting",
        requests::syncs_among,
    ),
    (
        "looked_at_requests",
        "a request that is only looked at becomes done",
        requests::looked_at,
    ),
    (
        "dropped_requests",
        "what nobody waits for harms no other memory, and its handle may go first",
        requests::dropped,
    ),
    (
        "requests_of_threads",
        "threads submit side by side, and any thread waits, also when the one that submitted ended",
        requests::of_threads,
    ),
    (
        "paths",
        "a path may contain `.` and doubled separators",
        paths,
    ),
    (
        "same_dir",
        "a directory is the same by each of its paths, and no other is",
        same_dir,
    ),
    ("lock", "a lock has one owner, and names it", locks::lock),
    (
        "lock_text",
        "a lock replaces the text of its former owner",
        locks::lock_text,
    ),
    (
        "lock_file",
        "a file that is there can be locked as it is",
        locks::lock_file,
    ),
    (
        "lock_name",
        "a lock knows whether its name still stands for its file",
        locks::lock_name,
    ),
];

/// Checks every rule, each on a fresh `make()` and in a directory of its own below `root`.
///
/// `root` needs not exist; it must be empty if it does.
///
/// ```
/// use std::{path::Path, sync::Arc};
/// use headwater_io::{MemoryFiles, conformance};
/// conformance::check_files(|| Arc::new(MemoryFiles::new()), Path::new("/conformance")).unwrap();
/// ```
///
/// # Errors
/// The first broken rule.
pub fn check_files(make: impl Fn() -> Arc<dyn Files>, root: &Path) -> Result<(), ConformanceError> {
    for (name, rule, check) in CHECKS {
        let files = make();
        let dir = root.join(name);
        files
            .create_dir_all(&dir)
            .map_err(|error| format!("create_dir_all({}) failed: {error}", dir.display()))
            .and_then(|()| check(&*files, &dir))
            .map_err(|found| ConformanceError { rule, found })?;
    }
    Ok(())
}

fn dirs(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let deep = dir.join("a").join("b").join("c");
    same("exists before", done("exists", files.exists(&deep))?, false)?;
    done("create_dir_all", files.create_dir_all(&deep))?;
    done("create_dir_all again", files.create_dir_all(&deep))?;
    for made in [&deep, &dir.join("a").join("b"), &dir.join("a")] {
        same("exists after", done("exists", files.exists(made))?, true)?;
        done("sync_dir", files.sync_dir(made))?;
    }
    create(files, &deep.join("file"))?;
    done("create_dir_all around a file", files.create_dir_all(&deep))?;
    same(
        "list",
        done("list", files.list(&deep))?,
        vec!["file".to_owned()],
    )
}

fn same_dir(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let (a, b) = (dir.join("a"), dir.join("b"));
    let is_same = |x: &Path, y: &Path| done("is_same_dir", files.is_same_dir(x, y));
    same("one path", is_same(&a, &a)?, true)?;
    same("missing", is_same(&a, &b)?, false)?;
    done("create_dir_all", files.create_dir_all(&a))?;
    same("one is missing", is_same(&a, &b)?, false)?;
    same("the other is missing", is_same(&b, &a)?, false)?;
    done("create_dir_all", files.create_dir_all(&b))?;
    same("two", is_same(&a, &b)?, false)?;
    same("one below the other", is_same(&a, dir)?, false)?;
    same("up and down", is_same(&a, &b.join("..").join("a"))?, true)?;
    same("up", is_same(&a.join(".."), dir)?, true)?;
    same("here", is_same(&a.join("."), &a)?, true)
}

fn dir_in_the_way(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let sub = dir.join("sub");
    let file = dir.join("file");
    done("create_dir_all", files.create_dir_all(&sub))?;
    create(files, &file)?;
    fails_as(
        "open a directory",
        files.open(&sub, OpenMode::Read),
        io::ErrorKind::IsADirectory,
    )?;
    fails_as(
        "open a directory to write",
        files.open(&sub, OpenMode::Write),
        io::ErrorKind::IsADirectory,
    )?;
    fails_as(
        "create over a directory",
        files.open(&sub, OpenMode::CreateNew),
        io::ErrorKind::AlreadyExists,
    )?;
    fails("remove a directory", files.remove(&sub))?;
    same("the directory", done("exists", files.exists(&sub))?, true)?;
    fails("create_dir_all at a file", files.create_dir_all(&file))?;
    fails(
        "create_dir_all below a file",
        files.create_dir_all(&file.join("below")),
    )?;
    fails(
        "create below a file",
        files.open(&file.join("below"), OpenMode::CreateNew),
    )?;
    same(
        "exists below a file",
        done("exists", files.exists(&file.join("below")))?,
        false,
    )?;
    fails_as(
        "list a file",
        files.list(&file),
        io::ErrorKind::NotADirectory,
    )?;
    fails_as(
        "sync_dir a file",
        files.sync_dir(&file),
        io::ErrorKind::NotADirectory,
    )
}

fn missing(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let nothing = dir.join("nothing");
    same("exists", done("exists", files.exists(&nothing))?, false)?;
    same(
        "exists below nothing",
        done("exists", files.exists(&nothing.join("x")))?,
        false,
    )?;
    for mode in [OpenMode::Read, OpenMode::Write] {
        fails_as(
            "open a missing file",
            files.open(&nothing, mode),
            io::ErrorKind::NotFound,
        )?;
    }
    fails_as(
        "remove a missing file",
        files.remove(&nothing),
        io::ErrorKind::NotFound,
    )?;
    fails_as(
        "list a missing directory",
        files.list(&nothing),
        io::ErrorKind::NotFound,
    )?;
    fails_as(
        "sync_dir of a missing directory",
        files.sync_dir(&nothing),
        io::ErrorKind::NotFound,
    )?;
    let orphan = files.open(&nothing.join("x"), OpenMode::CreateNew);
    fails_as(
        "create in a missing directory",
        orphan,
        io::ErrorKind::NotFound,
    )?;
    same(
        "exists after all",
        done("exists", files.exists(&nothing))?,
        false,
    )
}

fn create_new(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let path = dir.join("file");
    let file = create(files, &path)?;
    same("length", done("len", file.len())?, 0)?;
    same("is_empty", done("is_empty", file.is_empty())?, true)?;
    same("exists", done("exists", files.exists(&path))?, true)?;
    done("write", file.write_all_at(0, b"first"))?;
    fails_as(
        "create again",
        files.open(&path, OpenMode::CreateNew),
        io::ErrorKind::AlreadyExists,
    )?;
    content_is(&*file, b"first")
}

fn round_trip(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let file = create(files, &dir.join("file"))?;
    // Long enough for several pages, with a period that fits no block size.
    let bytes: Vec<u8> = (0..100_003_u32).map(|index| (index % 251) as u8).collect();
    let (front, back) = bytes.split_at(4_095);
    done(
        "write the back",
        file.write_all_at(front.len() as u64, back),
    )?;
    done("write the front", file.write_all_at(0, front))?;
    same("is_empty", done("is_empty", file.is_empty())?, false)?;
    content_is(&*file, &bytes)?;
    let mut part = vec![0_u8; 1_000];
    done("read a part", file.read_exact_at(4_000, &mut part))?;
    same("the part", Some(part.as_slice()), bytes.get(4_000..5_000))
}

fn overwrite(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let file = create(files, &dir.join("file"))?;
    done("write", file.write_all_at(0, b"0123456789"))?;
    done("overwrite", file.write_all_at(3, b"abc"))?;
    content_is(&*file, b"012abc6789")?;
    done("write over the end", file.write_all_at(8, b"xyz"))?;
    content_is(&*file, b"012abc67xyz")?;
    done("write nothing", file.write_all_at(4, b""))?;
    done("write nothing past the end", file.write_all_at(400, b""))?;
    content_is(&*file, b"012abc67xyz")
}

fn ends(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let file = create(files, &dir.join("file"))?;
    let mut buf = [7_u8; 8];
    same(
        "read an empty file",
        done("read_at", file.read_at(0, &mut buf))?,
        0,
    )?;
    done("write", file.write_all_at(0, b"abcdef"))?;
    let count = done("read_at", file.read_at(2, &mut buf))?;
    if !(1..=4).contains(&count) {
        return Err(format!("a read of 8 bytes, 4 before the end, gave {count}"));
    }
    same("what was read", buf.get(..count), b"cdef".get(..count))?;
    same(
        "read at the end",
        done("read_at", file.read_at(6, &mut buf))?,
        0,
    )?;
    same(
        "read past the end",
        done("read_at", file.read_at(1_000_000, &mut buf))?,
        0,
    )?;
    same(
        "read into nothing",
        done("read_at", file.read_at(0, &mut []))?,
        0,
    )?;
    fails_as(
        "read_exact_at over the end",
        file.read_exact_at(2, &mut buf),
        io::ErrorKind::UnexpectedEof,
    )?;
    done(
        "read_exact_at of nothing, past the end",
        file.read_exact_at(1_000, &mut []),
    )
}

fn holes(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let file = create(files, &dir.join("file"))?;
    done("write", file.write_all_at(0, b"ab"))?;
    done("write past the end", file.write_all_at(10_000, b"cd"))?;
    let mut wanted = vec![0_u8; 10_002];
    if let Some(front) = wanted.first_chunk_mut() {
        *front = *b"ab";
    }
    if let Some(back) = wanted.last_chunk_mut() {
        *back = *b"cd";
    }
    content_is(&*file, &wanted)
}

fn set_len(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let file = create(files, &dir.join("file"))?;
    done("grow from nothing", file.set_len(3))?;
    content_is(&*file, b"\0\0\0")?;
    done("write", file.write_all_at(0, b"abcdef"))?;
    done("cut", file.set_len(4))?;
    content_is(&*file, b"abcd")?;
    done("grow", file.set_len(6))?;
    content_is(&*file, b"abcd\0\0")?;
    done("same length", file.set_len(6))?;
    content_is(&*file, b"abcd\0\0")?;
    done("cut", file.set_len(1))?;
    done("write past the cut", file.write_all_at(3, b"x"))?;
    content_is(&*file, b"a\0\0x")?;
    done("cut to nothing", file.set_len(0))?;
    content_is(&*file, b"")
}

fn wild_offset(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let file = create(files, &dir.join("file"))?;
    done("write", file.write_all_at(0, b"abc"))?;
    fails(
        "write at the end of the address space",
        file.write_all_at(u64::MAX - 1, b"xyz"),
    )?;
    fails(
        "grow to the end of the address space",
        file.set_len(u64::MAX),
    )?;
    content_is(&*file, b"abc")
}

fn read_only_handle(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let path = dir.join("file");
    done("write", create(files, &path)?.write_all_at(0, b"abc"))?;
    let reader = done("open", files.open(&path, OpenMode::Read))?;
    fails("write through a reader", reader.write_all_at(0, b"x"))?;
    fails("set_len through a reader", reader.set_len(0))?;
    content_is(&*reader, b"abc")
}

fn handles(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let path = dir.join("file");
    let first = create(files, &path)?;
    let second = done("open", files.open(&path, OpenMode::Write))?;
    let reader = done("open", files.open(&path, OpenMode::Read))?;
    done("write", first.write_all_at(0, b"one"))?;
    done("write", second.write_all_at(3, b"two"))?;
    for handle in [&first, &second, &reader] {
        content_is(&**handle, b"onetwo")?;
    }
    done("cut", first.set_len(2))?;
    content_is(&*reader, b"on")
}

fn reopen(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let path = dir.join("file");
    done("write", create(files, &path)?.write_all_at(0, b"abc"))?;
    let again = done("open", files.open(&path, OpenMode::Write))?;
    content_is(&*again, b"abc")?;
    done("write", again.write_all_at(1, b"X"))?;
    drop(again);
    content_is(&*done("open", files.open(&path, OpenMode::Read))?, b"aXc")
}

fn list(files: &dyn Files, dir: &Path) -> Result<(), String> {
    same(
        "an empty directory",
        done("list", files.list(dir))?,
        Vec::<String>::new(),
    )?;
    let sub = dir.join("sub");
    done("create_dir_all", files.create_dir_all(&sub))?;
    create(files, &sub.join("inner"))?;
    for name in ["b.log", "10", "a", "9", "B"] {
        create(files, &dir.join(name))?;
    }
    same(
        "the files",
        done("list", files.list(dir))?,
        vec!["10", "9", "B", "a", "b.log"],
    )?;
    same(
        "the files below",
        done("list", files.list(&sub))?,
        vec!["inner"],
    )
}

fn remove(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let path = dir.join("file");
    let file = create(files, &path)?;
    done("write", file.write_all_at(0, b"abc"))?;
    create(files, &dir.join("other"))?;
    done("remove", files.remove(&path))?;
    same("exists", done("exists", files.exists(&path))?, false)?;
    same("the rest", done("list", files.list(dir))?, vec!["other"])?;
    fails_as(
        "open",
        files.open(&path, OpenMode::Read),
        io::ErrorKind::NotFound,
    )?;
    fails_as("remove again", files.remove(&path), io::ErrorKind::NotFound)?;
    content_is(&*file, b"abc")?;
    done("write on", file.write_all_at(3, b"def"))?;
    done("sync on", file.sync_data())?;
    content_is(&*file, b"abcdef")
}

fn recreate(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let path = dir.join("file");
    let old = create(files, &path)?;
    done("write", old.write_all_at(0, b"old"))?;
    done("remove", files.remove(&path))?;
    let new = create(files, &path)?;
    content_is(&*new, b"")?;
    done("write", new.write_all_at(0, b"newer"))?;
    content_is(&*old, b"old")?;
    content_is(&*done("open", files.open(&path, OpenMode::Read))?, b"newer")
}

fn sync(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let path = dir.join("file");
    let file = create(files, &path)?;
    done("sync_data of nothing", file.sync_data())?;
    done("write", file.write_all_at(0, b"abc"))?;
    done("sync_data", file.sync_data())?;
    done("sync_data again", file.sync_data())?;
    done("sync_dir", files.sync_dir(dir))?;
    done("sync_dir again", files.sync_dir(dir))?;
    let reader = done("open", files.open(&path, OpenMode::Read))?;
    done("sync_data through a reader", reader.sync_data())?;
    content_is(&*reader, b"abc")?;
    done("remove", files.remove(&path))?;
    done("sync_dir", files.sync_dir(dir))?;
    same("exists", done("exists", files.exists(&path))?, false)
}

fn paths(files: &dyn Files, dir: &Path) -> Result<(), String> {
    done("create_dir_all", files.create_dir_all(&dir.join("sub")))?;
    done(
        "write",
        create(files, &dir.join("sub").join("file"))?.write_all_at(0, b"abc"),
    )?;
    for path in ["./sub/file", "sub/./file", "sub//file", "sub/../sub/file"] {
        content_is(
            &*done(path, files.open(&dir.join(path), OpenMode::Read))?,
            b"abc",
        )?;
    }
    same(
        "list",
        done("list", files.list(&dir.join("sub").join(".")))?,
        vec!["file"],
    )
}

fn create(files: &dyn Files, path: &Path) -> Result<Arc<dyn File>, String> {
    done("create a file", files.open(path, OpenMode::CreateNew))
}

fn done<T, E: Debug>(what: &str, result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| format!("{what} failed: {error:?}"))
}

fn fails<T: Debug>(what: &str, result: io::Result<T>) -> Result<(), String> {
    match result {
        Err(_) => Ok(()),
        Ok(value) => Err(format!("{what} succeeded with {value:?}")),
    }
}

fn fails_as<T: Debug>(
    what: &str,
    result: io::Result<T>,
    kind: io::ErrorKind,
) -> Result<(), String> {
    match result {
        Err(error) if error.kind() == kind => Ok(()),
        other => Err(format!(
            "{what} gave {other:?}, not an error of kind {kind:?}"
        )),
    }
}

fn same<A: PartialEq<B> + Debug, B: Debug>(what: &str, found: A, wanted: B) -> Result<(), String> {
    if found == wanted {
        Ok(())
    } else {
        Err(format!("{what}: found {found:?}, wanted {wanted:?}"))
    }
}

/// Compares length and bytes, by one long read and by reads of odd sizes.
fn content_is(file: &dyn File, wanted: &[u8]) -> Result<(), String> {
    same("length", done("len", file.len())?, wanted.len() as u64)?;
    let mut found = vec![0_u8; wanted.len()];
    done("read_exact_at", file.read_exact_at(0, &mut found))?;
    if found != wanted {
        let at = found
            .iter()
            .zip(wanted)
            .position(|(found, wanted)| found != wanted);
        return Err(format!(
            "the content of {} bytes differs from byte {at:?} on",
            wanted.len()
        ));
    }
    let mut offset = 0;
    while offset < wanted.len() {
        let mut buf = [0_u8; 777];
        let count = done("read_at", file.read_at(offset as u64, &mut buf))?;
        if count == 0 {
            return Err(format!(
                "a read at {offset} of {} bytes gave nothing",
                wanted.len()
            ));
        }
        same(
            "bytes of a read",
            buf.get(..count),
            wanted.get(offset..offset + count),
        )?;
        offset += count;
    }
    Ok(())
}
