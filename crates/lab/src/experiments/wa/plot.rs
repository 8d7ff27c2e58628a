//! Plots as SVG, for the docs: panels of lines and points, plain, readable on a light and on a dark
//! page.

use crate::harness::Failure;
use std::fmt::Write;
use std::path::Path;

/// Style of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Line,
    Dashed,
    Points,
}

/// One series of a panel.
pub(crate) struct Series {
    pub(crate) name: &'static str,
    pub(crate) mark: Mark,
    /// Index of the colour: equal for equal series in all panels.
    pub(crate) colour: usize,
    pub(crate) points: Vec<(f64, f64)>,
}

/// One pair of axes.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) series: Vec<Series>,
}

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 190.0;
/// Around the axes of a panel: left, top, right, bottom.
const MARGIN: [f64; 4] = [46.0, 26.0, 12.0, 38.0];
const LEGEND: f64 = 26.0;

/// Colours that are distinct on white and on black, also for people who do not distinguish red from
/// green (Okabe and Ito).
const STYLE: &str = "\
    text { font: 11px sans-serif; fill: #24292f; } .title { font-weight: bold; } .axis { stroke: #57606a; fill: none; } \
    .grid { stroke: #8c959f; stroke-opacity: .3; } .line { fill: none; stroke-width: 1.8; } .dash { stroke-dasharray: 5 3; } \
    .c0 { stroke: #0072b2; color: #0072b2; } .c1 { stroke: #d55e00; color: #d55e00; } \
    .c2 { stroke: #009e73; color: #009e73; } .c3 { stroke: #cc79a7; color: #cc79a7; } \
    .dot { fill: currentColor; stroke: none; } \
    @media (prefers-color-scheme: dark) { text { fill: #d0d7de; } .axis { stroke: #8c959f; } \
    .c0 { stroke: #56b4e9; color: #56b4e9; } .c1 { stroke: #e69f00; color: #e69f00; } }";

/// Writes panels into a file, `columns` in a row, with one legend for all.
pub(crate) fn write(
    path: &Path,
    caption: &str,
    columns: usize,
    panels: &[Panel],
) -> Result<(), Failure> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    std::fs::write(path, svg(caption, columns, panels)?)?;
    eprintln!("lab: wrote {}", path.display());
    Ok(())
}

fn svg(caption: &str, columns: usize, panels: &[Panel]) -> Result<String, Failure> {
    let columns = columns.clamp(1, panels.len().max(1));
    let rows = panels.len().div_ceil(columns);
    let (width, height) = (columns as f64 * WIDTH, rows as f64 * HEIGHT + LEGEND);
    let mut out = String::new();
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" role=\"img\">"
    )?;
    writeln!(out, "<title>{}</title>", escaped(caption))?;
    writeln!(out, "<style>{STYLE}</style>")?;
    legend(&mut out, panels)?;
    for (index, panel) in panels.iter().enumerate() {
        let x = (index % columns) as f64 * WIDTH;
        let y = (index / columns) as f64 * HEIGHT + LEGEND;
        writeln!(out, "<g transform=\"translate({x:.0} {y:.0})\">")?;
        panel_svg(&mut out, panel)?;
        writeln!(out, "</g>")?;
    }
    writeln!(out, "</svg>")?;
    Ok(out)
}

fn legend(out: &mut String, panels: &[Panel]) -> Result<(), Failure> {
    let mut names: Vec<&Series> = Vec::new();
    for series in panels.iter().flat_map(|p| &p.series) {
        if names.iter().all(|n| n.name != series.name) {
            names.push(series);
        }
    }
    let mut x = 8.0;
    for series in names {
        match series.mark {
            Mark::Points => writeln!(
                out,
                "<circle class=\"dot c{}\" cx=\"{:.0}\" cy=\"13\" r=\"3\"/>",
                series.colour,
                x + 12.0
            )?,
            _ => writeln!(
                out,
                "<path class=\"line c{}{}\" d=\"M{x:.0} 13h24\"/>",
                series.colour,
                dash(series.mark)
            )?,
        }
        writeln!(
            out,
            "<text x=\"{:.0}\" y=\"17\">{}</text>",
            x + 30.0,
            escaped(series.name)
        )?;
        x += 46.0 + 6.2 * series.name.chars().count() as f64;
    }
    Ok(())
}

