//! Live values: the newest values of streams over the publish-subscribe of a bus, for nodes and for
//! other programs.
//!
//! Each stream has a topic of its own, so that the access list of the topic is that of the stream.
//! From bottom to top: `item` the newest values of a stream, as XML; `topics` the topic of a
//! stream, and who may publish and hear it; `publisher` what a node publishes next; `listener` what
//! a node has heard; `reconciler` which access lists of topics are to be applied at a server next.
//!
//! Invariants: no sockets, clocks and threads. Live values are a view: nothing is stored or
//! confirmed because of them. Memory is bounded at both ends; when the bus is slow, newer values
//! replace older ones, and the numbers of the items tell how many are missing. Concurrency: plain
//! data, one owner. Failure: a malformed item is an error that names the expected format. Format:
//! docs/format/values.md.

mod item;
mod listener;
mod publisher;
mod reconciler;
mod topics;

pub use item::{FieldValue, ITEM_BYTES_MAX, ItemError, NewestValues};
pub use listener::{HEARD_BYTES_MAX, HEARD_STREAMS_MAX, HeardOutcome, HeardValues, ValueListener};
pub use publisher::{PublishAnswer, PublishCounts, PublisherLimits, ValuePublisher, ValueRequest};
pub use reconciler::{ListReconciler, TopicAccounts};
pub use topics::{StreamReaders, is_publishable, is_value_topic, topic_of, value_lists};
