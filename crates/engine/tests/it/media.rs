//! A database whose parts lie on different media: each part on its own and nowhere else, through a
//! power cut, a backup, a repair and a full medium.

use crate::support::small_options;
use headwater_engine::{
    BackupOptions, Database, ErrorKind, Options, Reader, RepairMode, ScanSpec, Snapshot,
    backup_with, check, repair, restore, verify_backup,
};
use headwater_io::{Env, FaultyFiles, Files, Media, MemoryFiles};
use headwater_types::{Batch, StreamName};
use std::path::Path;
use std::sync::Arc;

/// A disk for each part, and one for the rest.
struct Disks {
    main: FaultyFiles,
    log: FaultyFiles,
    index: FaultyFiles,
    segments: FaultyFiles,
}

impl Disks {
    fn new() -> Disks {
        Disks {
            main: FaultyFiles::new(1),
            log: FaultyFiles::new(2),
            index: FaultyFiles::new(3),
            segments: FaultyFiles::new(4),
        }
    }

    fn all(&self) -> [&FaultyFiles; 4] {
        [&self.main, &self.log, &self.index, &self.segments]
    }

    fn env(&self) -> Env {
        let shared = |disk: &FaultyFiles| Some(Arc::new(disk.clone()) as Arc<dyn Files>);
        Env {
            files: Arc::new(self.main.clone()),
            media: Media {
                log: shared(&self.log),
                pins: Some(Arc::new(MemoryFiles::new())),
                index: shared(&self.index),
                segments: shared(&self.segments),
                ..Media::default()
            },
            ..Env::memory()
        }
    }

    /// The power goes for all of them at one instant.
    fn after_power_cut(&self, seed: u64) -> Disks {
        for disk in self.all() {
            disk.crash_now();
        }
        Disks {
            main: self.main.after_crash(seed),
            log: self.log.after_crash(seed + 1),
            index: self.index.after_crash(seed + 2),
            segments: self.segments.after_crash(seed + 3),
        }
    }
}

fn stream(number: i64) -> StreamName {
    StreamName::new("pumps", [("id", number.to_string().as_str())])
}

const STREAMS: i64 = 3;

fn write(db: &Database, times: std::ops::Range<i64>) {
    let mut batch = Batch::new();
    for time in times {
        for number in 0..STREAMS {
            let row = [("pressure", (time * number).into())];
            batch.stream(&stream(number)).row(time, row).unwrap();
        }
    }
    db.commit(batch).unwrap();
}

fn times_of(snapshot: &Snapshot, number: i64) -> Vec<i64> {
    let scan = snapshot
        .scan(&stream(number), &ScanSpec::default())
        .unwrap();
    scan.flat_map(|chunk| chunk.unwrap().times).collect()
}

fn assert_contains(snapshot: &Snapshot, times: std::ops::Range<i64>) {
    for number in 0..STREAMS {
        let wanted: Vec<i64> = times.clone().collect();
        assert_eq!(times_of(snapshot, number), wanted, "stream {number}");
    }
}

/// What lies where, by the first folder below the database's.
fn parts_on(disk: &FaultyFiles) -> Vec<String> {
    let files = disk.files().into_iter();
    let mut parts: Vec<String> = files
        .filter_map(|(path, _)| {
            let inside = path.strip_prefix("/db").ok()?.to_owned();
            Some(inside.iter().next()?.to_str()?.to_owned())
        })
        .collect();
    parts.dedup();
    parts
}

/// Rows in segments, and later ones in the log alone.
fn filled(disks: &Disks, options: &Options) -> Database {
    let db = Database::open_in(disks.env(), options.clone()).unwrap();
    write(&db, 0..400);
    db.flush().unwrap();
    write(&db, 400..500);
    db
}

#[test]
fn each_part_lies_on_its_medium_and_survives_a_power_cut_there() {
    let options = Options {
        reserve_bytes: 4096,
        ..small_options()
    };
    for seed in 0..8 {
        let disks = Disks::new();
        let db = filled(&disks, &options);
        assert_contains(&db.snapshot().unwrap(), 0..500);
        assert_eq!(parts_on(&disks.main), ["lock"]);
        assert_eq!(parts_on(&disks.log), ["log", "reserve"]);
        assert_eq!(parts_on(&disks.index), ["meta.redb", "reserve"]);
        assert_eq!(parts_on(&disks.segments), ["reserve", "segment"]);
        let after = disks.after_power_cut(seed * 10);
        drop(db);
        let db = Database::open_in(after.env(), options.clone()).unwrap();
        assert!(db.recovery().events_replayed > 0);
        assert_contains(&db.snapshot().unwrap(), 0..500);
        write(&db, 500..600);
        db.close().unwrap();
        let report = check(after.env(), options.clone()).unwrap();
        assert!(report.is_sound() && report.rows > 0, "{report:#?}");
        let reader = Reader::open_in(after.env(), options.clone()).unwrap();
        assert_contains(&reader.snapshot(), 0..600);
        assert!(reader.stats().unwrap().disk_bytes > 0);
    }
}

