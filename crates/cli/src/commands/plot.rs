//! `headwater plot`: a field over time, drawn in the terminal, at any zoom.
//!
//! Everything is answered from bins: one per dot column, so the cost does not grow with the number
//! of events.

use crate::address::Address;
use crate::arguments::RangeArgs;
use crate::chart::{Chart, Point, ValueAxis, dot_columns};
use crate::failure::Failure;
use crate::grid::grouped;
use crate::output::print;
use crate::store::DbArgs;
use crate::values::Number;
use clap::Args;
use headwater::{
    Aggregate, AggregateSpec, Bins, ClosedRange, FieldType, Level, Snapshot, StreamName, Timestamp,
};
use headwater_wire::durations::format_duration_ns;
use headwater_wire::instant::format_instant;
use std::io::IsTerminal;

const DEFAULT_WIDTH: u16 = 100;
const DEFAULT_HEIGHT: u16 = 20;

/// Draw fields over time: mean, and the envelope from minimum to maximum
#[derive(Debug, Args)]
#[command(after_help = "\
Example, a year and a day of it:
  headwater plot --db ./data weather,origin=EWR.temp
  headwater plot --db ./data weather,origin=EWR.temp --from 2013-07-04 --to 2013-07-05")]
pub(crate) struct Plot {
    #[command(flatten)]
    db: DbArgs,

    /// Fields to draw, one chart each, as TABLE,TAG=VALUE.FIELD
    #[arg(required = true, value_name = "STREAM.FIELD")]
    addresses: Vec<String>,

    #[command(flatten)]
    range: RangeArgs,

    /// Characters in a line; that of the terminal if not given
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(20..=2_000))]
    width: Option<u16>,

    /// Lines of the chart
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(2..=500))]
    height: Option<u16>,
}

impl Plot {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let db = self.db.open_to_read()?;
        let snapshot = db.snapshot();
        for (index, address) in self.addresses.iter().enumerate() {
            if index > 0 {
                print("\n")?;
            }
            self.plot(&snapshot, address)?;
        }
        Ok(())
    }

    fn plot(&self, snapshot: &Snapshot, address: &str) -> Result<(), Failure> {
        let (stream, field, field_type) = Address::of_field(snapshot, address)?;
        if !field_type.is_numeric() {
            return Err(Failure::failed(format!(
                "`{address}` is {field_type}: only numbers and booleans can be drawn"
            )));
        }
        let source = Source {
            snapshot,
            stream: &stream,
            field: &field,
        };
        let Some(range) = source.shown_range(self.range.range(), self.range)? else {
            return print(&format!("{stream}.{field}: no values in this range\n"));
        };
        let whole = source.whole(range)?;
        let text = self.draw(&source, range, &whole, field_type)?;
        print(&text)
    }

    fn draw(
        &self,
        source: &Source<'_>,
        range: ClosedRange,
        whole: &Aggregate,
        field_type: FieldType,
    ) -> Result<String, Failure> {
        let (width, height) = self.size();
        let low = Number::min(whole).approximate();
        let high = Number::max(whole).approximate();
        let axis = match (low, high) {
            (Some(low), Some(high)) => ValueAxis::new(low, high, height),
            _ => ValueAxis::new(0.0, 1.0, height),
        };
        let columns = dot_columns(width.saturating_sub(axis.label_width() + 2).max(10));
        let from_ns = range.first.as_nanos();
        let span = i128::from(range.last.as_nanos()) - i128::from(from_ns) + 1;
        let bin_ns = i64::try_from((span + columns as i128 - 1) / columns as i128)
            .unwrap_or(i64::MAX)
            .max(1);
        let points = source.points(range, bin_ns, columns)?;
        let chart = Chart {
            points: &points,
            from_ns,
            bin_ns,
            axis: &axis,
            height,
            is_colored: is_colored(),
        };
        let title = format!(
            "{}.{} ({field_type})  {} … {}\n{} values, min {}, mean {}, max {}; one dot is {}\n",
            source.stream,
            source.field,
            format_instant(range.first),
            format_instant(self.range.to.unwrap_or(range.last)),
            grouped(whole.count),
            Number::min(whole),
            whole
                .mean()
                .map_or_else(String::new, |mean| format!("{mean:.6}")),
            Number::max(whole),
            about(bin_ns),
        );
        Ok(title + &chart.draw())
    }

    /// Characters per line and lines.
    fn size(&self) -> (usize, usize) {
        let terminal = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
        let terminal = terminal.filter(|size| size.ws_col > 0 && size.ws_row > 0);
        let width = self
            .width
            .or_else(|| terminal.map(|size| size.ws_col.max(20)))
            .or_else(|| std::env::var("COLUMNS").ok()?.parse().ok())
            .unwrap_or(DEFAULT_WIDTH);
        let height = self
            .height
            .or_else(|| terminal.map(|size| size.ws_row.saturating_sub(6).clamp(5, 30)))
            .unwrap_or(DEFAULT_HEIGHT);
        (usize::from(width), usize::from(height))
    }
}

