//! A medium whose requests are carried out later and out of order passes the conformance tests too.

use headwater_io::{Completion, File, Files, MemoryFiles, OpenMode, conformance};
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
    headwater_io::pass_on_files!(files; remove list create_dir_all sync_dir exists lock lock_file);
}

#[test]
fn files_that_answer_later_and_out_of_order_pass_the_conformance_tests() {
    conformance::check_files(|| Arc::new(Later::new()), Path::new("/conformance")).unwrap();
}

/// What a back end does wrong with requests.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// It answers with a copy of the buffer.
    Copies,
    /// It answers a sync behind a write without having written.
    OnlySyncs,
    /// It takes the last offset of all for the first one.
    WrapsOffsets,
    /// It answers reads of all threads in the order in which they come, whoever asked.
    MixesThreads,
}

#[derive(Debug)]
struct WrongFiles(MemoryFiles, Wrong, Arc<Swap>);

#[derive(Debug)]
struct WrongFile(Arc<dyn File>, Wrong, Arc<Swap>);

/// The last read of all threads, which the next one gets.
type Swap = Mutex<Option<(std::thread::ThreadId, Vec<u8>)>>;

impl Files for WrongFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.0.open(path, mode)?;
        Ok(Arc::new(WrongFile(file, self.1, Arc::clone(&self.2))))
    }
    headwater_io::pass_on_files!(0; remove list create_dir_all sync_dir exists lock lock_file);
}

impl File for WrongFile {
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
    fn submit_read(&self, offset: u64, mut buf: Vec<u8>) -> Completion<Vec<u8>> {
        let read = self.0.read_exact_at(offset, &mut buf).map(|()| buf);
        if let (Wrong::MixesThreads, Ok(buf)) = (self.1, &read) {
            let thread = std::thread::current().id();
            let before = self.2.lock().unwrap().replace((thread, buf.clone()));
            if let Some((other, others)) = before
                && other != thread
            {
                return Completion::done(Ok(others));
            }
        }
        Completion::done(read)
    }
    fn submit_write(&self, offset: u64, data: Vec<u8>) -> Completion<Vec<u8>> {
        let offset = match self.1 {
            Wrong::WrapsOffsets if offset == u64::MAX => 0,
            _ => offset,
        };
        let written = self.0.write_all_at(offset, &data);
        Completion::done(written.map(|()| match self.1 {
            Wrong::Copies => data.clone(),
            _ => data,
        }))
    }
    fn submit_write_and_sync(&self, offset: u64, data: Vec<u8>) -> Completion<Vec<u8>> {
        Completion::done(match self.1 {
            Wrong::OnlySyncs if offset < 1 << 32 => self.0.sync_data().map(|()| data),
            _ => self.0.write_and_sync(offset, &data).map(|()| data),
        })
    }
}

#[test]
fn what_a_back_end_does_wrong_with_requests_breaks_a_law() {
    for (wrong, rule) in [
        (Wrong::Copies, "same piece of memory"),
        (Wrong::OnlySyncs, "has written all bytes"),
        (Wrong::WrapsOffsets, "ends of files and of offsets"),
        (Wrong::MixesThreads, "threads submit side by side"),
    ] {
        let make = || -> Arc<dyn Files> {
            Arc::new(WrongFiles(MemoryFiles::new(), wrong, Arc::default()))
        };
        let broken = conformance::check_files(make, Path::new("/conformance")).unwrap_err();
        assert!(broken.rule.contains(rule), "{wrong:?}: {broken}");
    }
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
    assert!(error.to_string().contains("dropped a request"), "{error}");
}
