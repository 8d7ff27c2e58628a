//! Model of visits that search a week for events, as far as the RESPAWN paper describes its users.
//!
//! From the paper:
//!
//! - Participants browse a plot of a week of one laboratory, to tell for how many hours it was
//!   occupied. So they go into each region by itself, for its length and whether it is continuous
//!   (section IV-D).
//! - Users begin with the lowest resolution for an overview, and drill down from there to sections
//!   of interest (section III-D, periodic migration; again in IV-D, where it is the explanation of
//!   the result).
//! - Users are likelier to go where the data changes considerably (section IV-D, on prefetching by
//!   deviation). A point of a tile has its deviation beside the mean (section III-A), so that a
//!   plot shows it.
//! - Each click and each zoom is a query (section IV-D), also where the same view was drawn before.
//!
//! Free, since the paper does not say ([`Habits`]): by how much a zoom magnifies, at which width a
//! user stops, whether a page requests tiles again that it has drawn, how strictly the eye goes to
//! what stands out, which sensors tell that a laboratory is occupied, and how many points a plot
//! has. `lab migration` sweeps all of them. Fixed without support of the paper: the
//! eye divides a view into sixteen parts, a visit is about one sensor and examines up to a dozen
//! regions, and a user who has reached the end of the zoom moves once by a view to either side, to
//! see where the region ends.
//!
//! A visit: the overview; the part of it that stands out most and was not examined; zooms, each to
//! the part of the view that stands out most, down to the narrowest view; a view to a side; back to
//! the overview, for the next region. A part stands out by the deviation of its values. The
//! policies are not known here, but the deviation is what two of them rank tiles by: how well they
//! do says that they find what the eye finds, as far as it follows deviations.

use super::sensors::{Channel, FIELDS};
use super::visits::{NARROWEST, PARTS, Tile, View};
use crate::harness::{Random, real, size, unsigned, whole};
use headwater_types::TILE_BUCKETS;
use serde::Serialize;
use std::collections::HashSet;

/// Regions that a visit examines.
const REGIONS: (u64, u64) = (6, 12);

/// Properties of users that the paper leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Habits {
    /// Magnification of a zoom.
    pub(super) zoom: f64,
    /// Seconds of the view in which a user has seen enough.
    pub(super) narrowest: f64,
    /// Views that were drawn before request their tiles again.
    pub(super) repeats: bool,
    /// Zooms of ten that go to the part that stands out most, instead of anywhere in the view.
    pub(super) attention: u64,
    /// The sensor that users look at, in any room; `None` = any.
    pub(super) field: Option<usize>,
    /// Least number of points of a plot; it has less than twice as many.
    pub(super) points: i64,
}

impl Habits {
    /// Every query counts, down to the finest view, always to what stands out, of any sensor.
    pub(super) const DEFAULT: Habits = Habits {
        zoom: 4.0,
        narrowest: NARROWEST,
        repeats: true,
        attention: 10,
        field: None,
        points: TILE_BUCKETS,
    };

    /// All combinations of the sweep for users of a sensor, with plots of so many points.
    pub(super) fn all(field: Option<usize>, points: i64) -> impl Iterator<Item = Habits> {
        let zooms = [2.0, 4.0, 8.0].into_iter();
        let widths = [NARROWEST, 4.0 * NARROWEST, 16.0 * NARROWEST];
        let views = zooms.flat_map(move |zoom| widths.map(|narrowest| (zoom, narrowest)));
        views.flat_map(move |(zoom, narrowest)| {
            [(true, 10), (true, 7), (false, 10), (false, 7)].map(|(repeats, attention)| Habits {
                zoom,
                narrowest,
                repeats,
                attention,
                field,
                points,
            })
        })
    }
}

/// Sums of a channel's values and of their squares up to each second.
pub(super) struct Sums(Vec<(f64, f64)>);

impl Sums {
    pub(super) fn of(channel: &Channel) -> Sums {
        let mut sums = vec![(0.0, 0.0)];
        let mut sum = (0.0, 0.0);
        // Relative to the first value, to avoid rounding errors.
        let around = channel.values.first().copied().unwrap_or(0.0);
        for value in &channel.values {
            let off = value - around;
            sum = (sum.0 + off, sum.1 + off * off);
            sums.push(sum);
        }
        Sums(sums)
    }

    /// Standard deviation of the values of these seconds; 0 of none.
    pub(super) fn deviation(&self, seconds: std::ops::Range<usize>) -> f64 {
        let count = real(seconds.len());
        if count == 0.0 {
            return 0.0;
        }
        let up_to = |second: usize| self.0.get(second).map_or((0.0, 0.0), |sums| *sums);
        let (from, to) = (up_to(seconds.start), up_to(seconds.end));
        let mean = (to.0 - from.0) / count;
        ((to.1 - from.1) / count - mean * mean).max(0.0).sqrt()
    }
}

/// A visit under way.
struct Visit<'a> {
    sums: &'a Sums,
    habits: Habits,
    dice: Random,
    seen: HashSet<Tile>,
    asked: Vec<Vec<Tile>>,
}

