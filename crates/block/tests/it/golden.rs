//! The bytes of a device, which later versions must read. See docs/format/device.md.

use crate::support::{BLOCK, env, open, read, write};
use headwater_block::{Device, DeviceOptions};
use headwater_io::FaultyFiles;
use std::path::{Path, PathBuf};

const FILES: [&str; 3] = ["block.super", "block.set.0", "block.set.1"];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(format!("{name}.txt"))
}

/// Lines of 16 bytes in hexadecimal behind their place; lines of zeros are left out.
fn printed(bytes: &[u8]) -> String {
    let mut out = format!("{} bytes\n", bytes.len());
    for (number, line) in bytes.chunks(16).enumerate() {
        if line.iter().any(|byte| *byte != 0) {
            let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            out.push_str(&format!("{:06x}  {}\n", number * 16, hex.join(" ")));
        }
    }
    out
}

fn parsed(text: &str) -> Vec<u8> {
    let mut lines = text.lines();
    let length = lines.next().unwrap().split_once(' ').unwrap().0;
    let mut out = vec![0; length.parse().unwrap()];
    for line in lines {
        let (at, hex) = line.split_once("  ").unwrap();
        let at = usize::from_str_radix(at, 16).unwrap();
        for (n, byte) in hex.split(' ').enumerate() {
            out[at + n] = u8::from_str_radix(byte, 16).unwrap();
        }
    }
    out
}

/// `UPDATE_GOLDEN=1` writes them anew, which a released format never needs.
#[test]
fn a_device_has_the_bytes_of_the_page_and_they_are_read() {
    let disk = FaultyFiles::new(1);
    let device = open(&disk);
    // Three commits in the first set, so that the first slot was used twice; one in the second.
    for round in 1..4 {
        let block: Vec<u8> = [round; 16].into_iter().chain([0; 4080]).collect();
        write(&device, u64::from(round - 1) * BLOCK * 2, &block).unwrap();
        write(&device, 0, &block).unwrap();
        crate::support::flush(&device).unwrap();
    }
    device.close().unwrap();
    drop(device);
    for name in FILES {
        let found = printed(&disk.read_file(format!("/dev/{name}")).unwrap());
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(golden(name), &found).unwrap();
        }
        let expected = std::fs::read_to_string(golden(name)).unwrap_or_default();
        assert_eq!(found, expected, "{name}");
    }
    let old = FaultyFiles::new(1);
    for name in FILES {
        let text = std::fs::read_to_string(golden(name)).unwrap();
        old.write_file(format!("/dev/{name}"), parsed(&text))
            .unwrap();
    }
    let device = Device::open(&env(&old), &DeviceOptions::new("/dev")).unwrap();
    for (block, byte) in [(0, 3), (2, 2), (4, 3), (6, 0)] {
        assert_eq!(read(&device, block * BLOCK, 17)[..16], [byte; 16]);
    }
}
