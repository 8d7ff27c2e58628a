//! A folder is the same by whatever path it is reached: a symbolic link, `..`. Another path to the
//! database or its fast tier is neither a move nor a copy; a move and a copy are refused, whatever
//! the path.

use crate::support::{Dice, START, batch_of};
use headwater_engine::{
    Database, Error, ErrorKind, FastTier, Options, Reader, ScanSpec, TierParts, adopt_fast_tier,
    backup, fast_tier, use_fast_tier,
};
use headwater_io::Env;
use headwater_types::{StreamName, Value};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A database in `bulk/db` with a fast tier in `nvme/fast`, and links to all of these.
struct World {
    root: TempDir,
}

fn parts() -> TierParts {
    "log,pins,index".parse().unwrap()
}

impl World {
    fn new() -> World {
        let world = World {
            root: TempDir::new().unwrap(),
        };
        for folder in ["bulk", "nvme"] {
            std::fs::create_dir(world.path(folder)).unwrap();
        }
        for (link, to) in [("to-db", "bulk/db"), ("to-fast", "nvme/fast")] {
            symlink(world.path(to), world.path(link)).unwrap();
        }
        symlink(world.path("bulk"), world.path("to-bulk")).unwrap();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn options(&self, dir: &str, fast: Option<&str>) -> Options {
        Options {
            memory_budget_bytes: 1 << 20,
            shards: 1,
            fast_dir: fast.map(|fast| self.path(fast)),
            fast_parts: parts(),
            ..Options::new(self.path(dir))
        }
    }

    fn open(&self, dir: &str, fast: Option<&str>) -> Result<Database, Error> {
        Database::open(self.options(dir, fast))
    }

    /// Opens by these paths, finds the rows so far, writes one more and closes.
    fn use_by(&self, dir: &str, fast: Option<&str>, rows: &mut i64) {
        let what = format!("{dir} {fast:?}");
        let db = self
            .open(dir, fast)
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(count(&db), *rows, "{what}");
        write(&db, *rows);
        *rows += 1;
        let beside = Reader::open(self.options("bulk/db/../../to-db", None))
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(count(&beside.database()), *rows, "{what}, beside it");
        assert_eq!(db.fast_tier().map(|tier| tier.parts), Some(parts()));
        // Killed, so that the next one finds rows in the tier alone; or closed.
        if *rows % 2 == 0 {
            db.close().unwrap();
        }
    }

    /// Where `DIR/tier` says that the tier is.
    fn named(&self, dir: &str) -> PathBuf {
        let tier = fast_tier(&Env::system(), &self.path(dir)).unwrap();
        tier.unwrap().folder
    }
}

fn stream() -> StreamName {
    StreamName::new("m", [("device", "1")])
}

fn write(db: &Database, time: i64) {
    let event = crate::support::Event {
        stream: stream(),
        time: START + time,
        fields: [("v".to_owned(), Value::U64(Dice::new(1).next()))].into(),
    };
    db.commit(batch_of(&[event])).unwrap();
}

fn count(db: &Database) -> i64 {
    let Ok(scan) = db.snapshot().unwrap().scan(&stream(), &ScanSpec::default()) else {
        return 0;
    };
    scan.map(|chunk| i64::try_from(chunk.unwrap().times.len()).unwrap())
        .sum()
}

#[test]
fn a_database_and_its_tier_are_found_by_every_path() {
    let world = World::new();
    let mut rows = 0;
    world.use_by("bulk/db", Some("nvme/fast"), &mut rows);
    let named = world.named("bulk/db");
    for dir in [
        "to-db",
        "bulk/db/../db",
        "to-bulk/db",
        "nvme/../to-bulk/./db",
        // Below the tier by its text.
        "nvme/fast/../../bulk/db",
        "bulk/db",
    ] {
        for fast in [
            None,
            Some("to-fast"),
            Some("nvme/fast/log/.."),
            Some("nvme/fast"),
        ] {
            world.use_by(dir, fast, &mut rows);
            assert_eq!(world.named(dir), named, "nothing was changed");
        }
    }
    // Moving to where it is changes nothing, open or not.
    let tier = FastTier {
        folder: world.path("to-fast"),
        parts: parts(),
    };
    let options = world.options("to-db", None);
    use_fast_tier(&Env::system(), &options, Some(&tier)).unwrap();
    let db = world.open("to-db", None).unwrap();
    let before = std::fs::read(world.path("nvme/fast/tier")).unwrap();
    db.move_tier(Some(&tier)).unwrap();
    assert_eq!(std::fs::read(world.path("nvme/fast/tier")).unwrap(), before);
    // Other parts in the same folder by another name: what stays there stays.
    let fewer = FastTier {
        folder: world.path("nvme/../to-fast"),
        parts: "log".parse().unwrap(),
    };
    db.move_tier(Some(&fewer)).unwrap();
    write(&db, rows);
    rows += 1;
    drop(db);
    assert_eq!(world.named("bulk/db"), named);
    use_fast_tier(&Env::system(), &options, Some(&tier)).unwrap();
    world.use_by("bulk/db", Some("nvme/fast"), &mut rows);
    let to = world.path("backup");
    assert!(backup(&Env::system(), &options, &to).is_ok());
}

#[test]
fn a_tier_is_no_folder_above_the_database_by_any_path() {
    let world = World::new();
    for fast in ["bulk", "to-bulk", "bulk/db/..", "bulk/db", "nvme/.."] {
        let refused = world.open("bulk/db", Some(fast)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{fast}: {refused}");
        // The other way round, too.
        let refused = world.open("to-bulk/db", Some(fast)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{fast}: {refused}");
    }
    // Beside it is not above it, whatever the text looks like.
    let mut rows = 0;
    world.use_by("nvme/../bulk/db", Some("nvme/fast"), &mut rows);
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_all(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[test]
fn a_moved_database_and_a_copy_are_told_whatever_path_was_named() {
    let world = World::new();
    let mut rows = 0;
    world.use_by("bulk/db", Some("nvme/fast"), &mut rows);
    let db = world.open("bulk/db", None).unwrap();
    db.close().unwrap();
    drop(db);
    // A copy, by whatever path, while the original is there.
    copy_all(&world.path("bulk/db"), &world.path("bulk/copy"));
    symlink(world.path("bulk/copy"), world.path("to-copy")).unwrap();
    for dir in ["bulk/copy", "to-copy"] {
        let refused = world.open(dir, None).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Tier, "{dir}: {refused}");
        let options = world.options(dir, Some("nvme/fast"));
        let refused = adopt_fast_tier(&Env::system(), &options).unwrap_err();
        assert!(refused.to_string().contains("is a copy of"), "{refused}");
    }
    // The original is no copy of itself.
    let options = world.options("nvme/../bulk/db", Some("nvme/fast"));
    adopt_fast_tier(&Env::system(), &options).unwrap();
    world.use_by("bulk/db", None, &mut rows);
    // Moved: the old name is gone, and a link to it is, too.
    std::fs::rename(world.path("bulk/db"), world.path("bulk/other")).unwrap();
    let refused = world.open("bulk/other", None).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Tier, "{refused}");
    let options = world.options("bulk/other", Some("to-fast"));
    adopt_fast_tier(&Env::system(), &options).unwrap();
    let db = world.open("bulk/other", None).unwrap();
    assert_eq!(count(&db), rows);
    // A folder that is the tier of another database stays its.
    let refused = world.open("second", Some("to-fast")).unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::Tier | ErrorKind::Locked),
        "{refused}"
    );
}
