//! The laws of requests: [`crate::File::submit_read`] and the like.

use std::io;
use std::path::Path;

use super::{content_is, create, done, fails, fails_as, same};
use crate::files::{Files, OpenMode};

/// Bytes of one request.
const BYTES: usize = 3_001;
/// Requests on their way at once.
const COUNT: usize = 16;

pub(super) fn several(files: &dyn Files, dir: &Path) -> Result<(), String> {
    let file = create(files, &dir.join("file"))?;
    let part = |number: usize| vec![number as u8 + 1; BYTES];
    let offset = |number: usize| (number * BYTES) as u64;
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
    // The last first: they are answered apart from one another.
    let reads: Vec<_> = (0..COUNT)
        .map(|number| (number, file.submit_read(offset(number), vec![0; BYTES])))
        .collect();
    for (number, read) in reads.into_iter().rev() {
        let found = done("a read on its way", read.wait())?;
        same("the bytes of a read", found == part(number), true)?;
    }
    let nothing = done("a read of nothing", file.submit_read(5, Vec::new()).wait())?;
    same("the bytes of a read of nothing", nothing.len(), 0)?;
    // Nobody waits for this one; it may be carried out all the same, or not.
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
