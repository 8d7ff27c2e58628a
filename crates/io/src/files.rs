//! Traits for all file access of the product.
//!
//! Invariants: a [`File`] is an open handle and can be used after its name was removed; a name is
//! never renamed, so a handle and its path refer to the same bytes for the life of the handle.
//! Concurrency: every method takes `&self` and may be called from any thread; of two writes that
//! overlap in time and in bytes either may be last, so such writers need one owner per byte range.
//! Failure: an error leaves undefined how much was done unless the method says otherwise; see each
//! method. Durability: no change is durable until [`File::sync_data`] (bytes and length) and
//! [`Files::sync_dir`] (names) returned `Ok`; both are needed for a new file. Writes are not
//! ordered otherwise: between two syncs the medium may keep any subset. Tests:
//! [`crate::conformance`] defines the common behaviour and runs against every back end.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::lock::{Lock, LockError};
use crate::memfs::normal;
use crate::request::Completion;

/// An open file, addressed by byte offset; there is no cursor.
pub trait File: Send + Sync + fmt::Debug {
    /// Reads bytes from `offset` on into the front of `buf` and returns how many.
    ///
    /// The count may be smaller than `buf` although more bytes follow; it is 0 only at or past the
    /// end of the file, or for an empty `buf`. Interrupted calls are retried inside.
    ///
    /// # Errors
    /// Errors of the medium; the content of `buf` is then unspecified.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Fills all of `buf` from `offset` on if this does not wait for the medium, because the system
    /// has these bytes in memory. After false the content of `buf` is unspecified, and the bytes
    /// have to be read by another call.
    fn try_read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        let _ = (offset, buf);
        false
    }

    /// Fills all of `buf` from `offset` on, however short the single reads are.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] when the file ends first; otherwise as [`File::read_at`].
    /// The content of `buf` is unspecified after an error.
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let wanted = buf.len();
        let mut at = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            match self.read_at(at, rest) {
                Ok(0) => {
                    let missing = rest.len();
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        format!(
                            "the file ends {missing} bytes before the end of a read of {wanted} bytes at {offset}"
                        ),
                    ));
                }
                Ok(count) => {
                    let read = count.min(rest.len());
                    at = at.saturating_add(read as u64);
                    rest = rest.split_at_mut(read).1;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of `data` from `offset` on, growing the file when needed; a gap before `offset`
    /// reads as zeros. Short writes and interruptions are continued inside. Not atomic and not
    /// durable; see [`File::sync_data`].
    ///
    /// # Errors
    /// Errors of the medium, [`io::ErrorKind::StorageFull`] if it is full. Any part of `data` may
    /// then have been written and the file may have grown.
    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes the content **and the length** of this file durable: on `Ok`, every write and every
    /// [`File::set_len`] through any handle of this file that returned before this call survives a
    /// power cut. The name of a new file is not included; see [`Files::sync_dir`].
    ///
    /// # Errors
    /// Errors of the medium. Afterwards any of the unsynced bytes may be lost **even if a later
    /// call returns `Ok`**, so the caller must not rely on its writes to this file since the last
    /// successful call.
    fn sync_data(&self) -> io::Result<()>;

    /// The length in bytes, unsynced growth included.
    ///
    /// # Errors
    /// Errors of the medium.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// As [`File::len`].
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts the file to `len` bytes, or grows it to `len` with zeros. Not durable; see
    /// [`File::sync_data`].
    ///
    /// # Errors
    /// Errors of the medium; the length is then the old or the new one.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Writes all of `data` from `offset` on and makes the file durable: [`File::write_all_at`]
    /// followed by [`File::sync_data`], with the guarantees of both, possibly as one request.
    ///
    /// # Errors
    /// Errors of both; the error does not say which of them failed, so the written bytes are in
    /// doubt as after a failed sync.
    fn write_and_sync(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_all_at(offset, data)?;
        self.sync_data()
    }

    /// Starts to fill all of `buf` from `offset` on, as [`File::read_exact_at`] does; the buffer is
    /// returned with the answer.
    ///
    /// Requests may still be running when the `submit_` methods return; their [`Completion`]
    /// reports the end. Several may be in flight, and are completed in any order. A request sees
    /// all effects of requests completed before it was submitted, and possibly of others. By
    /// default requests run at once, by the blocking calls: for media without a queue, and for
    /// wrappers that observe the calls of a medium.
    fn submit_read(&self, offset: u64, mut buf: Vec<u8>) -> Completion<Vec<u8>> {
        Completion::done(self.read_exact_at(offset, &mut buf).map(|()| buf))
    }

    /// Starts to write all of `data` from `offset` on, as [`File::write_all_at`] does; the bytes
    /// are returned with the answer.
    fn submit_write(&self, offset: u64, data: Vec<u8>) -> Completion<Vec<u8>> {
        Completion::done(self.write_all_at(offset, &data).map(|()| data))
    }

    /// Starts to make the file durable, as [`File::sync_data`] does: every write that was completed
    /// before this call.
    fn submit_sync(&self) -> Completion<()> {
        Completion::done(self.sync_data())
    }

    /// Starts to write all of `data` from `offset` on and to make the file durable, as
    /// [`File::write_and_sync`] does; the bytes are returned with the answer. Concurrent requests
    /// are not covered by the sync.
    fn submit_write_and_sync(&self, offset: u64, data: Vec<u8>) -> Completion<Vec<u8>> {
        Completion::done(self.write_and_sync(offset, &data).map(|()| data))
    }
}

