//! Columns of strings and bytes: a constant, a dictionary with packed codes, or pages of lengths
//! and zstd frames, in which the text of the first page serves the others as a dictionary.

use super::pages::{Pages, Selection, put_payloads};
use super::{PAGE_ROWS, TEXT_BYTES_MAX, codec};
use crate::bytes::{Cursor, DecodeError, PutBytes};
use crate::pack::{put_block, put_integers, take_block, take_integers};
use crate::text::{Dictionary, ends, lengths, look_up};
use headwater_types::VarBytes;
use std::ops::Range;
use zstd::bulk::{Compressor, Decompressor};

const LEVEL: i32 = 3;
/// Text shorter than this is not compressed.
const ZSTD_FROM: usize = 48;
/// Most entries of a dictionary of strings.
const ENTRIES_MAX: usize = 4_096;
/// Up to this size, the first page's text is the dictionary of the other pages; larger pages are
/// independent, since a dictionary would cost more time than it saves bytes.
const PREFIX_MAX: usize = 8 << 10;

/// Forms of the text of a page; the numbers are part of the format.
const STORED: u8 = 0;
const FRAME: u8 = 1;
const FRAME_AFTER_FIRST: u8 = 2;

/// Appends the payload of at least one value and returns its codec.
pub(super) fn put(values: &VarBytes, pages: &Pages, out: &mut Vec<u8>) -> u8 {
    assert!(
        values.bytes().len() <= TEXT_BYTES_MAX,
        "at most 1 GiB of text in a leaf column"
    );
    let most = (values.len() / 4).clamp(1, ENTRIES_MAX);
    if let Some(dictionary) = Dictionary::of(values, most) {
        let entries = &dictionary.entries;
        if entries.len() == 1 {
            out.extend_from_slice(entries.bytes());
            return codec::CONSTANT;
        }
        out.put_varint(entries.len() as u64);
        put_integers(&lengths(entries), out);
        let mut packed = Vec::new();
        put_bytes(entries.bytes(), None, None, &mut packed);
        out.put_prefixed(&packed);
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for page in pages.filled() {
            put_block(dictionary.codes.get(page).unwrap_or_default(), &mut bytes);
            ends.push(bytes.len());
        }
        put_payloads(&bytes, &ends, out);
        return codec::DICTIONARY;
    }
    put_frames(values, pages, out);
    codec::ZSTD
}

fn put_frames(values: &VarBytes, pages: &Pages, out: &mut Vec<u8>) {
    let lengths = lengths(values);
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    let mut plain = Compressor::new(LEVEL).ok();
    let mut prefix: Option<&[u8]> = None;
    let mut after_first = None;
    for page in pages.filled() {
        put_block(lengths.get(page.clone()).unwrap_or_default(), &mut bytes);
        let text = values.slice_bytes(page);
        put_bytes(text, plain.as_mut(), after_first.as_mut(), &mut bytes);
        ends.push(bytes.len());
        if prefix.is_none() {
            prefix = Some(text);
            if text.len() >= ZSTD_FROM && text.len() <= PREFIX_MAX {
                after_first = Compressor::with_dictionary(LEVEL, text).ok();
            }
        }
    }
    put_payloads(&bytes, &ends, out);
}

/// Writes the form of the text, then the text.
fn put_bytes(
    text: &[u8],
    plain: Option<&mut Compressor<'_>>,
    after_first: Option<&mut Compressor<'_>>,
    out: &mut Vec<u8>,
) {
    if text.len() >= ZSTD_FROM {
        let (kind, packed) = match (after_first, plain) {
            (Some(compressor), _) => (FRAME_AFTER_FIRST, compressor.compress(text)),
            (None, Some(compressor)) => (FRAME, compressor.compress(text)),
            (None, None) => (FRAME, zstd::bulk::compress(text, LEVEL)),
        };
        if let Ok(packed) = packed
            && packed.len() < text.len()
        {
            out.put_u8(kind);
            out.extend_from_slice(&packed);
            return;
        }
    }
    out.put_u8(STORED);
    out.extend_from_slice(text);
}

/// Reads the selected values.
pub(super) fn take(
    codec: u8,
    cursor: &mut Cursor<'_>,
    pages: &Pages,
    selection: &Selection,
) -> Result<VarBytes, DecodeError> {
    let out = match codec {
        codec::CONSTANT => {
            let count = selection.values.len();
            let one = cursor.take(cursor.remaining(), "a constant")?;
            if one.len().saturating_mul(count) > TEXT_BYTES_MAX {
                return Err(cursor.expected("at most 1 GiB of text"));
            }
            let ends = (1..=count).map(|i| (i * one.len()) as u32).collect();
            VarBytes::from_parts(ends, one.repeat(count))
        }
        codec::DICTIONARY => {
            let most = cursor.remaining().min(pages.total()) as u64;
            let count = cursor.varint_up_to(most, "a number of dictionary entries")?;
            let lengths = take_integers(cursor, count)?;
            let ends = ends(&lengths, TEXT_BYTES_MAX)
                .ok_or_else(|| cursor.expected("lengths of dictionary entries"))?;
            let total = ends.last().map_or(0, |end| *end as usize);
            let packed = cursor.prefixed("dictionary entries")?;
            let bytes = text_of(packed, total, None).map_err(|e| cursor.expected(e))?;
            let codes = pages.read(cursor, selection, |payload, slots: &mut [i64]| {
                take_block(&mut Cursor::new(payload), slots).map_err(|e| e.expected)
            })?;
            VarBytes::from_parts(ends, bytes)
                .and_then(|entries| look_up(&entries, &codes, TEXT_BYTES_MAX))
        }
        codec::ZSTD => return take_frames(cursor, pages, selection),
        _ => return Err(cursor.expected("a codec of strings")),
    };
    out.ok_or_else(|| cursor.expected("codes of dictionary entries"))
}

