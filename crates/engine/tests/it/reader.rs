//! Reading beside an owner: at every point of its life, and while it goes on in the midst of a
//! look.

use crate::support::{
    Action, Dice, Run, Step, check, read_snapshot, small_options, steps, workload,
};
use headwater_engine::{
    Database, DeleteSpec, ErrorKind, IndexSpec, Options, Reader, Result, ScanSpec, Snapshot,
    TableChange, TableInfo, TableSpec,
};
use headwater_io::{Env, FaultyFiles, File, Files, OpenMode};
use headwater_types::{Batch, ClosedRange, StreamName};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Called before every operation of one kind.
type Hook = Arc<dyn Fn() + Send + Sync>;

/// Files that call a hook before every operation that changes something, or before every one that
/// only looks.
#[derive(Clone)]
pub(crate) struct Hooked {
    pub(crate) disk: Arc<dyn Files>,
    pub(crate) before_change: Option<Hook>,
    pub(crate) before_look: Option<Hook>,
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooked").finish_non_exhaustive()
    }
}

impl Hooked {
    fn change(&self) {
        if let Some(hook) = &self.before_change {
            hook();
        }
    }

    fn look(&self) {
        if let Some(hook) = &self.before_look {
            hook();
        }
    }
}

#[derive(Debug)]
struct HookedFile {
    file: Arc<dyn File>,
    hooks: Hooked,
}

impl File for HookedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.hooks.look();
        self.file.read_at(offset, buf)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.hooks.change();
        self.file.write_all_at(offset, data)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.hooks.change();
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.hooks.look();
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.hooks.change();
        self.file.set_len(len)
    }
}

impl Files for Hooked {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        if mode == OpenMode::CreateNew {
            self.change();
        } else {
            self.look();
        }
        let file = self.disk.open(path, mode)?;
        Ok(Arc::new(HookedFile {
            file,
            hooks: self.clone(),
        }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change();
        self.disk.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.look();
        self.disk.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.change();
        self.disk.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.change();
        self.disk.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.look();
        self.disk.exists(path)
    }

    headwater_io::pass_on_files!(disk; lock lock_file);
}

fn open(files: Arc<dyn Files>, options: &Options) -> Result<Reader> {
    let env = Env {
        files,
        ..Env::memory()
    };
    Reader::open_in(env, options.clone())
}

/// Plays a life action by action; `acknowledged` and `begun` say how far it came, for those who
/// look meanwhile.
fn live(files: Arc<dyn Files>, options: &Options, actions: &[Action], counts: &[AtomicUsize; 2]) {
    let mut run = Run::new(files, options);
    let mut db = run.open().unwrap();
    for action in actions {
        let more = steps(std::slice::from_ref(action)).len();
        counts[1].fetch_add(more, Ordering::AcqRel);
        db = run.play_on(db, std::slice::from_ref(action)).unwrap();
        counts[0].fetch_add(more, Ordering::AcqRel);
    }
    db.close().unwrap();
}

/// Steps acknowledged and begun when it was taken, and what it gave.
type Look = (usize, usize, Result<Reader>);

fn look_everywhere(options: &Options, actions: &[Action], stride: usize) {
    let all = steps(actions);
    let disk = FaultyFiles::new(1);
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let operations = Arc::new(AtomicUsize::new(0));
    // The hook must live as long as the files: it gets what it needs by value.
    let looks: Arc<Mutex<Vec<Look>>> = Arc::default();
    let hook: Hook = {
        let (disk, counts, looks) = (disk.clone(), Arc::clone(&counts), Arc::clone(&looks));
        let (options, operations) = (options.clone(), Arc::clone(&operations));
        Arc::new(move || {
            if operations.fetch_add(1, Ordering::AcqRel) % stride == 0 {
                let before = disk.operations();
                let least = counts[0].load(Ordering::Acquire);
                let most = counts[1].load(Ordering::Acquire);
                let reader = open(Arc::new(disk.clone()), &options);
                assert_eq!(disk.operations(), before, "a reader changed something");
                looks.lock().unwrap().push((least, most, reader));
            }
        })
    };
    let files = Hooked {
        disk: Arc::new(disk.clone()),
        before_change: Some(hook),
        before_look: None,
    };
    live(Arc::new(files), options, actions, &counts);
    let looks = std::mem::take(&mut *looks.lock().unwrap());
    assert!(looks.len() > 60, "{}", looks.len());
    let mut newest = 0;
    for (number, (least, most, reader)) in looks.into_iter().enumerate() {
        let reader = match reader {
            Err(error) if least == 0 => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                continue;
            }
            other => other.unwrap_or_else(|e| panic!("look {number}: {e}")),
        };
        // Only now, after the owner's life: the files it replaced are still there for those who
        // look at them.
        let found = read_snapshot(&reader.snapshot(), &reader.tables())
            .steps_found(&all, least.max(newest), most)
            .unwrap_or_else(|e| panic!("look {number}: {e}"));
        newest = found;
    }
    let reader = open(Arc::new(disk), options).unwrap();
    let content = read_snapshot(&reader.snapshot(), &reader.tables());
    assert_eq!(
        content.steps_found(&all, all.len(), all.len()),
        Ok(all.len())
    );
}

