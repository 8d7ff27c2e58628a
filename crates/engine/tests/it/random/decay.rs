//! Decay while nobody looks: a flipped bit, a block of zeros or of anything, a file that is gone.
//! It is found or reported, never silently less, and everything else is what it was. A repair mends
//! it (`mended`).
//!
//! The damage is done to a copy of the disk, so that the life goes on unharmed.

use super::compare::{Compared, Expected, each_stream, ensure, same_rows};
use super::view::{Presence, View, VisibleRow, straddling};
use super::world::World;
use crate::support::collect;
use headwater_engine::{AggregateSpec, Bins, Database, Error, ErrorKind, ScanSpec, Snapshot};
use headwater_io::FaultyFiles;
use headwater_types::ClosedRange;
use std::path::{Path, PathBuf};

/// The newest part of the log, where damage cannot be told from a write that a power cut tore
/// (docs/format/log.md).
const TAIL: u64 = 4096;

/// What was done to which file.
pub(super) struct Damage {
    pub(super) path: PathBuf,
    pub(super) vanished: bool,
    offset: u64,
}

impl World {
    /// Damages one file of a folder. `None` when there is none, or when nothing has changed.
    pub(super) fn damage(&mut self, disk: &FaultyFiles, folders: &[&str]) -> Option<Damage> {
        let inside = |path: &Path| folders.iter().any(|f| path.starts_with(f));
        let files: Vec<(PathBuf, u64)> = disk
            .files()
            .into_iter()
            .filter(|(path, len)| inside(path) && *len > 0)
            // Neither belongs to what is stored.
            .filter(|(path, _)| !path.ends_with("lock") && !path.ends_with("tier"))
            .collect();
        if files.is_empty() {
            return None;
        }
        let (path, len) = files[self.random.below(files.len() as u64) as usize].clone();
        let before = disk.read_file(&path).unwrap();
        let kind = self.random.below(6);
        // The first block now and then: there stands what the rest hangs on.
        let block = self.random.pick(&[512, 4096]);
        let mut offset = self.random.below(len.div_ceil(block)) * block;
        if self.random.chance(25) {
            offset = 0;
        }
        let vanished = kind == 0;
        match kind {
            0 => disk.vanish(&path).unwrap(),
            1 | 2 => {
                offset = self.random.below(len);
                disk.flip_bit(&path, offset, self.random.below(8) as u8)
                    .unwrap();
            }
            3 | 4 => disk.decay(&path, offset, &vec![0; block as usize]).unwrap(),
            _ => {
                let bytes: Vec<u8> = (0..block).map(|_| self.random.next() as u8).collect();
                disk.decay(&path, offset, &bytes).unwrap();
            }
        }
        if !vanished && disk.read_file(&path).unwrap() == before {
            return None;
        }
        let what = ["gone", "a bit", "a bit", "zeros", "zeros", "garbled"][kind as usize];
        self.log(format!(
            "decay of {} at {offset} of {len}: {what}, {block}",
            path.display()
        ));
        self.transcript.count(match kind {
            0 => "vanished files",
            1 | 2 => "flipped bits",
            3 | 4 => "zeroed blocks",
            _ => "garbled blocks",
        });
        Some(Damage {
            path,
            vanished,
            offset,
        })
    }

    /// True when what is damaged may be taken for the end of the log.
    fn is_log_tail(&self, disk: &FaultyFiles, before: &FaultyFiles, damage: &Damage) -> bool {
        if !damage.path.starts_with("/db/log") || damage.vanished {
            return false;
        }
        let generation = |path: &Path| {
            let bytes = before.read_file(path).unwrap_or_default();
            bytes
                .get(8..16)
                .map(|b| u64::from_le_bytes(b.try_into().unwrap()))
        };
        let logs = before
            .files()
            .into_iter()
            .filter(|(p, _)| p.starts_with("/db/log"));
        let newest = logs.max_by_key(|(path, _)| generation(path));
        let is_newest = newest.is_some_and(|(path, _)| path == damage.path);
        let bytes = before.read_file(&damage.path).unwrap_or_default();
        let end = bytes.iter().rposition(|b| *b != 0).unwrap_or(0) as u64;
        let _ = disk;
        is_newest && damage.offset + TAIL + 512 > end
    }

