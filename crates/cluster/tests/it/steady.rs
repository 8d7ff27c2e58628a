//! Answers that were complete once stay complete while an edge sends its newest events.

use crate::nodes::{Cloud, Edge, settings, until};
use headwater_cluster::{BudgetLimits, EdgeState, UplinkSettings};
use headwater_types::{ClosedRange, StreamName};
use std::time::Duration;

/// Seconds between rows that are in partitions of their own.
const APART: i64 = 100_000_000;
const ROUNDS: i64 = 4;

/// Rows of the stream, and the instant of its newest one in seconds; the error where some of it is
/// elsewhere.
fn answers(cloud: &Cloud) -> Result<(u64, i64), headwater_engine::Error> {
    let snapshot = cloud.snapshot();
    if !snapshot.table_names().contains(&"m".to_owned()) {
        return Ok((0, 0));
    }
    let rows = snapshot.row_count("m", ClosedRange::ALL, &mut || true)?;
    let newest = snapshot.last(&StreamName::new("m", [("id", "1")]))?;
    let newest = newest.first().map_or(0, |value| value.time.as_nanos());
    Ok((rows.unwrap_or(0), newest / 1_000_000_000))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_of_a_live_edge_makes_no_answer_incomplete() {
    let cloud = Cloud::start().await;
    let live = UplinkSettings {
        live: Some(Duration::from_millis(50)),
        budget: BudgetLimits {
            // The bytes of a state come some time after it.
            bytes_per_second: Some(4_000),
            ..BudgetLimits::default()
        },
        ..settings()
    };
    let mut edge = Edge::start_with(&cloud.invite("e"), live).await;
    for round in 1..=ROUNDS {
        let second = 1_000_000_000 + round * APART;
        edge.write_one(second);
        let shown = (round as u64, second);
        until("the row is shown before it is stored", || {
            answers(&cloud).is_ok_and(|found| found == shown)
        })
        .await;
        edge.db.flush().unwrap();
        let number = edge.db.state_number().unwrap();
        until("it is stored at the cloud, and shown all the while", || {
            assert_eq!(answers(&cloud).unwrap(), shown, "round {round}");
            let status = cloud.edge("e");
            status.state == EdgeState::Current
                && status.copy.is_some_and(|copy| copy.state == number)
        })
        .await;
    }
}
