//! What commands do, against an array of bytes.

use crate::support::{BLOCK, Dice, extents, flush, open, read, small, write};
use headwater_block::{Command, Device};
use headwater_io::{FaultKind, FaultyFiles};
use std::io;

#[test]
fn a_new_device_is_a_hole_of_zeros() {
    let device = open(&FaultyFiles::new(1));
    assert_eq!(read(&device, 0, device.size()), vec![0; 32 * 4096]);
    assert_eq!(extents(&device, 0, device.size()), [(32 * BLOCK, false)]);
    assert_eq!((device.size(), device.sets()), (32 * BLOCK, 2));
}

#[test]
fn bytes_are_written_wherever_they_begin_and_end() {
    let disk = FaultyFiles::new(1);
    disk.short_reads();
    let device = open(&disk);
    // Across two stripes, which lie in both sets.
    write(&device, 8000, &[7; 10_000]).unwrap();
    let mut expected = vec![0; 32 * 4096];
    expected[8000..18_000].fill(7);
    assert_eq!(read(&device, 0, device.size()), expected);
    assert_eq!(read(&device, 7999, 3), [0, 7, 7]);
    assert_eq!(
        extents(&device, 0, 6 * BLOCK),
        [(BLOCK, false), (4 * BLOCK, true), (BLOCK, false)]
    );
}

#[test]
fn zeros_and_trims_leave_holes_and_only_zeros_touch_parts_of_blocks() {
    let device = open(&FaultyFiles::new(1));
    write(&device, 0, &[7; 4 * 4096]).unwrap();
    let fua = false;
    let trim = |offset, length| Command::Trim {
        offset,
        length,
        fua,
    };
    let zero = |offset, length, keeps_space| Command::Zero {
        offset,
        length,
        keeps_space,
        fua,
    };
    device.call(trim(100, 2 * BLOCK)).unwrap();
    assert_eq!(read(&device, 0, BLOCK), vec![7; 4096]);
    assert_eq!(read(&device, BLOCK, BLOCK), vec![0; 4096]);
    device.call(zero(2 * BLOCK + 1, BLOCK, false)).unwrap();
    assert_eq!(read(&device, 2 * BLOCK, 2), [7, 0]);
    assert_eq!(read(&device, 3 * BLOCK, 2), [0, 7]);
    device.call(zero(0, 2 * BLOCK, true)).unwrap();
    assert_eq!(
        extents(&device, 0, 5 * BLOCK),
        [(4 * BLOCK, true), (BLOCK, false)]
    );
    device.call(zero(0, 3 * BLOCK, false)).unwrap();
    assert_eq!(
        extents(&device, 0, 4 * BLOCK),
        [(3 * BLOCK, false), (BLOCK, true)]
    );
    assert_eq!(read(&device, 0, 3 * BLOCK), vec![0; 3 * 4096]);
}

#[test]
fn what_lies_beyond_the_end_is_refused_and_changes_nothing() {
    let device = open(&FaultyFiles::new(1));
    let size = device.size();
    let refused = |command| device.call(command).unwrap_err().kind();
    for command in [
        Command::Read {
            offset: size - 1,
            length: 2,
        },
        Command::Write {
            offset: size - 1,
            data: vec![1; 2],
            fua: true,
        },
        Command::Trim {
            offset: u64::MAX,
            length: 2,
            fua: true,
        },
        Command::Status {
            offset: size,
            length: 1,
        },
    ] {
        assert_eq!(refused(command), io::ErrorKind::InvalidInput);
    }
    assert_eq!(read(&device, 0, size), vec![0; 32 * 4096]);
}

