//! Several connections at once, each with its own part of the device and its own array of bytes;
//! and flushes and status from all of them.

use crate::client::{FLUSH, FUA, READ, Response, STATUS, TRIM, WRITE, ZEROES};
use crate::serving::Running;
use crate::support::{BLOCK, Dice, env_with_threads, open, read};
use headwater_io::{FaultyFiles, SystemFiles};
use std::sync::Arc;

const PART: u64 = 8 * BLOCK;

/// One client's life on its part. Gives what the part holds in the end.
fn live(running: &Running, number: u64, steps: usize) -> Vec<u8> {
    let mut client = running.client();
    let dice = Dice::new(number + 100);
    let start = number * PART;
    let mut expected = vec![0_u8; PART as usize];
    for step in 0..steps {
        let (within, length) = dice.range(PART, 4 * BLOCK);
        let range = within as usize..(within + length) as usize;
        let (offset, length) = (start + within, length as u32);
        let flags = if dice.below(8) == 0 { FUA } else { 0 };
        match dice.below(10) {
            0..=3 => {
                let byte = 1 + (step % 255) as u8;
                expected[range.clone()].fill(byte);
                let data = vec![byte; range.len()];
                let told = client.call(WRITE, flags, offset, length, &data);
                assert_eq!(told, Response::Done);
            }
            4 => {
                expected[range].fill(0);
                let told = client.call(ZEROES, flags, offset, length, b"");
                assert_eq!(told, Response::Done);
            }
            5 => {
                let first = range.start.next_multiple_of(4096);
                let end = range.end / 4096 * 4096;
                if first < end {
                    expected[first..end].fill(0);
                }
                let told = client.call(TRIM, flags, offset, length, b"");
                assert_eq!(told, Response::Done);
            }
            6 => assert_eq!(client.call(FLUSH, 0, 0, 0, b""), Response::Done),
            7 => {
                let Response::Extents(extents) = client.call(STATUS, 0, offset, length, b"") else {
                    panic!("status");
                };
                let mut at = range.start;
                for (length, flags) in extents {
                    let part = &expected[at..at + length as usize];
                    assert!(flags == 0 || part.iter().all(|byte| *byte == 0));
                    at += length as usize;
                }
                assert_eq!(at, range.end);
            }
            _ => {
                let found = client.call(READ, 0, offset, length, b"").data();
                assert_eq!(found, expected[range], "client {number}, step {step}");
            }
        }
    }
    expected
}

#[test]
fn connections_do_not_disturb_each_other() {
    let disk = FaultyFiles::new(9);
    let running = Arc::new(Running::start(disk.clone()));
    let expected: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let lives: Vec<_> = (0..4)
            .map(|number| {
                let running = Arc::clone(&running);
                scope.spawn(move || live(&running, number, 300))
            })
            .collect();
        lives.into_iter().map(|life| life.join().unwrap()).collect()
    });
    let expected = expected.concat();
    running.client().flush();
    assert_eq!(running.client().read(0, 32 * 4096), expected);
    let device = open(&disk.after_crash(0));
    assert_eq!(read(&device, 0, device.size()), expected);
}

/// Two connections write the same blocks: each block is as one of them wrote it.
#[test]
fn two_connections_to_the_same_blocks_leave_whole_blocks() {
    let running = Arc::new(Running::start(FaultyFiles::new(9)));
    std::thread::scope(|scope| {
        for byte in [1_u8, 2] {
            let running = &running;
            scope.spawn(move || {
                let mut client = running.client();
                for _ in 0..50 {
                    client.write(0, &[byte; 32 * 4096]);
                }
            });
        }
        let mut reader = running.client();
        for _ in 0..50 {
            for block in reader.read(0, 32 * 4096).chunks(4096) {
                assert!(block.iter().all(|byte| *byte == block[0]), "torn");
            }
        }
    });
}

/// Flushes while others write: whatever was answered before a flush was sent is there.
#[test]
fn a_flush_under_load_covers_what_was_answered() {
    let disk = FaultyFiles::new(9);
    let running = Arc::new(Running::start(disk.clone()));
    std::thread::scope(|scope| {
        for number in 1..4_u64 {
            let running = &running;
            scope.spawn(move || {
                let mut client = running.client();
                for round in 0..150 {
                    client.write(number * PART, &[round as u8; 2 * 4096]);
                }
            });
        }
        let mut client = running.client();
        for round in 1..30_u8 {
            client.write(0, &[round; 3 * 4096]);
            client.flush();
            let device = open(&disk.after_crash(u64::from(round) % 5));
            assert_eq!(read(&device, 0, 3 * BLOCK), [round; 3 * 4096]);
        }
    });
}

/// The same over files of this machine, closed and opened again.
#[test]
fn files_of_the_machine_keep_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let options = headwater_block::DeviceOptions {
        size: Some(8 << 20),
        ..headwater_block::DeviceOptions::new(dir.path())
    };
    let env = env_with_threads(SystemFiles::new());
    for round in 1..4_u8 {
        let device = headwater_block::Device::open(&env, &options).unwrap();
        if round > 1 {
            assert_eq!(read(&device, 1000, 5 << 20), vec![round - 1; 5 << 20]);
        }
        crate::support::write(&device, 1000, &vec![round; 5 << 20]).unwrap();
        device.close().unwrap();
    }
}
