//! Several databases read as one: whatever is asked, the answer is that of one database that holds
//! all of it.

mod compare;
mod copies;
mod keeping;
mod replays;
mod world;
