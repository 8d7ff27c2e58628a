//! Requests of a connection after the negotiation: one thread reads them and submits them to the
//! device, another sends the replies, in the order in which the device answers.
//!
//! Invariants: every request that was read is replied to, unless the connection breaks. A thread
//! that carries out a request never waits for the client. Concurrency: [`take_requests`] and
//! [`send_replies`] on a thread each, [`Flow`] between them. Failure: errors of the medium are
//! replies; an unreadable message ends the connection, and its started requests are still carried
//! out.

use std::io::{self, Read, Write};
use std::sync::Arc;

use super::flow::{Flow, Reply};
use super::message::{
    Agreed, Operation, REQUEST_BYTES_MAX, RequestHeader, data_chunk, errno, error_chunk,
    simple_reply, status_chunk,
};
use crate::device::{Answer, Command, Device, Extent};

/// Maximum bytes whose status one answer covers; clients request the rest again.
const STATUS_BYTES_MAX: u64 = 256 << 20;
/// Maximum bytes of the extents of one answer.
const STATUS_WEIGHT: u32 = 1 << 20;
/// Shorter data are sent together with their front.
const TOGETHER_BYTES_MAX: usize = 64 << 10;

/// Reads requests until the client disconnects.
pub(crate) fn take_requests(
    input: &mut impl Read,
    flow: &Arc<Flow>,
    device: &Device,
    client: u64,
    agreed: Agreed,
) -> io::Result<()> {
    loop {
        let mut header = [0; RequestHeader::BYTES];
        input.read_exact(&mut header)?;
        let Some(header) = RequestHeader::decode(&header) else {
            return Err(wrong("the client did not send a request"));
        };
        if header.data_bytes() > REQUEST_BYTES_MAX {
            return Err(wrong("the client began a write of more than 32 MiB"));
        }
        let operation = header.operation(device.size(), &agreed);
        let weight = match operation {
            Operation::Disconnect => return Ok(()),
            Operation::Read | Operation::Write { .. } => header.length,
            Operation::Status { .. } => STATUS_WEIGHT,
            _ => header.data_bytes(),
        };
        if !flow.admit(weight) {
            return Ok(());
        }
        let taken = AdmittedRequest {
            flow: Some(Arc::clone(flow)),
            header,
            weight,
            agreed,
            operation,
        };
        let mut data = vec![0; usize::try_from(header.data_bytes()).unwrap_or(0)];
        input.read_exact(&mut data)?;
        match taken.command(data) {
            Ok(command) => {
                device.submit(client, command, Box::new(|answer| taken.answered(answer)));
            }
            Err(error) => taken.failed(error, "the request is not valid"),
        }
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// An admitted request. Dropping it without a reply releases it.
struct AdmittedRequest {
    flow: Option<Arc<Flow>>,
    header: RequestHeader,
    weight: u32,
    agreed: Agreed,
    operation: Operation,
}

impl AdmittedRequest {
    /// The command for the device.
    fn command(&self, data: Vec<u8>) -> Result<Command, u32> {
        let offset = self.header.offset;
        let length = u64::from(self.header.length);
        Ok(match self.operation {
            Operation::Read => Command::Read { offset, length },
            Operation::Write { fua } => Command::Write { offset, data, fua },
            Operation::Flush | Operation::Disconnect => Command::Flush,
            Operation::Trim { fua } => Command::Trim {
                offset,
                length,
                fua,
            },
            Operation::Zero { keeps_space, fua } => Command::Zero {
                offset,
                length,
                keeps_space,
                fua,
            },
            Operation::Status { .. } => Command::Status {
                offset,
                length: length.min(STATUS_BYTES_MAX),
            },
            Operation::Wrong(error) => return Err(error),
        })
    }

    fn answered(mut self, answer: io::Result<Answer>) {
        let cookie = self.header.cookie;
        match answer {
            Ok(Answer::Done) => self.reply(simple_reply(cookie, 0), Vec::new()),
            Ok(Answer::Data(data)) if self.agreed.structured => {
                self.reply(data_chunk(cookie, self.header.offset, data.len()), data);
            }
            Ok(Answer::Data(data)) => self.reply(simple_reply(cookie, 0), data),
            Ok(Answer::Extents(extents)) => {
                let only_one = self.operation == (Operation::Status { only_one: true });
                let extents = wire_extents(&extents, only_one);
                self.reply(status_chunk(cookie, &extents), Vec::new());
            }
            Err(error) => {
                let number = match error.kind() {
                    io::ErrorKind::StorageFull => errno::NO_SPACE,
                    io::ErrorKind::OutOfMemory => errno::NO_MEMORY,
                    io::ErrorKind::InvalidInput => errno::INVALID,
                    _ => errno::IO,
                };
                if number == errno::IO {
                    tracing::error!(%error, "a request to the block device failed");
                }
                self.failed(number, &error.to_string());
            }
        }
    }

    fn failed(mut self, error: u32, why: &str) {
        let cookie = self.header.cookie;
        let reply = match self.agreed.structured {
            true => error_chunk(cookie, error, why),
            false => simple_reply(cookie, error),
        };
        self.reply(reply, Vec::new());
    }

    fn reply(&mut self, head: Vec<u8>, data: Vec<u8>) {
        if let Some(flow) = self.flow.take() {
            flow.reply(Reply {
                head,
                data,
                weight: self.weight,
            });
        }
    }
}

impl Drop for AdmittedRequest {
    fn drop(&mut self) {
        // Its data did not arrive, so the connection ends; or the device dropped it, and the client
        // is notified, which would otherwise wait forever.
        let head = simple_reply(self.header.cookie, errno::SHUTDOWN);
        self.reply(head, Vec::new());
    }
}

/// Extents as they are sent.
fn wire_extents(extents: &[Extent], only_one: bool) -> Vec<(u32, bool)> {
    let most = if only_one { 1 } else { extents.len() };
    extents
        .iter()
        .take(most)
        .filter_map(|extent| Some((u32::try_from(extent.length).ok()?, extent.is_written)))
        .collect()
}

/// Sends replies until there are no more. After an error the rest is discarded, and `broken` is
/// called.
pub(crate) fn send_replies(output: &mut impl Write, flow: &Flow, broken: impl Fn()) {
    let mut is_broken = false;
    while let Some(mut reply) = flow.next_reply() {
        if !is_broken {
            let sent = if reply.data.len() <= TOGETHER_BYTES_MAX {
                reply.head.extend_from_slice(&reply.data);
                output.write_all(&reply.head)
            } else {
                let head = output.write_all(&reply.head);
                head.and_then(|()| output.write_all(&reply.data))
            };
            if let Err(error) = sent {
                tracing::debug!(%error, "a client does not accept more replies");
                is_broken = true;
                flow.break_off();
                broken();
            }
        }
        flow.sent(reply.weight);
    }
}
