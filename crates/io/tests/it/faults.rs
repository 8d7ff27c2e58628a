//! Errors of the simulated medium, apart from power cuts.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use headwater_io::{FaultKind, FaultyFiles, File, Files, LockError, OpenMode};

const EIO: i32 = 5;

fn disk_with_file(seed: u64) -> (FaultyFiles, Arc<dyn File>) {
    let disk = FaultyFiles::new(seed);
    disk.write_file("/db/a", b"durable!").unwrap();
    let file = disk.open(Path::new("/db/a"), OpenMode::Write).unwrap();
    (disk, file)
}

#[test]
fn a_write_error_hits_the_chosen_write_once_and_may_leave_a_front_part() {
    let mut parts = Vec::new();
    for seed in 0..50 {
        let (disk, file) = disk_with_file(seed);
        disk.fail_next(FaultKind::WriteError, 1);
        file.write_all_at(0, b"DURABLE!").unwrap();
        file.sync_data().unwrap();
        assert_eq!(
            file.write_all_at(8, b"0123").unwrap_err().raw_os_error(),
            Some(EIO)
        );
        let found = disk.read_file("/db/a").unwrap();
        assert!(
            b"DURABLE!0123".starts_with(&found) && found.len() >= 8,
            "{found:?}"
        );
        parts.push(found.len() - 8);
        file.write_all_at(8, b"0123").unwrap();
        assert_eq!(disk.read_file("/db/a").unwrap(), b"DURABLE!0123");
    }
    parts.sort_unstable();
    parts.dedup();
    assert_eq!(parts, [0, 1, 2, 3, 4]);
}

#[test]
fn a_failed_set_len_leaves_the_length() {
    let (disk, file) = disk_with_file(1);
    disk.fail_next(FaultKind::WriteError, 0);
    assert_eq!(file.set_len(1).unwrap_err().raw_os_error(), Some(EIO));
    assert_eq!(file.len().unwrap(), 8);
}

#[test]
fn after_a_failed_sync_the_next_one_lies_and_the_data_is_lost_in_a_crash() {
    let (disk, file) = disk_with_file(1);
    file.write_all_at(0, b"LOST").unwrap();
    file.write_all_at(8, b"LOST").unwrap();
    disk.fail_next(FaultKind::SyncError, 0);
    assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(EIO));
    assert_eq!(disk.read_file("/db/a").unwrap(), b"LOSTble!LOST");
    file.sync_data().unwrap();
    for seed in 0..20 {
        assert_eq!(
            disk.after_crash(seed).read_file("/db/a").unwrap(),
            b"durable!"
        );
    }
    // What is written later is kept, with a gap where the lost bytes were.
    file.write_all_at(12, b"kept").unwrap();
    file.sync_data().unwrap();
    for seed in 0..20 {
        assert_eq!(
            disk.after_crash(seed).read_file("/db/a").unwrap(),
            b"durable!\0\0\0\0kept"
        );
    }
}

#[test]
fn a_failed_sync_can_also_throw_the_unsynced_bytes_away_at_once() {
    let (disk, file) = disk_with_file(1);
    file.write_all_at(0, b"GONE!GONE!").unwrap();
    disk.fail_next(FaultKind::SyncErrorReverting, 0);
    assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(EIO));
    assert_eq!(disk.read_file("/db/a").unwrap(), b"durable!");
    assert_eq!(file.len().unwrap(), 8);
}

#[test]
fn after_a_failed_directory_sync_the_names_are_lost_in_a_crash() {
    let (disk, _file) = disk_with_file(1);
    disk.open(Path::new("/db/new"), OpenMode::CreateNew)
        .unwrap();
    disk.remove(Path::new("/db/a")).unwrap();
    disk.fail_next(FaultKind::SyncError, 0);
    assert_eq!(
        disk.sync_dir(Path::new("/db")).unwrap_err().raw_os_error(),
        Some(EIO)
    );
    disk.sync_dir(Path::new("/db")).unwrap();
    assert_eq!(disk.list(Path::new("/db")).unwrap(), ["new"]);
    for seed in 0..20 {
        assert_eq!(
            disk.after_crash(seed).list(Path::new("/db")).unwrap(),
            ["a"]
        );
    }
}

