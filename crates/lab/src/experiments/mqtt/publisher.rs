//! A client with little overhead: MQTT 3.1.1, prepared messages of QoS 1, acknowledgements only
//! counted.

use crate::harness::Failure;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Packets put into one write at most.
const CHUNK: usize = 64;

/// Publishes `count` values to a topic, with at most `window` unacknowledged.
pub(super) fn publish(port: u16, topic: &str, count: usize, window: usize) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    // Protocol level 4, a clean session, no keep-alive, a name assigned by the broker.
    let connect = packet(0x10, &[0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 0, 0, 0]);
    stream.write_all(&connect)?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer)?;
    if answer != [0x20, 2, 0, 0] {
        return Err(format!("the broker does not take the connection: {answer:?}").into());
    }
    let (mut sent, mut acknowledged) = (0, 0);
    let mut rest = 0;
    let mut buffer = vec![0; 16 << 10];
    let mut packets = Vec::new();
    while acknowledged < count {
        let room = (window - (sent - acknowledged))
            .min(count - sent)
            .min(CHUNK);
        if room > 0 {
            packets.clear();
            for number in sent..sent + room {
                packets.extend(message(topic, number));
            }
            stream.write_all(&packets)?;
            sent += room;
            if sent - acknowledged < window && sent < count {
                continue;
            }
        }
        // Each acknowledgement is four bytes long, and they arrive in order.
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Err("the broker closed the connection".into());
        }
        rest += read;
        acknowledged += rest / 4;
        rest %= 4;
    }
    stream.write_all(&[0xE0, 0])?;
    Ok(())
}

fn message(topic: &str, number: usize) -> Vec<u8> {
    let id = (number % 65_535 + 1) as u16;
    let length = topic.len() as u16;
    let payload = format!("{:.2}", 20.0 + (number % 1000) as f64 / 100.0);
    let body = [
        &length.to_be_bytes()[..],
        topic.as_bytes(),
        &id.to_be_bytes(),
        payload.as_bytes(),
    ];
    // PUBLISH with QoS 1.
    packet(0x32, &body.concat())
}

/// A packet of at most 127 bytes after its header.
fn packet(head: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![head, body.len() as u8];
    out.extend_from_slice(body);
    out
}