    /// Damages a copy of the disk, opens the database there and looks at everything.
    pub(super) fn decay(&mut self) {
        let disk = self.disk.after_crash(1);
        let before = disk.after_crash(1);
        let folders: &[&str] = match self.random.chance(20) {
            true => &["/db/meta.redb"],
            false => &["/db/segment", "/db/log"],
        };
        let Some(damage) = self.damage(&disk, folders) else {
            return;
        };
        let damaged = disk.after_crash(1);
        let name = damage
            .path
            .file_name()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let tail = self.is_log_tail(&disk, &before, &damage);
        let of_meta = damage.path.starts_with("/db/meta.redb");
        self.transcript.add("damaged metadata", u64::from(of_meta));
        if self.random.chance(50) {
            self.mend(&damaged, &damage, tail);
        }
        let db = match Database::open_in(self.env_on(&disk), self.options.clone()) {
            Ok(db) => db,
            Err(error) => {
                assert!(
                    error.kind() == ErrorKind::Corrupt,
                    "a damaged file is reported as {error:?}"
                );
                self.transcript.count("damages that refuse to open");
                let is_segment = damage.path.starts_with("/db/segment");
                assert!(
                    !is_segment,
                    "a damaged segment keeps the database from opening: {error}"
                );
                return;
            }
        };
        let torn = db.recovery().torn_tail;
        let infos = db.tables();
        let partitions = db.partitions();
        let snapshot = db.snapshot().unwrap();
        let mut view = View {
            plain: self.base.clone(),
            now: self.now_bounds(),
            straddling: Default::default(),
        };
        let (mut found, mut differences) = (None, Vec::new());
        for count in 0..=self.ops.len() {
            view.plain.see(&infos);
            view.plain.remember(&self.now);
            view.straddling = straddling(&view.plain, &partitions);
            match compare_damaged(&snapshot, &view) {
                Ok(reported) => found = Some(reported),
                Err(difference) => differences.push(difference),
            }
            if let Some(op) = self.ops.get(count) {
                view.plain.apply(op);
            }
        }
        match found {
            Some(0) => self.transcript.count("damages that nobody met"),
            Some(_) => self.transcript.count("damages that readers met"),
            None if tail && torn => self.transcript.count("damages taken for a torn tail"),
            None => panic!("{name} is damaged, and less is found without a word: {differences:?}"),
        }
        drop(snapshot);
        // What was damaged may be in the way of storing; a close that cannot do it says so.
        drop(db.close());
    }
}

fn is_report(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io)
}

/// Every row and count is right, or an error says that it may not be. Gives the number of streams
/// with errors.
fn compare_damaged(snapshot: &Snapshot, view: &View) -> Compared<u64> {
    let mut reported = 0;
    each_stream(snapshot, view, |stream| {
        reported += u64::from(check_rows(snapshot, stream)?);
        reported += u64::from(check_counts(snapshot, stream)?);
        Ok(())
    })?;
    Ok(reported)
}

fn check_rows(snapshot: &Snapshot, stream: &Expected<'_>) -> Compared<bool> {
    let name = stream.name;
    let scan = match snapshot.scan(name, &ScanSpec::default()) {
        Ok(scan) => scan,
        Err(error) => {
            ensure!(is_report(&error), "{name}: {error}");
            return Ok(true);
        }
    };
    let (rows, errors) = collect(scan);
    ensure!(errors.iter().all(is_report), "{name}: {errors:?}");
    let met = !errors.is_empty();
    let expected: Vec<(&VisibleRow, Presence)> = stream
        .rows
        .iter()
        .map(|r| {
            (
                r,
                if met {
                    r.presence().min(Presence::May)
                } else {
                    r.presence()
                },
            )
        })
        .filter(|(_, p)| *p > Presence::No)
        .collect();
    same_rows(
        &rows,
        &expected,
        None,
        &format!("scan of {name}, {} errors", errors.len()),
    )?;
    Ok(met)
}

fn check_counts(snapshot: &Snapshot, stream: &Expected<'_>) -> Compared<bool> {
    let spec = AggregateSpec {
        range: ClosedRange::ALL,
        bins: Bins::Whole,
        first_last: false,
    };
    let mut met = false;
    for field in stream.table.fields.keys() {
        match snapshot.aggregate(stream.name, field, &spec) {
            Ok(bins) => {
                let found: u64 = bins.iter().map(|b| b.aggregate.count).sum();
                let counts = stream.counts(field);
                ensure!(
                    counts.contains(&found),
                    "{}.{field}: {found} values counted, {counts:?} expected",
                    stream.name
                );
            }
            Err(error) => {
                ensure!(is_report(&error), "{}.{field}: {error}", stream.name);
                met = true;
            }
        }
    }
    Ok(met)
}
