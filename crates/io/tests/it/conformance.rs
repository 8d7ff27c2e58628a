//! Every back end passes the conformance tests, also with the faults on that callers must not
//! notice.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_io::{
    FaultyFiles, Files, Lock, LockError, MemoryFiles, PmemFiles, SystemFiles, UringFiles,
    conformance,
};

#[test]
fn memory_files_pass_the_conformance_tests() {
    conformance::check_files(|| Arc::new(MemoryFiles::new()), Path::new("/conformance")).unwrap();
    conformance::check_files(
        || Arc::new(MemoryFiles::new()),
        Path::new("relative/conformance"),
    )
    .unwrap();
}

#[test]
fn one_memory_file_system_obeys_all_laws_together() {
    let files = Arc::new(MemoryFiles::new());
    conformance::check_files(move || files.clone(), Path::new("/conformance")).unwrap();
}

#[test]
fn system_files_pass_the_conformance_tests() {
    let dir = tempfile::tempdir().unwrap();
    conformance::check_files(
        || Arc::new(SystemFiles::new()),
        &dir.path().join("not yet").join("there"),
    )
    .unwrap();
}

#[test]
fn files_with_a_queue_of_the_kernel_pass_the_conformance_tests() {
    let dir = tempfile::tempdir().unwrap();
    // Where the kernel refuses a queue these are those of the system, which the fallback is.
    conformance::check_files(|| UringFiles::or_system().0, dir.path()).unwrap();
    let files = UringFiles::or_system().0;
    conformance::check_files(move || files.clone(), &dir.path().join("one queue")).unwrap();
}

#[test]
fn files_on_persistent_memory_pass_the_conformance_tests_wherever_they_lie() {
    let dir = tempfile::tempdir().unwrap();
    conformance::check_files(|| Arc::new(PmemFiles::new()), dir.path()).unwrap();
}

#[test]
fn faulty_files_pass_the_conformance_tests() {
    conformance::check_files(|| Arc::new(FaultyFiles::new(1)), Path::new("/conformance")).unwrap();
}

#[test]
fn faulty_files_pass_the_conformance_tests_with_short_reads() {
    for seed in 0..20 {
        let make = || {
            let files = FaultyFiles::new(seed);
            files.short_reads();
            Arc::new(files) as Arc<dyn Files>
        };
        conformance::check_files(make, Path::new("/conformance")).unwrap();
    }
}

#[test]
fn faulty_files_pass_the_conformance_tests_after_a_crash() {
    for seed in 0..20 {
        let make = || {
            let before = FaultyFiles::new(seed);
            before.crash_now();
            Arc::new(before.after_crash(seed)) as Arc<dyn Files>
        };
        conformance::check_files(make, Path::new("/conformance")).unwrap();
    }
}

/// A back end that never finds anything wrong with a second owner.
#[derive(Debug)]
struct Careless(MemoryFiles);

#[derive(Debug)]
struct NoLock;
impl Lock for NoLock {
    fn is_current(&self) -> std::io::Result<bool> {
        Ok(true)
    }
}

impl Files for Careless {
    headwater_io::pass_on_files!(0; open remove list create_dir_all sync_dir exists lock_file);
    fn lock(&self, _path: &Path, _owner_text: &str) -> Result<Box<dyn Lock>, LockError> {
        Ok(Box::new(NoLock))
    }
}

#[test]
fn a_broken_law_is_named() {
    let root = PathBuf::from("/conformance");
    let broken =
        conformance::check_files(|| Arc::new(Careless(MemoryFiles::new())), &root).unwrap_err();
    assert_eq!(broken.rule, "a lock has one owner, and names it");
    assert!(broken.to_string().contains("NoLock"), "{broken}");
}
