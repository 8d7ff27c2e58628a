//! Work and times of refused requests, over the roles of a fleet: a request costs the same whether
//! a name exists that its token may not see, or not.
//!
//! The work is counted, and is the same in each run. Times are those of a machine that does other
//! things, too: they are compared by `make timing`, which asks each question often, in both worlds
//! in turn, and compares the medians with a generous bound.

use super::requests::{ROWS, Reveals, names_a_secret};
use super::roles::{LEFT_OUT, each_role};
use super::world::{Request, Token, World};
use super::{requests_of, token};
use crate::support::{Running, client};
use std::time::{Duration, Instant};

/// Number of times that each question is asked, where times are compared.
const VARIABLE: &str = "HEADWATER_TIMING";
/// Counters of what is read of stored data.
const COUNTERS: [&str; 4] = [
    "headwater_leaves_read_total",
    "headwater_pages_read_total",
    "headwater_blocks_read_total",
    "headwater_segment_read_bytes_total",
];
/// Attempts to count without other work of the node at the same time.
const ATTEMPTS: usize = 5;
/// Difference of two medians that counts, in percent of the longer one, and at least.
const PERCENT_MAX: u32 = 30;
const DIFFERENCE_MIN: Duration = Duration::from_micros(300);
/// Tokens that may not see what the questions name.
const TOKENS: [&str; 3] = ["read by tag", "no rule", "no token"];

/// Questions that name what only one of the worlds has.
fn questions() -> Vec<Request> {
    let rows = ROWS.iter().filter(|row| {
        let is_asked = matches!(row.reveals, Reveals::Stored | Reveals::Nothing);
        is_asked && row.method == "GET" && !LEFT_OUT.contains(&row.route)
    });
    let named = rows.flat_map(requests_of).filter(names_a_secret);
    named.step_by(11).collect()
}

/// The text of the metrics of a node, which are newer than this call.
fn metrics(server: &Running, admin: &Token) -> String {
    let begun = Instant::now();
    loop {
        let bearer = format!("Bearer {}", admin.text.as_deref().unwrap());
        let asked = client().get(server.url("/metrics"));
        let mut answer = asked.header("authorization", bearer).call().unwrap();
        assert_eq!(answer.status(), 200);
        let text = answer.body_mut().read_to_string().unwrap();
        let age = number(&text, "headwater_figures_age_seconds");
        if age < begun.elapsed().as_secs_f64() {
            return text;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "they stay old");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The number of a metric without labels.
fn number(text: &str, name: &str) -> f64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let found = lines.find_map(|rest| rest.strip_prefix(' ')?.trim().parse().ok());
    found.unwrap_or(0.0)
}

/// Counters of a world, summed over its nodes.
fn work(world: &World, admin: &Token) -> [f64; 4] {
    let mut sum = [0.0; 4];
    for server in world.nodes() {
        let text = metrics(server, admin);
        for (sum, name) in sum.iter_mut().zip(COUNTERS) {
            *sum += number(&text, name);
        }
    }
    sum
}

/// Change of the counters by the questions of all tokens.
fn work_of(world: &World, tokens: &[Token], questions: &[Request]) -> [f64; 4] {
    let admin = token(tokens, "admin");
    let before = work(world, admin);
    for name in TOKENS {
        for question in questions {
            world.request(token(tokens, name), question);
        }
    }
    let mut after = work(world, admin);
    for (after, before) in after.iter_mut().zip(before) {
        *after -= before;
    }
    after
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Median times of a question in both worlds, asked in turn.
fn medians(worlds: &[World; 2], token: &Token, question: &Request, rounds: usize) -> [Duration; 2] {
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..2 * rounds {
        let at = (round + round / 2) % 2;
        let begun = Instant::now();
        worlds[at].request(token, question);
        times[at].push(begun.elapsed());
    }
    times.map(median)
}

fn differs([a, b]: [Duration; 2]) -> bool {
    let (long, apart) = (a.max(b), a.abs_diff(b));
    apart > DIFFERENCE_MIN && apart > long * PERCENT_MAX / 100
}

#[test]
fn a_refused_request_is_as_much_work_whether_the_name_exists_or_not() {
    let rounds = std::env::var(VARIABLE).ok();
    let rounds: Option<usize> = rounds.map(|text| text.parse().unwrap());
    let questions = questions();
    assert!(questions.len() > 10, "{}", questions.len());
    let mut slow = Vec::new();
    each_role(|role, worlds, tokens| {
        // The first answers fill caches, and are not compared.
        let mut works = (0..=ATTEMPTS).map(|_| {
            let works = worlds.each_ref();
            works.map(|world| work_of(world, tokens, &questions))
        });
        let first = works.next();
        let is_same = works.any(|[with, without]| with == without);
        assert!(is_same, "{role}: {first:?}");
        let Some(rounds) = rounds else {
            return;
        };
        for name in TOKENS {
            let token = token(tokens, name);
            for question in &questions {
                let first = medians(worlds, token, question, rounds);
                // What is so once may be chance.
                if differs(first) && differs(medians(worlds, token, question, 2 * rounds)) {
                    slow.push(format!("{role}, {name:?}, {question:?}: {first:?}"));
                }
            }
        }
    });
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}

#[test]
fn a_difference_counts_above_both_bounds() {
    let micros = |a, b| [Duration::from_micros(a), Duration::from_micros(b)];
    for times in [micros(100, 390), micros(2_000, 2_500), micros(7, 7)] {
        assert!(!differs(times), "{times:?}");
    }
    for times in [micros(100, 500), micros(2_000, 1_000)] {
        assert!(differs(times), "{times:?}");
    }
    let times = [9, 1, 5].map(Duration::from_secs).to_vec();
    assert_eq!(median(times), Duration::from_secs(5));
}