fn take_frames(
    cursor: &mut Cursor<'_>,
    pages: &Pages,
    selection: &Selection,
) -> Result<VarBytes, DecodeError> {
    let payloads = pages.payloads(cursor)?;
    let mut out = VarBytes::new();
    let mut first: Option<Decompressor<'static>> = None;
    for at in selection.pages.clone() {
        let values = pages.values_of(at);
        let Some(payload) = payloads.get(at).filter(|_| !values.is_empty()) else {
            continue;
        };
        let page = match page_text(payload, values.len(), first.as_mut()) {
            Ok(page) => page,
            Err(NEEDS_FIRST) if first.is_none() => {
                first = Some(first_page(pages, &payloads).map_err(|e| cursor.expected(e))?);
                page_text(payload, values.len(), first.as_mut()).map_err(|e| cursor.expected(e))?
            }
            Err(expected) => return Err(cursor.expected(expected)),
        };
        if out.bytes().len() + page.bytes().len() > TEXT_BYTES_MAX {
            return Err(cursor.expected("at most 1 GiB of text"));
        }
        let from = selection.values.start.max(values.start) - values.start;
        let to = selection.values.end.clamp(values.start, values.end) - values.start;
        out.extend_from(&page, from.min(to)..to);
    }
    Ok(out)
}

/// Error of [`text_of`] when the text of the first page is needed first.
const NEEDS_FIRST: &str = "the text of the first page";

/// A decompressor with the text of the first filled page as dictionary.
fn first_page(pages: &Pages, payloads: &[&[u8]]) -> Result<Decompressor<'static>, &'static str> {
    let (payload, values): (&[u8], Range<usize>) = payloads
        .iter()
        .zip(0..)
        .map(|(payload, at)| (*payload, pages.values_of(at)))
        .find(|(_, values)| !values.is_empty())
        .ok_or("a page with text")?;
    let page = page_text(payload, values.len(), None)?;
    Decompressor::with_dictionary(page.bytes()).map_err(|_| "memory for a zstd dictionary")
}

/// The strings of a page.
fn page_text(
    payload: &[u8],
    count: usize,
    first: Option<&mut Decompressor<'static>>,
) -> Result<VarBytes, &'static str> {
    let mut cursor = Cursor::new(payload);
    let mut lengths = [0i64; PAGE_ROWS];
    let lengths = lengths.get_mut(..count).ok_or("at most 256 values")?;
    take_block(&mut cursor, lengths).map_err(|e| e.expected)?;
    let ends = ends(lengths, TEXT_BYTES_MAX).ok_or("lengths of strings")?;
    let total = ends.last().map_or(0, |end| *end as usize);
    let rest = payload.get(cursor.offset()..).unwrap_or_default();
    let bytes = text_of(rest, total, first)?;
    VarBytes::from_parts(ends, bytes).ok_or("lengths of strings")
}

/// Text encoded by [`put_bytes`], of a known length.
fn text_of(
    bytes: &[u8],
    len: usize,
    first: Option<&mut Decompressor<'static>>,
) -> Result<Vec<u8>, &'static str> {
    const LENGTH: &str = "text of the total length of its strings";
    let (kind, bytes) = bytes.split_first().ok_or("text")?;
    if *kind == STORED {
        return if bytes.len() == len {
            Ok(bytes.to_vec())
        } else {
            Err(LENGTH)
        };
    }
    // A frame states its length; a frame whose length does not match is refused, which bounds the
    // allocation.
    match zstd::zstd_safe::get_frame_content_size(bytes) {
        Ok(Some(size)) if size == len as u64 => {}
        _ => return Err(LENGTH),
    }
    let text = match (*kind, first) {
        (FRAME, _) => zstd::bulk::decompress(bytes, len),
        (FRAME_AFTER_FIRST, Some(first)) => first.decompress(bytes, len),
        (FRAME_AFTER_FIRST, None) => return Err(NEEDS_FIRST),
        _ => return Err("a text codec below 3"),
    };
    match text {
        Ok(text) if text.len() == len => Ok(text),
        _ => Err("a zstd frame"),
    }
}
