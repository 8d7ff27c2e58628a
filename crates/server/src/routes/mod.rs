//! The routes, one file for each kind.

pub(crate) mod health;
