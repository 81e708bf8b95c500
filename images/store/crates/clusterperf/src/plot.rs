//! Plots of results, as SVG or PNG by the ending of the file's name: distributions where there are any, else latencies.

use std::error::Error;
use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use super::breakdown::Breakdown;
use super::error::UsageError;
use super::report::{Results, time};

const SIZE: (u32, u32) = (1000, 600);
const FONT: &str = "sans-serif";

/// One line of a plot.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
}

/// There is no plot.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    #[error("the built-in font cannot be used")]
    Font,
    /// As the library says it: its type depends on what is drawn on.
    #[error("{0}")]
    Drawing(String),
    #[error("cannot plot to {}: {error}", file.display())]
    File {
        file: PathBuf,
        error: Box<PlotError>,
    },
}

impl PlotError {
    fn drawing<E: Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> PlotError {
        PlotError::Drawing(error.to_string())
    }
}

pub fn check(file: &Path) -> Result<(), UsageError> {
    match file.extension().and_then(|ending| ending.to_str()) {
        Some("svg" | "png") => Ok(()),
        _ => Err(UsageError::PlotName),
    }
}

fn register() -> Result<(), PlotError> {
    // Text is drawn here for PNG only; SVG leaves it to whoever shows it. A bare machine has no fonts.
    register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT)
        .map_err(|_| PlotError::Font)
}

/// The plot as SVG.
pub fn svg(tests: &[Results]) -> Result<String, PlotError> {
    register()?;
    let mut text = String::new();
    draw(
        tests,
        SVGBackend::with_string(&mut text, SIZE).into_drawing_area(),
    )?;
    Ok(text)
}

pub fn plot(tests: &[Results], file: &Path) -> Result<(), PlotError> {
    register()?;
    let drawn = if file.extension().is_some_and(|ending| ending == "png") {
        draw(tests, BitMapBackend::new(file, SIZE).into_drawing_area())
    } else {
        draw(tests, SVGBackend::new(file, SIZE).into_drawing_area())
    };
    drawn.map_err(|error| PlotError::File {
        file: file.to_owned(),
        error: Box::new(error),
    })
}

fn draw<B: DrawingBackend>(
    tests: &[Results],
    area: DrawingArea<B, Shift>,
) -> Result<(), PlotError> {
    area.fill(&WHITE).map_err(PlotError::drawing)?;
    let broken_down = broken_down(tests);
    if !broken_down.is_empty() {
        bars(&area, &broken_down)?;
    } else if tests.iter().any(|test| !test.cdf.is_empty()) {
        let series = tests
            .iter()
            .filter(|test| !test.cdf.is_empty())
            .map(|test| Series {
                name: test.test.clone(),
                points: test.cdf.clone(),
            });
        let labels = ("latency, us", "share of operations");
        lines(
            &area,
            "Distribution of latency",
            labels,
            &series.collect::<Vec<_>>(),
            Some(1.0),
        )?;
    } else if tests.iter().any(|test| !test.rates.is_empty()) {
        let series = tests.iter().map(|test| Series {
            name: test.test.clone(),
            points: test
                .rates
                .iter()
                .map(|rate| (f64::from(rate.clients), rate.objects_per_second / 1000.0))
                .collect(),
        });
        let labels = ("clients", "thousand objects per second");
        lines(
            &area,
            "Throughput",
            labels,
            &series.collect::<Vec<_>>(),
            None,
        )?;
    } else {
        lines(
            &area,
            "Latency by size",
            ("bytes", "median, us"),
            &by_size(tests),
            None,
        )?;
    }
    area.present().map_err(PlotError::drawing)
}

/// Entries whose time was broken down.
fn broken_down(tests: &[Results]) -> Vec<(&str, &Breakdown)> {
    let entries = tests.iter().flat_map(|test| &test.entries);
    entries
        .filter_map(|entry| Some((entry.name.as_str(), entry.samples.breakdown.as_ref()?)))
        .collect()
}

/// Where times differ by more than this, bars show shares: the short ones would not be seen.
const MAX_RATIO: f64 = 8.0;

/// Names of segments, in the order of those that have most of them.
fn names_of(all: &[(&str, &Breakdown)]) -> Vec<&'static str> {
    let mut segments: Vec<_> = all
        .iter()
        .map(|(_, breakdown)| &breakdown.segments)
        .collect();
    segments.sort_by_key(|segments| std::cmp::Reverse(segments.len()));
    let mut names = Vec::new();
    for segment in segments.into_iter().flatten() {
        if !names.contains(&segment.name) {
            names.push(segment.name);
        }
    }
    names
}