/// One life: random commands, now and then closed and opened again.
fn live(seed: u64, steps: usize) {
    let disk = FaultyFiles::new(seed);
    let dice = Dice::new(seed);
    let mut device = open(&disk);
    let size = device.size();
    let mut expected = vec![0_u8; size as usize];
    for step in 0..steps {
        let (offset, length) = dice.range(size, 5 * BLOCK);
        let range = offset as usize..(offset + length) as usize;
        let fua = dice.below(8) == 0;
        match dice.below(12) {
            0..=4 => {
                let byte = 1 + (step % 255) as u8;
                let data = vec![byte; length as usize];
                expected[range].fill(byte);
                device
                    .call(Command::Write { offset, data, fua })
                    .map(drop)
                    .unwrap();
            }
            5 => {
                let keeps_space = dice.below(2) == 0;
                expected[range].fill(0);
                device
                    .call(Command::Zero {
                        offset,
                        length,
                        keeps_space,
                        fua,
                    })
                    .map(drop)
                    .unwrap();
            }
            6 => {
                let first = offset.next_multiple_of(BLOCK);
                let end = (offset + length) / BLOCK * BLOCK;
                if first < end {
                    expected[first as usize..end as usize].fill(0);
                }
                device
                    .call(Command::Trim {
                        offset,
                        length,
                        fua,
                    })
                    .map(drop)
                    .unwrap();
            }
            7 => flush(&device).unwrap(),
            8 if dice.below(4) == 0 => {
                device.close().unwrap();
                drop(device);
                device = open(&disk);
            }
            _ => {
                assert_eq!(
                    read(&device, offset, length),
                    expected[range],
                    "seed {seed}, step {step}"
                );
                let mut at = offset;
                for (length, is_written) in extents(&device, offset, length) {
                    let part = &expected[at as usize..(at + length) as usize];
                    assert!(is_written || part.iter().all(|byte| *byte == 0));
                    at += length;
                }
                assert_eq!(at, offset + length);
            }
        }
    }
    assert_eq!(read(&device, 0, size), expected, "seed {seed}");
}

#[test]
fn random_lives_end_as_an_array_of_bytes_would() {
    for seed in 0..60 {
        live(seed, 120);
    }
}

/// A device with something durable, and something that is not.
fn written(disk: &FaultyFiles) -> Device {
    let device = open(disk);
    write(&device, 0, &[1; 4096]).unwrap();
    flush(&device).unwrap();
    write(&device, 0, &[2; 4096]).unwrap();
    device
}

#[test]
fn after_a_failed_sync_nothing_is_written_until_the_device_is_opened_again() {
    for kind in [
        FaultKind::SyncError,
        FaultKind::SyncErrorReverting,
        FaultKind::SyncFull,
    ] {
        let disk = FaultyFiles::new(1);
        let device = written(&disk);
        disk.fail_next(kind, 0);
        assert!(flush(&device).is_err(), "{kind:?}");
        // A sync would say `Ok` now, which proves nothing.
        assert!(flush(&device).is_err(), "{kind:?}");
        assert!(write(&device, 0, &[3; 4096]).is_err());
        // Reads go on with what was written last; the other set is as it was.
        assert_eq!(read(&device, 0, BLOCK), vec![2; 4096]);
        write(&device, 8192, &[4; 4096]).unwrap();
        assert!(device.close().is_err());
        drop(device);
        for seed in 0..20 {
            let disk = disk.after_crash(seed);
            let found = read(&open(&disk), 0, BLOCK);
            assert!(
                found == vec![1; 4096] || found == vec![2; 4096],
                "{kind:?}: what was flushed is there, or what came after it"
            );
        }
    }
}

#[test]
fn a_full_medium_refuses_and_takes_writes_again_when_there_is_room() {
    let disk = FaultyFiles::new(1);
    let device = written(&disk);
    for kind in [FaultKind::WriteError, FaultKind::WriteError] {
        disk.fail_next(kind, 0);
        assert!(flush(&device).is_err());
        assert_eq!(read(&device, 0, BLOCK), vec![2; 4096]);
        flush(&device).unwrap();
        write(&device, 0, &[2; 4096]).unwrap();
    }
    // The slot is durable and the block does not get into its place: the next flush brings it
    // there.
    disk.fail_next(FaultKind::WriteError, 1);
    flush(&device).unwrap();
    assert_eq!(read(&device, 0, BLOCK), vec![2; 4096]);
    disk.crash_now();
    assert_eq!(read(&open(&disk.after_crash(0)), 0, BLOCK), vec![2; 4096]);
}

#[test]
fn a_failed_read_is_told_and_the_next_one_is_not_harmed() {
    let disk = FaultyFiles::new(1);
    let device = written(&disk);
    device.close().unwrap();
    drop(device);
    let device = open(&disk);
    disk.fail_next(FaultKind::ReadError, 0);
    let read_once = device.call(Command::Read {
        offset: 0,
        length: BLOCK,
    });
    assert!(read_once.is_err());
    assert_eq!(read(&device, 0, BLOCK), vec![2; 4096]);
    assert_eq!(small().size, Some(device.size()));
}
