//! Decoders of bytes from a medium and from clients, for the fuzz targets only.

use std::io::{self, Read, Write};

use crate::format::{HEADER_BYTES, SetHeader, SlotHeader, Superblock, decode_page, encode_page};
use crate::nbd::message::{Agreed, Operation, REQUEST_BYTES_MAX, RequestHeader};
use crate::nbd::negotiate::{Export, Outcome, negotiate};

/// Superblock, header of a set, redo slot and page of the map; checksums are corrected where
/// `repair` is set. Decoded values are encoded to the same bytes.
pub fn device(bytes: &[u8], repair: bool) {
    let mut header = bytes.to_vec();
    if repair {
        header.resize(HEADER_BYTES - 4, 0);
        let crc = crc32c::crc32c(&header);
        header.extend_from_slice(&crc.to_le_bytes());
    }
    if let Some(found) = Superblock::decode(&header) {
        assert!(header.starts_with(&found.encode()), "a superblock");
    }
    if let Some(found) = SetHeader::decode(&header) {
        assert!(header.starts_with(&found.encode()), "a set's header");
    }
    let mut slot = bytes.to_vec();
    if repair && let Some((front, locations)) = bytes.split_at_checked(HEADER_BYTES) {
        let front = front.get(..HEADER_BYTES - 4).unwrap_or(front);
        let locations = locations
            .get(..locations.len() / 8 * 8)
            .unwrap_or(locations);
        let mut front = front.to_vec();
        if let Some(count) = front.get_mut(28..32) {
            let locations = u32::try_from(locations.len() / 8).unwrap_or(0);
            count.copy_from_slice(&locations.to_le_bytes());
        }
        let crc = crc32c::crc32c_append(crc32c::crc32c(&front), locations);
        slot = front;
        slot.extend_from_slice(&crc.to_le_bytes());
        slot.extend_from_slice(locations);
    }
    if let Some(found) = SlotHeader::decode(&slot) {
        let encoded = found.encode();
        assert_eq!(SlotHeader::decode(&encoded).as_ref(), Some(&found));
        let covered = HEADER_BYTES + found.locations.len() * 8;
        assert_eq!(encoded.get(..covered), slot.get(..covered), "a slot");
    }
    if let Some(words) = decode_page(bytes) {
        assert_eq!(decode_page(&encode_page(&words)), Some(words));
    }
}

/// Bytes of a client: a negotiation, followed by requests. Processing always ends, and no accepted
/// request exceeds the device.
pub fn client(bytes: &[u8]) {
    const SIZE: u64 = 1 << 20;
    let export = Export {
        name: "fuzz".to_owned(),
        size: SIZE,
    };
    let mut stream = ScriptedClient {
        rest: bytes,
        answered: 0,
    };
    let Ok(Outcome::Begin(agreed)) = negotiate(&mut stream, &export, &|| false) else {
        // Requests are processed regardless.
        requests(bytes, SIZE, &Agreed::default());
        return;
    };
    let answered = stream.answered;
    assert!(
        answered <= 1 << 20,
        "{answered} bytes were answered to {}",
        bytes.len()
    );
    requests(stream.rest, SIZE, &agreed);
}

fn requests(bytes: &[u8], size: u64, agreed: &Agreed) {
    let mut rest = bytes;
    while let Some((header, behind)) = rest.split_first_chunk::<{ RequestHeader::BYTES }>() {
        let Some(header) = RequestHeader::decode(header) else {
            return;
        };
        let data = header.data_bytes();
        if data > REQUEST_BYTES_MAX {
            return;
        }
        match header.operation(size, agreed) {
            Operation::Wrong(error) => assert_ne!(error, 0),
            Operation::Disconnect | Operation::Flush => {}
            _ => {
                let end = header.offset.checked_add(u64::from(header.length));
                assert!(end.is_some_and(|end| end <= size && header.length > 0));
            }
        }
        let data = usize::try_from(data).unwrap_or(usize::MAX);
        rest = behind.get(data..).unwrap_or(&[]);
    }
}

/// A client that has sent all its bytes, and receives every answer.
struct ScriptedClient<'a> {
    rest: &'a [u8],
    answered: usize,
}

impl Read for ScriptedClient<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.rest.read(buf)
    }
}

impl Write for ScriptedClient<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.answered += buf.len();
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
