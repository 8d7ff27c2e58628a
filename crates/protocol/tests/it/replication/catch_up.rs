//! A copy that fetches a backlog over a link of some rate, while newest events go on: how late
//! these are, and how much of the link the backlog gets.

use headwater_engine::{Database, Options, RemoteCopy, ReplicationRules, Tail};
use headwater_io::Env;
use headwater_protocol::replication::{
    Agent, Budget, BudgetLimits, Message, Now, Planner, PlannerLimits, SegmentRange, SendQueue,
    Spent, encode,
};
use headwater_testing::Dice;
use headwater_types::{Batch, StreamName, Timestamp, Value};
use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

const STEP: Duration = Duration::from_millis(10);
const SECOND: i64 = 1_000_000_000;
const LATE_MAX: Duration = Duration::from_secs(2);
/// Rows before this are not judged: nothing is known of the link yet.
const FIRST: Duration = Duration::from_secs(3);
/// Bytes around a message: frame, packets.
const AROUND: u64 = 20;

/// A link from the source to the copy; the other way only takes time.
#[derive(Clone, Copy, Debug)]
struct Link {
    bytes_per_second: u64,
    /// Time of a way.
    latency: Duration,
    /// Bytes that the system of the source takes, although the link has not carried them yet.
    buffer: u64,
}

struct Source {
    db: Database,
    agent: Agent,
    queue: SendQueue,
    /// Until when the link is busy.
    free: Duration,
    link: Link,
    flying: VecDeque<(Duration, Message)>,
    now: Duration,
    asked: VecDeque<(Duration, Message)>,
    /// Sequence and time of each row that the copy does not have yet.
    rows: VecDeque<(u64, Duration)>,
    written: Duration,
    latest: Duration,
    carried: u64,
    lags: Vec<Duration>,
}

impl Source {
    /// A source with so many bytes of rows that do not compress.
    fn new(seed: u64, bytes: u64, link: Link) -> Source {
        let options = Options {
            reserve_bytes: 0,
            ..Options::new("/db")
        };
        let db = Database::open_in(Env::memory(), options).unwrap();
        let mut dice = Dice(seed);
        let start = Env::MEMORY_START.as_nanos();
        let rows = i64::try_from(bytes / 8 / 4).unwrap();
        for id in 0..4 {
            let mut batch = Batch::new();
            let rows_of = batch.stream(&StreamName::new("m", [("id", id.to_string())]));
            for row in 0..rows {
                let value = f64::from_bits(dice.next() >> 2);
                let time = start + (row - rows) * SECOND;
                rows_of.row(time, [("v", Value::F64(value))]).unwrap();
            }
            db.commit(batch).unwrap();
        }
        db.flush().unwrap();
        let mut agent = Agent::new(
            u64::MAX,
            Budget::new(BudgetLimits::default(), Spent::default()),
        );
        agent.set_live(Some(Duration::from_secs(1)));
        Source {
            db,
            agent,
            queue: SendQueue::default(),
            free: Duration::ZERO,
            link,
            flying: VecDeque::new(),
            now: Duration::ZERO,
            asked: VecDeque::new(),
            rows: VecDeque::new(),
            written: Duration::ZERO,
            latest: Duration::ZERO,
            carried: 0,
            lags: Vec::new(),
        }
    }

    fn clocks(&self) -> Now {
        let passed = i64::try_from(self.now.as_nanos()).unwrap();
        Now {
            monotonic: self.now,
            wall: Timestamp::from_nanos(Env::MEMORY_START.as_nanos() + passed),
        }
    }

    fn first_copy(&self) -> RemoteCopy {
        let rules = ReplicationRules::default();
        let first = self.db.hold_state_of(None, &rules).unwrap();
        RemoteCopy::begin(Env::memory(), Path::new("/copy"), first.state(), rules).unwrap()
    }

