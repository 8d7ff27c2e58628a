//! Line protocol into a database without HTTP: stored values, and the codes of refusals.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use super::*;
use crate::access::guard::Guard;
use crate::access::tokens::TokenFile;
use headwater::{Options, ScanSpec, StreamName, Value};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Runtime;

fn limits() -> Limits {
    Limits {
        body_max: 1 << 20,
        line_max: 200,
        queue_max: 64,
        bytes_max: 4 << 20,
        threads: 2,
    }
}

struct World {
    runtime: Runtime,
    ingest: Ingest,
    db: Database,
    access: Access,
    _dir: TempDir,
}

impl World {
    fn new(limits: Limits) -> World {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::new(dir.path().join("db"));
        options.durability = headwater::Durability::Written;
        let guard = Arc::new(Guard::new(TokenFile::of_database(&options.dir)).unwrap());
        let db = Database::open(options).unwrap();
        World {
            runtime: tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap(),
            ingest: Ingest::start(db.clone(), Arc::default(), limits, &Env::system()).unwrap(),
            db,
            access: Access::Open { guard },
            _dir: dir,
        }
    }

    fn write(&self, body: impl Into<Bytes>, accept_partial: bool) -> Result<Outcome, ApiError> {
        let request = WriteRequest {
            body: body.into(),
            encoding: Encoding::Identity,
            precision: Precision::Nanoseconds,
            accept_partial,
            producer: None,
            access: self.access.clone(),
            space: Space::Main,
            first_write: None,
        };
        self.runtime.block_on(async {
            let mut outcome = self.ingest.submit(request, None).await?;
            for part in std::mem::take(&mut outcome.parts) {
                part.ticket.await?;
            }
            Ok(outcome)
        })
    }

    /// The values of field `v` by time.
    fn values(&self, stream: &StreamName) -> BTreeMap<i64, Value> {
        let snapshot = self.db.snapshot().unwrap();
        let Ok(scan) = snapshot.scan(stream, &ScanSpec::default()) else {
            return BTreeMap::new();
        };
        let at = scan
            .fields()
            .iter()
            .position(|(name, _)| name == "v")
            .unwrap();
        let mut found = BTreeMap::new();
        for chunk in scan {
            let chunk = chunk.unwrap();
            let values = chunk.columns[at].to_values();
            let rows = chunk.times.iter().zip(values);
            found.extend(rows.filter_map(|(time, value)| Some((*time, value?))));
        }
        found
    }
}

/// A line, and the value that it stores if the line is good: device, time, value.
#[derive(Clone, Debug)]
struct Line {
    text: String,
    good: Option<(u8, i64, f64)>,
}

fn line() -> impl Strategy<Value = Line> {
    let good =
        (0u8..4, 1i64..1_000_000, -1_000_000i64..1_000_000).prop_map(|(device, time, value)| {
            let value = value as f64 / 100.0;
            Line {
                text: format!("TABLE,device={device} v={value:?} {time}"),
                good: Some((device, time, value)),
            }
        });
    let bad = prop::sample::select(vec![
        "TABLE,device=0 v=",
        "TABLE,device=0 v=1.5 tomorrow",
        "TABLE,device= v=1 5",
        "TABLE,device=1 v=\"open",
        "TABLE,device=2 v=NaN 5",
        "TABLE,device=2 v=t 6",
        "TABLE,device=3 v=\"text\" 7",
        "TABLE device=3 v",
        ",device=1 v=1 8",
        "\u{1}",
        "TABLE,device=1 v=1i,v=5 x",
        "TABLE,device=1 v=18446744073709551616u 9",
    ])
    .prop_map(|text| Line {
        text: text.to_owned(),
        good: None,
    });
    let long = Just(Line {
        text: format!("TABLE,device=0 v=1,pad=\"{}\" 10", "x".repeat(300)),
        good: None,
    });
    prop_oneof![6 => good, 3 => bad, 1 => long]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// In any mix, exactly the good lines are stored, and every other line is counted and reported.
    #[test]
    fn any_mix_of_lines_stores_exactly_the_good_ones(
        bodies in prop::collection::vec(prop::collection::vec(line(), 0..40), 1..4),
    ) {
        static TABLES: AtomicU64 = AtomicU64::new(0);
        static WORLD: std::sync::OnceLock<Mutex<World>> = std::sync::OnceLock::new();
        let world = WORLD.get_or_init(|| Mutex::new(World::new(limits()))).lock();
        let table = format!("m{}", TABLES.fetch_add(1, Ordering::Relaxed));
        // The field has type float, whichever line arrives first.
        world.write(format!("{table},device=9 v=0.5 1"), true).unwrap();
        let mut expected: BTreeMap<u8, BTreeMap<i64, Value>> = BTreeMap::new();
        for lines in bodies {
            let texts: Vec<String> = lines.iter().map(|l| l.text.replace("TABLE", &table)).collect();
            let outcome = world.write(texts.join("\n"), true).unwrap();
            let mut good = 0;
            for (device, time, value) in lines.iter().filter_map(|l| l.good) {
                good += 1;
                expected.entry(device).or_default().insert(time, Value::F64(value));
            }
            let bad = lines.len() as u64 - good;
            prop_assert_eq!(outcome.stored, good);
            prop_assert_eq!(outcome.refusals.total(), bad);
            let told = outcome.refusals.to_json();
            let numbers: Vec<u64> = told.as_array().unwrap().iter().map(|l| l["line"].as_u64().unwrap()).collect();
            let bad_numbers: Vec<u64> = (1..).zip(&lines).filter(|(_, l)| l.good.is_none()).map(|(n, _)| n).collect();
            prop_assert_eq!(numbers, bad_numbers);
            for line in told.as_array().unwrap() {
                let number = line["line"].as_u64().unwrap() as usize;
                let original = headwater_wire::cut_line(texts[number - 1].as_bytes());
                prop_assert_eq!(line["original"].as_str().unwrap(), original);
            }
        }
        for device in 0..4 {
            let stream = StreamName::new(&table, [("device", device.to_string())]);
            prop_assert_eq!(world.values(&stream), expected.remove(&device).unwrap_or_default());
        }
    }
}

