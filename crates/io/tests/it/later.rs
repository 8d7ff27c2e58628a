//! A medium whose requests are carried out later and out of order obeys the laws too.

use headwater_io::{Completion, File, Files, Lock, LockError, MemoryFiles, OpenMode, laws};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};

/// What is left to do of a request.
type Work = Box<dyn FnOnce() + Send>;

/// Files in memory behind a thread that takes all requests there are and begins with the newest;
/// syncs come last.
#[derive(Debug)]
struct Later {
    files: MemoryFiles,
    queue: Arc<Mutex<mpsc::Sender<Work>>>,
}

#[derive(Debug)]
struct LaterFile {
    file: Arc<dyn File>,
    queue: Arc<Mutex<mpsc::Sender<Work>>>,
}

impl Later {
    fn new() -> Later {
        let (sender, receiver) = mpsc::channel::<Work>();
        std::thread::spawn(move || {
            while let Ok(first) = receiver.recv() {
                let mut waiting = vec![first];
                waiting.extend(receiver.try_iter());
                while let Some(newest) = waiting.pop() {
                    newest();
                }
            }
        });
        Later {
            files: MemoryFiles::new(),
            queue: Arc::new(Mutex::new(sender)),
        }
    }
}

impl LaterFile {
    fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn File) -> io::Result<T> + Send + 'static,
    ) -> Completion<T> {
        let (completion, completer) = Completion::pending();
        let file = Arc::clone(&self.file);
        let work: Work = Box::new(move || completer.complete(work(&*file)));
        self.queue.lock().unwrap().send(work).unwrap();
        completion
    }
}

impl File for LaterFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
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
    fn submit_read(&self, offset: u64, mut buf: Vec<u8>) -> Completion<Vec<u8>> {
        self.submit(move |file| file.read_exact_at(offset, &mut buf).map(|()| buf))
    }
    fn submit_write(&self, offset: u64, data: Vec<u8>) -> Completion<Vec<u8>> {
        self.submit(move |file| file.write_all_at(offset, &data).map(|()| data))
    }
    fn submit_sync(&self) -> Completion<()> {
        self.submit(|file| file.sync_data())
    }
}

impl Files for Later {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(LaterFile {
            file: self.files.open(path, mode)?,
            queue: Arc::clone(&self.queue),
        }))
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.remove(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.files.list(dir)
    }
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.files.create_dir_all(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.files.sync_dir(dir)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.files.exists(path)
    }
    fn lock(&self, path: &Path, owner_text: &str) -> Result<Box<dyn Lock>, LockError> {
        self.files.lock(path, owner_text)
    }
    fn lock_file(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        self.files.lock_file(path)
    }
}

#[test]
fn files_that_answer_later_and_out_of_order_obey_the_laws() {
    laws::check_files(|| Arc::new(Later::new()), Path::new("/laws")).unwrap();
}

/// A medium that gives requests up.
#[derive(Debug)]
struct Forgetful(Arc<dyn File>);

impl File for Forgetful {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(offset, buf)
    }
    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(offset, data)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn submit_sync(&self) -> Completion<()> {
        Completion::pending().0
    }
}

#[test]
fn who_waits_for_a_request_that_was_given_up_is_told() {
    let files = MemoryFiles::new();
    let file = files.open(Path::new("/a"), OpenMode::CreateNew).unwrap();
    let error = Forgetful(file).submit_sync().wait().unwrap_err();
    assert!(error.to_string().contains("gave a request up"), "{error}");
}
