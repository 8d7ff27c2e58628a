//! Two databases that continue from one copy of the files: no state of one has the name of a state
//! of the other, unless it is the same state.

use headwater_engine::{Database, Options};
use headwater_types::{Batch, StreamName};
use std::path::Path;

fn open(dir: &Path) -> Database {
    Database::open(Options::new(dir)).unwrap()
}

/// Writes a row to a stream with this tag.
fn write(db: &Database, tag: &str) {
    let mut batch = Batch::new();
    let name = StreamName::new("cpu", [("host", tag)]);
    batch.stream(&name).row(1, [("load", 0.5.into())]).unwrap();
    db.commit(batch).unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

#[test]
fn definitions_that_are_only_in_the_log_are_of_a_state_of_the_opening_that_made_them() {
    let dir = tempfile::tempdir().unwrap();
    let dirs = [dir.path().join("a"), dir.path().join("b")];
    let first = open(&dirs[0]);
    write(&first, "both");
    first.flush().unwrap();
    let before = first.hold_state(None).unwrap().state().name();
    first.close().unwrap();
    drop(first);
    copy(&dirs[0], &dirs[1]);

    let clones = [open(&dirs[0]), open(&dirs[1])];
    let names = || {
        clones
            .each_ref()
            .map(|db| db.hold_state(None).unwrap().state().name())
    };
    assert_eq!(names(), [before, before], "nothing was written since");
    // As many records of the same size, which differ only in what they define.
    for (db, tag) in clones.iter().zip(["own-a", "own-b"]) {
        write(db, tag);
    }
    let [a, b] = names();
    assert_ne!(a, b);
    assert_eq!((a.number, a.sequence), (b.number, b.sequence));
    assert_eq!(names(), [a, b], "a state keeps its name");
    let was_in = |db: usize, name| clones[db].was_in(name).unwrap();
    for db in [0, 1] {
        assert!(was_in(db, &before), "both continue from it");
    }
    assert!(was_in(0, &a) && was_in(1, &b));
    assert!(!was_in(0, &b) && !was_in(1, &a), "these are two histories");
}
