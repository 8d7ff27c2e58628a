//! What lies where is changed, and something fails, or the process is killed. Whoever goes on, in
//! the same boot, acknowledges rows; then power is cut, and nothing stays but what was synced. The
//! database opens by itself, with every row.
//!
//! Every change of layout, made by each of the doors, with each fault at each operation and a kill
//! at each, tried again or left as it is, with a reserve and without, on one medium and on two.

use crate::cuts::{cuts, variable};
use crate::pump::{times, write};
use crate::support::{Mortal, small_options};
use headwater_engine::{
    Database, Error, FastTier, Options, TierParts, check, fast_tier, use_fast_tier,
};
use headwater_io::{
    Env, FaultKind, FaultyFiles, Files, ManualClock, Media, NoThreads, SeededChance, Survival,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// By which door the layout is changed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FrontEnd {
    Online,
    Offline,
    /// As the options of an opening say it: there is none that says no tier.
    Opening,
}

/// On how many media, and which of them meets the fault.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Disks {
    One,
    TwoAndBulkFails,
    TwoAndFastFails,
}

#[derive(Clone, Copy, Debug)]
enum Trouble {
    Fault(FaultKind, u64),
    Kill(u64),
}

const FAULTS: [FaultKind; 11] = [
    FaultKind::SyncError,
    FaultKind::SyncErrorReverting,
    FaultKind::SyncFull,
    FaultKind::WriteError,
    FaultKind::CreateError,
    FaultKind::CreateFull,
    FaultKind::RemoveError,
    FaultKind::ReadError,
    FaultKind::OpenError,
    FaultKind::ListError,
    FaultKind::LenError,
];

#[derive(Clone, Debug)]
struct Case {
    from: Option<FastTier>,
    to: Option<FastTier>,
    door: FrontEnd,
    disks: Disks,
    has_reserve: bool,
    is_tried_again: bool,
}

/// What a case on its disks has come to.
struct World {
    bulk: FaultyFiles,
    fast: FaultyFiles,
    reserve_bytes: u64,
    is_two: bool,
    /// Rows that were acknowledged.
    rows: i64,
}

fn tier(folder: &str, parts: &str) -> Option<FastTier> {
    Some(FastTier {
        folder: folder.into(),
        parts: parts.parse().unwrap(),
    })
}

fn changes() -> Vec<(Option<FastTier>, Option<FastTier>)> {
    vec![
        (None, tier("/fast", "log")),
        (None, tier("/fast", "index,newest")),
        (None, tier("/fast", "pins")),
        (tier("/fast", "log"), None),
        (tier("/fast", "log,newest"), None),
        (tier("/fast", "buffers,index"), None),
        (tier("/fast", "log,pins"), tier("/fast", "pins")),
        (tier("/fast", "newest"), tier("/fast", "log,newest")),
        (tier("/fast", "log"), tier("/fast", "log,index")),
        (tier("/fast", "log"), tier("/other", "log")),
        (tier("/fast", "log,index"), tier("/other", "newest")),
        (tier("/fast", "newest"), tier("/other", "log,pins")),
        (tier("/fast", "pins"), tier("/other", "index")),
    ]
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (from, to) in changes() {
        for door in [FrontEnd::Online, FrontEnd::Offline, FrontEnd::Opening] {
            if door == FrontEnd::Opening && to.is_none() {
                continue;
            }
            for disks in [Disks::One, Disks::TwoAndBulkFails, Disks::TwoAndFastFails] {
                for bits in 0..4 {
                    all.push(Case {
                        from: from.clone(),
                        to: to.clone(),
                        door,
                        disks,
                        has_reserve: bits & 1 == 1,
                        is_tried_again: bits & 2 == 2,
                    });
                }
            }
        }
    }
    all
}

impl World {
    fn new(case: &Case) -> World {
        World {
            bulk: FaultyFiles::new(1),
            fast: FaultyFiles::new(2),
            reserve_bytes: if case.has_reserve { 8 << 10 } else { 0 },
            is_two: case.disks != Disks::One,
            rows: 0,
        }
    }

    fn env_of(&self, bulk: Arc<dyn Files>, fast: Arc<dyn Files>) -> Env {
        static LIVES: AtomicU64 = AtomicU64::new(1);
        Env {
            files: bulk,
            media: Media {
                fast: self.is_two.then_some(fast),
                ..Media::default()
            },
            clock: Arc::new(ManualClock::new(Env::MEMORY_START)),
            chance: Arc::new(SeededChance::new(LIVES.fetch_add(1, Ordering::Relaxed))),
            threads: Arc::new(NoThreads),
        }
    }

    fn env(&self) -> Env {
        self.env_of(Arc::new(self.bulk.clone()), Arc::new(self.fast.clone()))
    }

    fn options(&self) -> Options {
        Options {
            reserve_bytes: self.reserve_bytes,
            ..small_options()
        }
    }

