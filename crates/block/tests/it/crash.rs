//! Power cuts at every operation of lives on a simulated disk: what was flushed is there, and every
//! block is as one of the writes since left it.

use crate::support::{BLOCK, Dice, env, open, read, small};
use headwater_block::{BlockErrorKind, Command, Device, DeviceOptions};
use headwater_io::{FaultKind, FaultyFiles};
use std::collections::BTreeSet;

const BLOCKS: usize = 32;

/// What each block may be after a cut: what was durable, and everything it became since.
struct Model {
    now: Vec<Vec<u8>>,
    possible: Vec<BTreeSet<Vec<u8>>>,
}

impl Model {
    fn new() -> Model {
        let now = vec![vec![0; BLOCK as usize]; BLOCKS];
        Model {
            possible: now
                .iter()
                .map(|block| BTreeSet::from([block.clone()]))
                .collect(),
            now,
        }
    }

    /// A change that was begun.
    fn fill(&mut self, offset: u64, length: u64, byte: u8, whole_blocks_only: bool) {
        for (number, block) in (0..).zip(&mut self.now) {
            let start = number * BLOCK;
            let from = offset.clamp(start, start + BLOCK) - start;
            let to = (offset + length).clamp(start, start + BLOCK) - start;
            if from < to && (!whole_blocks_only || to - from == BLOCK) {
                block[from as usize..to as usize].fill(byte);
                self.possible[number as usize].insert(block.clone());
            }
        }
    }

    /// What the range became is durable.
    fn settle(&mut self, offset: u64, length: u64) {
        for (number, block) in (0..).zip(&self.now) {
            let start = number * BLOCK;
            if start < offset + length && offset < start + BLOCK {
                self.possible[number as usize] = BTreeSet::from([block.clone()]);
            }
        }
    }

    /// What an open device shows is all it may be.
    fn of(device: &Device) -> Model {
        let found = read(device, 0, device.size());
        let now: Vec<Vec<u8>> = found.chunks(BLOCK as usize).map(<[u8]>::to_vec).collect();
        Model {
            possible: now
                .iter()
                .map(|block| BTreeSet::from([block.clone()]))
                .collect(),
            now,
        }
    }

    fn check(&self, device: &Device, told: &str) {
        let found = read(device, 0, device.size());
        for (number, block) in found.chunks(BLOCK as usize).enumerate() {
            assert!(
                self.possible[number].contains(block),
                "{told}: block {number} is torn, or lost what was flushed: {:?} …, expected one of {:?}",
                &block[..8],
                self.possible[number]
                    .iter()
                    .map(|block| block[..8].to_vec())
                    .collect::<Vec<_>>()
            );
        }
    }
}

/// A life until the power fails. `None` when it failed before the device was open.
fn live(disk: &FaultyFiles, seed: u64, steps: usize) -> Option<Model> {
    let device = Device::open(&env(disk), &small()).ok()?;
    let dice = Dice::new(seed);
    let mut model = Model::new();
    for step in 0..steps {
        let (offset, length) = dice.range(device.size(), 4 * BLOCK);
        let fua = dice.below(6) == 0;
        let byte = 1 + (step % 255) as u8;
        let command = match dice.below(10) {
            0..=5 => {
                model.fill(offset, length, byte, false);
                let data = vec![byte; length as usize];
                Command::Write { offset, data, fua }
            }
            6 => {
                model.fill(offset, length, 0, false);
                Command::Zero {
                    offset,
                    length,
                    keeps_space: dice.below(2) == 0,
                    fua,
                }
            }
            7 => {
                model.fill(offset, length, 0, true);
                Command::Trim {
                    offset,
                    length,
                    fua,
                }
            }
            _ => Command::Flush,
        };
        let (is_flush, is_trim) = (
            command == Command::Flush,
            matches!(command, Command::Trim { .. }),
        );
        if device.call(command).is_err() {
            assert!(disk.crashed(), "only the power fails");
            return Some(model);
        }
        if is_flush {
            model.settle(0, device.size());
        } else if fua && !is_trim {
            model.settle(offset, length);
        }
    }
    if device.close().is_ok() {
        model.settle(0, device.size());
    }
    Some(model)
}