#[test]
fn a_reader_sees_what_was_acknowledged_at_every_point_of_an_owners_life() {
    look_everywhere(&small_options(), &workload(41, 26, 6, 13, 20), 1);
}

#[test]
fn a_reader_keeps_what_it_sees_while_the_owner_compacts_and_recycles() {
    look_everywhere(&small_options(), &workload(42, 200, 9, 40, 70), 23);
}

/// An owner that goes on one action at a time, whenever somebody calls.
struct Owner {
    run: Run<'static>,
    db: Option<Database>,
    rest: std::vec::IntoIter<Action>,
    acknowledged: usize,
    dice: Dice,
}

impl Owner {
    fn act(&mut self) {
        let Some(action) = self.rest.next() else {
            return;
        };
        let db = self.db.take().unwrap();
        let actions = [action];
        self.db = Some(self.run.play_on(db, &actions).unwrap());
        self.acknowledged += steps(&actions).len();
    }
}

#[test]
fn an_owner_that_goes_on_in_the_midst_of_a_look() {
    let options: &'static Options = Box::leak(Box::new(small_options()));
    let mut looked = 0;
    let mut gave_up = 0;
    for seed in 0..12 {
        let actions = workload(50 + seed, 150, 5, 30, 60);
        let all = steps(&actions);
        let disk = FaultyFiles::new(seed);
        let run = Run::new(Arc::new(disk.clone()), options);
        let db = run.open().unwrap();
        let owner = Owner {
            run,
            db: Some(db),
            rest: actions.clone().into_iter(),
            acknowledged: 0,
            dice: Dice::new(seed),
        };
        let owner = Arc::new(Mutex::new(owner));
        // Often enough that looks have to be taken again, not so often that none succeeds.
        let percent = 1 + seed % 4;
        let hook: Hook = {
            let owner = Arc::clone(&owner);
            Arc::new(move || {
                let mut owner = owner.lock().unwrap();
                if owner.dice.chance(percent) {
                    owner.act();
                }
            })
        };
        let files: Arc<dyn Files> = Arc::new(Hooked {
            disk: Arc::new(disk.clone()),
            before_change: None,
            before_look: Some(hook),
        });
        let least = |owner: &Mutex<Owner>| owner.lock().unwrap().acknowledged;
        let mut newest = 0;
        while owner.lock().unwrap().rest.len() > 0 {
            let before = least(&owner);
            let reader = match open(Arc::clone(&files), options) {
                Ok(reader) => reader,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
                    gave_up += 1;
                    continue;
                }
            };
            let content = read_snapshot(&reader.snapshot(), &reader.tables());
            let after = least(&owner);
            newest = content
                .steps_found(&all, before.max(newest), after)
                .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            looked += 1;
            owner.lock().unwrap().act();
        }
        let db = owner.lock().unwrap().db.take().unwrap();
        let reader = open(Arc::new(disk.clone()), options).unwrap();
        drop(db);
        // What was looked at does not change; looking again shows what is new.
        let content = read_snapshot(&reader.snapshot(), &reader.tables());
        assert!(content.steps_found(&all, all.len(), all.len()).is_ok());
        reader.refresh().unwrap();
        let content = read_snapshot(&reader.snapshot(), &reader.tables());
        assert!(content.steps_found(&all, all.len(), all.len()).is_ok());
        assert!(check(Arc::new(disk), options).is_sound());
    }
    assert!(looked > 60 && gave_up * 2 < looked, "{looked} {gave_up}");
}

