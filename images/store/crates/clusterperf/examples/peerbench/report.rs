//! Medians of all rounds, as tables for people, JSON and a plot.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::Failure;
use crate::plan::{Case, Measured, Operation};

const TARGETS: [&str; 6] = [
    "ping",
    "memcached",
    "redis",
    "valkey",
    "rcbox",
    "rcbox-library",
];

/// Of one case, by target.
type Row = BTreeMap<String, Measured>;

pub fn report(folder: &Path) -> Result<(), Failure> {
    let mut all: BTreeMap<(Case, String), Vec<Measured>> = BTreeMap::new();
    for line in std::io::stdin().lines() {
        let measured: Measured = serde_json::from_str(&line?)?;
        let place = (measured.case, measured.target.clone());
        all.entry(place).or_default().push(measured);
    }
    let mut rows: BTreeMap<Case, Row> = BTreeMap::new();
    for ((case, target), rounds) in all {
        rows.entry(case).or_default().insert(target, median(rounds));
    }
    let medians: Vec<&Measured> = rows.values().flat_map(BTreeMap::values).collect();
    std::fs::write(
        folder.join("peers.json"),
        serde_json::to_string_pretty(&medians)?,
    )?;
    std::fs::write(folder.join("plot.svg"), plot(&rows))?;
    print!("{}", tables(&rows));
    Ok(())
}

/// For each figure, the one in the middle.
fn median(rounds: Vec<Measured>) -> Measured {
    let middle = |figure: fn(&Measured) -> f64| {
        let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    Measured {
        objects_per_s: middle(|round| round.objects_per_s),
        p50_us: middle(|round| round.p50_us),
        p99_us: middle(|round| round.p99_us),
        p999_us: middle(|round| round.p999_us),
        ..rounds[0].clone()
    }
}

fn title(case: &Case) -> String {
    let operation = match case.operation {
        Operation::Get => "get".to_owned(),
        Operation::Set => "set".to_owned(),
        Operation::Multiget => format!("get {} at once", case.batch),
    };
    let sleeps = if case.sleeps {
        ", the client sleeps"
    } else {
        ""
    };
    let depth = match case.depth {
        1 => String::new(),
        depth => format!(", {depth} under way on each"),
    };
    let connections = match case.connections {
        1 => "1 connection".to_owned(),
        count => format!("{count} connections"),
    };
    format!(
        "{operation}, {} B, {connections}{depth}{sleeps}",
        case.value_bytes
    )
}

/// Whether it is the time that matters, not the rate.
fn is_latency(case: &Case) -> bool {
    case.connections == 1 && case.depth == 1 && case.batch == 1
}

fn tables(rows: &BTreeMap<Case, Row>) -> String {
    let mut text = String::from("Latency, one request at a time, us: median (99 %)\n\n");
    heading(&mut text);
    for (case, row) in rows.iter().filter(|(case, _)| is_latency(case)) {
        line(&mut text, case, row, |one| {
            format!("{:.1} ({:.0})", one.p50_us, one.p99_us)
        });
    }
    text.push_str("\nThroughput, thousand objects per second\n\n");
    heading(&mut text);
    for (case, row) in rows.iter().filter(|(case, _)| !is_latency(case)) {
        line(&mut text, case, row, |one| {
            format!("{:.0}", one.objects_per_s / 1000.0)
        });
    }
    text
}

fn heading(text: &mut String) {
    let _ = write!(text, "{:<48}", "");
    for target in TARGETS {
        let _ = write!(text, "{target:>15}");
    }
    text.push('\n');
}

fn line(text: &mut String, case: &Case, row: &Row, figure: impl Fn(&Measured) -> String) {
    let _ = write!(text, "{:<48}", title(case));
    for target in TARGETS {
        let cell = row.get(target).map_or("-".to_owned(), &figure);
        let _ = write!(text, "{cell:>15}");
    }
    text.push('\n');
}

/// Bars: medians of latencies, then rates.
fn plot(rows: &BTreeMap<Case, Row>) -> String {
    let (step, left, width) = (17.0, 420.0, 420.0);
    let mut bars: Vec<(String, f64, String, bool)> = Vec::new();
    for (case, row) in rows {
        let (longest, figure): (f64, fn(&Measured) -> f64) = if is_latency(case) {
            (80.0, |one| one.p50_us)
        } else {
            let rates = row.values().map(|one| one.objects_per_s);
            (rates.fold(1.0, f64::max), |one| one.objects_per_s)
        };
        for target in TARGETS {
            let Some(one) = row.get(target) else { continue };
            let value = figure(one);
            let label = if is_latency(case) {
                format!("{value:.1} us")
            } else {
                format!("{:.0} k/s", value / 1000.0)
            };
            let name = format!("{} - {target}", title(case));
            bars.push((
                name,
                (value / longest).min(1.0),
                label,
                target.starts_with("rcbox"),
            ));
        }
    }
    let height = 40.0 + bars.len() as f64 * step;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"960\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"20\" font-size=\"14\">Loopback TCP: latency (median) and throughput; each group has a scale of its own</text>\n"
    );
    for (index, (name, part, label, ours)) in bars.iter().enumerate() {
        let top = 30.0 + index as f64 * step;
        let color = if *ours { "#2b6cb0" } else { "#a0aec0" };
        let _ = write!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>\n\
             <rect x=\"{left}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"13\" fill=\"{color}\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">{label}</text>\n",
            left - 6.0,
            top + 10.5,
            (part * width).max(1.0),
            left + part * width + 5.0,
            top + 10.5
        );
    }
    svg + "</svg>\n"
}
