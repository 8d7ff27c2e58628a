//! Policies for late data as `stat --late` and `analyze` show them.

use crate::grid::{Heading, grouped, render};
use headwater::late::{Algorithm1, Candidate, Ranked};
use headwater::{MergeScope, Split};
use serde::Serialize;

/// A candidate with what it would write.
#[derive(Serialize)]
pub(crate) struct CandidateStats {
    policy: String,
    leaf_events: u32,
    wa_predicted: f64,
    wa_replayed: Option<f64>,
    cost: f64,
}

impl CandidateStats {
    pub(crate) fn of(ranked: &Ranked) -> CandidateStats {
        CandidateStats {
            policy: ranked.candidate.policy.to_string(),
            leaf_events: ranked.candidate.leaf_events,
            wa_predicted: ranked.predicted,
            wa_replayed: ranked.replayed,
            cost: ranked.cost,
        }
    }
}

/// The paper's Algorithm 1, under the paper's names.
#[derive(Serialize)]
pub(crate) struct PaperStats {
    n: u32,
    n_seq: Option<u32>,
    r_c: f64,
    r_s: f64,
}

impl PaperStats {
    pub(crate) fn of((n, advice): (u32, Algorithm1)) -> PaperStats {
        PaperStats {
            n,
            n_seq: advice.n_seq,
            r_c: advice.r_c,
            r_s: advice.r_s,
        }
    }
}

/// Text of the paper's Algorithm 1.
pub(crate) fn paper_text(n: u32, advice: &Algorithm1) -> String {
    let advised = match advice.n_seq {
        Some(n_seq) => format!("separate with n_seq = {n_seq}"),
        None => "do not separate".to_owned(),
    };
    format!(
        "the paper's Algorithm 1 with n = {n}: {advised} (r_c = {:.3}, r_s = {:.3})",
        advice.r_c, advice.r_s
    )
}

/// Every candidate, the least cost first; the one in force has a star.
pub(crate) fn candidates_text(in_force: Candidate, candidates: &[Ranked]) -> String {
    let headings = [
        Heading::text(""),
        Heading::text("memory"),
        Heading::number("kept back"),
        Heading::text("merges"),
        Heading::number("leaf"),
        Heading::number("predicted"),
        Heading::number("replayed"),
        Heading::number("cost"),
    ];
    let rows: Vec<Vec<String>> = candidates
        .iter()
        .map(|ranked| {
            let policy = &ranked.candidate.policy;
            vec![
                if ranked.candidate == in_force {
                    "*"
                } else {
                    ""
                }
                .to_owned(),
                match policy.split {
                    Split::Conventional => "one buffer".to_owned(),
                    Split::Separate { flank_share } => {
                        format!("{:.0} % in order", flank_share * 100.0)
                    }
                },
                grouped(u64::from(policy.retain_events)),
                match policy.merge_scope {
                    MergeScope::Touched => "touched",
                    MergeScope::Overlap => "overlap",
                }
                .to_owned(),
                ranked.candidate.leaf_events.to_string(),
                format!("{:.3}", ranked.predicted),
                ranked.replayed.map_or(String::new(), |r| format!("{r:.3}")),
                format!("{:.3}", ranked.cost),
            ]
        })
        .collect();
    render(&headings, &rows)
}
