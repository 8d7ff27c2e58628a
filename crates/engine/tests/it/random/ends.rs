//! How a process ends, and how the next one begins: closed, killed, cut off or failed, each as
//! often as the others.

use super::time::{DAY, HOUR, YEAR};
use super::world::{Trouble, World};
use headwater_engine::Database;
use headwater_io::FaultKind;

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Closed,
    Killed,
    Cut,
    /// The process went on after an operation had failed, and then stopped.
    Failed,
}

const FAULTS: [FaultKind; 14] = [
    FaultKind::WriteError,
    FaultKind::WriteError,
    FaultKind::SyncError,
    FaultKind::SyncError,
    FaultKind::SyncErrorReverting,
    FaultKind::SyncErrorReverting,
    FaultKind::SyncFull,
    FaultKind::ReadError,
    FaultKind::CreateError,
    FaultKind::CreateFull,
    FaultKind::RemoveError,
    FaultKind::OpenError,
    FaultKind::ListError,
    FaultKind::LenError,
];

impl World {
    /// Something begins to go wrong, or the database is closed: in the end it has to be opened
    /// again.
    pub(super) fn begin_trouble(&mut self) {
        let most = self.random.pick(&[3, 40, 200]);
        let after = self.random.below(most);
        match self.random.below(5) {
            0 => self.must_reopen = true,
            1 => {
                self.log(format!("the power will fail after {after} operations"));
                self.trouble = Trouble::Cut;
                self.disk.crash_at(self.disk.operations() + after);
            }
            2 => {
                self.log(format!(
                    "the process will be killed after {after} operations"
                ));
                self.trouble = Trouble::Kill;
                self.process.kill_after(after);
            }
            3 => {
                let kind = self.random.pick(&FAULTS);
                let after = after / 4;
                self.log(format!("{kind:?} after {after} operations"));
                self.trouble = Trouble::Fault(kind);
                self.disk.fail_next(kind, after);
            }
            _ => {
                let used: u64 = self.disk.files().iter().map(|(_, len)| len).sum();
                let most = self.random.pick(&[100, 5_000, 60_000]);
                let room = self.random.below(most);
                self.log(format!("the disk has room for {room} bytes"));
                self.trouble = Trouble::Full;
                self.was_full = true;
                self.disk.capacity(used + room);
            }
        }
    }

    /// The disk has room again, or its faults are over. A database that is not latched goes on.
    pub(super) fn end_trouble(&mut self) {
        match self.trouble {
            Trouble::Full => {
                self.disk.capacity(u64::MAX);
                self.transcript.count("full disks");
                self.log("the disk has room again".into());
                // The database looks for room now and then.
                self.time.pass(super::time::SECOND);
                self.must_reopen = self.db().flush().is_err();
                if !self.must_reopen {
                    self.all_is_durable();
                    self.trouble = Trouble::None;
                    self.transcript.count("full disks outlived");
                }
            }
            Trouble::Fault(_) | Trouble::Cut | Trouble::Kill => self.must_reopen = true,
            Trouble::None => {}
        }
    }