/// Mode in which [`Files::open`] opens a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// An existing file, to read only; writes through the handle fail.
    Read,
    /// An existing file, to read and write; its content is unchanged.
    Write,
    /// A file that must not exist yet, to read and write.
    CreateNew,
}

/// A file system: names, directories and the locks between processes.
///
/// Parent directories must exist before a file in them is created. Paths are used as passed; no
/// method renames.
pub trait Files: Send + Sync + fmt::Debug {
    /// Opens the file at `path`. Creation is atomic against other creators, and durable only after
    /// [`Files::sync_dir`] of the parent directory.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] for a missing file (`Read`, `Write`) or a missing parent
    /// directory; [`io::ErrorKind::AlreadyExists`] for `CreateNew` of an existing name;
    /// [`io::ErrorKind::IsADirectory`] for a directory; otherwise errors of the medium.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;

    /// Removes the name of a file. Open handles can still be used. Durable only after
    /// [`Files::sync_dir`] of the parent: until then the file may reappear after a power cut, with
    /// any subset of its unsynced writes.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] for a missing file; some error for a directory.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names of the files directly in `dir`, sorted by their bytes. Directories are omitted,
    /// and so are names that are not UTF-8, which this product never creates.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] for a missing directory, [`io::ErrorKind::NotADirectory`] for a file.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Creates `dir` and every missing parent directory, and makes these new directories durable.
    /// `Ok` if they exist already. Files in them are not made durable.
    ///
    /// # Errors
    /// An error if a file has the name of a directory; otherwise errors of the medium. A part of
    /// the directories may then exist, durable or not; calling again finishes the work.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Makes all creations and removals of files directly in `dir` durable.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] or [`io::ErrorKind::NotADirectory`] for a wrong path; otherwise
    /// errors of the medium, after which the names must be treated as unknown until read again
    /// after a restart.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// True when `path` names a file or a directory.
    ///
    /// # Errors
    /// Errors of the medium; a missing name or parent is `Ok(false)`.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Whether two paths refer to the same directory, however each names it. False if one of them
    /// is missing, unless the texts are equal. By default paths are compared as text, without `.`
    /// and `..`: for file systems without aliases.
    ///
    /// # Errors
    /// Errors of the medium.
    fn is_same_dir(&self, a: &Path, b: &Path) -> io::Result<bool> {
        Ok(normal(a) == normal(b))
    }

    /// Acquires the exclusive lock named by the file at `path`, without waiting, creating the file
    /// if missing and making `owner_text` its content. The lock ends when the value is dropped or
    /// the process ends. The file is not removed, and must never be removed while the product is in
    /// use: a lock belongs to the file, not to its name.
    ///
    /// # Errors
    /// [`LockError::Held`] with the text of the present owner (empty if it is just being written)
    /// if another process holds it, [`LockError::HeldHere`] if this process does; [`LockError::Io`]
    /// otherwise.
    fn lock(&self, path: &Path, owner_text: &str) -> Result<Box<dyn Lock>, LockError>;