/// A bar for each kind of operation: the medians of its segments, one on another.
fn bars<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    all: &[(&str, &Breakdown)],
) -> Result<(), PlotError> {
    let medians = |breakdown: &Breakdown| -> Vec<(&'static str, f64)> {
        let segments = breakdown.segments.iter();
        segments
            .map(|segment| (segment.name, segment.median_us))
            .collect()
    };
    let sum = |breakdown: &Breakdown| medians(breakdown).iter().map(|(_, us)| us).sum::<f64>();
    let sums = || all.iter().map(|(_, breakdown)| sum(breakdown));
    let (low, high) = (sums().fold(f64::MAX, f64::min), sums().fold(0.0, f64::max));
    let is_share = high > low * MAX_RATIO;
    let top = if is_share { 100.0 } else { high };
    let label = match is_share {
        true => "share of the medians, %",
        false => "median of each segment, us",
    };
    let mut chart = ChartBuilder::on(area)
        .caption("Latency breakdown", (FONT, 22))
        .margin(12)
        .y_label_area_size(66)
        // The legend has its place beside the bars.
        .build_cartesian_2d(0.0..all.len() as f64 * 1.35, 0.0..top * 1.15)
        .map_err(PlotError::drawing)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().x_labels(0).y_desc(label);
    mesh.light_line_style(TRANSPARENT);
    mesh.label_style((FONT, 14)).axis_desc_style((FONT, 15));
    mesh.draw().map_err(PlotError::drawing)?;
    for (number, name) in names_of(all).iter().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        let rectangles = all.iter().enumerate().filter_map(|(at, (_, breakdown))| {
            let scale = if is_share {
                100.0 / sum(breakdown).max(f64::MIN_POSITIVE)
            } else {
                1.0
            };
            let medians = medians(breakdown);
            let place = medians.iter().position(|(segment, _)| segment == name)?;
            let below: f64 = medians[..place].iter().map(|(_, us)| us * scale).sum();
            let (left, height) = (at as f64 + 0.15, medians[place].1 * scale);
            Some(Rectangle::new(
                [(left, below), (left + 0.7, below + height)],
                color.filled(),
            ))
        });
        chart
            .draw_series(rectangles)
            .map_err(PlotError::drawing)?
            .label(*name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], color.filled()));
    }
    // What is common to all names, the test's, is left out where there are many.
    let size = if all.len() > 4 { 12 } else { 14 };
    for (at, (name, breakdown)) in all.iter().enumerate() {
        let height = if is_share { top } else { sum(breakdown) };
        let short = name.rsplit('.').next().filter(|_| all.len() > 4);
        let name = short.unwrap_or(name).to_owned();
        let lines = [(name, 0.09), (time(breakdown.whole.median_us), 0.05)];
        let lines = lines.map(|(line, above)| {
            let place = (at as f64 + 0.15, height + top * above);
            Text::new(line, place, (FONT, size))
        });
        chart.draw_series(lines).map_err(PlotError::drawing)?;
    }
    let mut labels = chart.configure_series_labels();
    labels
        .label_font((FONT, 14))
        .background_style(WHITE.mix(0.8));
    labels
        .border_style(BLACK.mix(0.3))
        .position(SeriesLabelPosition::MiddleRight);
    labels.draw().map_err(PlotError::drawing)
}

/// Medians by object size, one line for each kind of operation.
fn by_size(tests: &[Results]) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for entry in tests.iter().flat_map(|test| &test.entries) {
        let kind = entry
            .name
            .trim_end_matches(|c: char| c.is_ascii_digit() || "KM.".contains(c));
        let point = (entry.object_bytes as f64, entry.summary.median_us);
        match all.iter_mut().find(|series| series.name == kind) {
            Some(series) => series.points.push(point),
            None => all.push(Series {
                name: kind.to_owned(),
                points: vec![point],
            }),
        }
    }
    all
}

/// Logarithmic in x; in y too, unless it ends at `top`.
fn lines<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    title: &str,
    (x_label, y_label): (&str, &str),
    all: &[Series],
    top: Option<f64>,
) -> Result<(), PlotError> {
    let points = || all.iter().flat_map(|series| &series.points);
    let range = |values: &mut dyn Iterator<Item = f64>| {
        let (low, high) = values.fold((f64::MAX, 0.0_f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let low = if low.is_finite() && low < f64::MAX {
            low.max(0.1)
        } else {
            1.0
        };
        (low * 0.8, (high * 1.25).max(low * 2.0))
    };
    let x = range(&mut points().map(|point| point.0));
    let y = range(&mut points().map(|point| point.1));
    let mut builder = ChartBuilder::on(area);
    builder.caption(title, (FONT, 22)).margin(12);
    builder.x_label_area_size(44).y_label_area_size(66);
    macro_rules! chart {
        ($y:expr) => {{
            let mut chart = builder
                .build_cartesian_2d((x.0..x.1).log_scale(), $y)
                .map_err(PlotError::drawing)?;
            let mut mesh = chart.configure_mesh();
            mesh.x_desc(x_label)
                .y_desc(y_label)
                .label_style((FONT, 14))
                .axis_desc_style((FONT, 15));
            mesh.draw().map_err(PlotError::drawing)?;
            for (number, series) in all.iter().enumerate() {
                let color = Palette99::pick(number).to_rgba();
                let style = color.stroke_width(2);
                chart
                    .draw_series(
                        LineSeries::new(series.points.iter().copied(), style).point_size(3),
                    )
                    .map_err(PlotError::drawing)?
                    .label(series.name.clone())
                    .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
            }
            let mut labels = chart.configure_series_labels();
            labels
                .label_font((FONT, 14))
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK.mix(0.3));
            labels.position(SeriesLabelPosition::LowerRight);
            labels.draw().map_err(PlotError::drawing)?;
        }};
    }
    match top {
        Some(top) => chart!(0.0..top),
        None => chart!((y.0..y.1).log_scale()),
    }
    Ok(())
}