    /// Ends the process in some way that fits what went wrong, and opens the database again.
    pub(super) fn reopen(&mut self) {
        let end = match self.trouble {
            _ if self.disk.crashed() => End::Cut,
            _ if self.process.is_dead() => End::Killed,
            Trouble::Fault(_) | Trouble::Full => match self.random.below(3) {
                0 => End::Cut,
                _ => End::Failed,
            },
            // What was to come did not: only then nothing stands in the way of closing.
            Trouble::Cut | Trouble::Kill => self.random.pick(&[End::Killed, End::Cut, End::Failed]),
            Trouble::None => {
                self.random
                    .pick(&[End::Closed, End::Closed, End::Closed, End::Failed])
            }
        };
        // Only closing keeps promises beyond those of the acknowledgements.
        let end = if end == End::Closed && self.acknowledged < self.ops.len() {
            End::Failed
        } else {
            end
        };
        let fault = self.trouble;
        // The next process may put cutoffs back, also those that nobody has seen. Where an
        // operation is in doubt they may be those of a table that it has altered.
        if self.acknowledged == self.ops.len() {
            self.see();
        }
        self.log(format!("the process ends: {end:?}"));
        let db = self.db.take().unwrap();
        let closed = match end {
            End::Closed => {
                let closed = db.close();
                for index in 0..self.open_snapshots.len() {
                    self.compare_open_snapshot(index);
                }
                closed.is_ok()
            }
            End::Failed => db.close().is_ok(),
            End::Killed => {
                self.process.kill();
                false
            }
            End::Cut => {
                self.disk.crash_now();
                false
            }
        };
        self.open_snapshots.clear();
        drop(db);
        let end = if self.disk.crashed() { End::Cut } else { end };
        assert!(closed || end != End::Closed, "closing failed");
        self.transcript.count(match end {
            End::Closed => "ends by close",
            End::Killed => "ends by kill",
            End::Cut => "ends by power cut",
            End::Failed => "ends after a failure",
        });
        if closed && self.acknowledged == self.ops.len() {
            self.time.keep();
            self.all_is_durable();
        }
        self.disk.heal();
        self.disk.capacity(u64::MAX);
        self.trouble = Trouble::None;
        let mut cut = end == End::Cut;
        if cut {
            self.restore_power();
        }
        if fault == Trouble::None && self.random.chance(25) {
            self.decay();
        }
        if self.wild && end != End::Closed {
            self.now.may_have_ended(self.time.newest_believed);
        }
        let (away, offset) = self.while_away();
        self.time.restart(away, offset);
        let db = self.open_again(&mut cut);
        self.db = Some(db);
        self.was_full = false;
        self.must_reopen = false;
        let recovery = self.db().recovery();
        let (records, torn) = (recovery.log_records, recovery.torn_tail);
        self.transcript.add("records replayed", records);
        self.transcript.add("torn tails", u64::from(torn));
        let lost_syncs = matches!(
            fault,
            Trouble::Fault(
                FaultKind::SyncError | FaultKind::SyncErrorReverting | FaultKind::SyncFull
            )
        );
        // What was only handed to the operating system may be lost with the power, or by a sync
        // that failed.
        let promised =
            self.options.durability == headwater_engine::Durability::Synced || !(cut || lost_syncs);
        let least = if promised { self.acknowledged } else { 0 };
        self.resolve(least, cut);
    }

    fn restore_power(&mut self) {
        let seed = match self.random.below(6) {
            0 => 0,
            1 => 1,
            _ => self.random.next(),
        };
        let at = self.disk.interrupted().unwrap_or_default();
        self.log(format!(
            "the power comes back, seed {seed}, it failed at {at:?}"
        ));
        self.disk = self.disk.after_crash(seed);
    }

    /// For how long nobody runs, and what the clock says after that.
    fn while_away(&mut self) -> (i64, i64) {
        let most = self.random.pick(&[1, HOUR, DAY / 2]);
        let mut away = self.random.below(most as u64) as i64;
        let mut offset = 0;
        if self.wild {
            if self.random.chance(10) {
                away = self.random.below(3 * YEAR as u64) as i64;
            }
            offset = if self.random.chance(40) {
                self.wrong_by()
            } else {
                self.time.offset()
            };
            self.transcript
                .count("restarts under a clock that may be wrong");
        }
        (away, offset)
    }

    /// Opens the database; on the way the power may fail again, the process be killed, or an
    /// operation fail.
    fn open_again(&mut self, cut: &mut bool) -> Database {
        for _ in 0..3 {
            if !self.random.chance(25) {
                break;
            }
            let most = self.random.pick(&[8, 40, 200]);
            let after = self.random.below(most);
            let what = self.random.below(3);
            self.log(format!(
                "opening is hindered ({what}) after {after} operations"
            ));
            self.transcript.count("openings that were hindered");
            match what {
                0 => {
                    self.trouble = Trouble::Cut;
                    self.disk.crash_at(self.disk.operations() + after);
                    drop(self.open());
                    self.disk.crash_now();
                    *cut = true;
                    self.restore_power();
                }
                1 => drop(self.open_mortal(after)),
                _ => {
                    let kind = self.random.pick(&FAULTS);
                    self.disk.fail_next(kind, after / 4);
                    drop(self.open());
                    self.disk.heal();
                }
            }
            self.trouble = Trouble::None;
        }
        match self.open() {
            Ok(db) => db,
            Err(error) => panic!("the database does not open: {error}"),
        }
    }

    /// The end of a life: everything is there, and all files are sound.
    pub(super) fn end(&mut self) {
        if self.must_reopen || self.trouble != Trouble::None {
            self.must_reopen = true;
            self.reopen();
        }
        for index in 0..self.open_snapshots.len() {
            self.compare_open_snapshot(index);
        }
        self.open_snapshots.clear();
        self.compare();
        if let Err(error) = self.db.take().unwrap().close() {
            panic!("closing failed: {error}");
        }
        let report =
            headwater_engine::check(self.env_on(&self.disk), self.options.clone()).unwrap();
        assert!(report.is_sound(), "{:#?}", report.damages);
        self.transcript.count("lives");
        self.transcript
            .add("operations of the disk", self.disk.operations());
    }
}
