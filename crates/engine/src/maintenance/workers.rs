//! Starts the threads of an open database.
//!
//! Invariants: a thread that panics latches the database; when one cannot be started, the earlier
//! ones are in the list.

use crate::core::Core;
use crate::maintenance::schedule::{compaction_worker, flush_worker, log_worker, mirror_worker};
use crate::{Error, Result};
use headwater_io::Joiner;
use std::sync::Arc;

pub(crate) fn spawn_workers(core: &Arc<Core>, threads: &mut Vec<Box<dyn Joiner>>) -> Result<()> {
    let mut spawn = |name: String, body: Box<dyn FnOnce(&Core) + Send>| -> Result<()> {
        let shared = Arc::clone(core);
        let guarded = Box::new(move || {
            // A worker that panics must not leave writers waiting for it.
            let latch = shared.log.latch_on_panic("ran a maintenance job");
            body(&shared);
            drop(latch);
        });
        let joiner = core.env.threads.spawn(&name, guarded).map_err(|e| {
            Error::new(
                crate::ErrorKind::Io,
                format!("cannot start thread {name}: {e}"),
            )
        })?;
        threads.extend(joiner);
        Ok(())
    };
    for index in core.shards.indices() {
        spawn(
            format!("hw-flush-{}", index.0),
            Box::new(move |core| flush_worker(core, index)),
        )?;
    }
    spawn("hw-compact".into(), Box::new(compaction_worker))?;
    spawn("hw-log".into(), Box::new(log_worker))?;
    if let Some(interval) = core.options.log_mirror {
        let body = move |core: &Core| mirror_worker(core, interval);
        spawn("hw-mirror".into(), Box::new(body))?;
    }
    core.signals.set_threads(!threads.is_empty());
    Ok(())
}
