//! The same rounds as a model of events: clients, sets and channels without threads, in simulated
//! time. The product's schedules and placement decide which request starts next.

use super::live::{compaction, costs, request};
use super::{Arguments, Measurement, Strategy, Workload};
use crate::harness::Random;
use headwater_io::queue::{Direction, Placements, Purpose, Request, Schedule};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

/// Time of a client between two requests, in nanoseconds.
const THINKING: u64 = 2_000;
/// Time in which an awake owner takes its next request.
const TAKING: u64 = 2_000;
const COMPACTION_LANES: u64 = 4;

/// An event: a client sends a request, or a request ends, on a set or on a channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Request(usize),
    Ends { client: usize, set: Option<usize> },
}

struct Client {
    request: Request,
    since: u64,
}

struct Simulation {
    now: u64,
    number: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    clients: Vec<Client>,
    dice: Random,
    costs: super::device::Costs,
    hand_over: u64,
    /// Sets; `None` = direct calls.
    sets: Option<(Vec<Schedule<usize>>, Placements, u64)>,
    /// Of direct calls: channels in use, and waiting clients.
    in_use: u64,
    line: VecDeque<usize>,
}

impl Simulation {
    fn at(&mut self, after: u64, event: Event) {
        self.number += 1;
        self.events
            .push(Reverse((self.now + after, self.number, event)));
    }

    /// Whether the client waits for its requests; only these are measured.
    fn counts(&self, client: usize) -> bool {
        let purpose = self.clients.get(client).map(|of| of.request.purpose);
        purpose.is_some_and(|purpose| purpose != Purpose::Compaction)
    }

    /// Service time of the device, within a fifth.
    fn service(&mut self, client: usize) -> u64 {
        let Some(of) = self.clients.get(client) else {
            return 0;
        };
        let is_write = of.request.direction == Direction::Write;
        let cost = self.costs.of(is_write, of.request.length.unwrap_or(0));
        let nanos = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
        nanos * 4 / 5 + self.dice.below(nanos * 2 / 5 + 1)
    }

    fn send_request(&mut self, client: usize) {
        let Some(of) = self.clients.get_mut(client) else {
            return;
        };
        of.since = self.now;
        let request = of.request;
        let Some((schedules, placements, small)) = &mut self.sets else {
            if self.in_use < self.costs.channels {
                self.in_use += 1;
                let service = self.service(client);
                self.at(service, Event::Ends { client, set: None });
            } else {
                self.line.push_back(client);
            }
            return;
        };
        let set = placements.set_of(request.stream, request.interval);
        let Some(schedule) = schedules.get_mut(set) else {
            return;
        };
        if request.is_small(*small) && schedule.begin_if_idle() {
            let service = self.service(client);
            let set = Some(set);
            self.at(service, Event::Ends { client, set });
            return;
        }
        // The schedule has space for every client.
        let taken = schedule.push(&request, client);
        assert!(taken.is_ok(), "a client waits for one request at a time");
        self.start_next(set, self.hand_over);
    }

    /// Starts the next request of a set, after its owner's own time.
    fn start_next(&mut self, set: usize, after: u64) {
        let schedules = self.sets.as_mut().map(|(schedules, _, _)| schedules);
        let next = schedules.and_then(|s| s.get_mut(set)?.begin_next());
        if let Some(client) = next {
            let service = self.service(client);
            let set = Some(set);
            self.at(after + service, Event::Ends { client, set });
        }
    }

    fn ends(&mut self, set: Option<usize>) {
        match (set, &mut self.sets) {
            (Some(set), Some((schedules, _, _))) => {
                if let Some(schedule) = schedules.get_mut(set) {
                    schedule.done();
                }
                self.start_next(set, TAKING);
            }
            _ => match self.line.pop_front() {
                Some(client) => {
                    let service = self.service(client);
                    self.at(service, Event::Ends { client, set: None });
                }
                None => self.in_use -= 1,
            },
        }
    }
}

pub(super) fn round(
    arguments: &Arguments,
    workload: Workload,
    sources: u64,
    strategy: Strategy,
    seed: u64,
) -> Measurement {
    let mut world = world(arguments, clients(workload, sources), strategy, seed);
    let mut latencies = live(&mut world, arguments.requests);
    let reads = latencies.remove(&true).unwrap_or_default();
    let mut all = latencies.remove(&false).unwrap_or_default();
    all.extend(&reads);
    Measurement::of(all, reads, Duration::from_nanos(world.now).as_secs_f64())
}

/// Four clients of each source, and those of a compaction.
fn clients(workload: Workload, sources: u64) -> Vec<Client> {
    let mut clients = Vec::new();
    for source in 0..sources {
        for thread in 0..4 {
            clients.push(Client {
                request: request(workload, source, thread, 0),
                since: 0,
            });
        }
    }
    if workload == Workload::Mixed {
        clients.extend((0..COMPACTION_LANES).map(|lane| Client {
            request: compaction(lane),
            since: 0,
        }));
    }
    clients
}

fn world(arguments: &Arguments, clients: Vec<Client>, strategy: Strategy, seed: u64) -> Simulation {
    let sets = strategy.options(arguments.channels).map(|options| {
        let schedule = || Schedule::new(options.order, options.passes_max, clients.len());
        (
            (0..options.sets).map(|_| schedule()).collect(),
            Placements::new(options.sets, options.rule),
            options.small_bytes_max,
        )
    });
    Simulation {
        now: 0,
        number: 0,
        events: BinaryHeap::new(),
        dice: Random::new(seed),
        costs: costs(arguments),
        hand_over: arguments.hand_over_us * 1000,
        sets,
        in_use: 0,
        line: VecDeque::new(),
        clients,
    }
}

/// As with threads: sends `requests` requests and waits for all answers. Returns their latencies,
/// in microseconds; those of reads under `true`.
fn live(world: &mut Simulation, requests: u64) -> BTreeMap<bool, Vec<f64>> {
    let mut left = requests;
    let mut waited_for = 0_u64;
    for client in 0..world.clients.len() {
        let after = world.dice.below(THINKING);
        world.at(after, Event::Request(client));
    }
    let mut latencies: BTreeMap<bool, Vec<f64>> = BTreeMap::new();
    while left > 0 || waited_for > 0 {
        let Some(Reverse((now, _, event))) = world.events.pop() else {
            break;
        };
        world.now = now;
        match event {
            Event::Request(client) => {
                // The compaction ends with the others: starved requests would never end.
                if left == 0 {
                    continue;
                }
                if world.counts(client) {
                    left -= 1;
                    waited_for += 1;
                }
                world.send_request(client);
            }
            Event::Ends { client, set } => {
                world.ends(set);
                if world.counts(client)
                    && let Some(of) = world.clients.get(client)
                {
                    let is_read = of.request.direction == Direction::Read;
                    let micros = Duration::from_nanos(now - of.since).as_secs_f64() * 1e6;
                    latencies.entry(is_read).or_default().push(micros);
                    waited_for -= 1;
                }
                world.at(THINKING, Event::Request(client));
            }
        }
    }
    latencies
}
