//! Input files: plain, gzip or zstd, recognised by their first bytes; `-` is stdin.

use crate::failure::Failure;
use flate2::read::MultiGzDecoder;
use indicatif::ProgressBar;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

const GZIP: [u8; 2] = [0x1F, 0x8B];
const ZSTD: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// An input and its size on disk.
pub(crate) struct Input {
    reader: Box<dyn Read + Send>,
    pub(crate) bytes: Option<u64>,
}

impl Input {
    pub(crate) fn open(path: &Path) -> Result<Input, Failure> {
        if path == Path::new("-") {
            return Ok(Input {
                reader: Box::new(io::stdin()),
                bytes: None,
            });
        }
        let failed = |error| Failure::failed(format!("cannot read {}: {error}", path.display()));
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(Failure::failed(format!(
                "{} is a directory",
                path.display()
            )));
        }
        Ok(Input {
            reader: Box::new(file),
            bytes: metadata.is_file().then_some(metadata.len()),
        })
    }

    /// The bytes behind any compression; `bar` follows the compressed ones.
    pub(crate) fn decompressed(self, bar: ProgressBar) -> io::Result<Box<dyn Read + Send>> {
        let mut reader = Counting {
            inner: self.reader,
            bar,
        };
        let mut head = Vec::new();
        reader
            .by_ref()
            .take(ZSTD.len() as u64)
            .read_to_end(&mut head)?;
        let is_gzip = head.starts_with(&GZIP);
        let is_zstd = head.starts_with(&ZSTD);
        let whole = BufReader::with_capacity(1 << 16, io::Cursor::new(head).chain(reader));
        if is_gzip {
            Ok(Box::new(MultiGzDecoder::new(whole)))
        } else if is_zstd {
            Ok(Box::new(zstd::stream::read::Decoder::with_buffer(whole)?))
        } else {
            Ok(Box::new(whole))
        }
    }
}

struct Counting<R> {
    inner: R,
    bar: ProgressBar,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(out)?;
        self.bar.inc(count as u64);
        Ok(count)
    }
}