#[test]
fn all_or_nothing_stores_nothing_when_a_line_is_refused() {
    let world = World::new(limits());
    let stream = StreamName::new("t", [("device", "1")]);
    world.write("t,device=1 v=1 1", false).unwrap();
    for bad in [
        "t,device=1 v=2 2\nt,device=1 v=",
        "t,device=1 v=2 2\nt,device=2 v=\"text\" 3",
    ] {
        let outcome = world.write(bad, false).unwrap();
        assert!(outcome.is_abandoned && outcome.stored == 0);
        assert_eq!(outcome.refusals.total(), 1);
        assert_eq!(world.values(&stream).len(), 1);
    }
}

#[test]
fn a_large_body_goes_in_as_parts_and_its_lines_keep_their_numbers() {
    let mut world = World::new(Limits {
        body_max: 16 << 20,
        ..limits()
    });
    let mut body = String::new();
    let mut lines = 0;
    while body.len() < 5 << 20 {
        lines += 1;
        body.push_str(&format!(
            "t,device=1 v={lines}.5,pad=\"{:0>100}\" {lines}\n",
            7
        ));
    }
    body.push_str("t,device=1 v=x 5\n");
    let outcome = world.write(body, true).unwrap();
    assert_eq!((outcome.stored, outcome.refusals.total()), (lines, 1));
    let told = outcome.refusals.to_json();
    assert_eq!(told[0]["line"], lines + 1);
    assert_eq!(told[0]["original"], "t,device=1 v=x 5");
    let stream = StreamName::new("t", [("device", "1")]);
    assert_eq!(world.values(&stream).len() as u64, lines);
    assert_eq!(outcome.values, 2 * lines);
    world.ingest.close();
    let refused = world.write("t,device=1 v=1 1", true).unwrap_err();
    assert_eq!(refused.code, "E_STOPPING");
    world.runtime = Runtime::new().unwrap();
}

#[test]
fn a_full_queue_and_too_many_bytes_say_so_at_once() {
    let world = World::new(Limits {
        queue_max: 0,
        bytes_max: 1 << 20,
        ..limits()
    });
    let refused = world.write("t v=1 1", true).unwrap_err();
    assert_eq!((refused.status.as_u16(), refused.code), (503, "E_BUSY"));
    assert!(refused.retry_after.is_some());
    let half = world.ingest.reserve(600_000).unwrap();
    let refused = world.ingest.reserve(600_000).unwrap_err();
    assert_eq!((refused.status.as_u16(), refused.code), (429, "E_BUSY"));
    assert!(refused.retry_after.is_some());
    drop(half);
    drop(world.ingest.reserve(600_000).unwrap());
}

#[test]
fn closing_ends_the_threads_while_writers_come() {
    let world = World::new(limits());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut stored = 0;
            for time in 0..10_000 {
                match world.write(format!("t,device=1 v=1 {time}"), true) {
                    Ok(_) => stored += 1,
                    Err(error) => {
                        assert_eq!(error.code, "E_STOPPING");
                        break;
                    }
                }
            }
            stored
        });
        std::thread::sleep(Duration::from_millis(30));
        world.ingest.close();
        let stored: usize = writer.join().unwrap();
        let stream = StreamName::new("t", [("device", "1")]);
        assert_eq!(world.values(&stream).len(), stored);
    });
}
