//! States and copies of them: what a database names and holds for others, which bytes are needed
//! for tiles, and copies with holes that answer as the source does, or say elsewhere.

mod clones;
mod copies;
mod edge;
mod needed;
mod passing;
mod retained;
mod sharing;
mod states;
mod subscriptions;
mod tails;
