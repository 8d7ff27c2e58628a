//! The clock of a world: what time it is, what the machine believes, and what a database may
//! believe of that.
//!
//! The rule of the database (docs/operate/lifetimes.md): a clock that jumps by more than
//! `clock_jump_max` is not believed until the rows of devices bear it out, and theirs are of the
//! true time. So a database may believe what it followed without a jump, and the truth;
//! `newest_believed` is the latest of that.

use headwater_engine::Options;
use headwater_io::ManualClock;
use headwater_types::Timestamp;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Time {
    /// What time it really is: devices know.
    pub(super) truly: i64,
    /// By how much the machine's clock is wrong.
    offset: i64,
    /// The clock of the running process.
    pub(super) clock: Arc<ManualClock>,
    jump_max: i64,
    settle: i64,
    /// What was believed last, and went on from there.
    followed: i64,
    /// Where time would be, had the furthest of that gone on: a clock that is set back by more than
    /// it may jump is doubted too, and what it said before goes on when it is far ahead again.
    furthest: i64,
    pub(super) newest_believed: i64,
    /// What time it was when the database last committed it, and by how much it has jumped since as
    /// far as the database knows: time without a process counts as a jump.
    persisted: i64,
    persisted_jumped: i64,
    jumped: i64,
    /// The clock was never wrong, and never left without a process for long.
    pub(super) always_right: bool,
}

pub(super) const SECOND: i64 = 1_000_000_000;
pub(super) const HOUR: i64 = 3600 * SECOND;
pub(super) const DAY: i64 = 24 * HOUR;
pub(super) const YEAR: i64 = 365 * DAY;

impl Time {
    pub(super) fn new(start: i64, options: &Options) -> Time {
        Time {
            truly: start,
            offset: 0,
            clock: Arc::new(ManualClock::new(Timestamp::from_nanos(start))),
            jump_max: super::plain::nanos(options.clock_jump_max),
            settle: super::plain::nanos(options.clock_settle),
            followed: start,
            furthest: start,
            newest_believed: start,
            persisted: start,
            persisted_jumped: 0,
            jumped: 0,
            always_right: true,
        }
    }

    pub(super) fn wall(&self) -> i64 {
        self.truly + self.offset
    }

    pub(super) fn offset(&self) -> i64 {
        self.offset
    }

    /// Time goes by while a process runs.
    pub(super) fn pass(&mut self, span: i64) {
        self.truly += span;
        self.followed += span;
        self.furthest += span;
        self.jumped = self
            .jumped
            .saturating_sub(span.saturating_mul(self.jump_max / self.settle))
            .max(0);
        self.clock
            .advance(Duration::from_nanos(span.unsigned_abs()));
        self.look();
    }

    /// The machine's clock is set, wrongly or rightly, while a process runs.
    pub(super) fn set(&mut self, offset: i64) {
        self.offset = offset;
        self.always_right &= offset == 0;
        self.clock.set(Timestamp::from_nanos(self.wall()));
        self.look();
    }

    /// A process begins, after a while without one and with the clock wrong by so much.
    pub(super) fn restart(&mut self, away: i64, offset: i64) {
        self.truly += away;
        self.offset = offset;
        self.jumped = self
            .persisted_jumped
            .saturating_add(self.truly - self.persisted);
        self.always_right &= offset == 0 && self.jumped < self.jump_max;
        self.clock = Arc::new(ManualClock::new(Timestamp::from_nanos(self.wall())));
        self.look();
    }

    /// The database has committed what time it is.
    pub(super) fn keep(&mut self) {
        self.persisted = self.truly;
        self.persisted_jumped = self.jumped;
    }

    /// The next opening would believe the clock as this process does.
    pub(super) fn is_agreed(&self) -> bool {
        let jumped = self
            .persisted_jumped
            .saturating_add(self.truly - self.persisted);
        self.always_right && jumped < self.jump_max
    }

    /// What time it was when the database last committed it.
    pub(super) fn remembered(&self) -> i64 {
        self.persisted
    }

    fn look(&mut self) {
        let wall = self.wall();
        // A clock that is far behind is not followed either: time goes on from where it was.
        let jumps = wall.saturating_sub(self.followed).abs() > self.jump_max;
        if !jumps || self.offset.abs() <= self.jump_max {
            self.followed = wall;
        }
        self.furthest = self.furthest.max(self.followed);
        self.newest_believed = self.newest_believed.max(self.furthest);
    }
}