    /// As [`Files::lock`], of an existing file whose content is not changed and does not name its
    /// owner. The lock belongs to the file that the name refers to at this moment, however the name
    /// is used later.
    ///
    /// # Errors
    /// As [`Files::lock`], with an empty text; [`io::ErrorKind::NotFound`] if the file does not
    /// exist.
    fn lock_file(&self, path: &Path) -> Result<Box<dyn Lock>, LockError>;

    /// Whether requests ([`File::submit_read`] and others) run while the caller does other work, so
    /// that reading ahead is useful.
    fn has_queue(&self) -> bool {
        false
    }

    /// Whether these are the unwrapped files of the operating system: another back end over the
    /// same files may replace them.
    fn are_of_system(&self) -> bool {
        false
    }
}

/// Implements methods of [`Files`] that forward their calls to a field, for a file system that
/// wraps another and changes the other methods only. The trait must be in scope.
///
/// ```
/// use headwater_io::{File, Files, MemoryFiles, OpenMode, pass_on_files};
/// use std::{io, path::Path, sync::Arc};
/// /// Creates nothing.
/// #[derive(Debug)]
/// struct Old(MemoryFiles);
/// impl Files for Old {
///     fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
///         match mode {
///             OpenMode::CreateNew => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
///             _ => self.0.open(path, mode),
///         }
///     }
///     pass_on_files!(0; remove list create_dir_all sync_dir exists lock lock_file);
/// }
/// assert!(Old(MemoryFiles::new()).list(Path::new("/")).unwrap().is_empty());
/// ```
#[macro_export]
macro_rules! pass_on_files {
    ($to:tt; $($method:ident)*) => {
        $($crate::pass_on_files!(@$method $to);)*
    };
    (@open $to:tt) => {
        fn open(
            &self,
            path: &::std::path::Path,
            mode: $crate::OpenMode,
        ) -> ::std::io::Result<::std::sync::Arc<dyn $crate::File>> {
            self.$to.open(path, mode)
        }
    };
    (@remove $to:tt) => {
        fn remove(&self, path: &::std::path::Path) -> ::std::io::Result<()> {
            self.$to.remove(path)
        }
    };
    (@list $to:tt) => {
        fn list(
            &self,
            dir: &::std::path::Path,
        ) -> ::std::io::Result<::std::vec::Vec<::std::string::String>> {
            self.$to.list(dir)
        }
    };
    (@create_dir_all $to:tt) => {
        fn create_dir_all(&self, dir: &::std::path::Path) -> ::std::io::Result<()> {
            self.$to.create_dir_all(dir)
        }
    };
    (@sync_dir $to:tt) => {
        fn sync_dir(&self, dir: &::std::path::Path) -> ::std::io::Result<()> {
            self.$to.sync_dir(dir)
        }
    };
    (@exists $to:tt) => {
        fn exists(&self, path: &::std::path::Path) -> ::std::io::Result<bool> {
            self.$to.exists(path)
        }
    };
    (@is_same_dir $to:tt) => {
        fn is_same_dir(
            &self,
            a: &::std::path::Path,
            b: &::std::path::Path,
        ) -> ::std::io::Result<bool> {
            self.$to.is_same_dir(a, b)
        }
    };
    (@lock $to:tt) => {
        fn lock(
            &self,
            path: &::std::path::Path,
            owner_text: &str,
        ) -> ::std::result::Result<::std::boxed::Box<dyn $crate::Lock>, $crate::LockError> {
            self.$to.lock(path, owner_text)
        }
    };
    (@lock_file $to:tt) => {
        fn lock_file(
            &self,
            path: &::std::path::Path,
        ) -> ::std::result::Result<::std::boxed::Box<dyn $crate::Lock>, $crate::LockError> {
            self.$to.lock_file(path)
        }
    };
    (@has_queue $to:tt) => {
        fn has_queue(&self) -> bool {
            self.$to.has_queue()
        }
    };
}
