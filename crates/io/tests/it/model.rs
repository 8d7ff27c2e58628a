//! Random operations on the file systems in memory, against each other and against a plain model of
//! what a power cut may leave.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use headwater_io::{FaultyFiles, Files, MemoryFiles, OpenMode, SystemFiles};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Create(u8),
    Remove(u8),
    Write {
        file: u8,
        offset: u16,
        len: u16,
        byte: u8,
    },
    SetLen {
        file: u8,
        len: u16,
    },
    Sync(u8),
    SyncDir,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let file = 0..3_u8;
    let step = prop_oneof![
        2 => file.clone().prop_map(Step::Create),
        1 => file.clone().prop_map(Step::Remove),
        6 => (file.clone(), 0..3_000_u16, 0..2_000_u16, 1..=255_u8)
            .prop_map(|(file, offset, len, byte)| Step::Write { file, offset, len, byte }),
        2 => (file.clone(), 0..4_000_u16).prop_map(|(file, len)| Step::SetLen { file, len }),
        2 => file.prop_map(Step::Sync),
        1 => Just(Step::SyncDir),
    ];
    prop::collection::vec(step, 0..40)
}

fn name(file: u8) -> String {
    format!("file{file}")
}

/// Does a step on the files in `dir`; answers the kind of the error, if any.
fn play(files: &dyn Files, dir: &Path, step: &Step) -> Result<(), std::io::ErrorKind> {
    let open = |file: u8| files.open(&dir.join(name(file)), OpenMode::Write);
    match *step {
        Step::Create(file) => files
            .open(&dir.join(name(file)), OpenMode::CreateNew)
            .map(drop),
        Step::Remove(file) => files.remove(&dir.join(name(file))),
        Step::Write {
            file,
            offset,
            len,
            byte,
        } => open(file)
            .and_then(|file| file.write_all_at(u64::from(offset), &vec![byte; usize::from(len)])),
        Step::SetLen { file, len } => open(file).and_then(|file| file.set_len(u64::from(len))),
        Step::Sync(file) => open(file).and_then(|file| file.sync_data()),
        Step::SyncDir => files.sync_dir(dir),
    }
    .map_err(|error| error.kind())
}

/// Everything in `dir`, as programs see it.
fn contents(files: &dyn Files, dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |name: String| {
        let file = files.open(&dir.join(&name), OpenMode::Read).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_exact_at(0, &mut bytes).unwrap();
        (name, bytes)
    };
    files.list(dir).unwrap().into_iter().map(read).collect()
}

/// A file of the model: its durable bytes and all that may have happened since, told apart per
/// byte.
#[derive(Clone, Default, Debug)]
struct ModelFile {
    durable: Vec<u8>,
    live: Vec<u8>,
    /// Shortest and longest length since the last sync.
    len_min: usize,
    len_max: usize,
    /// Values a byte had since the last sync, besides the durable one. Zero wherever it was outside
    /// the file.
    values: BTreeMap<usize, BTreeSet<u8>>,
}

impl ModelFile {
    fn changed(&mut self) {
        self.len_min = self.len_min.min(self.live.len());
        self.len_max = self.len_max.max(self.live.len());
        for (at, byte) in self.live.iter().enumerate() {
            self.values.entry(at).or_default().insert(*byte);
        }
    }

    fn sync(&mut self) {
        let live = std::mem::take(&mut self.live);
        *self = ModelFile {
            len_min: live.len(),
            len_max: live.len(),
            durable: live.clone(),
            live,
            values: BTreeMap::new(),
        };
    }

    fn allows(&self, found: &[u8]) -> Result<(), String> {
        if !(self.len_min..=self.len_max).contains(&found.len()) {
            return Err(format!(
                "length {} is not in {}..={}",
                found.len(),
                self.len_min,
                self.len_max
            ));
        }
        for (at, byte) in found.iter().enumerate() {
            let durable = self.durable.get(at).copied();
            let seen = self.values.get(&at).is_some_and(|seen| seen.contains(byte));
            // A byte outside the durable file, or outside the file at some time since, may read as
            // zero.
            let gap = *byte == 0 && (durable.is_none() || at >= self.len_min);
            if durable != Some(*byte) && !seen && !gap {
                return Err(format!(
                    "byte {at} is {byte}, durable was {durable:?}, seen {:?}",
                    self.values.get(&at)
                ));
            }
        }
        Ok(())
    }
}

/// What names stood for since the last directory sync, as indexes into `files`; the last one is the
/// present.
#[derive(Default, Debug)]
struct Model {
    files: Vec<ModelFile>,
    names: BTreeMap<String, Vec<Option<usize>>>,
}

impl Model {
    fn play(&mut self, step: &Step) {
        match *step {
            Step::Create(file) => {
                if self.present(file).is_none() {
                    self.files.push(ModelFile::default());
                    let index = self.files.len() - 1;
                    self.names
                        .entry(name(file))
                        .or_insert_with(|| vec![None])
                        .push(Some(index));
                }
            }
            Step::Remove(file) => {
                if self.present(file).is_some() {
                    self.names.get_mut(&name(file)).unwrap().push(None);
                }
            }
            Step::Write {
                file,
                offset,
                len,
                byte,
            } => {
                if let Some(file) = self.present(file).filter(|_| len > 0) {
                    let end = usize::from(offset) + usize::from(len);
                    if file.live.len() < end {
                        file.live.resize(end, 0);
                    }
                    file.live[usize::from(offset)..end].fill(byte);
                    file.changed();
                }
            }
            Step::SetLen { file, len } => {
                if let Some(file) = self.present(file) {
                    file.live.resize(usize::from(len), 0);
                    file.changed();
                }
            }
            Step::Sync(file) => {
                if let Some(file) = self.present(file) {
                    file.sync();
                }
            }
            Step::SyncDir => {
                for story in self.names.values_mut() {
                    story.drain(..story.len() - 1);
                }
            }
        }
    }

