//! A command in progress: a part for each affected set, and one answer when all are done.
//!
//! Invariants: every part is completed once, also when it is refused, dropped, or panics; the last
//! one answers. Concurrency: parts are carried out in parallel; a set's store is locked while its
//! part runs. Failure: the first error of a part is the command's.

use std::io;
use std::sync::Arc;

use headwater_io::queue::Work;
use parking_lot::Mutex;

use super::command::{Answer, Command, Extent};
use crate::layout::Layout;
use crate::numbers::index;
use crate::store::SetStore;

/// Called once with the answer, on the thread of the last set.
pub(super) type Answered = Box<dyn FnOnce(io::Result<Answer>) + Send>;

/// State that the parts of a command share.
pub(super) struct Joint {
    layout: Layout,
    command: Command,
    state: Mutex<JointState>,
}

struct JointState {
    remaining: usize,
    error: Option<io::Error>,
    data: Vec<u8>,
    /// Runs by their distance from the start of the range.
    runs: Vec<(u64, Extent)>,
    answered: Option<Answered>,
}

impl Joint {
    pub(super) fn new(layout: Layout, command: Command, parts: usize, answered: Answered) -> Joint {
        let data = match &command {
            Command::Read { length, .. } => vec![0; index(*length)],
            _ => Vec::new(),
        };
        Joint {
            layout,
            command,
            state: Mutex::new(JointState {
                remaining: parts,
                error: None,
                data,
                runs: Vec::new(),
                answered: Some(answered),
            }),
        }
    }

    /// A part is done; the last one answers.
    fn done(&self, result: io::Result<()>) {
        let mut state = self.state.lock();
        assert!(state.remaining > 0, "every part is done once");
        state.remaining -= 1;
        if let Err(error) = result {
            state.error.get_or_insert(error);
        }
        let is_last = state.remaining == 0;
        drop(state);
        if is_last {
            self.answer();
        }
    }

    pub(super) fn answer(&self) {
        let mut state = self.state.lock();
        let answered = state.answered.take();
        let answer = match state.error.take() {
            Some(error) => Err(error),
            None => Ok(match self.command {
                Command::Read { .. } => Answer::Data(std::mem::take(&mut state.data)),
                Command::Status { .. } => Answer::Extents(merged(std::mem::take(&mut state.runs))),
                _ => Answer::Done,
            }),
        };
        drop(state);
        if let Some(answered) = answered {
            answered(answer);
        }
    }

    /// Carries the command out for one set.
    fn carry_out(&self, store: &Mutex<SetStore>, set: u32) -> io::Result<()> {
        let (offset, length) = self.command.range();
        let mut store = store.lock();
        let ranges = self.layout.ranges(offset, length);
        for range in ranges.filter(|range| range.set == set) {
            let within = index(range.within)..index(range.within.saturating_add(range.length));
            match &self.command {
                Command::Read { .. } if range.length == length => {
                    let mut data = std::mem::take(&mut self.state.lock().data);
                    let read = store.read(range.offset, &mut data);
                    self.state.lock().data = data;
                    read?;
                }
                Command::Read { .. } => {
                    let mut data = vec![0; index(range.length)];
                    store.read(range.offset, &mut data)?;
                    if let Some(to) = self.state.lock().data.get_mut(within) {
                        to.copy_from_slice(&data);
                    }
                }
                Command::Write { data, .. } => {
                    store.write(range.offset, data.get(within).unwrap_or(&[]))?;
                }
                Command::Zero { keeps_space, .. } => {
                    store.zero(range.offset, range.length, *keeps_space)?;
                }
                Command::Trim { .. } => store.trim(range.offset, range.length)?,
                Command::Status { .. } => {
                    let mut within = range.within;
                    let runs = store.status(range.offset, range.length);
                    let mut state = self.state.lock();
                    for (length, is_written) in runs {
                        state.runs.push((within, Extent { length, is_written }));
                        within += length;
                    }
                }
                Command::Flush => {}
            }
        }
        if self.command.is_durable() {
            store.commit()?;
        }
        Ok(())
    }
}

/// Runs in order, with adjacent runs of the same kind joined.
fn merged(mut runs: Vec<(u64, Extent)>) -> Vec<Extent> {
    runs.sort_unstable_by_key(|(within, _)| *within);
    let mut out: Vec<Extent> = Vec::new();
    for (_, run) in runs {
        match out.last_mut() {
            Some(last) if last.is_written == run.is_written => last.length += run.length,
            _ => out.push(run),
        }
    }
    out
}

/// The part of a command in one set.
pub(super) struct CommandPart {
    pub(super) store: Arc<Mutex<SetStore>>,
    pub(super) set: u32,
    /// The command; `None` = this part is done.
    pub(super) joint: Option<Arc<Joint>>,
}

impl Work for CommandPart {
    fn carry_out(mut self) {
        // Removed only afterwards: if this panics, dropping it answers.
        if let Some(joint) = self.joint.clone() {
            let result = joint.carry_out(&self.store, self.set);
            self.joint = None;
            joint.done(result);
        }
    }

    fn refuse(mut self, why: io::Error) {
        if let Some(joint) = self.joint.take() {
            joint.done(Err(why));
        }
    }
}

impl Drop for CommandPart {
    fn drop(&mut self) {
        if let Some(joint) = self.joint.take() {
            joint.done(Err(io::Error::other("a request was dropped")));
        }
    }
}
