//! Stub of the kernel queue for systems without one.
//!
//! Invariants: no value of [`Ring`] exists. Concurrency: none. Failure: [`Ring::new`] always fails.

use std::io;

use super::UringRefused;
use super::flight::Flight;
use crate::request::{Driven, Turn, Turns};

/// The queue that this machine has not.
#[derive(Debug)]
pub(super) enum Ring {}

impl Ring {
    pub(super) fn new() -> Result<Ring, UringRefused> {
        Err(UringRefused::NotHere)
    }

    pub(super) fn submit(&self, _flight: Flight) -> Result<(), Flight> {
        match *self {}
    }
}

impl Driven for Ring {
    fn turns(&self) -> &Turns {
        match *self {}
    }

    fn usable(&self) -> io::Result<()> {
        match *self {}
    }

    fn answer(&self, _turn: &Turn<'_>, _wait: bool) -> io::Result<()> {
        match *self {}
    }
}
