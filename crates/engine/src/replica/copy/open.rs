//! A copy as a database to read.

use super::Inner;
use super::plan::CopyView;
use crate::core::Core;
use crate::open::recover::assemble;
use crate::{Options, Result};

/// Opens the present contents of a copy.
pub(super) fn open(copy: &Inner, options: &Options) -> Result<Core> {
    let looked = CopyView::at(copy);
    if !looked.has_tail() {
        return opened(copy, options, looked);
    }
    match opened(copy, options, looked) {
        Err(error) => {
            tracing::warn!(%error, "what was sent along of newest events cannot be shown: it is left out");
            copy.receiving.lock().tail.drop_all();
            opened(copy, options, CopyView::at(copy))
        }
        core => core,
    }
}

fn opened(copy: &Inner, options: &Options, looked: CopyView) -> Result<Core> {
    Ok(assemble(looked.plan(copy, options)?)?.0)
}
