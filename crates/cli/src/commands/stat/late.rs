//! `headwater stat --late`: what is known of late events, and decided.

use crate::grid::{Heading, grouped, render};
use crate::late::{CandidateStats, PaperStats, candidates_text, paper_text};
use headwater::late::Decision;
use headwater::{LateReport, ShardLateReport};
use serde::Serialize;
use std::fmt::Write as _;

/// The report for programs.
#[derive(Serialize)]
pub(super) struct LateStats {
    late_merge_interval_seconds: Option<f64>,
    shards: Vec<ShardStats>,
}

#[derive(Serialize)]
struct ShardStats {
    policy: String,
    adaptive: bool,
    leaf_events: u32,
    events_seen: u64,
    late_share: f64,
    lateness: Vec<Quantile>,
    memory_events: f64,
    wa_measured: Option<f64>,
    merges_measured: Option<u64>,
    candidates: Vec<CandidateStats>,
    decisions: Vec<DecisionStats>,
    paper: Option<PaperStats>,
}

#[derive(Serialize)]
struct Quantile {
    share: f64,
    events: f64,
}

#[derive(Serialize)]
struct DecisionStats {
    at_events: u64,
    from: String,
    to: String,
    wa_from: f64,
    wa_to: f64,
    reason: String,
}

impl LateStats {
    pub(super) fn of(report: &LateReport) -> LateStats {
        LateStats {
            late_merge_interval_seconds: report.late_merge_interval.map(|i| i.as_secs_f64()),
            shards: report.shards.iter().map(ShardStats::of).collect(),
        }
    }
}

impl ShardStats {
    fn of(shard: &ShardLateReport) -> ShardStats {
        ShardStats {
            policy: shard.in_force.policy.to_string(),
            adaptive: shard.adaptive,
            leaf_events: shard.in_force.leaf_events,
            events_seen: shard.events,
            late_share: shard.late_share,
            lateness: shard
                .quantiles
                .iter()
                .map(|(share, events)| Quantile {
                    share: *share,
                    events: *events,
                })
                .collect(),
            memory_events: shard.memory_events,
            wa_measured: shard.measured.map(|m| m.0),
            merges_measured: shard.measured.map(|m| m.1),
            candidates: shard.candidates.iter().map(CandidateStats::of).collect(),
            decisions: shard
                .decisions
                .iter()
                .map(|d| DecisionStats {
                    at_events: d.at_events,
                    from: d.from.to_string(),
                    to: d.to.to_string(),
                    wa_from: d.expected_from,
                    wa_to: d.expected_to,
                    reason: d.reason.to_string(),
                })
                .collect(),
            paper: shard.paper.map(PaperStats::of),
        }
    }
}

/// The report for people.
pub(super) fn text(report: &LateReport) -> String {
    let mut out = String::new();
    for (number, shard) in report.shards.iter().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        shard_text(&mut out, number, shard);
    }
    if let Some(interval) = report.late_merge_interval {
        let _ = writeln!(
            out,
            "\nLate events that do not fill their buffer are merged after {} s.",
            interval.as_secs()
        );
    }
    out
}

fn shard_text(out: &mut String, number: usize, shard: &ShardLateReport) {
    let who = if shard.adaptive { "adaptive" } else { "fixed" };
    let _ = writeln!(out, "shard {number}: {} ({who})", shard.in_force);
    if shard.events == 0 {
        out.push_str("  nothing seen yet\n");
        return;
    }
    let _ = writeln!(
        out,
        "  {} events seen; lately {:.3} % late{}",
        grouped(shard.events),
        shard.late_share * 100.0,
        lateness_text(&shard.quantiles)
    );
    if shard.memory_events > 0.0 {
        let _ = writeln!(
            out,
            "  memory for {} events of a stream",
            grouped(shard.memory_events.round() as u64)
        );
    }
    if let Some((measured, merges)) = shard.measured {
        let _ = writeln!(
            out,
            "  {measured:.3} events written per event stored since, in {} merges",
            grouped(merges)
        );
    }
    if let Some((n, advice)) = shard.paper {
        let _ = writeln!(out, "  {}", paper_text(n, &advice));
    }
    if !shard.candidates.is_empty() {
        out.push('\n');
        out.push_str(&candidates_text(shard.in_force, &shard.candidates));
    }
    if !shard.decisions.is_empty() {
        out.push('\n');
        out.push_str(&decisions_text(&shard.decisions));
    }
}

fn lateness_text(quantiles: &[(f64, f64)]) -> String {
    let known: Vec<String> = quantiles
        .iter()
        .filter(|(_, events)| *events > 0.0)
        .map(|(share, events)| {
            let percent = (share * 1e6).round() / 1e4;
            format!("{percent} % by at most {}", grouped(events.ceil() as u64))
        })
        .collect();
    if known.is_empty() {
        String::new()
    } else {
        format!("; {} events", known.join(", "))
    }
}

fn decisions_text(decisions: &[Decision]) -> String {
    let headings = [
        Heading::number("at event"),
        Heading::text("from"),
        Heading::text("to"),
        Heading::number("expected"),
        Heading::number("then"),
        Heading::text("because it was"),
    ];
    let rows: Vec<Vec<String>> = decisions
        .iter()
        .map(|decision| {
            vec![
                grouped(decision.at_events),
                decision.from.to_string(),
                decision.to.to_string(),
                format!("{:.3}", decision.expected_from),
                format!("{:.3}", decision.expected_to),
                decision.reason.to_string(),
            ]
        })
        .collect();
    render(&headings, &rows)
}