fn panel_svg(out: &mut String, panel: &Panel) -> Result<(), Failure> {
    let all = || {
        panel
            .series
            .iter()
            .flat_map(|s| &s.points)
            .filter(|(x, y)| x.is_finite() && y.is_finite())
    };
    let range = |of: &dyn Fn(&(f64, f64)) -> f64| {
        all().fold((f64::MAX, f64::MIN), |(a, b), p| {
            (a.min(of(p)), b.max(of(p)))
        })
    };
    let (x_axis, y_axis) = (Axis::over(range(&|p| p.0)), Axis::over(range(&|p| p.1)));
    let [left, top, right, bottom] = MARGIN;
    let (inner_width, inner_height) = (WIDTH - left - right, HEIGHT - top - bottom);
    let place_x = |x: f64| left + x_axis.share(x) * inner_width;
    let place_y = |y: f64| top + (1.0 - y_axis.share(y)) * inner_height;
    writeln!(
        out,
        "<text class=\"title\" x=\"{left}\" y=\"{}\">{}</text>",
        top - 9.0,
        escaped(&panel.title)
    )?;
    for tick in y_axis.ticks() {
        let y = place_y(tick);
        writeln!(
            out,
            "<path class=\"grid\" d=\"M{left} {y:.1}h{inner_width}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 5.0,
            y + 4.0,
            number(tick)
        )?;
    }
    let base = top + inner_height;
    for tick in x_axis.ticks() {
        let x = place_x(tick);
        writeln!(
            out,
            "<path class=\"axis\" d=\"M{x:.1} {base}v4\"/><text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            base + 15.0,
            number(tick)
        )?;
    }
    writeln!(
        out,
        "<path class=\"axis\" d=\"M{left} {top}V{base}H{}\"/>",
        WIDTH - right
    )?;
    writeln!(
        out,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
        left + inner_width / 2.0,
        HEIGHT - 9.0,
        escaped(panel.x)
    )?;
    writeln!(
        out,
        "<text transform=\"translate(11 {:.0}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        top + inner_height / 2.0,
        escaped(panel.y)
    )?;
    for series in &panel.series {
        let points = series
            .points
            .iter()
            .filter(|(x, y)| x.is_finite() && y.is_finite());
        if series.mark == Mark::Points {
            for (x, y) in points {
                writeln!(
                    out,
                    "<circle class=\"dot c{}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.4\"/>",
                    series.colour,
                    place_x(*x),
                    place_y(*y)
                )?;
            }
            continue;
        }
        let path: Vec<String> = points
            .map(|(x, y)| format!("{:.1} {:.1}", place_x(*x), place_y(*y)))
            .collect();
        writeln!(
            out,
            "<path class=\"line c{}{}\" d=\"M{}\"/>",
            series.colour,
            dash(series.mark),
            path.join("L")
        )?;
    }
    Ok(())
}

fn dash(mark: Mark) -> &'static str {
    if mark == Mark::Dashed { " dash" } else { "" }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A number in its shortest form that is clear on an axis.
fn number(value: f64) -> String {
    if value.abs() >= 1e6 {
        format!("{} M", (value / 1e5).round() / 10.0)
    } else {
        format!("{}", (value * 1e4).round() / 1e4)
    }
}

/// A linear axis from one round number to another.
struct Axis {
    from: f64,
    to: f64,
    step: f64,
}

impl Axis {
    fn over((least, most): (f64, f64)) -> Axis {
        if least > most {
            return Axis {
                from: 0.0,
                to: 1.0,
                step: 0.5,
            };
        }
        let span = (most - least).max(most.abs() * 1e-3).max(1e-9);
        // One, two or five of a power of ten, so that there are four to eight.
        let power = 10f64.powf((span / 4.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|m| m * power)
            .into_iter()
            .find(|step| span / step <= 5.0)
            .unwrap_or(power * 10.0);
        let (first, last) = ((least / step).floor(), (most / step).ceil());
        Axis {
            from: first * step,
            to: last.max(first + 1.0) * step,
            step,
        }
    }

    fn share(&self, value: f64) -> f64 {
        (value - self.from) / (self.to - self.from).max(f64::MIN_POSITIVE)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let count = ((self.to - self.from) / self.step).round() as usize;
        let (from, step) = (self.from, self.step);
        (0..=count).map(move |i| from + i as f64 * step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_round_and_hold_what_they_show() {
        for (least, most) in [
            (1.0, 18.3),
            (32.0, 480.0),
            (1.0, 1.0),
            (0.0, 0.0),
            (0.998, 1.31),
        ] {
            let axis = Axis::over((least, most));
            let count = axis.ticks().count();
            assert!((2..=8).contains(&count), "{least} to {most}: {count}");
            assert!(axis.from <= least && axis.to >= most);
            assert!((0.0..=1.0).contains(&axis.share(most)));
        }
    }

    #[test]
    fn a_plot_shows_each_series_once_in_its_legend() -> Result<(), Failure> {
        let panel = |title: &str| Panel {
            title: title.to_owned(),
            x: "n",
            y: "WA",
            series: vec![
                Series {
                    name: "run & model",
                    mark: Mark::Points,
                    colour: 0,
                    points: vec![(1.0, 2.0), (2.0, f64::NAN)],
                },
                Series {
                    name: "line",
                    mark: Mark::Dashed,
                    colour: 1,
                    points: vec![(1.0, 1.0), (2.0, 3.0)],
                },
            ],
        };
        let text = svg("two", 2, &[panel("a"), panel("<b>")])?;
        assert_eq!(text.matches("run &amp; model").count(), 1);
        assert_eq!(
            text.matches("<circle").count(),
            1 + 2,
            "legend, and one point each"
        );
        assert!(text.contains("&lt;b&gt;") && !text.contains("NaN"));
        assert_eq!(text.matches("<g ").count(), text.matches("</g>").count());
        Ok(())
    }
}
