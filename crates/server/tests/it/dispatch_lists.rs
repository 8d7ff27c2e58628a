//! Lists of streams of a dispatcher before nodes that have streams of the same names.

use crate::dispatch::{dispatcher, get};
use crate::support::Running;
use crate::sync::write;
use headwater_testing::until;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ops::Range;

fn node(ids: Range<u32>) -> Running {
    let node = Running::start();
    let lines = ids.map(|id| format!("pump,id={id} flow=1 1700000000000000000\n"));
    write(&node, &lines.collect::<String>());
    node
}

fn page(desk: &Running, parameters: &str) -> Value {
    let (status, text) = get(desk, &format!("/api/v1/streams?{parameters}"));
    assert_eq!(status, 200, "{parameters}: {text}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_stream_of_two_nodes_is_listed_and_counted_once_over_all_pages() {
    let (first, second) = (node(0..6), node(4..9));
    let desk = dispatcher(&[&first, &second]);
    until("both have told their streams", || {
        page(&desk, "limit=0")["total"] == 9
    });
    for search in ["", "&search=pump", "&table=pump"] {
        for limit in [1, 2, 4, 100] {
            let (mut seen, mut after) = (Vec::new(), String::new());
            loop {
                let page = page(&desk, &format!("limit={limit}{search}{after}"));
                assert_eq!(page["total"], 9, "{limit}{search}: {page}");
                assert_eq!(page["tables"][0]["streams"], 9, "{page}");
                let streams = page["streams"].as_array().unwrap();
                assert!(streams.len() <= limit);
                let names = streams.iter().map(|one| one["stream"].as_str().unwrap());
                seen.extend(names.map(str::to_owned));
                let Some(next) = page["next"].as_str() else {
                    break;
                };
                after = format!("&after={}", next.replace(',', "%2C").replace('=', "%3D"));
            }
            let once: BTreeSet<&String> = seen.iter().collect();
            assert_eq!(
                (seen.len(), once.len()),
                (9, 9),
                "{limit}{search}: {seen:?}"
            );
        }
    }
    let (status, text) = get(&desk, "/api/v1/streams?limit=2&after=pump,id%3Dgone");
    assert!(status == 400 && text.contains("E_PARAMETER"), "{text}");
}
