//! Backups: taken into one folder again and again, and restored elsewhere.

use super::compare::quick;
use super::view::View;
use super::world::{Trouble, World};
use headwater_engine::{
    BackupOptions, Database, ErrorKind, Options, RemoteCopy, State, backup_with, restore,
    verify_backup,
};
use headwater_types::Level;
use std::path::Path;

/// What the newest backup holds.
pub(super) struct BackupContents {
    view: View,
    /// The instant that its metadata remember at least: from there on a restored database goes on
    /// where the clock is too far ahead to be believed.
    instant: i64,
}

const FOLDER: &str = "/backup";

impl World {
    /// Takes a backup, or restores the newest one and looks into it.
    pub(super) fn copy(&mut self) {
        if self.trouble != Trouble::None {
            return;
        }
        if self.random.chance(30) {
            return self.fetch();
        }
        if self.random.chance(60) || self.backup.is_none() {
            let (_, view) = self.view();
            match self.db().backup(Path::new(FOLDER)) {
                Ok(report) => {
                    self.log(format!("backup {report:?}"));
                    self.transcript.count("backups taken");
                    self.transcript
                        .add("backups onto older ones", u64::from(report.number > 1));
                    let instant = self.time.remembered();
                    self.backup = Some(BackupContents { view, instant });
                }
                Err(error) => self.failed("a backup", &error),
            }
        } else if self.random.chance(60) {
            self.restore();
        } else {
            self.decay_backup();
        }
    }

    /// Fetches everything that is stored into a copy elsewhere, in pieces, and looks into it.
    fn fetch(&mut self) {
        self.store(false);
        // What the clock of another machine says of values that expire is not what this one says;
        // rows wait in memory where a partition cannot be read.
        if self.must_reopen || self.expires || self.db().partitions_unreadable() > 0 {
            return;
        }
        let (infos, view) = self.view();
        let held = match self.db().hold_state(None) {
            Ok(held) => held,
            Err(error) => return self.failed("taking a state", &error),
        };
        self.log("fetch a copy".into());
        let env = headwater_io::Env {
            files: std::sync::Arc::new(headwater_io::MemoryFiles::new()),
            ..self.env_on(&self.disk)
        };
        let known = held.state();
        let known = State::decode(&known.encode(), None).unwrap();
        let to = Path::new("/copy");
        let copy = RemoteCopy::begin(env, to, &known, Level::MIN).unwrap();
        let mut missing = copy.missing(u64::MAX);
        while !missing.is_empty() {
            for one in missing {
                let bytes = u32::try_from(one.range.bytes).unwrap();
                match held.read(one.segment, one.range.offset, bytes) {
                    Ok(bytes) => copy.put(one.segment, one.range.offset, &bytes).unwrap(),
                    Err(error) => return self.failed("fetching a copy", &error),
                }
            }
            copy.commit().unwrap();
            missing = copy.missing(u64::MAX);
        }
        self.transcript.count("copies fetched");
        // The ledger names what the source's files hold, wherever it knows them.
        for segment in known.segments() {
            if let Some(mut proof) = known.proof(segment.id) {
                while let Some((offset, bytes)) = proof.next_range() {
                    match held.read(segment.id, offset, bytes) {
                        Ok(bytes) => proof.take(&bytes),
                        Err(error) => return self.failed("proving a segment", &error),
                    }
                }
                assert!(proof.is_equal(), "segment {} is another", segment.id);
                self.transcript.count("segments proven");
            }
        }
        if self.random.chance(30)
            && let Err(error) = self.db().complete_ledger(20_000)
        {
            return self.failed("hashing segments", &error);
        }
        let options = Options {
            fast_dir: None,
            ..self.options.clone()
        };
        let reader = copy.reader(options).unwrap();
        if let Err(difference) = quick(&reader.snapshot(), &infos, &view) {
            panic!("the copy: {difference}");
        }
    }

    fn restore(&mut self) {
        let Some(kept) = self.backup.take() else {
            return;
        };
        self.log("restore".into());
        self.transcript.count("backups restored");
        // On a disk of its own, so that nothing of it is left.
        let disk = self.disk.after_crash(1);
        let env = self.env_on(&disk);
        let report = verify_backup(&env, Path::new(FOLDER)).unwrap();
        assert!(report.is_sound(), "{:#?}", report.damages);
        let options = Options {
            dir: "/restored".into(),
            fast_dir: None,
            ..self.options.clone()
        };
        let report = restore(&env, Path::new(FOLDER), &options).unwrap();
        assert!(report.is_sound(), "{:#?}", report.damages);
        let db = Database::open_in(env, options).unwrap();
        let infos = db.tables();
        let mut view = kept.view.clone();
        view.plain.see(&infos);
        view.now = self.now_bounds();
        let backed_up = kept.view.now.least.min(kept.instant);
        view.now.least = view.now.least.min(backed_up);
        view.straddling = super::view::straddling(&view.plain, &db.partitions());
        let snapshot = db.snapshot().unwrap();
        if let Err(difference) = quick(&snapshot, &infos, &view) {
            panic!("the restored backup: {difference}");
        }
        drop(snapshot);
        db.close().unwrap();
        self.backup = Some(kept);
    }

    /// A file of the backup decays. Verifying says so, and so does restoring; the next backup puts
    /// it right.
    fn decay_backup(&mut self) {
        let disk = self.disk.after_crash(1);
        let Some(damage) = self.damage(&disk, &[FOLDER]) else {
            return;
        };
        self.transcript.count("backups that decayed");
        let env = self.env_on(&disk);
        let folder = Path::new(FOLDER);
        let options = Options {
            dir: "/restored".into(),
            fast_dir: None,
            ..self.options.clone()
        };
        let verified = verify_backup(&env, folder);
        let is_sound = verified.as_ref().is_ok_and(|r| r.is_sound());
        let restored = restore(&env, folder, &options).is_ok_and(|r| r.is_sound());
        // Files of older backups lie there as well; of those only the next backup may know.
        assert_eq!(
            is_sound,
            restored,
            "{}: {verified:?}",
            damage.path.display()
        );
        let taken = backup_with(&env, &self.options, folder, &BackupOptions { verify: true });
        match (&taken, verify_backup(&env, folder)) {
            (Ok(_), Ok(report)) => assert!(report.is_sound(), "{:#?}", report.damages),
            (Err(error), _) => {
                // What says which backup this is may be what is damaged.
                let of_manifest = !damage.path.to_string_lossy().contains(".seg");
                assert!(
                    of_manifest && error.kind() == ErrorKind::Corrupt,
                    "{error:?}"
                );
            }
            (_, Err(error)) => panic!("the backup does not verify: {error}"),
        }
    }
}
