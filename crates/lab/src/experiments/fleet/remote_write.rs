//! A receiver of Prometheus' remote write that counts: each sample by its time, however often it
//! came.

use crate::harness::Failure;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Largest body, packed and unpacked.
const BODY_MAX: usize = 64 << 20;

/// Number of arrivals of the sample of each millisecond.
pub(super) type Counts = Arc<Mutex<BTreeMap<i64, u64>>>;

/// Starts a receiver, which ends with the process.
pub(super) fn receiver() -> Result<(SocketAddr, Counts), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    let counts = Counts::default();
    let shared = Arc::clone(&counts);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let counts = Arc::clone(&shared);
            std::thread::spawn(move || {
                if let Err(error) = serve(&stream, &counts) {
                    // A connection that is cut is part of the experiment.
                    eprintln!("lab: a connection of remote write ended: {error}");
                }
            });
        }
    });
    Ok((addr, counts))
}

fn serve(stream: &TcpStream, counts: &Counts) -> Result<(), Failure> {
    let mut input = BufReader::new(stream);
    let mut output = stream;
    loop {
        let mut length = 0;
        let mut line = String::new();
        let mut is_first = true;
        loop {
            line.clear();
            if input.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let text = line.trim().to_ascii_lowercase();
            if let Some(bytes) = text.strip_prefix("content-length:") {
                length = bytes.trim().parse::<usize>()?;
            }
            if text.is_empty() && !is_first {
                break;
            }
            is_first = false;
        }
        if length > BODY_MAX {
            return Err(format!("a body of {length} bytes").into());
        }
        let mut body = vec![0; length];
        input.read_exact(&mut body)?;
        let times = times(&unpacked(&body)?)?;
        {
            let mut counts = counts.lock().map_err(|_| "a receiver panicked")?;
            for time in times {
                *counts.entry(time).or_default() += 1;
            }
        }
        output.write_all(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n")?;
    }
}

fn unpacked(body: &[u8]) -> Result<Vec<u8>, Failure> {
    if snap::raw::decompress_len(body)? > BODY_MAX {
        return Err("a body that is too large".into());
    }
    Ok(snap::raw::Decoder::new().decompress_vec(body)?)
}

/// A number of a message: seven bits a byte, lowest first.
fn varint(bytes: &mut &[u8]) -> Result<u64, Failure> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or("a number that ends early")?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("a number that is too long".into())
}

/// The next field: its number, and its bytes, or its value in little-endian bytes.
fn field(bytes: &mut &[u8]) -> Result<(u64, Vec<u8>), Failure> {
    let key = varint(bytes)?;
    let length = match key & 7 {
        0 => return Ok((key >> 3, varint(bytes)?.to_le_bytes().to_vec())),
        1 => 8,
        2 => usize::try_from(varint(bytes)?)?,
        5 => 4,
        other => return Err(format!("a field of kind {other}").into()),
    };
    let (content, rest) = bytes
        .split_at_checked(length)
        .ok_or("a field that ends early")?;
    *bytes = rest;
    Ok((key >> 3, content.to_vec()))
}

/// Times of all samples of a request.
fn times(message: &[u8]) -> Result<Vec<i64>, Failure> {
    let mut times = Vec::new();
    let mut rest = message;
    while !rest.is_empty() {
        let (number, series) = field(&mut rest)?;
        let mut rest = series.as_slice();
        while number == 1 && !rest.is_empty() {
            let (number, sample) = field(&mut rest)?;
            let mut rest = sample.as_slice();
            while number == 2 && !rest.is_empty() {
                let (number, time) = field(&mut rest)?;
                if number == 2 {
                    let time: [u8; 8] = time.try_into().map_err(|_| "a time of other size")?;
                    times.push(i64::from_le_bytes(time));
                }
            }
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// As in the specification of remote write: a series with a label and two samples.
    #[test]
    fn samples_of_a_series_are_found_by_their_times() {
        let label = [0x0a, 1, b'a', 0x12, 1, b'b'];
        let sample = |time: u8| [vec![0x09], vec![0; 8], vec![0x10, time]].concat();
        let mut series = vec![0x0a, 6];
        series.extend(label);
        for time in [5, 9] {
            series.extend([0x12, 11]);
            series.extend(sample(time));
        }
        let mut message = vec![0x0a, u8::try_from(series.len()).unwrap()];
        message.extend(series);
        assert_eq!(times(&message).unwrap(), [5, 9]);
        let packed = snap::raw::Encoder::new().compress_vec(&message).unwrap();
        assert_eq!(unpacked(&packed).unwrap(), message);
        assert!(times(&message[..message.len() - 1]).is_err());
    }
}
