//! What the fuzz targets check, on their kept inputs and on bytes changed from a seed: so that
//! every test run does some of it.

use crate::support::Dice;
use headwater_block::fuzzing;
use std::path::Path;

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let mut paths: Vec<_> = std::fs::read_dir(folder.join(target))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

fn changed(bytes: &[u8], dice: &Dice) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..1 + dice.below(4) {
        let at = dice.below(out.len() as u64 + 1) as usize;
        match dice.below(4) {
            0 => out.truncate(at),
            1 => out.insert(at, dice.below(256) as u8),
            _ if at < out.len() => out[at] = [0, 1, 0x7f, 0xff, dice.below(256) as u8][at % 5],
            _ => {}
        }
    }
    out
}

#[test]
fn decoders_hold_their_laws_on_changed_inputs() {
    let dice = Dice::new(21);
    let (devices, clients) = (seeds("block_device"), seeds("nbd_client"));
    assert!(devices.len() >= 5 && clients.len() >= 4);
    for round in 0..4000 {
        for seed in &devices {
            let seed = if round == 0 {
                seed.clone()
            } else {
                changed(seed, &dice)
            };
            if let Some((mode, rest)) = seed.split_first() {
                fuzzing::device(rest, mode & 1 == 1);
            }
        }
        for seed in &clients {
            let seed = if round == 0 {
                seed.clone()
            } else {
                changed(seed, &dice)
            };
            fuzzing::client(&seed);
        }
    }
}