fn is_colored() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// A duration in its two leading digits or so: `2.6d` is `2d14h`, but nobody needs more than `2d`.
fn about(nanos: i64) -> String {
    const UNITS: [i64; 7] = [
        86_400_000_000_000,
        3_600_000_000_000,
        60_000_000_000,
        1_000_000_000,
        1_000_000,
        1_000,
        1,
    ];
    let unit = UNITS
        .into_iter()
        .find(|unit| nanos >= 3 * unit)
        .unwrap_or(1);
    format_duration_ns(nanos / unit * unit)
}

/// The field of a stream that is drawn.
struct Source<'a> {
    snapshot: &'a Snapshot,
    stream: &'a StreamName,
    field: &'a str,
}

impl Source<'_> {
    fn bins(&self, range: ClosedRange, bins: Bins) -> Result<Vec<headwater::Bin>, Failure> {
        let spec = AggregateSpec {
            range,
            bins,
            first_last: false,
        };
        Ok(self.snapshot.aggregate(self.stream, self.field, &spec)?)
    }

    fn whole(&self, range: ClosedRange) -> Result<Aggregate, Failure> {
        let bins = self.bins(range, Bins::Whole)?;
        Ok(bins.first().map_or(Aggregate::EMPTY, |bin| bin.aggregate))
    }

    /// The range to show: ends that were not given are where the data begin and end. `None` without
    /// data.
    fn shown_range(
        &self,
        range: ClosedRange,
        given: RangeArgs,
    ) -> Result<Option<ClosedRange>, Failure> {
        let Some(extent) = self.extent(range)? else {
            return Ok(None);
        };
        let first = given.from.unwrap_or(extent.first);
        let last = given.to.map_or(extent.last, |_| range.last);
        Ok(Some(ClosedRange::new(first, last)))
    }

    /// The instants of the first and the last value: from coarse buckets down to the one that holds
    /// it alone.
    fn extent(&self, range: ClosedRange) -> Result<Option<ClosedRange>, Failure> {
        let (Some(first), Some(last)) = (self.end_of(range, false)?, self.end_of(range, true)?)
        else {
            return Ok(None);
        };
        Ok(Some(ClosedRange::new(first, last)))
    }

    fn end_of(&self, range: ClosedRange, is_last: bool) -> Result<Option<Timestamp>, Failure> {
        const COARSE: i32 = 34;
        const LEVELS_DOWN: i32 = 8;
        let mut level = Level::clamped(COARSE);
        let mut part = range;
        loop {
            let bins = self.bins(part, Bins::Level(level))?;
            let Some(bin) = (if is_last { bins.last() } else { bins.first() }) else {
                return Ok(None);
            };
            if bin.aggregate.count == 1 {
                return Ok(bin.aggregate.mean_time().map(Timestamp::from_nanos));
            }
            part = bucket(level, bin.start).intersect(&range);
            if level == Level::MIN {
                return Ok(Some(if is_last { part.last } else { part.first }));
            }
            level = Level::clamped(level.get() - LEVELS_DOWN);
        }
    }

    fn points(
        &self,
        range: ClosedRange,
        bin_ns: i64,
        columns: usize,
    ) -> Result<Vec<Option<Point>>, Failure> {
        let origin_ns = range.first.as_nanos();
        let bins = self.bins(
            range,
            Bins::Every {
                width_ns: bin_ns,
                origin_ns,
            },
        )?;
        let mut points = vec![None; columns];
        for bin in bins {
            let distance = i128::from(bin.start.as_nanos()) - i128::from(origin_ns);
            let column = usize::try_from(distance / i128::from(bin_ns)).unwrap_or(usize::MAX);
            let aggregate = &bin.aggregate;
            let min = Number::min(aggregate).approximate();
            let max = Number::max(aggregate).approximate();
            if let (Some(min), Some(max), Some(mean)) = (min, max, aggregate.mean())
                && let Some(point) = points.get_mut(column)
            {
                *point = Some(Point { min, max, mean });
            }
        }
        Ok(points)
    }
}

fn bucket(level: Level, at: Timestamp) -> ClosedRange {
    level.bucket_span(level.bucket_of(at))
}
