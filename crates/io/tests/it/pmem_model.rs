//! The model of persistent memory passes the conformance tests, and takes at least the time it
//! says.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater_io::{File, Files, MemoryFiles, OpenMode, PmemCosts, PmemModel, conformance};

fn model(costs: PmemCosts) -> PmemModel {
    PmemModel::new(Arc::new(MemoryFiles::new()), costs)
}

/// A device so slow that one call can be seen.
const SLOW: PmemCosts = PmemCosts {
    random_read: Duration::from_millis(20),
    sequential_read: Duration::from_millis(3),
    write: Duration::from_millis(5),
    read_bandwidth: 1e6,
    write_bandwidth: 1e5,
    block_bytes: 256,
};

fn file(costs: PmemCosts) -> Arc<dyn File> {
    model(costs)
        .open(Path::new("/a"), OpenMode::CreateNew)
        .unwrap()
}

/// At least so long; more is what a busy machine takes.
fn takes(least: Duration, call: impl FnOnce()) {
    let from = Instant::now();
    call();
    let took = from.elapsed();
    assert!(took >= least, "{took:?} instead of {least:?}");
}

#[test]
fn the_model_of_persistent_memory_passes_the_conformance_tests() {
    conformance::check_files(
        || Arc::new(model(PmemCosts::OPTANE)),
        Path::new("/conformance"),
    )
    .unwrap();
}

#[test]
fn a_call_takes_the_latency_and_the_time_of_whole_blocks() {
    let file = file(SLOW);
    // 1 and 257 bytes are two blocks and three: the second call begins in the middle of one.
    takes(Duration::from_micros(5_000 + 2_560), || {
        file.write_all_at(0, &[1]).unwrap();
    });
    takes(Duration::from_micros(5_000 + 3 * 2_560), || {
        file.write_all_at(255, &[1; 258]).unwrap();
    });
    let mut buf = [0; 256];
    takes(Duration::from_micros(3_000 + 256), || {
        file.read_exact_at(0, &mut buf).unwrap();
    });
    takes(Duration::from_micros(3_000 + 256), || {
        file.read_exact_at(256, &mut buf).unwrap();
    });
    takes(Duration::from_micros(20_000 + 256), || {
        file.read_exact_at(0, &mut buf).unwrap();
    });
}

#[test]
fn threads_share_the_bandwidth() {
    let file = file(SLOW);
    takes(Duration::from_micros(8 * 2_560 + 5_000), || {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let file = &file;
                scope.spawn(move || file.write_all_at(thread * 256, &[1; 256]).unwrap());
            }
        });
    });
}
