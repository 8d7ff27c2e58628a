//! Content of a notice, as bytes without its signature.
//!
//! Invariants: an encoded notice is decoded to an equal one; malformed bytes are refused, and so
//! are more than [`NOTICE_BYTES_MAX`], before they are read. Concurrency: plain data. Format:
//! docs/format/notice.md.

use headwater_codec::{Cursor, DecodeError, PutBytes};

/// Maximum size of a signed notice in bytes. Notices of this version have less than 160.
pub const NOTICE_BYTES_MAX: usize = 1024;

const MAGIC: [u8; 6] = *b"HWNOTE";
const VERSION: u16 = 1;

/// Kind of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// The node's inventory has a newer version.
    Changed,
    /// The node's connection to the broker has ended. The notice was signed when the connection
    /// began, and the broker sends it.
    Disconnected,
}

/// Content of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Kind of the notice.
    pub kind: NoticeKind,
    /// The node's database.
    pub identity: u64,
    /// Changes when the database is restored or repaired.
    pub incarnation: u64,
    /// Versions are comparable within an epoch only; each start of the node has another.
    pub epoch: u64,
    /// Notices of a kind are counted by their node, from 1 on in each epoch.
    pub number: u64,
    /// Newest version of the node's inventory.
    pub version: u64,
}

impl Notice {
    /// Encoded notice: the bytes that are signed.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.put_u16(VERSION);
        out.put_u8(match self.kind {
            NoticeKind::Changed => 0,
            NoticeKind::Disconnected => 1,
        });
        out.put_u64(self.identity);
        out.put_u64(self.incarnation);
        out.put_u64(self.epoch);
        out.put_varint(self.number);
        out.put_varint(self.version);
        out
    }

    /// Decodes the bytes of [`Notice::encode`].
    ///
    /// # Errors
    /// If the bytes are not a valid notice.
    pub fn decode(body: &[u8]) -> Result<Notice, DecodeError> {
        let mut from = Cursor::new(body);
        if from.take(MAGIC.len(), "HWNOTE")? != MAGIC {
            return Err(from.expected("HWNOTE"));
        }
        if from.u16("a version")? != VERSION {
            return Err(from.expected("version 1"));
        }
        let kind = match from.u8("the kind of a notice")? {
            0 => NoticeKind::Changed,
            1 => NoticeKind::Disconnected,
            _ => return Err(from.expected("the kind of a notice: 0 or 1")),
        };
        let notice = Notice {
            kind,
            identity: from.u64("a database")?,
            incarnation: from.u64("its incarnation")?,
            epoch: from.u64("an epoch")?,
            number: from.varint("the number of a notice")?,
            version: from.varint("a version of an inventory")?,
        };
        from.finish()?;
        Ok(notice)
    }
}
