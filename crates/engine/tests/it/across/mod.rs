//! Several databases read as one: whatever is asked, the answer is that of one database that holds
//! all of it.

mod aged;
mod compare;
mod copies;
mod fetching;
mod keeping;
mod part_database;
mod replays;
mod union;
mod unreadable;
mod world;
