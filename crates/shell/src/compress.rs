//! Compression of answers: gzip for clients that accept it.
//!
//! Invariants: an unpacked answer is complete when the original was, and a truncated one is
//! recognised; an answer is not compressed when it is small, compressed already, of a kind that
//! hardly shrinks, has an `ETag` of its bytes, or is a stream of events. Concurrency: compression
//! runs in the task that sends the answer, in parts.

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, VARY,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::{StreamExt, stream};
use std::io::Write;

/// Smaller answers fit one packet anyway.
const BYTES_MIN: u64 = 1_400;
/// Kinds that shrink, by their beginning. Streams of events are not among them: each event is due
/// at once.
const KINDS: [&str; 4] = [
    "application/json",
    "text/csv",
    "text/plain",
    "application/openmetrics-text",
];

/// True when a client accepts gzip: the weight 0 excludes it.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT_ENCODING).iter();
    accepted
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|part| {
            let (name, weight) = part.split_once(';').unwrap_or((part, ""));
            let weight = weight.trim().strip_prefix("q=").unwrap_or("1");
            let is_gzip = name.trim().eq_ignore_ascii_case("gzip");
            is_gzip && weight.parse::<f32>().is_ok_and(|weight| weight > 0.0)
        })
}

/// The compressed answer, where compression is worthwhile and the client accepts it.
pub(crate) fn packed(mut response: Response, takes_gzip: bool) -> Response {
    if !is_worth_while(&response) {
        return response;
    }
    // Caches must know that this answer has two encodings, whichever is sent.
    response
        .headers_mut()
        .append(VARY, HeaderValue::from_static("accept-encoding"));
    if !takes_gzip {
        return response;
    }
    let (mut head, body) = response.into_parts();
    head.headers
        .insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    head.headers.remove(CONTENT_LENGTH);
    // The fastest level: the network of a server nearby is fast too.
    let encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let pieces = stream::unfold(
        (body.into_data_stream(), Some(encoder)),
        |(mut pieces, encoder)| async move {
            let mut encoder = encoder?;
            loop {
                let piece = match pieces.next().await {
                    Some(Ok(piece)) => encoder
                        .write_all(&piece)
                        .map(|()| std::mem::take(encoder.get_mut()))
                        .map_err(axum::Error::new),
                    // Without its end marker the client recognises a truncated answer.
                    Some(Err(error)) => return Some((Err(error), (pieces, None))),
                    None => {
                        let rest = encoder.finish().map_err(axum::Error::new);
                        return Some((rest.map(Bytes::from), (pieces, None)));
                    }
                };
                match piece {
                    // The encoder buffers more input before it returns output.
                    Ok(piece) if piece.is_empty() => {}
                    Ok(piece) => return Some((Ok(Bytes::from(piece)), (pieces, Some(encoder)))),
                    Err(error) => return Some((Err(error), (pieces, None))),
                }
            }
        },
    );
    Response::from_parts(head, Body::from_stream(pieces))
}

fn is_worth_while(response: &Response) -> bool {
    let headers = response.headers();
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    response.status() == StatusCode::OK
        && kind.is_some_and(|kind| KINDS.iter().any(|each| kind.starts_with(each)))
        && [CONTENT_ENCODING, CONTENT_RANGE, ETAG]
            .iter()
            .all(|name| !headers.contains_key(name))
        && response
            .body()
            .size_hint()
            .upper()
            .is_none_or(|bytes| bytes >= BYTES_MIN)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use std::io::Read;

    fn answer(kind: &'static str, body: Body) -> Response {
        let mut response = Response::new(body);
        let kind = HeaderValue::from_static(kind);
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }

    fn pieces(count: usize) -> Body {
        let pieces = (0..count).map(|n| Ok::<_, axum::Error>(format!("{n},{n}.5,text\n")));
        Body::from_stream(stream::iter(pieces))
    }

    #[tokio::test]
    async fn what_comes_in_pieces_is_whole_when_it_is_unpacked() {
        let response = packed(answer("text/csv; charset=utf-8", pieces(20_000)), true);
        assert_eq!(response.headers()[CONTENT_ENCODING], "gzip");
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX);
        let bytes = bytes.await.unwrap();
        let mut text = String::new();
        let mut decoder = flate2::read::GzDecoder::new(&bytes[..]);
        decoder.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("0,0.5,text\n1,1.5") && text.ends_with("19999,19999.5,text\n"));
        let (packed, whole) = (bytes.len(), text.len());
        assert!(packed * 2 < whole, "{packed} of {whole} bytes");
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_has_no_end_when_packed_either() {
        let broken = stream::iter([Ok("a".repeat(5_000)), Err(axum::Error::new("the disk"))]);
        let response = packed(answer("text/csv", Body::from_stream(broken)), true);
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX);
        assert!(bytes.await.is_err());
    }

    #[test]
    fn small_tagged_and_live_answers_are_left_as_they_are() {
        let long = || Body::from("x".repeat(5_000));
        let is_packed = |response| {
            packed(response, true)
                .headers()
                .contains_key(CONTENT_ENCODING)
        };
        assert!(is_packed(answer("application/json", long())));
        assert!(!is_packed(answer("application/json", Body::from("{}"))));
        assert!(!is_packed(answer("text/event-stream", pieces(9_000))));
        assert!(!is_packed(answer("application/vnd.apache.parquet", long())));
        let mut tagged = answer("application/json", long());
        let tag = HeaderValue::from_static("\"1\"");
        tagged.headers_mut().insert(ETAG, tag);
        assert!(!is_packed(tagged));
    }

    #[test]
    fn either_form_says_that_there_are_two_and_what_has_one_does_not() {
        let long = || answer("application/json", Body::from("x".repeat(5_000)));
        for takes in [true, false] {
            let response = packed(long(), takes);
            assert_eq!(response.headers()[VARY], "accept-encoding");
            assert_eq!(response.headers().contains_key(CONTENT_ENCODING), takes);
        }
        let small = packed(answer("application/json", Body::from("{}")), false);
        assert!(!small.headers().contains_key(VARY));
    }

    #[test]
    fn who_does_not_take_gzip_gets_none() {
        let takes = |value: &'static str| {
            let value = HeaderValue::from_static(value);
            accepts_gzip(&HeaderMap::from_iter([(ACCEPT_ENCODING, value)]))
        };
        assert!(takes("gzip") && takes("br;q=1, GZIP;q=0.5") && takes("deflate, gzip"));
        assert!(!takes("identity") && !takes("gzip;q=0") && !takes("gzip;q=0.000") && !takes(""));
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