#[test]
fn a_backup_goes_from_all_media_to_one_folder_and_back_to_other_media() {
    let (disks, options) = (Disks::new(), small_options());
    let db = filled(&disks, &options);
    let to = Path::new("/backup");
    let how = BackupOptions::default();
    // Beside the owner, and by it.
    let report = backup_with(&disks.env(), &options, to, &how).unwrap();
    assert!(report.bytes > 0 && report.damages.is_empty(), "{report:#?}");
    write(&db, 500..550);
    db.backup(to).unwrap();
    db.close().unwrap();
    assert!(disks.log.files().iter().all(|(p, _)| !p.starts_with(to)));
    assert!(verify_backup(&disks.env(), to).unwrap().is_sound());
    let taken = backup_with(&disks.env(), &options, Path::new("/db"), &how);
    assert_eq!(taken.unwrap_err().kind(), ErrorKind::Invalid);
    let others = Disks {
        main: disks.main.clone(),
        ..Disks::new()
    };
    let copy = Options {
        dir: "/copy".into(),
        ..options.clone()
    };
    assert!(restore(&others.env(), to, &copy).unwrap().is_sound());
    assert!(
        restore(&others.env(), to, &copy).is_err(),
        "it is not empty"
    );
    let db = Database::open_in(others.env(), copy).unwrap();
    assert_contains(&db.snapshot().unwrap(), 0..550);
}

#[test]
fn a_repair_mends_each_part_where_it_lies() {
    let options = small_options();
    // The metadata are gone: they are made anew of what lies on the other media.
    let disks = Disks::new();
    drop(filled(&disks, &options));
    disks.index.vanish("/db/meta.redb").unwrap();
    let opened = Database::open_in(disks.env(), options.clone());
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::Corrupt);
    let report = repair(&disks.env(), &options, RepairMode::Act).unwrap();
    assert!(report.after.is_sound(), "{report:#?}");
    let db = Database::open_in(disks.env(), options.clone()).unwrap();
    assert_contains(&db.snapshot().unwrap(), 0..500);
    db.close().unwrap();
    // A leaf has decayed: a copy of its segment is kept beside the lock.
    let disks = Disks::new();
    filled(&disks, &options).close().unwrap();
    let segments = disks.segments.files().into_iter();
    let (segment, len) = segments
        .filter(|(path, _)| path.extension().is_some_and(|e| e == "seg"))
        .max_by_key(|(_, len)| *len)
        .unwrap();
    disks.segments.flip_bit(&segment, len / 4, 3).unwrap();
    let report = check(disks.env(), options.clone()).unwrap();
    assert!(!report.is_sound());
    let dry = repair(&disks.env(), &options, RepairMode::DryRun).unwrap();
    assert!(!dry.findings.is_empty() && dry.after.is_sound(), "{dry:#?}");
    let report = repair(&disks.env(), &options, RepairMode::Act).unwrap();
    assert!(report.after.is_sound(), "{report:#?}");
    let kept = Path::new("/db/quarantine").join(segment.file_name().unwrap());
    assert!(disks.main.read_file(&kept).is_ok());
    let db = Database::open_in(disks.env(), options).unwrap();
    write(&db, 500..600);
    assert!(times_of(&db.snapshot().unwrap(), 1).ends_with(&[598, 599]));
}

#[test]
fn a_full_medium_says_full_and_writes_go_on_when_it_has_space_again() {
    let options = Options {
        reserve_bytes: 64 << 10,
        ..small_options()
    };
    for which in ["log", "segments"] {
        let disks = Disks::new();
        let db = filled(&disks, &options);
        let disk = match which {
            "log" => &disks.log,
            _ => &disks.segments,
        };
        let used: u64 = disk.files().iter().map(|(_, len)| len).sum();
        disk.capacity(used);
        let mut written = 500;
        let full = loop {
            let mut batch = Batch::new();
            for time in written..written + 100 {
                let row = [("pressure", time.into())];
                batch.stream(&stream(0)).row(time, row).unwrap();
            }
            match db.commit(batch).and_then(|_| db.flush()) {
                Ok(()) => written += 100,
                Err(error) => break error,
            }
            assert!(written < 1_000_000, "the medium of {which} never fills");
        };
        assert_eq!(full.kind(), ErrorKind::Full, "{which}: {full}");
        let all = times_of(&db.snapshot().unwrap(), 0);
        assert!(all.len() as i64 >= written, "{} of {written}", all.len());
        drop(db);
        disk.capacity(u64::MAX);
        let db = Database::open_in(disks.env(), options.clone()).unwrap();
        let all = times_of(&db.snapshot().unwrap(), 0);
        assert!(all.len() as i64 >= written, "{} of {written}", all.len());
        db.close().unwrap();
        assert!(check(disks.env(), options.clone()).unwrap().is_sound());
    }
}