    /// Changes the layout by its door. The database stays open where that leaves it open.
    fn change(
        &self,
        env: &Env,
        case: &Case,
        db: Option<Database>,
    ) -> (Result<(), Error>, Option<Database>) {
        match case.door {
            FrontEnd::Online => {
                let db = db.map_or_else(|| Database::open_in(env.clone(), self.options()), Ok);
                match db {
                    Ok(db) => (db.move_tier(case.to.as_ref()), Some(db)),
                    Err(error) => (Err(error), None),
                }
            }
            FrontEnd::Offline => {
                drop(db);
                let changed = use_fast_tier(env, &self.options(), case.to.as_ref());
                (changed, None)
            }
            FrontEnd::Opening => {
                drop(db);
                let wanted = case.to.clone();
                let options = Options {
                    fast_dir: wanted.as_ref().map(|tier| tier.folder.clone()),
                    fast_parts: wanted.map_or(TierParts::NONE, |tier| tier.parts),
                    ..self.options()
                };
                match Database::open_in(env.clone(), options) {
                    Ok(db) => (Ok(()), Some(db)),
                    Err(error) => (Err(error), None),
                }
            }
        }
    }

    fn open(&self, what: &str) -> Database {
        let db = Database::open_in(self.env(), self.options());
        db.unwrap_or_else(|error| panic!("{what}: {error}"))
    }

    /// Writes some rows by whoever can, now or after an opening.
    fn go_on(&mut self, db: Option<Database>, what: &str) -> Database {
        if let Some(db) = db
            && write(&db, self.rows..self.rows + 20).is_ok()
        {
            self.rows += 20;
            return db;
        }
        let db = self.open(what);
        let found = self.expect(&db, what);
        let written = write(&db, found..found + 20);
        written.unwrap_or_else(|error| panic!("{what}: {error}"));
        self.rows = found + 20;
        db
    }

    /// Gives how many rows there are: at least those that were acknowledged, and none twice.
    fn expect(&self, db: &Database, what: &str) -> i64 {
        let found = times(db);
        let rows = found.len() as i64;
        assert_eq!(found, (0..rows).collect::<Vec<i64>>(), "{what}");
        assert!(rows >= self.rows, "{what}: {rows} of {} rows", self.rows);
        rows
    }

    /// Nothing stays but what was synced.
    fn power_cut(&mut self, db: Database) {
        self.bulk.crash_now();
        self.fast.crash_now();
        drop(db);
        self.bulk = self.bulk.after_crash_with(Survival::Nothing);
        self.fast = self.fast.after_crash_with(Survival::Nothing);
    }
}

/// False when the trouble was not met, since there are not so many operations.
fn live(case: &Case, trouble: Trouble) -> bool {
    let what = &format!("{case:?}, {trouble:?}");
    let mut world = World::new(case);
    let bulk = Mortal::new(&world.bulk, u64::MAX / 2);
    let fast = bulk.beside(&world.fast);
    let process = bulk.clone();
    let env = world.env_of(Arc::new(bulk), Arc::new(fast));
    let db = Database::open_in(env.clone(), world.options()).unwrap();
    write(&db, 0..60).unwrap();
    db.move_tier(case.from.as_ref()).unwrap();
    write(&db, 60..100).unwrap();
    world.rows = 100;
    let db = (case.door == FrontEnd::Online).then_some(db);
    let failing = match case.disks {
        Disks::TwoAndFastFails => &world.fast,
        _ => &world.bulk,
    };
    match trouble {
        Trouble::Fault(kind, at) => failing.fail_next(kind, at),
        Trouble::Kill(at) => process.kill_after(at),
    }
    let (mut changed, mut db) = world.change(&env, case, db);
    match trouble {
        Trouble::Fault(..) if failing.heal() > 0 => return false,
        Trouble::Kill(_) if !process.is_dead() => return false,
        Trouble::Kill(_) => drop(db.take()),
        Trouble::Fault(..) => {}
    }
    if case.is_tried_again {
        // By the same process, if it can; by the next one.
        if changed.is_err() && matches!(trouble, Trouble::Fault(..)) {
            (changed, db) = world.change(&env, case, db);
        }
        if changed.is_err() || process.is_dead() {
            drop(db.take());
            (changed, db) = world.change(&world.env(), case, None);
            assert!(changed.is_ok(), "{what}: {}", changed.unwrap_err());
        }
    }
    let db = world.go_on(db, what);
    world.power_cut(db);
    let db = world.open(what);
    world.expect(&db, what);
    if changed.is_ok() {
        assert_eq!(db.fast_tier(), case.to, "{what}");
    }
    let db = world.go_on(Some(db), what);
    world.power_cut(db);
    let db = world.open(what);
    world.expect(&db, what);
    db.close().unwrap();
    let report = check(world.env(), world.options()).unwrap();
    assert!(report.is_sound(), "{what}: {report:?}");
    let found = fast_tier(&world.env(), Path::new("/db")).unwrap();
    assert!(found == case.to || found == case.from, "{what}: {found:?}");
    true
}

#[test]
fn whatever_fails_in_a_change_of_layout_what_is_acknowledged_afterwards_stays() {
    let is_full = variable("HEADWATER_CRASH_EVERY").is_some();
    let mut met = 0;
    let (mut at_cases, mut series) = (cuts(u64::MAX, 29), 0);
    let mut next_series = at_cases.next();
    for case in cases() {
        for kind in FAULTS.into_iter().map(Some).chain([None]) {
            let is_chosen = next_series == Some(series);
            series += 1;
            if !is_chosen {
                continue;
            }
            next_series = at_cases.next();
            let stride = if is_full { 1 } else { 5 };
            let mut at = if is_full { 0 } else { series % stride };
            let trouble = |at| kind.map_or(Trouble::Kill(at), |kind| Trouble::Fault(kind, at));
            while live(&case, trouble(at)) {
                met += 1;
                at += stride;
            }
        }
    }
    assert!(met > 100, "{met} of {series}");
}
