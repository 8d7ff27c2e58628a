//! Where a sweep of power cuts cuts: at every operation when asked (`HEADWATER_CRASH_EVERY=1`),
//! else at every so many, beginning at one that depends on the sources of the engine. So one change
//! always gets the same verdict, and another one looks elsewhere. What survives a cut goes by
//! seeds, more of them when asked (`HEADWATER_CRASH_SEEDS`, from `HEADWATER_CRASH_FIRST_SEED` on).
//!
//! `make soak` asks so, of the tests whose names contain `crash` or `power_cut`; `tidy` sees that
//! every test which cuts the power has such a name.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else {
            out.push(path);
        }
    }
}

/// A number made of what stands in the sources (FNV-1a).
fn change() -> u64 {
    static CHANGE: OnceLock<u64> = OnceLock::new();
    *CHANGE.get_or_init(|| {
        let mut files = Vec::new();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        sources(&root, &mut files);
        files.sort();
        assert!(files.len() > 50, "{files:?}");
        let bytes = files.iter().flat_map(|file| std::fs::read(file).unwrap());
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    })
}

/// A number from the environment.
pub(crate) fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is a number, found {text:?}")))
}

/// The operations to cut at: every so many of them, if nothing else is asked for.
pub(crate) fn cuts(operations: u64, usual: u64) -> impl Iterator<Item = u64> {
    let every = variable("HEADWATER_CRASH_EVERY").unwrap_or(usual).max(1);
    (change() % every..operations).step_by(every as usize)
}

/// The states of a disk to try after a cut: so many, if nothing else is asked for. Nothing survives
/// by seed 0, and everything by seed 1, so these two are always among them.
pub(crate) fn seeds(usual: u64) -> impl Iterator<Item = u64> {
    let count = variable("HEADWATER_CRASH_SEEDS");
    let first = variable("HEADWATER_CRASH_FIRST_SEED");
    let (ends, others) = match (count, first) {
        (None, None) => (0..usual.min(2), 2..usual.max(2)),
        _ => {
            let first = first.unwrap_or(2).max(2);
            (0..2, first..first + count.unwrap_or(usual))
        }
    };
    ends.chain(others)
}

#[test]
fn cuts_meet_every_operation_when_asked_and_stay_for_one_change() {
    assert_eq!(cuts(5, 1).count(), 5);
    let some: Vec<u64> = cuts(1000, 10).collect();
    assert_eq!(some, cuts(1000, 10).collect::<Vec<_>>());
    assert_eq!(some.len(), 100);
    assert!([0, 1].into_iter().eq(seeds(3).take(2)));
}
