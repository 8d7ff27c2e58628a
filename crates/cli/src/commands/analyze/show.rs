//! Output of `analyze`.

use crate::grid::grouped;
use crate::late::{CandidateStats, PaperStats, candidates_text, paper_text};
use headwater::late::{Candidate, StudyReport};
use headwater_wire::durations::format_duration_ns;
use serde::Serialize;
use std::fmt::Write as _;

/// Characters of the longest bar.
const BAR: usize = 60;

/// The result for programs.
#[derive(Serialize)]
pub(super) struct StudyStats {
    events: u64,
    devices: u64,
    out_of_order_inside: u64,
    out_of_order_across: u64,
    interval_ns: f64,
    memory_events: f64,
    delays: Vec<DelayStats>,
    autocorrelation: Vec<LagStats>,
    candidates: Vec<CandidateStats>,
    advice: Option<String>,
    leaf_events: Option<u32>,
    paper: Option<PaperStats>,
}

#[derive(Serialize)]
struct DelayStats {
    share: f64,
    ns: f64,
}

#[derive(Serialize)]
struct LagStats {
    lag: usize,
    correlation: f64,
}

impl StudyStats {
    pub(super) fn of(report: &StudyReport) -> StudyStats {
        let best = advised(report);
        StudyStats {
            events: report.events,
            devices: report.streams,
            out_of_order_inside: report.out_of_order_inside,
            out_of_order_across: report.out_of_order_across,
            interval_ns: report.interval_ns,
            memory_events: report.memory_events,
            delays: report
                .delays
                .iter()
                .map(|(share, ns)| DelayStats {
                    share: *share,
                    ns: *ns,
                })
                .collect(),
            autocorrelation: report
                .autocorrelation
                .iter()
                .map(|(lag, correlation)| LagStats {
                    lag: *lag,
                    correlation: *correlation,
                })
                .collect(),
            candidates: report.candidates.iter().map(CandidateStats::of).collect(),
            advice: best.map(|c| c.policy.to_string()),
            leaf_events: best.map(|c| c.leaf_events),
            paper: report.paper.map(PaperStats::of),
        }
    }
}

/// The best candidate; the one that a shard begins with, where nothing is 2 % better.
fn advised(report: &StudyReport) -> Option<Candidate> {
    let best = report.candidates.first()?;
    let first = report
        .candidates
        .iter()
        .find(|r| r.candidate == report.first)?;
    Some(if best.cost < first.cost * 0.98 {
        best.candidate
    } else {
        first.candidate
    })
}

/// The result for people.
pub(super) fn text(report: &StudyReport) -> String {
    let mut out = String::new();
    let percent = |count: u64| count as f64 * 100.0 / report.events.max(1) as f64;
    let _ = writeln!(
        out,
        "{} events of {} devices; out of order inside a device {:.4} %, across devices {:.4} %",
        grouped(report.events),
        grouped(report.streams),
        percent(report.out_of_order_inside),
        percent(report.out_of_order_across)
    );
    let _ = writeln!(
        out,
        "an event every {} (median); memory for {} events of a device",
        duration(report.interval_ns),
        grouped(report.memory_events as u64)
    );
    if !report.autocorrelation.is_empty() {
        let lags: Vec<String> = report
            .autocorrelation
            .iter()
            .map(|(lag, r)| format!("{r:.2} at {lag}"))
            .collect();
        let _ = writeln!(out, "autocorrelation of delays: {}", lags.join(", "));
    }
    if !report.delay_curve.is_empty() {
        out.push('\n');
        out.push_str(&curve(report));
    }
    if !report.candidates.is_empty() {
        out.push('\n');
        out.push_str(&candidates_text(report.first, &report.candidates));
        out.push_str("* the policy of a new database\n");
    }
    if let Some((n, advice)) = report.paper {
        let _ = writeln!(out, "\n{}", paper_text(n, &advice));
    }
    if let Some(best) = advised(report) {
        let _ = writeln!(
            out,
            "advice: {} with leaves of {} events; `adaptive` finds it by itself",
            best.policy, best.leaf_events
        );
    }
    out
}

fn duration(ns: f64) -> String {
    // Three digits are enough.
    let digits = ns.abs().max(1.0).log10().floor() - 2.0;
    let unit = 10f64.powf(digits.max(0.0));
    format_duration_ns((ns / unit).round() as i64 * unit as i64)
}

/// Delays, each with the share of events that exceed it; bars are logarithmic.
fn curve(report: &StudyReport) -> String {
    let mut rows: Vec<(f64, f64)> = Vec::new();
    for decade in 0..8 {
        for digit in [5.0, 2.0, 1.0] {
            let share = digit * 10f64.powi(-decade - 1);
            if share * report.events as f64 >= 1.0 {
                let nearest = report.delay_curve.iter().min_by(|a, b| {
                    (a.0 / share)
                        .ln()
                        .abs()
                        .total_cmp(&(b.0 / share).ln().abs())
                });
                rows.extend(nearest.map(|(_, delay)| (share, *delay)));
            }
        }
    }
    let positive = || rows.iter().map(|r| r.1).filter(|d| *d > 0.0);
    let (low, high) = (
        positive().fold(f64::INFINITY, f64::min) / 2.0,
        positive().fold(1.0, f64::max),
    );
    let mut out = String::from("  share of events with a longer delay\n");
    for (share, delay) in rows {
        let length = if delay > 0.0 && high > low {
            ((delay / low).ln() / (high / low).ln() * BAR as f64).round() as usize
        } else {
            0
        };
        let percent = (share * 1e8).round() / 1e6;
        let _ = writeln!(
            out,
            "{percent:>10} %  {:>10}  {}",
            duration(delay),
            "█".repeat(length.clamp(usize::from(delay > 0.0), BAR))
        );
    }
    out
}