#[test]
fn at_every_cut_what_was_flushed_is_there_and_no_block_is_torn() {
    for life in 0..4 {
        let whole = FaultyFiles::new(life);
        live(&whole, life, 40).expect("without a cut it opens");
        let operations = whole.operations();
        assert!(operations > 50, "{operations}");
        for cut in 0..=operations {
            let disk = FaultyFiles::new(life);
            disk.crash_at(cut);
            let model = live(&disk, life, 40);
            disk.crash_now();
            for seed in 0..5 {
                let after = disk.after_crash(seed * 7 + u64::from(seed > 1) * cut);
                let told = format!("life {life}, cut {cut} ({:?}), {seed}", disk.interrupted());
                // A device that was being made is made anew; one that was made is found.
                let device = Device::open(&env(&after), &small());
                let device = device.unwrap_or_else(|error| panic!("{told}: {error}"));
                match &model {
                    Some(model) => model.check(&device, &told),
                    None => Model::new().check(&device, &told),
                }
            }
        }
    }
}

/// A cut while what an earlier cut left is put right.
#[test]
fn an_opening_that_is_cut_is_repeated() {
    let disk = FaultyFiles::new(3);
    let mut model = live(&disk, 3, 40).unwrap();
    {
        let device = open(&disk);
        let data = vec![0xee; 3 * BLOCK as usize];
        model.fill(BLOCK, 3 * BLOCK, 0xee, false);
        device
            .call(Command::Write {
                offset: BLOCK,
                data,
                fua: true,
            })
            .map(drop)
            .unwrap();
        model.settle(BLOCK, 3 * BLOCK);
        disk.crash_now();
    }
    let left = disk.after_crash(0);
    let opened = left.after_crash(1);
    drop(open(&opened));
    let operations = opened.operations();
    assert!(operations >= 4, "{operations}");
    for cut in 0..operations {
        let disk = left.after_crash(1);
        disk.crash_at(cut);
        let _ = Device::open(&env(&disk), &small());
        assert!(disk.crashed());
        for seed in 0..10 {
            let device = open(&disk.after_crash(seed));
            model.check(&device, &format!("cut {cut}, {seed}"));
        }
    }
}

/// A system may show bytes that it will never write, after a sync of them failed. Who opens the
/// device then must not build on a slot that is not on the medium.
#[test]
fn a_failed_sync_is_forgotten_by_the_next_opening_and_not_by_the_medium() {
    let prepare = || {
        let disk = FaultyFiles::new(2);
        let device = open(&disk);
        for byte in 1..4 {
            fill(&device, &mut Model::new(), 0, byte).unwrap();
            device.call(Command::Flush).map(drop).unwrap();
        }
        fill(&device, &mut Model::new(), 2 * BLOCK, 4).unwrap();
        disk.fail_next(FaultKind::SyncError, 0);
        disk.fail_next(FaultKind::SyncError, 1);
        device.call(Command::Flush).unwrap_err();
        drop(device);
        disk.heal();
        disk
    };
    let live = |disk: &FaultyFiles| {
        let device = Device::open(&env(disk), &small()).ok()?;
        let mut model = Model::of(&device);
        for byte in 5..8 {
            if fill(&device, &mut model, 4 * BLOCK, byte).is_err()
                || device.call(Command::Flush).is_err()
            {
                break;
            }
            model.settle(0, device.size());
        }
        Some(model)
    };
    let whole = prepare();
    let begun = whole.operations();
    live(&whole).unwrap();
    for cut in begun..whole.operations() {
        let disk = prepare();
        disk.crash_at(cut);
        let model = live(&disk);
        assert!(disk.crashed());
        for seed in 0..12 {
            let device = open(&disk.after_crash(seed));
            if let Some(model) = &model {
                model.check(&device, &format!("cut {cut}, {seed}"));
            }
            for block in read(&device, 0, 6 * BLOCK).chunks(BLOCK as usize) {
                assert!(block.iter().all(|byte| *byte == block[0]), "torn");
            }
        }
    }
}

/// Two blocks of the first set, and of the second.
fn fill(device: &Device, model: &mut Model, offset: u64, byte: u8) -> std::io::Result<()> {
    model.fill(offset, 4 * BLOCK, byte, false);
    let data = vec![byte; 4 * BLOCK as usize];
    let fua = false;
    device.call(Command::Write { offset, data, fua }).map(drop)
}

#[test]
fn a_device_that_was_never_made_whole_needs_its_size_again() {
    let disk = FaultyFiles::new(3);
    disk.crash_at(6);
    assert!(Device::open(&env(&disk), &small()).is_err());
    let after = disk.after_crash(1);
    let without = DeviceOptions {
        size: None,
        ..small()
    };
    let error = Device::open(&env(&after), &without).unwrap_err();
    assert_eq!(error.kind(), BlockErrorKind::Invalid);
    drop(open(&after));
    Device::open(&env(&after), &without).unwrap();
}
