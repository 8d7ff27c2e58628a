//! `headwater edges certificates`: which edges have the next certificates of their cloud.

use crate::commands::sync::{ListFormat, ago};
use crate::failure::Failure;
use crate::grid::{Heading, render};
use crate::output::{print, print_json};
use headwater_cluster::{EdgeStatus, NextCaState};
use serde_json::json;

/// State in words.
fn text(state: NextCaState) -> &'static str {
    match state {
        NextCaState::Has => "has it",
        NextCaState::Lacks => "lacks it",
        NextCaState::System => "goes by the certificates of its system",
        NextCaState::Plaintext => "has no TLS",
        NextCaState::Unknown => "not known: it has not answered since this node was started",
    }
}

/// Lists the edges with their states, and says whether the former certificate may go.
pub(super) fn list(edges: &[EdgeStatus], format: ListFormat) -> Result<(), Failure> {
    let states = edges
        .iter()
        .filter_map(|edge| Some((edge, edge.next_ca?)))
        .collect::<Vec<_>>();
    let open = states.iter().filter(|(_, state)| state.is_open()).count();
    if format == ListFormat::Json {
        let listed = states.iter().map(|(edge, state)| {
            json!({ "edge": edge.name, "next_ca": state, "state": edge.state, "heard_ns": edge.heard_ns.map(|ns| ns.to_string()) })
        });
        let listed: Vec<_> = listed.collect();
        return print_json(&json!({ "edges": listed, "open": open }));
    }
    if states.is_empty() {
        eprintln!(
            "headwater: this cloud announces no next certificates, or has no edges: tls.next_ca names them"
        );
        return Ok(());
    }
    let headings = [
        Heading::text("edge"),
        Heading::text("state"),
        Heading::text("heard"),
        Heading::text("next certificate"),
    ];
    let rows = states.iter().map(|(edge, state)| {
        vec![
            edge.name.clone(),
            edge.state.name().to_owned(),
            ago(edge.heard_ns),
            text(*state).to_owned(),
        ]
    });
    print(&render(&headings, &rows.collect::<Vec<_>>()))?;
    match open {
        0 => eprintln!("headwater: the former certificate of the cloud may go"),
        _ => eprintln!(
            "headwater: {open} of {} edges may refuse the next certificate: keep the former one until they have it",
            states.len()
        ),
    }
    Ok(())
}