    /// A row of this second.
    fn write(&mut self) {
        let time = self.clocks().wall.as_nanos();
        let mut batch = Batch::new();
        let rows = batch.stream(&StreamName::new("m", [("id", "0")]));
        rows.row(time, [("v", Value::F64(1.5))]).unwrap();
        self.db.commit(batch).unwrap();
        let sequence = self.db.snapshot().unwrap().sequence();
        self.rows.push_back((sequence, self.now));
        self.written = self.now;
    }

    /// Time goes on by a step; returns the messages that arrive at the copy.
    fn step(&mut self) -> Vec<Message> {
        self.now += STEP;
        let now = self.clocks();
        if self.now >= self.written + Duration::from_secs(1) {
            self.write();
        }
        while self.asked.front().is_some_and(|(at, _)| *at <= self.now) {
            let (_, asked) = self.asked.pop_front().unwrap();
            for answer in self.agent.answer(&self.db, now, asked).unwrap() {
                self.queue.push(answer);
            }
        }
        if self.agent.live_due().is_some_and(|due| due <= self.now)
            && let Some(newest) = self.agent.live(&self.db, now).unwrap()
        {
            self.queue.push(newest);
        }
        self.agent.settle(now, 0, self.queue.bytes());
        let takes =
            |bytes: u64| Duration::from_nanos(bytes * 1_000_000_000 / self.link.bytes_per_second);
        while self.free.saturating_sub(self.now) < takes(self.link.buffer)
            && let Some(message) = self.queue.pop()
        {
            let bytes = encode(&message).len() as u64 + AROUND;
            self.free = self.free.max(self.now) + takes(bytes);
            self.flying
                .push_back((self.free + self.link.latency, message));
        }
        let mut arrived = Vec::new();
        while self.flying.front().is_some_and(|(at, _)| *at <= self.now) {
            let (_, message) = self.flying.pop_front().unwrap();
            if let Message::Bytes { bytes, .. } = &message {
                self.carried += bytes.len() as u64;
                self.latest = self.now;
            }
            arrived.push(message);
        }
        arrived
    }

    fn ask(&mut self, message: Message) {
        self.asked
            .push_back((self.now + self.link.latency, message));
    }

    /// The copy has newest events up to this record.
    fn has(&mut self, until: u64) {
        while self
            .rows
            .front()
            .is_some_and(|(sequence, _)| *sequence <= until)
        {
            let (_, written) = self.rows.pop_front().unwrap();
            if written > FIRST {
                self.lags.push(self.now - written);
            }
        }
    }

    fn judge(&self, what: &str) {
        let most = self.lags.iter().max().unwrap();
        let share =
            self.carried as f64 / (self.link.bytes_per_second as f64 * self.latest.as_secs_f64());
        eprintln!(
            "{what}, {:?}: {} rows, the latest after {most:?}; the backlog had {share:.3} of {:.1} s",
            self.link,
            self.lags.len(),
            self.latest.as_secs_f64()
        );
        assert!(self.lags.len() > 5 && self.rows.len() <= 2, "{what}");
        assert!(*most <= LATE_MAX, "{what}: {most:?} late");
        assert!(share >= 0.9, "{what}: {share} of the link");
    }
}

fn catch_up(seed: u64, bytes: u64, link: Link) {
    let mut source = Source::new(seed, bytes, link);
    let mut planner = Planner::new(source.first_copy(), PlannerLimits::default(), seed);
    planner.set_live(true);
    let hello = source.agent.hello(&source.db).unwrap();
    planner.receive(source.clocks(), hello).unwrap();
    while planner.copy().progress().missing_bytes > 0 || !planner.is_idle() {
        for message in source.step() {
            planner.receive(source.clocks(), message).unwrap();
        }
        while let Some(asked) = planner.next(source.clocks()) {
            source.ask(asked);
        }
        source.has(planner.copy().progress().tail.until);
        assert!(planner.failed().is_none() && planner.failures_in_a_row() == 0);
        assert!(source.now < Duration::from_secs(900), "it comes to no end");
    }
    source.judge("catching up");
}

