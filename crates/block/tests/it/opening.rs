//! What opens, what does not, and why.

use crate::support::{BLOCK, env, flush, open, read, small, write};
use headwater_block::{BlockErrorKind, Device, DeviceOptions};
use headwater_io::{FaultKind, FaultyFiles, Files, OpenMode};
use std::path::Path;

fn refused(disk: &FaultyFiles, options: &DeviceOptions) -> (BlockErrorKind, String) {
    let error = Device::open(&env(disk), options).unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn a_device_is_opened_as_it_was_made_and_cannot_be_changed() {
    let disk = FaultyFiles::new(1);
    let identity = open(&disk).identity();
    let as_it_is = DeviceOptions::new("/dev");
    let device = Device::open(&env(&disk), &as_it_is).unwrap();
    assert_eq!(
        (device.size(), device.sets(), device.identity()),
        (32 * BLOCK, 2, identity)
    );
    drop(device);
    for options in [
        DeviceOptions {
            size: Some(64 * BLOCK),
            ..as_it_is.clone()
        },
        DeviceOptions {
            sets: Some(3),
            ..as_it_is.clone()
        },
    ] {
        let (kind, message) = refused(&disk, &options);
        assert_eq!(kind, BlockErrorKind::Invalid);
        assert!(message.contains("requested was"), "{message}");
        assert!(message.ends_with("[invalid]"), "{message}");
    }
}

#[test]
fn options_that_cannot_be_are_refused_before_anything_is_made() {
    for options in [
        DeviceOptions {
            size: None,
            ..small()
        },
        DeviceOptions {
            size: Some(4097),
            ..small()
        },
        DeviceOptions {
            size: Some(0),
            ..small()
        },
        DeviceOptions {
            size: Some(1 << 50),
            ..small()
        },
        DeviceOptions {
            sets: Some(0),
            ..small()
        },
        DeviceOptions {
            sets: Some(65),
            ..small()
        },
        DeviceOptions {
            stripe_bytes: 1000,
            ..small()
        },
        DeviceOptions {
            redo_blocks: 3,
            ..small()
        },
    ] {
        let disk = FaultyFiles::new(1);
        let (kind, message) = refused(&disk, &options);
        assert_eq!(kind, BlockErrorKind::Invalid, "{message}");
        let names = disk.list(Path::new("/dev")).unwrap();
        assert_eq!(names, ["block.lock"]);
    }
}

#[test]
fn two_owners_cannot_have_a_device_at_once() {
    let disk = FaultyFiles::new(1);
    let device = open(&disk);
    assert_eq!(refused(&disk, &small()).0, BlockErrorKind::Locked);
    // The lock's file was removed by a wrong hand: there is a second lock.
    disk.remove(Path::new("/dev/block.lock")).unwrap();
    assert_eq!(refused(&disk, &small()).0, BlockErrorKind::Locked);
    drop(device);
    drop(open(&disk));
}

#[test]
fn damage_is_named_with_file_and_place() {
    let files = ["block.super", "block.set.0", "block.set.1"];
    for file in files {
        for offset in [0, 9, 20, 60] {
            let disk = FaultyFiles::new(1);
            let device = open(&disk);
            write(&device, 0, &[1; 4096]).unwrap();
            flush(&device).unwrap();
            drop(device);
            disk.flip_bit(format!("/dev/{file}"), offset, 3).unwrap();
            let (kind, message) = refused(&disk, &small());
            assert_eq!(kind, BlockErrorKind::Corrupt, "{file} {offset}");
            assert!(message.contains(file), "{message}");
        }
    }
    // One that was never written to is made anew where a size is given, and only there.
    let disk = FaultyFiles::new(1);
    drop(open(&disk));
    disk.flip_bit("/dev/block.super", 20, 3).unwrap();
    let (kind, message) = refused(&disk, &DeviceOptions::new("/dev"));
    assert_eq!(kind, BlockErrorKind::Corrupt);
    assert!(message.contains("to recreate it"), "{message}");
    drop(open(&disk));
    // A page of the map: zeros would be taken for data that were lost without a word.
    let disk = FaultyFiles::new(1);
    let device = open(&disk);
    write(&device, 0, &[1; 4096]).unwrap();
    device.close().unwrap();
    drop(device);
    let map_at = 4096 + 2 * 6 * 4096;
    disk.flip_bit("/dev/block.set.0", map_at + 1, 0).unwrap();
    // Both slots hold the page, so opening puts it right; only without them it stays damaged.
    drop(open(&disk));
    disk.decay("/dev/block.set.0", 4096, &vec![0; 2 * 6 * 4096])
        .unwrap();
    disk.flip_bit("/dev/block.set.0", map_at + 1, 0).unwrap();
    let (kind, message) = refused(&disk, &small());
    assert_eq!(kind, BlockErrorKind::Corrupt);
    assert!(message.contains("page of the map"), "{message}");
}

#[test]
fn files_that_are_missing_cut_or_of_another_device_are_found() {
    let disk = FaultyFiles::new(1);
    drop(open(&disk));
    let set = disk.read_file("/dev/block.set.1").unwrap();
    disk.truncate_file("/dev/block.set.1", 100).unwrap();
    assert_eq!(refused(&disk, &small()).0, BlockErrorKind::Corrupt);
    disk.vanish("/dev/block.set.1").unwrap();
    assert_eq!(refused(&disk, &small()).0, BlockErrorKind::Io);
    // Set 0 in place of set 1.
    let other = disk.read_file("/dev/block.set.0").unwrap();
    disk.write_file("/dev/block.set.1", other).unwrap();
    let (kind, message) = refused(&disk, &small());
    assert_eq!(kind, BlockErrorKind::Corrupt);
    assert!(message.contains("set 1 of this device"), "{message}");
    disk.write_file("/dev/block.set.1", set).unwrap();
    let device = open(&disk);
    write(&device, 0, &[1; 4096]).unwrap();
    flush(&device).unwrap();
    drop(device);
    // Sets that were written to and have no superblock are somebody's data: nothing is made over
    // them, also when a header is damaged.
    disk.vanish("/dev/block.super").unwrap();
    disk.flip_bit("/dev/block.set.0", 9, 1).unwrap();
    let before = disk.files();
    assert_eq!(refused(&disk, &small()).0, BlockErrorKind::Corrupt);
    assert_eq!(disk.files().len(), before.len());
}

#[test]
fn whatever_fails_while_a_device_is_made_the_next_attempt_makes_it() {
    for kind in [
        FaultKind::WriteError,
        FaultKind::SyncError,
        FaultKind::CreateFull,
        FaultKind::RemoveError,
    ] {
        for nth in 0..12 {
            let disk = FaultyFiles::new(1);
            disk.fail_next(kind, nth);
            drop(Device::open(&env(&disk), &small()));
            disk.heal();
            let device = open(&disk);
            assert_eq!(read(&device, 0, BLOCK), vec![0; 4096]);
            write(&device, 0, &[1; 4096]).unwrap();
            flush(&device).unwrap();
            // What a sync that failed left shows, and is not on the medium.
            for seed in 0..10 {
                let device = open(&disk.after_crash(seed));
                assert_eq!(read(&device, 0, BLOCK), vec![1; 4096], "{kind:?} {nth}");
            }
        }
    }
}

#[test]
fn a_medium_without_room_is_found_out_when_the_device_is_made() {
    let disk = FaultyFiles::new(1);
    disk.capacity(20_000);
    assert_eq!(refused(&disk, &small()).0, BlockErrorKind::Full);
    disk.capacity(u64::MAX);
    drop(open(&disk));
}

#[test]
fn a_read_only_medium_says_so() {
    let disk = FaultyFiles::new(1);
    drop(open(&disk));
    disk.read_only();
    assert_eq!(refused(&disk, &small()).0, BlockErrorKind::Io);
    assert!(
        disk.open(Path::new("/dev/block.super"), OpenMode::Read)
            .is_ok()
    );
}
