//! Numbers by pco's wrapped format: one chunk a column, one pco page a leaf page, so that single
//! pages decode.
//!
//! Payload: pco's header, its chunk metadata, then the pages as [`super::pages::put_payloads`]
//! writes them, each beginning with its number of values implied by the leaf.

use super::encoding_cache::{Encoding, Mode};
use super::pages::{Pages, Selection, put_payloads};
use crate::bytes::{Cursor, DecodeError, PutBytes};
use pco::data_types::Number;
use pco::metadata::{DynLatent, Mode as PcoMode};
use pco::wrapped::{ChunkCompressor, FileCompressor, FileDecompressor};
use pco::{ChunkConfig, DeltaSpec, ModeSpec, PagingSpec};

/// Level 8 saves a fifth of a percent more and needs twice the time.
const LEVEL: usize = 4;

/// A chunk that is compressed but not written.
pub(super) struct Chunk {
    compressor: ChunkCompressor,
    pub(super) encoding: Encoding,
    /// Estimated size.
    pub(super) len: usize,
}

fn mode_spec(mode: Mode) -> ModeSpec {
    match mode {
        Mode::Classic => ModeSpec::Classic,
        Mode::IntegerMultiple(base) => ModeSpec::TryIntMult(base),
        Mode::FloatMultiple(base) => ModeSpec::TryFloatMult(base),
        Mode::FloatQuant(bits) => ModeSpec::TryFloatQuant(bits),
    }
}

/// The mode chosen by pco, as our type. pco stores a float base in an order-preserving integer
/// form.
fn mode_of(mode: &PcoMode) -> Mode {
    match mode {
        PcoMode::IntMult(DynLatent::U64(base)) => Mode::IntegerMultiple(*base),
        PcoMode::FloatMult(DynLatent::U64(ordered)) => {
            let bits = if ordered >> 63 == 1 {
                ordered ^ (1 << 63)
            } else {
                !ordered
            };
            Mode::FloatMultiple(f64::from_bits(bits))
        }
        PcoMode::FloatQuant(bits) => Mode::FloatQuant(*bits),
        _ => Mode::Classic,
    }
}

fn compress<T: Number>(values: &[T], pages: &Pages, mode: ModeSpec, order: usize) -> Option<Chunk> {
    let config = ChunkConfig::default()
        .with_compression_level(LEVEL)
        .with_mode_spec(mode)
        .with_delta_spec(DeltaSpec::TryConsecutive(order))
        .with_paging_spec(PagingSpec::Exact(pages.filled().map(|p| p.len()).collect()));
    let compressor = FileCompressor::default()
        .chunk_compressor(values, &config)
        .ok()?;
    let count = compressor.n_per_page().len();
    // pco's hint for a page is a fifth above its estimate.
    let body: usize = (0..count).map(|p| compressor.page_size_hint(p)).sum();
    Some(Chunk {
        encoding: Encoding::Pco(mode_of(&compressor.meta().mode), order),
        len: compressor.meta_size_hint() + body * 5 / 6,
        compressor,
    })
}

/// Compresses with a known encoding.
pub(super) fn with<T: Number>(
    values: &[T],
    pages: &Pages,
    mode: Mode,
    order: usize,
) -> Option<Chunk> {
    compress(values, pages, mode_spec(mode), order)
}

/// Searches mode and order of differences.
pub(super) fn search<T: Number>(values: &[T], pages: &Pages) -> Option<Chunk> {
    let mut best = compress(values, pages, ModeSpec::Auto, 1)?;
    let mode = match best.encoding {
        Encoding::Pco(mode, _) => mode,
        Encoding::Plain => Mode::Classic,
    };
    for order in [0, 2] {
        if let Some(chunk) = compress(values, pages, mode_spec(mode), order)
            && chunk.len < best.len
        {
            best = chunk;
        }
    }
    Some(best)
}

impl Chunk {
    /// The payload; `None` if pco fails, which is not expected.
    pub(super) fn write(mut self) -> Option<Vec<u8>> {
        let mut head = FileCompressor::default().write_header(Vec::new()).ok()?;
        head = self.compressor.write_meta(head).ok()?;
        let mut bytes = Vec::with_capacity(self.len + self.len / 4);
        let mut ends = Vec::new();
        for page in 0..self.compressor.n_per_page().len() {
            bytes = self.compressor.write_page(page, bytes).ok()?;
            ends.push(bytes.len());
        }
        let mut out = Vec::with_capacity(head.len() + bytes.len() + 16);
        out.put_prefixed(&head);
        put_payloads(&bytes, &ends, &mut out);
        Some(out)
    }
}

/// Reads the selected values.
pub(super) fn read<T: Number + Default>(
    cursor: &mut Cursor<'_>,
    pages: &Pages,
    selection: &Selection,
) -> Result<Vec<T>, DecodeError> {
    const META: &str = "pco chunk metadata";
    let head = cursor.prefixed(META)?;
    let (file, rest) = FileDecompressor::new(head).map_err(|_| cursor.expected("a pco header"))?;
    let (mut chunk, _) = file
        .chunk_decompressor::<T, _>(rest)
        .map_err(|_| cursor.expected(META))?;
    pages.read(cursor, selection, |payload, slots: &mut [T]| {
        let mut page = chunk
            .page_decompressor(payload, slots.len())
            .map_err(|_| "a pco page")?;
        match page.read(slots) {
            Ok(progress) if progress.n_processed == slots.len() => Ok(()),
            _ => Err("a pco page of as many values as the leaf page"),
        }
    })
}