#[test]
fn refreshing_shows_what_came_and_old_snapshots_stay() {
    let options = small_options();
    let disk = FaultyFiles::new(3);
    assert_eq!(
        open(Arc::new(disk.clone()), &options).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let actions = workload(60, 40, 7, 20, 0);
    let all: Vec<Step<'_>> = steps(&actions);
    let mut run = Run::new(Arc::new(disk.clone()), &options);
    let db = run.open().unwrap();
    let db = run.play_on(db, &actions[..20]).unwrap();
    let half = steps(&actions[..20]).len();
    let reader = open(Arc::new(disk.clone()), &options).unwrap();
    let tables = reader.tables();
    let old = reader.snapshot();
    let db = run.play_on(db, &actions[20..]).unwrap();
    db.compact().unwrap();
    let found = |s: &Snapshot, t: &[TableInfo]| read_snapshot(s, t).steps_found(&all, 0, all.len());
    assert_eq!(found(&reader.snapshot(), &tables), Ok(half));
    reader.refresh().unwrap();
    assert_eq!(found(&reader.snapshot(), &reader.tables()), Ok(all.len()));
    assert_eq!(found(&old, &tables), Ok(half));
    db.close().unwrap();
    assert!(reader.stats().unwrap().events > 0);
}

#[test]
fn what_a_reader_sees_as_a_database_is_shown_and_never_changed() {
    let options = small_options();
    let disk = FaultyFiles::new(5);
    let run = Run::new(Arc::new(disk.clone()), &options);
    let owner = run.open().unwrap();
    let stream = StreamName::new("pumps", [("id", "p1")]);
    let row = |time: i64| {
        let mut batch = Batch::new();
        batch
            .stream(&stream)
            .row(time, [("v", 1.5.into())])
            .unwrap();
        batch
    };
    owner.commit(row(1)).unwrap();
    owner.set_note("site", Some(b"north")).unwrap();
    owner.create_snapshot("then").unwrap();
    owner.commit(row(2)).unwrap();
    let changes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&changes);
    let watched = Hooked {
        disk: Arc::new(disk.clone()),
        before_change: Some(Arc::new(move || {
            counted.fetch_add(1, Ordering::AcqRel);
        })),
        before_look: None,
    };
    let reader = open(Arc::new(watched), &options).unwrap();
    let seen = reader.database();
    let spec = |name: &str| TableSpec::new(name);
    let index = IndexSpec {
        name: "by_v".to_owned(),
        table: "pumps".to_owned(),
        fields: vec!["v".to_owned()],
    };
    let tags = [("id".to_owned(), "p1".to_owned())];
    let delete = DeleteSpec {
        table: "pumps".to_owned(),
        tags: Vec::new(),
        range: ClosedRange::ALL,
    };
    let refused: [(&str, Result<()>); 15] = [
        ("commit", seen.commit(row(3)).map(drop)),
        ("write", seen.write(row(3)).map(drop)),
        ("create_table", seen.create_table(&spec("t")).map(drop)),
        (
            "alter_table",
            seen.alter_table("pumps", &TableChange::default()).map(drop),
        ),
        ("delete", seen.delete(&delete).map(drop)),
        ("drop_streams", seen.drop_streams("pumps", &tags).map(drop)),
        ("drop_table", seen.drop_table("pumps")),
        ("flush", seen.flush()),
        ("compact", seen.compact()),
        ("maintain", seen.maintain()),
        ("set_note", seen.set_note("site", None)),
        ("create_snapshot", seen.create_snapshot("now2").map(drop)),
        ("drop_snapshot", seen.drop_snapshot("then")),
        ("create_index", seen.create_index(&index)),
        ("move_tier", seen.move_tier(None)),
    ];
    for (what, refused) in refused {
        let kind = refused.err().map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::ReadOnly), "{what}");
    }
    // What was seen is shown on, whatever its owner does, and until it is looked at again.
    owner.commit(row(3)).unwrap();
    owner.compact().unwrap();
    let count = |db: &Database| {
        let snapshot = db.snapshot().unwrap();
        let chunks = snapshot.scan(&stream, &ScanSpec::default()).unwrap();
        chunks
            .map(|chunk| chunk.unwrap().times.len())
            .sum::<usize>()
    };
    assert_eq!(count(&seen), 2);
    assert_eq!(seen.note("site").unwrap().as_deref(), Some(&b"north"[..]));
    assert_eq!(seen.snapshots().len(), 1);
    assert!(seen.snapshot_named("then").is_ok());
    assert_eq!(seen.stats().unwrap().streams, 1);
    let before = reader.database();
    reader.refresh().unwrap();
    assert_eq!((count(&before), count(&reader.database())), (2, 3));
    // Closing one of them, as dropping all of them, ends nothing for others.
    seen.close().unwrap();
    assert_eq!(seen.snapshot().unwrap_err().kind(), ErrorKind::Closed);
    drop((seen, before));
    assert_eq!(count(&reader.database()), 3);
    drop(reader);
    assert_eq!(changes.load(Ordering::Acquire), 0);
    owner.commit(row(4)).unwrap();
    owner.close().unwrap();
}