#[test]
fn newest_events_are_not_late_while_a_backlog_fills_the_link() {
    let millis = Duration::from_millis;
    for (seed, bytes, bytes_per_second, latency, buffer) in [
        // Everything that is sent is on its way at once, as with large buffers.
        (1, 3_000_000, 125_000, millis(20), u64::MAX / 1_000_000_000),
        (2, 3_000_000, 125_000, millis(2), 64 << 10),
        (3, 5_000_000, 125_000, millis(250), 64 << 10),
        (4, 700_000, 30_000, millis(60), 32 << 10),
        (5, 6_000_000, 500_000, millis(100), 256 << 10),
    ] {
        let link = Link {
            bytes_per_second,
            latency,
            buffer,
        };
        catch_up(seed, bytes, link);
    }
}

/// A copy of an earlier version asks for 8 MiB at once.
#[test]
fn newest_events_go_between_the_ranges_that_an_earlier_copy_asks_for() {
    let link = Link {
        bytes_per_second: 125_000,
        latency: Duration::from_millis(20),
        buffer: 32 << 10,
    };
    let mut source = Source::new(7, 2_500_000, link);
    let copy = source.first_copy();
    let mut ranges = Vec::new();
    for segment in copy.state().segments() {
        let mut offset = 0;
        while offset < segment.bytes {
            let bytes = u32::try_from((segment.bytes - offset).min(1 << 20)).unwrap();
            ranges.push(SegmentRange {
                segment: segment.id,
                offset,
                bytes,
            });
            offset += u64::from(bytes);
        }
    }
    // The state is pinned by the first message.
    source.agent.hello(&source.db).unwrap();
    let state = copy.state().name();
    source.ask(Message::Fetch {
        request: 1,
        state,
        ranges,
    });
    let ask = |request| Message::AskTail {
        request,
        state: state.sequence,
        known_end: copy.tail_point(),
    };
    source.ask(ask(1 << 40));
    let (mut is_done, mut tails) = (false, 0);
    while !is_done {
        for message in source.step() {
            match message {
                Message::Bytes {
                    segment,
                    offset,
                    bytes,
                    ..
                } => copy.put(segment, offset, &bytes).unwrap(),
                Message::Done { .. } => is_done = true,
                Message::Tail { bytes, .. } => {
                    assert!(copy.take_tail(Tail::decode(&bytes).unwrap()));
                    source.has(copy.progress().tail.until);
                    tails += 1;
                    source.ask(ask((1 << 40) + tails));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(source.now < Duration::from_secs(60), "it comes to no end");
    }
    copy.commit().unwrap();
    assert_eq!(copy.progress().missing_bytes, 0);
    source.judge("an earlier copy");
}

#[test]
fn the_source_knows_how_long_events_have_waited() {
    let link = Link {
        bytes_per_second: 1_000_000,
        latency: Duration::from_millis(100),
        buffer: 64 << 10,
    };
    let mut source = Source::new(9, 10_000, link);
    let copy = source.first_copy();
    let ask = |request| Message::AskTail {
        request,
        state: copy.state().name().sequence,
        known_end: copy.tail_point(),
    };
    source.ask(ask(1));
    let mut tails = 0;
    while tails < 3 {
        for message in source.step() {
            let Message::Tail { bytes, .. } = message else {
                panic!("{message:?}");
            };
            assert!(copy.take_tail(Tail::decode(&bytes).unwrap()));
            tails += 1;
            let times = source.agent.live_times().unwrap();
            match tails {
                // The first brings what there is.
                1 => assert!(times.waited.is_none()),
                _ => {
                    let waited = times.waited.unwrap();
                    let second = Duration::from_millis(980)..Duration::from_millis(1_300);
                    assert!(second.contains(&waited), "{waited:?}");
                    // From when it was asked for, a way and back after the one before.
                    let held = Duration::from_millis(700)..Duration::from_millis(1_100);
                    assert!(held.contains(&times.held), "{times:?}");
                }
            }
            source.ask(ask(1 + tails));
        }
    }
}
