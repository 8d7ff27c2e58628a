//! What is special about the file system of the machine.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use headwater_io::{Env, Files, LockError, OpenMode, SystemFiles};

#[test]
fn memory_and_system_environments_hold_files_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("only-on-disk");
    Env::system()
        .files
        .open(&path, OpenMode::CreateNew)
        .unwrap();
    assert!(Env::system().files.exists(&path).unwrap());
    assert!(!Env::memory().files.exists(&path).unwrap());
}

#[test]
fn names_that_are_not_utf8_are_left_out_of_listings() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join(std::ffi::OsStr::from_bytes(b"bad\xff")),
        b"",
    )
    .unwrap();
    std::fs::write(dir.path().join("good"), b"").unwrap();
    assert_eq!(SystemFiles::new().list(dir.path()).unwrap(), ["good"]);
}

#[test]
fn a_lock_file_left_by_a_dead_owner_can_be_taken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    std::fs::write(&path, "a much longer text of an owner that died").unwrap();
    let _lock = SystemFiles::new().lock(&path, "me").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "me");
}

/// Ends the process on every way out of the test.
struct Reaped(std::process::Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _already_gone = self.0.kill();
        let _already_reaped = self.0.wait();
    }
}

#[test]
fn a_lock_of_another_process_is_seen_and_ends_with_it() {
    use std::io::{BufRead, BufReader};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    std::fs::File::create(&path)
        .unwrap()
        .write_all(b"the other process")
        .unwrap();
    let other = Command::new("flock")
        .arg("--exclusive")
        .arg("--no-fork")
        .arg(&path)
        .args(["sh", "-c", "echo locked; read _; exit 0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    // The tool is not on every machine; the conformance tests cover locks within one process.
    let Ok(mut other) = other.map(Reaped) else {
        return;
    };
    let mut line = String::new();
    BufReader::new(other.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "locked\n");
    match SystemFiles::new().lock(&path, "me") {
        Err(LockError::Held { owner_text }) => assert_eq!(owner_text, "the other process"),
        found => panic!("the lock was {found:?}"),
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "the other process");
    other.0.kill().unwrap();
    other.0.wait().unwrap();
    SystemFiles::new().lock(&path, "me").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "me");
}

#[test]
fn the_empty_path_is_the_working_directory() {
    let files = SystemFiles::new();
    assert!(files.exists(Path::new("")).unwrap());
    files.sync_dir(Path::new("")).unwrap();
    files.create_dir_all(Path::new("")).unwrap();
    assert!(
        files
            .list(Path::new(""))
            .unwrap()
            .contains(&"Cargo.toml".to_owned())
    );
}
