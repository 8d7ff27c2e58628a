//! The outside world of Headwater: files, clocks, randomness and threads, as traits with their back
//! ends.
//!
//! Purpose: the only crate of the product that uses any of these directly, so that the engine can
//! run on a machine, in memory, or on a simulated disk that loses power ([`FaultyFiles`]).
//! Invariants: every back end of [`Files`] passes [`conformance::check_files`]; this crate knows no
//! file format. Concurrency: all types are `Send + Sync` and take `&self`. Failure: errors of the
//! medium are returned as [`std::io::Error`]; errors are neither logged nor retried, except
//! interruptions.
//!
//! | Part | Real | For tests and embedding |
//! |---|---|---|
//! | [`Files`] | [`SystemFiles`], [`UringFiles`], [`PmemFiles`] | [`MemoryFiles`], [`FaultyFiles`], [`PmemModel`] |
//! | [`Clock`] | [`SystemClock`] | [`ManualClock`] |
//! | [`Chance`] | [`SystemChance`] | [`SeededChance`] |
//! | [`Threads`] | [`SystemThreads`] | [`NoThreads`] |
#![allow(
    clippy::disallowed_methods,
    reason = "this is the crate that reaches the machine"
)]

mod chance;
mod clock;
pub mod conformance;
mod env;
mod faulty;
mod files;
mod lock;
mod media;
mod memfs;
mod memory;
mod pmem;
mod pmem_model;
pub mod queue;
mod request;
mod system;
mod threads;
mod tree;
mod uring;

pub use chance::{Chance, SeededChance, SystemChance};
pub use clock::{Clock, ManualClock, SystemClock};
pub use env::Env;
pub use faulty::{FaultKind, FaultyFiles, SECTOR_BYTES, Survival, WORD_BYTES};
pub use files::{File, Files, OpenMode};
pub use lock::{Lock, LockError};
pub use media::Media;
pub use memory::MemoryFiles;
pub use pmem::{PmemFiles, Standing};
pub use pmem_model::{PmemCosts, PmemModel};
pub use request::{Completer, Completion};
pub use system::SystemFiles;
pub use threads::{Joiner, NoThreads, SystemThreads, Threads};
pub use uring::{UringFiles, UringRefused};