    fn present(&mut self, file: u8) -> Option<&mut ModelFile> {
        let index = (*self.names.get(&name(file))?.last()?)?;
        self.files.get_mut(index)
    }

    fn check(&self, found: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
        for name in found.keys() {
            if !self.names.contains_key(name) {
                return Err(format!("{name} never existed"));
            }
        }
        for (name, story) in &self.names {
            let found = found.get(name);
            let verdicts: Vec<Result<(), String>> = story
                .iter()
                .map(|state| match (state, found) {
                    (None, None) => Ok(()),
                    (Some(file), Some(found)) => self.files[*file].allows(found),
                    (None, Some(_)) => Err("it did not exist then".to_owned()),
                    (Some(_), None) => Err("it existed then".to_owned()),
                })
                .collect();
            if verdicts.iter().all(Result::is_err) {
                return Err(format!(
                    "{name}: no state since the last sync explains it: {verdicts:?}"
                ));
            }
        }
        Ok(())
    }

    /// The disk if nothing (or everything) unsynced survives.
    fn extreme(&self, everything: bool) -> BTreeMap<String, Vec<u8>> {
        let pick = |story: &Vec<Option<usize>>| {
            if everything {
                *story.last()?
            } else {
                *story.first()?
            }
        };
        self.names
            .iter()
            .filter_map(|(name, story)| Some((name.clone(), self.files.get(pick(story)?)?)))
            .map(|(name, file)| {
                (
                    name,
                    if everything {
                        file.live.clone()
                    } else {
                        file.durable.clone()
                    },
                )
            })
            .collect()
    }
}

fn dir() -> PathBuf {
    PathBuf::from("/db")
}

fn disk() -> FaultyFiles {
    let disk = FaultyFiles::new(3);
    disk.create_dir_all(&dir()).unwrap();
    disk
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn without_a_crash_all_back_ends_agree(steps in steps()) {
        let memory = MemoryFiles::new();
        memory.create_dir_all(&dir()).unwrap();
        let faulty = disk();
        let machine = tempfile::tempdir().unwrap();
        for step in &steps {
            let answer = play(&memory, &dir(), step);
            prop_assert_eq!(answer, play(&faulty, &dir(), step));
            // Real syncs take long and cannot be told from none.
            if !matches!(step, Step::Sync(_) | Step::SyncDir) {
                prop_assert_eq!(answer, play(&SystemFiles::new(), machine.path(), step));
            }
        }
        let found = contents(&memory, &dir());
        prop_assert_eq!(&found, &contents(&faulty, &dir()));
        prop_assert_eq!(&found, &contents(&SystemFiles::new(), machine.path()));
    }

    #[test]
    fn a_crash_leaves_only_what_the_model_allows(steps in steps(), seed in 2..u64::MAX) {
        let disk = disk();
        let mut model = Model::default();
        for step in &steps {
            let _may_fail = play(&disk, &dir(), step);
            model.play(step);
        }
        prop_assert_eq!(contents(&disk, &dir()), model.extreme(true));
        prop_assert_eq!(contents(&disk.after_crash(0), &dir()), model.extreme(false));
        prop_assert_eq!(contents(&disk.after_crash(1), &dir()), model.extreme(true));
        for seed in (0..8).map(|step: u64| seed.wrapping_add(step)) {
            let found = contents(&disk.after_crash(seed), &dir());
            prop_assert_eq!(model.check(&found), Ok(()), "seed {}", seed);
        }
    }

    #[test]
    fn a_cut_at_any_operation_leaves_a_state_of_before_or_after(steps in steps(), at in 0..40_u64, seed: u64) {
        let disk = disk();
        disk.crash_at(disk.operations() + at);
        // Either the interrupted step happened to some degree, or it did not; a sync that did is no
        // weaker.
        let mut model = Model::default();
        for step in &steps {
            let done = play(&disk, &dir(), step);
            if disk.crashed() {
                prop_assert_eq!(done, Err(std::io::ErrorKind::Other));
                if !matches!(step, Step::Sync(_) | Step::SyncDir) {
                    model.play(step);
                }
                break;
            }
            model.play(step);
        }
        let found = contents(&disk.after_crash(seed), &dir());
        prop_assert_eq!(model.check(&found), Ok(()));
    }

    #[test]
    fn the_same_seed_and_steps_give_the_same_disk(steps in steps(), at in 0..60_u64, seed: u64) {
        let run = || {
            let disk = disk();
            disk.short_reads();
            disk.crash_at(disk.operations() + at);
            disk.fail_next(headwater_io::FaultKind::WriteError, at % 7);
            let answers: Vec<_> = steps.iter().map(|step| play(&disk, &dir(), step)).collect();
            let after = disk.after_crash(seed);
            (answers, disk.operations(), disk.interrupted(), after.files(), contents(&after, &dir()))
        };
        prop_assert_eq!(run(), run());
    }
}
