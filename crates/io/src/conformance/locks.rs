//! Rules of locks: [`crate::Files::lock`] and [`crate::Files::lock_file`].

use std::fmt::Debug;
use std::io;
use std::path::Path;

use super::{content_is, create, done, same};
use crate::files::{Files, OpenMode};
use crate::lock::LockError;

pub(super) fn lock(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let path = dir.join("lock");
    let first = done("lock", files.lock(&path, "owner one"))?;
    expect_held_here("lock twice", files.lock(&path, "owner two"), "owner one")?;
    expect_held_here(
        "lock a third time",
        files.lock(&path, "owner three"),
        "owner one",
    )?;
    let other = done(
        "another lock beside it",
        files.lock(&dir.join("other"), "owner four"),
    )?;
    drop(first);
    let second = done("lock after release", files.lock(&path, "owner two"))?;
    expect_held_here(
        "the other lock",
        files.lock(&dir.join("other"), "owner five"),
        "owner four",
    )?;
    expect_held_here("lock again", files.lock(&path, "owner one"), "owner two")?;
    drop((second, other));
    match files.lock(&dir.join("nowhere").join("lock"), "x") {
        Err(LockError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => Err(format!("a lock in a missing directory gave {other:?}")),
    }
}

pub(super) fn lock_text(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let path = dir.join("lock");
    drop(done(
        "lock",
        files.lock(&path, "a long text about the first owner"),
    )?);
    let lock = done("lock", files.lock(&path, "short"))?;
    content_is(&*done("open", files.open(&path, OpenMode::Read))?, b"short")?;
    drop(lock);
    same(
        "the lock file stays",
        done("list", files.list(dir))?,
        vec!["lock"],
    )
}

pub(super) fn lock_file(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let path = dir.join("file");
    match files.lock_file(&path) {
        Err(LockError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
        other => return Err(format!("a lock of a missing file gave {other:?}")),
    }
    let file = create(files, &path)?;
    done("write", file.write_all_at(0, b"content"))?;
    let lock = done("lock", files.lock_file(&path))?;
    expect_held_here("lock twice", files.lock_file(&path), "")?;
    // Reading and writing it needs no lock.
    done("write", file.write_all_at(7, b" of a file"))?;
    content_is(
        &*done("open", files.open(&path, OpenMode::Write))?,
        b"content of a file",
    )?;
    drop(lock);
    let lock = done("lock after release", files.lock_file(&path))?;
    content_is(&*file, b"content of a file")?;
    // The name is another file's by now, and that one can be locked beside the first.
    done("remove", files.remove(&path))?;
    drop(create(files, &path)?);
    let other = done("lock the other file", files.lock_file(&path))?;
    expect_held_here("lock it twice", files.lock_file(&path), "")?;
    drop((lock, other));
    Ok(())
}

pub(super) fn lock_name(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let path = dir.join("file");
    drop(create(files, &path)?);
    let by_text = done("lock", files.lock(&dir.join("lock"), "owner"))?;
    let lock = done("lock the file", files.lock_file(&path))?;
    for lock in [&by_text, &lock] {
        same("is_current", done("is_current", lock.is_current())?, true)?;
    }
    done("remove", files.remove(&path))?;
    same("is_current", done("is_current", lock.is_current())?, false)?;
    drop(create(files, &path)?);
    same("is_current", done("is_current", lock.is_current())?, false)?;
    same(
        "is_current",
        done("is_current", by_text.is_current())?,
        true,
    )
}

fn expect_held_here<T: Debug>(
    what: &str,
    result: Result<T, LockError>,
    owner: &str,
) -> Result<(), String> {
    match result {
        Err(LockError::HeldHere { owner_text }) if owner_text == owner => Ok(()),
        other => Err(format!(
            "{what} gave {other:?}, not a refusal in favour of {owner:?} of this process"
        )),
    }
}