#[test]
fn damage_is_told_from_change() {
    let options = small_options();
    let disk = FaultyFiles::new(4);
    let actions = workload(61, 40, 7, 20, 0);
    Run::new(Arc::new(disk.clone()), &options)
        .play(&actions)
        .unwrap();
    let (segment, _) = disk
        .files()
        .into_iter()
        .find(|(p, _)| p.extension().is_some_and(|e| e == "seg"))
        .unwrap();
    // It opens without the partition, and says which part of which file is damaged.
    let told = || {
        let reader = open(Arc::new(disk.clone()), &options).unwrap();
        assert_eq!(reader.stats().unwrap().partitions_unreadable, 1);
        let report = check(Arc::new(disk.clone()), &options);
        assert_eq!(report.damages.len(), 1, "{:?}", report.damages);
        report.damages[0].clone()
    };
    disk.flip_bit(&segment, 9, 0).unwrap();
    assert_eq!(told().file, segment);
    disk.remove(&segment).unwrap();
    let damage = told();
    assert_eq!((damage.file, &*damage.found), (segment, "no file"));
}

/// Files of another format version are refused with a text that says so; nothing is changed, and
/// nothing is taken for damage.
#[test]
fn files_of_another_version_are_refused() {
    let options = small_options();
    let whole = FaultyFiles::new(4);
    let mut run = Run::new(Arc::new(whole.clone()), &options);
    let db = run.open().unwrap();
    drop(run.play_on(db, &workload(61, 40, 7, 20, 0)).unwrap());
    for ending in ["seg", "log"] {
        for (path, _) in whole.files() {
            if path.extension().is_none_or(|e| e != ending) {
                continue;
            }
            let disk = whole.after_crash(1);
            let mut bytes = disk.read_file(&path).unwrap();
            if bytes[..2] != *b"HW" {
                continue;
            }
            let original = bytes.clone();
            bytes[7] = 9;
            let crc = headwater_codec::checksum::crc32c(&bytes[..60]);
            bytes[60..64].copy_from_slice(&crc.to_le_bytes());
            disk.write_file(&path, &bytes).unwrap();
            let before = disk.files();
            let errors = [
                open(Arc::new(disk.clone()), &options).unwrap_err(),
                Run::new(Arc::new(disk.clone()), &options)
                    .open()
                    .unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
                assert!(error.to_string().contains("format version 9"), "{error}");
            }
            // The metadata's own store puts its file right after an unclean end, which may shorten
            // it.
            let others = |files: Vec<(std::path::PathBuf, u64)>| -> Vec<_> {
                let is_meta = |p: &Path| p.ends_with("meta.redb");
                files.into_iter().filter(|(p, _)| !is_meta(p)).collect()
            };
            assert_eq!(others(disk.files()), others(before));
            // Nothing was changed on the way: with its own header back, the database is whole.
            disk.write_file(&path, &original).unwrap();
            let again = Run::new(Arc::new(disk.clone()), &options);
            let db = again.open().unwrap();
            assert_eq!(db.stats().unwrap().partitions_unreadable, 0);
            db.close().unwrap();
            let env = Env {
                files: Arc::new(disk),
                ..Env::memory()
            };
            let report = headwater_engine::check(env, options.clone()).unwrap();
            assert!(report.is_sound(), "{:#?}", report.damages);
        }
    }
}
