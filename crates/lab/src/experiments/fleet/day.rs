//! Bytes of an idle edge at its socket, both directions and TLS included: some hours of simulated
//! time, in which the clocks of edge and cloud go faster than those of the machine, and a
//! reconnection. TCP's and IP's own bytes are not among them.
//!
//! Intervals of signs of life are of the simulated clock. Checks that the edge makes every ten
//! seconds go by the machine's clock, so that an hourly report is late by at most twenty simulated
//! minutes.

use super::Arguments;
use super::cloud::{self, Cloud};
use crate::harness::{Bench, Bound, Failure, Targets, real};
use crate::table;
use headwater_cluster::{EdgeState, Uplink, UplinkState};
use headwater_engine::{Database, Options};
use headwater_io::ManualClock;
use headwater_types::{Batch, StreamName, Value};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

const LOOK: Duration = Duration::from_secs(1);

#[derive(Serialize)]
pub(super) struct Results {
    hours: u64,
    haste: u64,
    /// From the first connection until the copy is current.
    first_bytes: u64,
    idle_bytes: u64,
    reconnect_bytes: u64,
    day_bytes: f64,
}

fn write(db: &Database) -> Result<(), Failure> {
    let mut batch = Batch::new();
    let stream = StreamName::new("m", [("id", "1")]);
    for second in 0..600 {
        let time = (1_796_000_000 + second) * 1_000_000_000;
        batch
            .stream(&stream)
            .row(time, [("v", Value::F64(real(second)))])?;
    }
    db.commit(batch)?;
    db.flush()?;
    Ok(())
}

/// Both directions.
fn total(uplink: &Uplink) -> u64 {
    let (sent, received) = uplink.socket_bytes();
    sent + received
}

async fn simulate(bench: &Bench, arguments: &Arguments) -> Result<Results, Failure> {
    let clock = cloud::clock();
    let cloud = Cloud::start(&bench.path("cloud"), &clock).await?;
    let dir = bench.path("edge");
    cloud.join("e", &dir).await?;
    let (db, uplink, stop) = edge(&dir, &clock)?;
    let state = |uplink: &Uplink| -> Result<UplinkState, Failure> { Ok(uplink.status()?.state) };
    write(&db)?;
    cloud.until_edge_is("e", EdgeState::Current).await?;
    // Its news of that, and a report, have passed.
    tokio::time::sleep(arguments.rest_seconds * LOOK).await;
    let first_bytes = total(&uplink);
    let steps = arguments.hours * 3_600 / arguments.haste.max(1);
    for _ in 0..steps {
        clock.advance(Duration::from_secs(arguments.haste));
        tokio::time::sleep(LOOK).await;
    }
    let idle_bytes = total(&uplink) - first_bytes;
    if state(&uplink)? != UplinkState::Connected {
        return Err("the edge has lost its connection".into());
    }
    stop.send_replace(true);
    cloud.until_edge_is("e", EdgeState::Offline).await?;
    drop((db, uplink));
    tokio::time::sleep(2 * LOOK).await;
    let (db, uplink, stop) = edge(&dir, &clock)?;
    cloud::until("the edge is back", || {
        Ok(state(&uplink)? == UplinkState::Connected)
    })
    .await?;
    cloud.until_edge_is("e", EdgeState::Current).await?;
    tokio::time::sleep(arguments.rest_seconds * LOOK).await;
    let reconnect_bytes = total(&uplink);
    stop.send_replace(true);
    cloud.stop.send_replace(true);
    tokio::time::sleep(LOOK).await;
    drop(db);
    let a_day = 24.0 / real(arguments.hours.max(1));
    Ok(Results {
        hours: arguments.hours,
        haste: arguments.haste,
        first_bytes,
        idle_bytes,
        reconnect_bytes,
        day_bytes: real(idle_bytes) * a_day + real(reconnect_bytes),
    })
}

/// An edge that is connected, or soon will be; it ends with the last.
fn edge(
    dir: &Path,
    clock: &Arc<ManualClock>,
) -> Result<(Database, Arc<Uplink>, watch::Sender<bool>), Failure> {
    let env = cloud::env(clock);
    let db = Database::open_in(env.clone(), Options::new(dir))?;
    let (uplink, stop) = cloud::connect(&db, env, dir, Duration::from_secs(600))?;
    Ok((db, uplink, stop))
}

pub(super) fn measure(
    bench: &Bench,
    arguments: &Arguments,
    targets: &mut Targets,
) -> Result<Results, Failure> {
    let results = cloud::simulated(simulate(bench, arguments))?;
    println!();
    let hours = real(results.hours.max(1));
    table::print(
        &["an idle edge, bytes at the socket", "measured"],
        &[
            vec![
                "first connection and 600 rows".to_owned(),
                results.first_bytes.to_string(),
            ],
            vec![
                format!("an hour without rows, of {} simulated", results.hours),
                format!("{:.0}", real(results.idle_bytes) / hours),
            ],
            vec![
                "a reconnection".to_owned(),
                results.reconnect_bytes.to_string(),
            ],
            vec![
                "a day with one reconnection".to_owned(),
                format!("{:.0}", results.day_bytes),
            ],
        ],
    );
    targets.add(
        "a day of an idle edge, one reconnection included",
        Bound::AtMost(100.0),
        " kB",
        results.day_bytes / 1e3,
    );
    Ok(results)
}
