//! Processes that connect with the key of one edge: finds out that two of them run at once, as when
//! the disk of a gateway was copied and both disks were started.
//!
//! Invariants: each process draws a number when it starts, so a process that connects again after
//! another one did still runs, and then two run at once. At most one of them is served; of the
//! others nothing is accepted, and they are refused until they begin anew. A refused process never
//! ends the connection of the one that is served. Concurrency: plain data under the lock of the
//! copy. Failure: all of it is forgotten with the node, and found out again.

use std::collections::VecDeque;

/// Most processes that are remembered.
const PROCESSES_MAX: usize = 16;

/// Advice that ends the situation.
const ADVICE: &str = "To keep both, add another edge at the cloud (`headwater edges add NAME`), and run `headwater join INVITATION --new-incarnation` on the machine that is refused; to keep one, stop the other. Rows that the cloud has confirmed stay in answers in either case";

/// Reason why a process is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// Its database has another history than the copy.
    History,
    /// Another process is served, whose database may be the same.
    OtherIsServed,
}

#[derive(Clone, Debug)]
struct RefusedProcess {
    process: u64,
    reason: Reason,
    text: String,
}

/// Processes that have connected with one key.
#[derive(Debug, Default)]
pub(crate) struct EdgeProcesses {
    served: Option<u64>,
    /// Processes that were served before, oldest first.
    before: VecDeque<u64>,
    refused: VecDeque<RefusedProcess>,
    /// A refused process that is connected.
    waiting: Option<u64>,
}

fn bound<T>(all: &mut VecDeque<T>) {
    while all.len() > PROCESSES_MAX {
        all.pop_front();
    }
}

impl EdgeProcesses {
    /// Serves the connection of a process from now on; `None` = its version draws no number.
    pub(crate) fn serve(&mut self, process: Option<u64>) {
        let other = std::mem::replace(&mut self.served, process);
        let (Some(process), Some(other)) = (process, other) else {
            return;
        };
        if process == other {
            return;
        }
        let still_runs = self.before.contains(&process);
        self.before.retain(|known| *known != process);
        self.before.push_back(other);
        bound(&mut self.before);
        if still_runs && self.refusal_of(other).is_none() {
            // Which of the two has the history of the copy comes out later.
            self.refuse(other, Reason::OtherIsServed, "");
        }
    }

    fn refuse(&mut self, process: u64, reason: Reason, text: &str) {
        self.forgive(process);
        self.refused.push_back(RefusedProcess {
            process,
            reason,
            text: text.to_owned(),
        });
        bound(&mut self.refused);
    }

    /// Refuses the process that is served, since its history is not that of the copy. Processes
    /// that were refused in its favour are served again.
    pub(crate) fn refuse_served(&mut self, text: &str) {
        self.has_ended();
        if let Some(process) = self.served {
            self.refuse(process, Reason::History, text);
        }
    }

    /// The copy begins anew with the process that is served: no other one continues it.
    pub(crate) fn begin_anew(&mut self) {
        if let Some(process) = self.served {
            self.forgive(process);
            for other in self.before.clone() {
                let text = "another machine has begun this edge anew";
                self.refuse(other, Reason::History, text);
            }
        }
    }

    /// Serves a process again that was refused.
    pub(crate) fn forgive(&mut self, process: u64) {
        self.refused.retain(|known| known.process != process);
    }

    /// The connection of the process that was served has ended: another one may have the same
    /// database.
    pub(crate) fn has_ended(&mut self) {
        let remains = |known: &RefusedProcess| known.reason == Reason::History;
        self.refused.retain(remains);
    }

    /// Sets the refused process that is connected.
    pub(crate) fn set_waiting(&mut self, process: Option<u64>) {
        self.waiting = process;
    }

    fn refusal_of(&self, process: u64) -> Option<&RefusedProcess> {
        self.refused.iter().find(|known| known.process == process)
    }

    /// True for a process that is refused.
    pub(crate) fn is_refused(&self, process: u64) -> bool {
        self.refusal_of(process).is_some()
    }

