//! `headwater tile`: one tile as JSON, in Respawn's shape.

use crate::address::Address;
use crate::failure::Failure;
use crate::output::print;
use crate::store::DbArgs;
use clap::Args;
use headwater::Level;
use headwater_wire::tile::{TileColumn, tile_json};

/// Print a tile: 512 buckets of 2^LEVEL seconds
#[derive(Debug, Args)]
#[command(after_help = "\
Tile OFFSET begins OFFSET x 512 x 2^LEVEL seconds after 1970. The time of a row is the mean time of its events, in
seconds. Empty buckets have no row; what is not finite is null.

Example, a day and a half of January 2013 in buckets of 256 seconds:
  headwater tile --db ./data weather,origin=EWR.temp 8 10353")]
pub(crate) struct Tile {
    #[command(flatten)]
    db: DbArgs,

    /// The field, as TABLE,TAG=VALUE.FIELD
    #[arg(value_name = "DEVICE.CHANNEL")]
    address: String,

    /// Level, -20 to 40: a bucket is 2^LEVEL seconds wide
    #[arg(value_name = "LEVEL", value_parser = parse_level, allow_hyphen_values = true)]
    level: Level,

    /// Number of the tile, counted from 1970
    #[arg(value_name = "OFFSET", allow_hyphen_values = true)]
    offset: i64,

    /// Columns: time, mean, stddev, count, min, max, sum
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse_column, default_value = "time,mean,stddev,count")]
    fields: Vec<TileColumn>,
}

fn parse_level(text: &str) -> Result<Level, String> {
    text.parse()
        .ok()
        .and_then(Level::new)
        .ok_or_else(|| "expected a level from -20 to 40".to_owned())
}

fn parse_column(text: &str) -> Result<TileColumn, String> {
    TileColumn::from_name(text)
        .ok_or_else(|| "expected time, mean, stddev, count, min, max or sum".to_owned())
}

impl Tile {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let db = self.db.open_to_read()?;
        let snapshot = db.snapshot();
        let (stream, field, _) = Address::of_field(&snapshot, &self.address)?;
        let buckets = snapshot.tile(&stream, &field, self.level, self.offset)?;
        let buckets = buckets
            .iter()
            .map(|(bucket, aggregate)| (*bucket, aggregate));
        let json = tile_json(self.level, self.offset, &self.fields, buckets);
        print(&format!("{json}\n"))
    }
}
