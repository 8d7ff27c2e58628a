//! Compressed bodies.
//!
//! Invariant: the unpacked body never exceeds the largest allowed body, however well it is
//! compressed.

use crate::error::ApiError;
use axum::http::StatusCode;
use std::borrow::Cow;
use std::io::Read;

/// Compression of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Without compression.
    Identity,
    Gzip,
    Zstd,
}

impl Encoding {
    /// According to `Content-Encoding`.
    ///
    /// # Errors
    /// 415 for any other.
    pub(crate) fn from_header(value: Option<&[u8]>) -> Result<Encoding, ApiError> {
        let Some(value) = value else {
            return Ok(Encoding::Identity);
        };
        match value.trim_ascii().to_ascii_lowercase().as_slice() {
            b"" | b"identity" => Ok(Encoding::Identity),
            b"gzip" | b"x-gzip" => Ok(Encoding::Gzip),
            b"zstd" => Ok(Encoding::Zstd),
            other => Err(ApiError::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "E_ENCODING",
                format!(
                    "Content-Encoding `{}` is not supported: send the body as gzip, zstd or uncompressed",
                    String::from_utf8_lossy(other.get(..40).unwrap_or(other))
                ),
            )),
        }
    }
}

/// Unpacks a body.
///
/// # Errors
/// 413 when the unpacked body exceeds `max` bytes, 400 when the body does not have the stated
/// encoding.
pub(crate) fn unpack(
    body: &[u8],
    encoding: Encoding,
    max: usize,
) -> Result<Cow<'_, [u8]>, ApiError> {
    let unpacked = match encoding {
        Encoding::Identity => return Ok(Cow::Borrowed(body)),
        Encoding::Gzip => read_up_to(flate2::read::MultiGzDecoder::new(body), body.len(), max),
        Encoding::Zstd => zstd::stream::read::Decoder::with_buffer(body)
            .and_then(|mut decoder| {
                // A frame may demand any amount of memory; eight MiB is the window that decoders
                // must support.
                decoder.window_log_max(23)?;
                Ok(decoder)
            })
            .and_then(|decoder| read_up_to(decoder, body.len(), max)),
    };
    match unpacked {
        Ok(Some(bytes)) => Ok(Cow::Owned(bytes)),
        Ok(None) => Err(too_large(max)),
        Err(error) => Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "E_ENCODING",
            format!("the body cannot be decompressed as its Content-Encoding says: {error}"),
        )),
    }
}

/// Reads everything; `None` when the input exceeds `max` bytes.
fn read_up_to(reader: impl Read, packed: usize, max: usize) -> std::io::Result<Option<Vec<u8>>> {
    // Text of measurements compresses to a quarter or less; a wrong estimate costs only a copy.
    let mut bytes = Vec::with_capacity(packed.saturating_mul(4).min(max).min(1 << 20));
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    reader.take(limit).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= max).then_some(bytes))
}

/// 413 for a body.
pub(crate) fn too_large(max: usize) -> ApiError {
    ApiError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "E_LIMIT_BODY",
        format!(
            "the body is larger than {max} bytes, compressed or decompressed (setting body_max): send it in parts"
        ),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn packed_bodies_come_out_as_they_went_in() {
        let text = b"t v=1 1\n".repeat(1000);
        let zstd = zstd::encode_all(&text[..], 1).unwrap();
        for (packed, encoding) in [(gzip(&text), Encoding::Gzip), (zstd, Encoding::Zstd)] {
            assert_eq!(*unpack(&packed, encoding, 8000).unwrap(), text[..]);
            let error = unpack(&packed, encoding, 7999).unwrap_err();
            assert_eq!(error.status, StatusCode::PAYLOAD_TOO_LARGE);
            let torn = unpack(&packed[..packed.len() - 3], encoding, 8000).unwrap_err();
            assert_eq!(torn.status, StatusCode::BAD_REQUEST);
        }
        // Members of gzip may follow each other.
        let two = [gzip(b"t v=1 1\n"), gzip(b"t v=2 2\n")].concat();
        assert_eq!(
            *unpack(&two, Encoding::Gzip, 100).unwrap(),
            b"t v=1 1\nt v=2 2\n"[..]
        );
    }

    #[test]
    fn a_bomb_is_stopped_where_the_limit_is() {
        let zeros = vec![0u8; 64 << 20];
        let zstd = zstd::encode_all(&zeros[..], 3).unwrap();
        for (packed, encoding) in [(gzip(&zeros), Encoding::Gzip), (zstd, Encoding::Zstd)] {
            let error = unpack(&packed, encoding, 1 << 20).unwrap_err();
            assert_eq!(error.code, "E_LIMIT_BODY");
        }
    }

    #[test]
    fn only_known_encodings_are_taken() {
        let of = |text: &str| Encoding::from_header(Some(text.as_bytes()));
        assert_eq!(of("GZIP").unwrap(), Encoding::Gzip);
        assert_eq!(of(" zstd ").unwrap(), Encoding::Zstd);
        assert_eq!(Encoding::from_header(None).unwrap(), Encoding::Identity);
        let refused = of("br").unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.code), (415, "E_ENCODING"));
    }
}