impl Visit<'_> {
    fn draw(&mut self, view: View) {
        let tiles: Vec<Tile> = view.tiles(self.habits.points).collect();
        let is_new = |tile: &Tile| !self.seen.contains(tile);
        let asked: Vec<Tile> = match self.habits.repeats {
            true => tiles,
            false => tiles.into_iter().filter(is_new).collect(),
        };
        self.seen.extend(&asked);
        if !asked.is_empty() {
            self.asked.push(asked);
        }
    }

    /// Deviation of a part of a view.
    fn deviation(&self, view: View, part: usize) -> f64 {
        let width = view.seconds / real(PARTS);
        let second = |number: usize| size(whole(view.first + width * real(number)));
        self.sums.deviation(second(part)..second(part + 1))
    }

    /// The part of a view that stands out most, of those that are let in.
    fn outstanding(&self, view: View, is_let_in: impl Fn(usize) -> bool) -> Option<usize> {
        let parts = (0..PARTS).filter(|part| is_let_in(*part));
        let parts = parts.map(|part| (self.deviation(view, part), part));
        let most = parts.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        most.map(|(_, part)| part)
    }

    /// A zoom to a part of a view.
    fn zoomed(&self, view: View, part: usize) -> View {
        let middle = view.first + view.seconds / real(PARTS) * (real(part) + 0.5);
        let seconds = (view.seconds / self.habits.zoom).max(self.habits.narrowest);
        View {
            first: middle - seconds / 2.0,
            seconds,
            ..view
        }
        .within()
    }

    /// From the overview into a region, and to what is beside it.
    fn examine(&mut self, overview: View, region: usize) {
        let mut view = self.zoomed(overview, region);
        self.draw(view);
        // A zoom of less than two is none.
        while view.seconds >= 2.0 * self.habits.narrowest {
            let part = match self.dice.below(10) < self.habits.attention {
                true => self.outstanding(view, |_| true).unwrap_or(PARTS / 2),
                false => size(self.dice.below(unsigned(PARTS))),
            };
            view = self.zoomed(view, part);
            self.draw(view);
        }
        let side = if self.dice.below(2) == 0 { 1.0 } else { -1.0 };
        let beside = View {
            first: view.first + side * view.seconds,
            ..view
        };
        self.draw(beside.within());
    }
}

/// Requests of a visit by view, in order, by a seed.
fn visit(sums: &[Sums], habits: Habits, seed: u64) -> Vec<Vec<Tile>> {
    let mut dice = Random::new(seed);
    let any = size(dice.below(unsigned(sums.len())));
    let in_room = habits.field.unwrap_or(any % FIELDS.len());
    let channel = any / FIELDS.len() * FIELDS.len() + in_room;
    let Some(of_channel) = sums.get(channel) else {
        return Vec::new();
    };
    let regions = REGIONS.0 + dice.below(REGIONS.1 - REGIONS.0 + 1);
    let mut visit = Visit {
        sums: of_channel,
        habits,
        dice,
        seen: HashSet::new(),
        asked: Vec::new(),
    };
    let overview = View::overview(channel);
    let mut examined = HashSet::new();
    visit.draw(overview);
    for _ in 0..regions {
        let next = visit.outstanding(overview, |part| !examined.contains(&part));
        let Some(region) = next else {
            break;
        };
        examined.insert(region);
        visit.examine(overview, region);
        visit.draw(overview);
    }
    visit.asked
}

/// Sums of all channels.
pub(super) fn sums(channels: &[Channel]) -> Vec<Sums> {
    channels.iter().map(Sums::of).collect()
}

/// Visits by seeds from 1 on, each by its views.
pub(super) fn visits(sums: &[Sums], habits: Habits, count: u64) -> Vec<Vec<Vec<Tile>>> {
    (1..=count).map(|seed| visit(sums, habits, seed)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sensors;
    use super::super::visits::{COARSEST, FINEST};
    use super::*;

    #[test]
    fn a_visit_goes_from_the_overview_to_the_event_and_back() {
        // A quiet week, but for one loud minute.
        let mut values = vec![1.0; sensors::SECONDS];
        for (second, value) in values.iter_mut().enumerate().skip(400_000).take(60) {
            *value = if second % 2 == 0 { 50.0 } else { 0.0 };
        }
        let channel = Channel {
            room: 0,
            field: 0,
            values,
        };
        let sums = [Sums::of(&channel)];
        let views = visit(&sums, Habits::DEFAULT, 1);
        let levels = |views: &[Vec<Tile>]| -> Vec<i32> {
            let firsts = views.iter().filter_map(|view| view.first());
            firsts.map(|tile| tile.level).collect()
        };
        // Overview, zooms, a view to the side, the overview again.
        let (first, _) = views.split_at(8);
        assert_eq!(levels(first), [10, 8, 6, 4, 2, 0, 0, 10]);
        let finest = first.get(5).into_iter().flatten();
        let has_event = |tile: &Tile| tile.seconds().contains(&400_030);
        assert!(finest.clone().any(has_event), "{first:?}");
        // Without repetitions the overview is requested once.
        let once = Habits {
            repeats: false,
            ..Habits::DEFAULT
        };
        let views = visit(&sums, once, 1);
        let coarse = levels(&views).into_iter().filter(|level| *level == 10);
        assert_eq!(coarse.count(), 1);
        let all: Vec<&Tile> = views.iter().flatten().collect();
        let distinct: HashSet<&Tile> = all.iter().copied().collect();
        assert_eq!(all.len(), distinct.len());
    }

    #[test]
    fn visits_repeat_and_stay_in_the_week() {
        let channels = sensors::occupied_week(1);
        let sums = sums(&channels);
        let visits_of = |habits| visits(&sums, habits, 10);
        for habits in Habits::all(None, TILE_BUCKETS) {
            let visits = visits_of(habits);
            assert_eq!(visits, visits_of(habits));
            for tile in visits.iter().flatten().flatten() {
                assert!((FINEST..=COARSEST).contains(&tile.level), "{tile:?}");
                assert!(!tile.seconds().is_empty(), "{tile:?}");
                assert!(tile.channel < sensors::ROOMS * FIELDS.len());
            }
        }
        assert_eq!(Habits::all(None, TILE_BUCKETS).count(), 36);
        assert!(Habits::all(None, TILE_BUCKETS).any(|habits| habits == Habits::DEFAULT));
    }
}
