//! A copy as a database to read.

use super::Inner;
use super::plan::CopyView;
use crate::core::Core;
use crate::open::recover::assemble;
use crate::storage::segment::StoreCache;
use crate::{Options, Result};

/// Opens the present contents of a copy.
pub(super) fn open(copy: &Inner, options: &Options, cache: &StoreCache) -> Result<Core> {
    let looked = CopyView::at(copy);
    if !looked.has_tail() {
        return opened(copy, options, cache, looked);
    }
    match opened(copy, options, cache, looked) {
        Err(error) => {
            tracing::warn!(%error, "cannot read the tail of newest events; it is ignored");
            copy.receiving.lock().drop_tail();
            opened(copy, options, cache, CopyView::at(copy))
        }
        core => core,
    }
}

fn opened(copy: &Inner, options: &Options, cache: &StoreCache, looked: CopyView) -> Result<Core> {
    Ok(assemble(looked.plan(copy, options, cache)?)?.0)
}