    /// Reason why the refused process that is connected is refused; `is_serving`: another one is
    /// connected.
    pub(crate) fn refusal(&self, is_serving: bool) -> Option<String> {
        let refused = self.refusal_of(self.waiting?)?;
        let process = refused.process;
        let history = match refused.text.is_empty() {
            true => String::new(),
            false => format!(" ({})", refused.text),
        };
        Some(match is_serving {
            true => format!(
                "two machines use the key of this edge at once, probably since its disk was copied; this one, process {process:016x}, is refused{history}. {ADVICE}"
            ),
            false => refused.text.clone(),
        })
    }

    /// Report for the cloud, and for the process that is served, while a refused one is connected,
    /// too.
    pub(crate) fn warning(&self) -> Option<String> {
        let refused = self.refusal_of(self.waiting?)?.process;
        let served = self.served?;
        Some(format!(
            "two machines use the key of this edge at once, probably since its disk was copied: process {served:016x} is served, and process {refused:016x} is refused (`headwater sync status` at each of them shows which it is). {ADVICE}"
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Processes that have connected, in this order.
    fn connected(order: &[u64]) -> EdgeProcesses {
        let mut all = EdgeProcesses::default();
        for process in order {
            all.serve(Some(*process));
        }
        all
    }

    #[test]
    fn a_restart_is_one_process_after_another_and_a_return_makes_two() {
        let mut all = connected(&[1, 2, 3, 3]);
        assert!((1..=3).all(|process| !all.is_refused(process)));
        all.serve(Some(2));
        assert!(all.is_refused(3) && !all.is_refused(2));
        assert_eq!(all.warning(), None, "it is not connected");
        all.set_waiting(Some(3));
        let told = all.refusal(true).unwrap();
        assert!(
            told.contains("process 0000000000000003, is refused"),
            "{told}"
        );
        let warning = all.warning().unwrap();
        assert!(warning.contains("0000000000000002 is served"), "{warning}");
        assert!(warning.contains("0000000000000003 is refused"), "{warning}");
        for text in [&told, &warning] {
            assert!(text.contains("edges add") && text.len() < 1024, "{text}");
        }
        all.set_waiting(None);
        assert_eq!((all.warning(), all.refusal(true)), (None, None));
    }

    #[test]
    fn the_process_with_the_history_of_the_copy_is_served_whoever_came_last() {
        let mut all = connected(&[1, 2, 1]);
        assert!(all.is_refused(2));
        // It turns out that the copy is that of the other one.
        all.refuse_served("history");
        assert!(all.is_refused(1) && !all.is_refused(2));
        all.serve(Some(2));
        assert!(all.is_refused(1) && !all.is_refused(2));
        all.set_waiting(Some(1));
        assert!(all.refusal(true).unwrap().contains("(history)"));
        assert_eq!(all.refusal(false).unwrap(), "history");
    }

    #[test]
    fn a_process_without_another_history_goes_on_when_the_other_one_has_ended() {
        let mut all = connected(&[1, 2, 1]);
        all.has_ended();
        assert!(!all.is_refused(2));
        all.serve(Some(2));
        all.refuse_served("history");
        all.has_ended();
        assert!(all.is_refused(2), "its history stays another one");
    }

    #[test]
    fn beginning_anew_refuses_the_processes_before() {
        let mut all = connected(&[1, 2]);
        all.refuse_served("history");
        assert!(all.is_refused(2));
        all.begin_anew();
        assert!(all.is_refused(1) && !all.is_refused(2));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut all = EdgeProcesses::default();
        for process in 0..1_000 {
            all.serve(Some(process));
            all.refuse_served("x");
        }
        assert_eq!(all.refused.len(), PROCESSES_MAX);
        assert_eq!(all.before.len(), PROCESSES_MAX);
        // Versions before draw no number.
        all.serve(None);
        all.set_waiting(Some(999));
        assert_eq!(all.warning(), None);
    }
}
