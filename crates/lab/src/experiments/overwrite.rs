//! Points that are overwritten repeatedly: the cost of a query over them, compared with points that
//! were written once, before a flush.

use crate::harness::{
    Bench, Bound, Candidate, Common, Failure, Random, Rounds, Targets, time_round, turns,
};
use crate::table;
use headwater::{
    AggregateSpec, Batch, Bins, ClosedRange, Database, Durability, Options, StreamName, StreamRows,
    Values,
};
use serde::Serialize;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Number of points.
    #[arg(long, default_value_t = 1_000)]
    points: u32,
    /// Number of times that each is written, a store each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 40, 100])]
    versions: Vec<u32>,
    /// Questions of a round.
    #[arg(long, default_value_t = 500)]
    questions: u64,
}

#[derive(Serialize)]
struct Results {
    points: u32,
    /// Questions over points that no longer change, by versions.
    resting: Vec<Rounds>,
    /// One query after each overwrite of all points.
    changing: Rounds,
}

fn stream() -> StreamName {
    StreamName::new("meter", [("id", "1")])
}

fn write(db: &Database, points: u32, dice: &mut Random) -> Result<(), Failure> {
    let mut rows = StreamRows::new(stream());
    rows.times = (0..i64::from(points)).map(|p| p * 1_000_000_000).collect();
    let values = (0..points).map(|_| dice.below(100_000));
    let mut batch = Batch::new();
    batch.push(rows.with_column("value", Values::U64(values.collect())));
    db.commit(batch)?;
    Ok(())
}

fn run_queries(db: &Database, points: u32) -> Result<(), Failure> {
    let spec = AggregateSpec {
        range: ClosedRange::ALL,
        bins: Bins::Whole,
        first_last: false,
    };
    let found = db.snapshot()?.aggregate(&stream(), "value", &spec)?;
    let count: u64 = found.iter().map(|bin| bin.aggregate.count).sum();
    match count == u64::from(points) {
        true => Ok(()),
        false => Err(format!("{count} values of {points} points").into()),
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::new("overwrite", &arguments.common)?;
    let open = |what: &str| -> Result<Database, Failure> {
        let options = Options {
            durability: Durability::Written,
            ..Options::new(bench.path(what))
        };
        Ok(Database::open(options)?)
    };
    let points = arguments.points;
    let mut stores = Vec::new();
    for versions in &arguments.versions {
        let db = open("resting")?;
        let mut dice = Random::new(1);
        for _ in 0..*versions {
            write(&db, points, &mut dice)?;
        }
        stores.push((*versions, db));
    }
    let candidates = stores.iter().map(|(versions, db)| {
        Candidate::new(format!("{versions} versions"), move |_| {
            time_round(|| {
                for _ in 0..arguments.questions {
                    run_queries(db, points)?;
                }
                Ok(arguments.questions)
            })
        })
    });
    let resting = turns(bench.rounds(), candidates.collect())?;
    let db = open("changing")?;
    let mut dice = Random::new(2);
    let round = |_| {
        let mut sum = time_round(|| Ok(0))?;
        for _ in 0..arguments.questions.min(100) {
            write(&db, points, &mut dice)?;
            let one = time_round(|| run_queries(&db, points).map(|()| 1))?;
            sum.operations += one.operations;
            sum.wall_seconds += one.wall_seconds;
            sum.cpu_seconds += one.cpu_seconds;
        }
        Ok(sum)
    };
    let name = "after each writing";
    let mut changing = turns(bench.rounds(), vec![Candidate::new(name, round)])?;
    let changing = changing.pop().ok_or("no rounds")?;

    let rows: Vec<Vec<String>> = (resting.iter().chain([&changing]))
        .map(|r| vec![r.name.clone(), r.time(), r.spread()])
        .collect();
    table::print(&["count of all points", "a question", "spread"], &rows);
    let mut targets = Targets::default();
    if let (Some(once), Some(most)) = (resting.first(), resting.last()) {
        targets.add(
            format!("a question over {}, of one over {}", most.name, once.name),
            Bound::AtMost(1.3),
            " ×",
            most.times_of(once),
        );
    }
    let results = Results {
        points,
        resting,
        changing,
    };
    bench.finish(&results, &targets)
}
