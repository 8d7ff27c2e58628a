//! The steps of a write, for tests that end it between any two.

use crate::error::{LakeError, Result};
use std::fmt;
use std::sync::Arc;

/// Callback between two steps of a write, with the name of the completed step: false ends the write
/// there without cleanup, as if the process had been killed.
#[derive(Clone, Default)]
pub struct Steps(Option<Arc<dyn Fn(&'static str) -> bool + Send + Sync>>);

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Steps").field(&self.0.is_some()).finish()
    }
}

impl Steps {
    /// Creates steps that call `goes_on`.
    pub fn asking(goes_on: impl Fn(&'static str) -> bool + Send + Sync + 'static) -> Steps {
        Steps(Some(Arc::new(goes_on)))
    }

    pub(crate) fn at(&self, step: &'static str) -> Result<()> {
        match &self.0 {
            Some(goes_on) if !goes_on(step) => Err(LakeError::Stopped(step)),
            _ => Ok(()),
        }
    }
}