#[test]
fn several_faults_hit_one_operation_each() {
    let (disk, file) = disk_with_file(1);
    for after in [0, 0, 3] {
        disk.fail_next(FaultKind::WriteError, after);
    }
    disk.fail_next(FaultKind::ReadError, 1);
    let writes: Vec<bool> = (0..6).map(|_| file.write_all_at(0, b"x").is_ok()).collect();
    assert_eq!(writes, [false, false, true, false, true, true]);
    let reads: Vec<bool> = (0..3).map(|_| file.read_at(0, &mut [0]).is_ok()).collect();
    assert_eq!(reads, [true, false, true]);
}

#[test]
fn a_full_disk_takes_what_fits() {
    let (disk, file) = disk_with_file(1);
    disk.capacity(12);
    assert_eq!(
        file.write_all_at(6, b"0123456789").unwrap_err().kind(),
        ErrorKind::StorageFull
    );
    assert_eq!(disk.read_file("/db/a").unwrap(), b"durabl012345");
    file.write_all_at(0, b"overwriting is fine".get(..12).unwrap())
        .unwrap();
    assert_eq!(
        file.write_all_at(20, b"x").unwrap_err().kind(),
        ErrorKind::StorageFull
    );
    assert_eq!(file.set_len(13).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(file.len().unwrap(), 12);
    let other = disk.open(Path::new("/db/b"), OpenMode::CreateNew).unwrap();
    assert_eq!(
        other.write_all_at(0, b"x").unwrap_err().kind(),
        ErrorKind::StorageFull
    );
    file.set_len(4).unwrap();
    other.write_all_at(0, b"01234567").unwrap();
    assert_eq!(
        other.write_all_at(8, b"x").unwrap_err().kind(),
        ErrorKind::StorageFull
    );
    disk.remove(Path::new("/db/a")).unwrap();
    other.write_all_at(8, b"x").unwrap();
    disk.capacity(u64::MAX);
    other.write_all_at(1_000, b"x").unwrap();
}

#[test]
fn a_read_only_disk_can_be_read() {
    let (disk, file) = disk_with_file(1);
    disk.read_only();
    let refused = [
        file.write_all_at(0, b"x").unwrap_err(),
        file.set_len(0).unwrap_err(),
        disk.open(Path::new("/db/b"), OpenMode::CreateNew)
            .unwrap_err(),
        disk.open(Path::new("/db/a"), OpenMode::Write).unwrap_err(),
        disk.remove(Path::new("/db/a")).unwrap_err(),
        disk.create_dir_all(Path::new("/other")).unwrap_err(),
        match disk.lock(Path::new("/db/lock"), "x").unwrap_err() {
            LockError::Io(error) => error,
            other => panic!("{other}"),
        },
    ];
    assert!(
        refused
            .iter()
            .all(|error| error.kind() == ErrorKind::ReadOnlyFilesystem),
        "{refused:?}"
    );
    disk.create_dir_all(Path::new("/db")).unwrap();
    let reader = disk.open(Path::new("/db/a"), OpenMode::Read).unwrap();
    let mut found = [0; 8];
    reader.read_exact_at(0, &mut found).unwrap();
    assert_eq!(&found, b"durable!");
}

#[test]
fn short_reads_are_short_and_read_exact_at_does_not_mind() {
    let disk = FaultyFiles::new(3);
    let bytes: Vec<u8> = (0..=255).collect();
    disk.write_file("/a", &bytes).unwrap();
    disk.short_reads();
    let file = disk.open(Path::new("/a"), OpenMode::Read).unwrap();
    let mut found = [0_u8; 256];
    let counts: Vec<usize> = (0..100)
        .map(|_| file.read_at(0, &mut found).unwrap())
        .collect();
    assert!(counts.iter().all(|count| (1..=256).contains(count)));
    assert!(counts.iter().filter(|count| **count < 256).count() > 50);
    for _ in 0..100 {
        found.fill(0);
        file.read_exact_at(0, &mut found).unwrap();
        assert_eq!(found.as_slice(), bytes);
    }
    assert_eq!(
        file.read_exact_at(1, &mut found).unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );
}

#[test]
fn bits_flip_and_files_are_cut_durably() {
    let (disk, file) = disk_with_file(1);
    let before = disk.operations();
    disk.flip_bit("/db/a", 1, 0).unwrap();
    disk.truncate_file("/db/a", 4).unwrap();
    disk.truncate_file("/db/a", 400).unwrap();
    assert_eq!(disk.read_file("/db/a").unwrap(), b"dtra");
    assert_eq!(file.len().unwrap(), 4);
    assert_eq!(disk.after_crash(0).read_file("/db/a").unwrap(), b"dtra");
    assert!(disk.flip_bit("/db/a", 4, 0).is_err());
    assert!(disk.flip_bit("/db/a", 0, 8).is_err());
    assert!(disk.flip_bit("/db/none", 0, 0).is_err());
    assert!(disk.truncate_file("/db/none", 0).is_err());
    assert!(disk.read_file("/db/none").is_err());
    assert!(disk.write_file("/db", b"").is_err());
    assert_eq!(disk.operations(), before);
}

#[test]
fn planted_files_are_durable_and_listed() {
    let disk = FaultyFiles::new(1);
    disk.write_file("/x/y/b", b"12").unwrap();
    disk.write_file("/x/a", b"1").unwrap();
    disk.write_file("/x/a", b"123").unwrap();
    let wanted = vec![("/x/a".into(), 3), ("/x/y/b".into(), 2)];
    assert_eq!(disk.files(), wanted);
    assert_eq!(disk.after_crash(0).files(), wanted);
}

#[test]
fn names_and_lengths_can_fail_too_and_nothing_has_changed_then() {
    const ENOSPC: i32 = 28;
    let (disk, file) = disk_with_file(1);
    let (dir, new) = (Path::new("/db"), Path::new("/db/b"));
    let cases: [(FaultKind, i32); 6] = [
        (FaultKind::CreateError, EIO),
        (FaultKind::CreateFull, ENOSPC),
        (FaultKind::RemoveError, EIO),
        (FaultKind::OpenError, EIO),
        (FaultKind::ListError, EIO),
        (FaultKind::LenError, EIO),
    ];
    for (kind, errno) in cases {
        let call = || match kind {
            FaultKind::CreateError => disk.open(new, OpenMode::CreateNew).map(drop),
            FaultKind::CreateFull => disk.create_dir_all(Path::new("/db/dir")),
            FaultKind::RemoveError => disk.remove(Path::new("/db/a")),
            FaultKind::OpenError => disk.open(Path::new("/db/a"), OpenMode::Read).map(drop),
            FaultKind::ListError => disk.list(dir).map(drop),
            _ => file.len().map(drop),
        };
        disk.fail_next(kind, 0);
        assert_eq!(call().unwrap_err().raw_os_error(), Some(errno), "{kind:?}");
        assert_eq!(disk.list(dir).unwrap(), ["a"], "{kind:?}");
        assert!(!disk.exists(Path::new("/db/dir")).unwrap());
    }
    disk.fail_next(FaultKind::OpenError, 0);
    assert_eq!(disk.exists(new).unwrap_err().raw_os_error(), Some(EIO));
}

#[test]
fn a_sync_that_finds_no_room_loses_what_it_was_for() {
    let (disk, file) = disk_with_file(1);
    file.write_all_at(8, b"LOST").unwrap();
    disk.fail_next(FaultKind::SyncFull, 0);
    assert_eq!(file.sync_data().unwrap_err().kind(), ErrorKind::StorageFull);
    file.sync_data().unwrap();
    assert_eq!(disk.after_crash(1).read_file("/db/a").unwrap(), b"durable!");
}

#[test]
fn faults_that_still_wait_can_be_taken_back() {
    let (disk, file) = disk_with_file(1);
    disk.fail_next(FaultKind::WriteError, 0);
    disk.fail_next(FaultKind::LenError, 3);
    assert_eq!((disk.heal(), disk.heal()), (2, 0));
    file.write_all_at(0, b"D").unwrap();
    assert_eq!(file.len().unwrap(), 8);
}

#[test]
fn bytes_decay_and_files_vanish_durably() {
    let (disk, file) = disk_with_file(1);
    disk.decay("/db/a", 5, b"XYZ12").unwrap();
    let mut found = [0; 8];
    file.read_exact_at(0, &mut found).unwrap();
    assert_eq!(&found, b"durabXYZ");
    assert_eq!(disk.after_crash(0).read_file("/db/a").unwrap(), b"durabXYZ");
    disk.decay("/db/a", 100, b"nothing").unwrap();
    disk.vanish("/db/a").unwrap();
    assert_eq!(
        disk.vanish("/db/a").unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert!(!disk.exists(Path::new("/db/a")).unwrap());
    assert!(disk.after_crash(1).files().is_empty());
    let unsynced = disk.open(Path::new("/db/b"), OpenMode::CreateNew).unwrap();
    unsynced.write_all_at(0, b"1").unwrap();
    disk.vanish("/db/b").unwrap();
    assert!(disk.after_crash(1).files().is_empty());
}
