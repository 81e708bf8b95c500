//! Plots of results, as SVG or PNG by the ending of the file's name: distributions where there are any, else latencies.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use super::report::Results;

const SIZE: (u32, u32) = (1000, 600);
const FONT: &str = "sans-serif";

/// One line of a plot.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
}

pub fn check(file: &Path) -> Result<(), String> {
    match file.extension().and_then(|ending| ending.to_str()) {
        Some("svg" | "png") => Ok(()),
        _ => Err("--plot: a file whose name ends with .svg or .png".to_owned()),
    }
}

fn register() -> Result<(), String> {
    // Text is drawn here for PNG only; SVG leaves it to whoever shows it. A bare machine has no fonts.
    register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT)
        .map_err(|_| "the built-in font cannot be used".to_owned())
}

/// The plot as SVG.
pub fn svg(tests: &[Results]) -> Result<String, String> {
    register()?;
    let mut text = String::new();
    draw(
        tests,
        SVGBackend::with_string(&mut text, SIZE).into_drawing_area(),
    )?;
    Ok(text)
}

pub fn plot(tests: &[Results], file: &Path) -> Result<(), String> {
    register()?;
    let drawn = if file.extension().is_some_and(|ending| ending == "png") {
        draw(tests, BitMapBackend::new(file, SIZE).into_drawing_area())
    } else {
        draw(tests, SVGBackend::new(file, SIZE).into_drawing_area())
    };
    drawn.map_err(|error| format!("cannot plot to {}: {error}", file.display()))
}

fn draw<B: DrawingBackend>(tests: &[Results], area: DrawingArea<B, Shift>) -> Result<(), String> {
    let text = |error: DrawingAreaErrorKind<B::ErrorType>| error.to_string();
    area.fill(&WHITE).map_err(text)?;
    if tests.iter().any(|test| !test.cdf.is_empty()) {
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
    area.present().map_err(text)
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
) -> Result<(), String> {
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
                .map_err(|error| error.to_string())?;
            let mut mesh = chart.configure_mesh();
            mesh.x_desc(x_label)
                .y_desc(y_label)
                .label_style((FONT, 14))
                .axis_desc_style((FONT, 15));
            mesh.draw().map_err(|error| error.to_string())?;
            for (number, series) in all.iter().enumerate() {
                let color = Palette99::pick(number).to_rgba();
                let style = color.stroke_width(2);
                chart
                    .draw_series(
                        LineSeries::new(series.points.iter().copied(), style).point_size(3),
                    )
                    .map_err(|error| error.to_string())?
                    .label(series.name.clone())
                    .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
            }
            let mut labels = chart.configure_series_labels();
            labels
                .label_font((FONT, 14))
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK.mix(0.3));
            labels.position(SeriesLabelPosition::LowerRight);
            labels.draw().map_err(|error| error.to_string())?;
        }};
    }
    match top {
        Some(top) => chart!(0.0..top),
        None => chart!((y.0..y.1).log_scale()),
    }
    Ok(())
}
