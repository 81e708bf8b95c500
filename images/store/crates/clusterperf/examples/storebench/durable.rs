//! What copies cost a write: the same load against stores with and without.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::store::{Plan, Store, programs};
use crate::{Failure, quantile};

const VARIANTS: [(&str, u8, bool); 4] = [
    ("no copies", 0, false),
    ("R=1 buffered", 1, false),
    ("R=3 buffered", 3, false),
    ("R=3 flushed", 3, true),
];
/// Of 100 B each; (connections, requests under way on each).
const LOADS: [(u64, u64); 5] = [(1, 1), (8, 1), (50, 1), (1, 16), (8, 16)];

/// Medians of all rounds.
#[derive(Clone, Copy, Serialize)]
struct Figures {
    p50_us: f64,
    p99_us: f64,
    objects_per_s: f64,
}

#[derive(Serialize)]
struct Row {
    variant: &'static str,
    connections: u64,
    under_way_each: u64,
    #[serde(flatten)]
    figures: Figures,
    /// Of the medians, to those without copies.
    p50_ratio: f64,
    rate_ratio: f64,
}

pub fn measure(folder: &Path, time: Duration, rounds: usize) -> Result<(), Failure> {
    let mut all: BTreeMap<(usize, usize), Vec<Figures>> = BTreeMap::new();
    for round in 1..=rounds {
        for (variant, (name, replicas, is_flushed)) in VARIANTS.into_iter().enumerate() {
            eprintln!("round {round} of {rounds}: {name}");
            // The same processes for all, also where they keep no copies.
            let plan = Plan {
                servers: 4,
                replicas,
                is_flushed,
                memory_mb: 500,
                frames: 100,
            };
            let store = Store::start(&folder.join("store"), &plan)?;
            for (load, (connections, depth)) in LOADS.into_iter().enumerate() {
                let figures = run(&store.address, time, connections, depth)?;
                all.entry((load, variant)).or_default().push(figures);
            }
        }
    }
    let rows = rows(&all);
    std::fs::write(
        folder.join("durable.json"),
        serde_json::to_string_pretty(&rows)?,
    )?;
    print(&rows);
    Ok(())
}

/// Has the client of the comparison with other stores do one of its cases.
fn run(address: &str, time: Duration, connections: u64, depth: u64) -> Result<Figures, Failure> {
    let case = format!("set-100x{connections}x{depth}");
    let seconds = time.as_secs_f64().to_string();
    let peerbench = programs()?.join("examples/peerbench");
    let output = Command::new(peerbench)
        .args(["rcbox", address, &seconds, &case])
        .output()?;
    if !output.status.success() {
        return Err(format!("{case}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let lines: Vec<Value> = serde_json::Deserializer::from_slice(&output.stdout)
        .into_iter()
        .collect::<Result<_, _>>()?;
    // A name is the beginning of others.
    let is_it = |line: &&Value| line["connections"] == connections && line["depth"] == depth;
    let line = lines
        .iter()
        .find(is_it)
        .ok_or_else(|| format!("{case} was not measured"))?;
    let figure = |name: &str| {
        line[name]
            .as_f64()
            .ok_or_else(|| format!("{case}: no {name}"))
    };
    Ok(Figures {
        p50_us: figure("p50_us")?,
        p99_us: figure("p99_us")?,
        objects_per_s: figure("objects_per_s")?,
    })
}

fn rows(all: &BTreeMap<(usize, usize), Vec<Figures>>) -> Vec<Row> {
    let row = |(&(load, variant), rounds): (&(usize, usize), &Vec<Figures>)| {
        let (figures, without) = (medians(rounds), medians(&all[&(load, 0)]));
        let (connections, under_way_each) = LOADS[load];
        Row {
            variant: VARIANTS[variant].0,
            connections,
            under_way_each,
            figures,
            p50_ratio: figures.p50_us / without.p50_us,
            rate_ratio: figures.objects_per_s / without.objects_per_s,
        }
    };
    all.iter().map(row).collect()
}

fn medians(rounds: &[Figures]) -> Figures {
    let median = |figure: fn(&Figures) -> f64| {
        let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        quantile(&figures, 0.5)
    };
    Figures {
        p50_us: median(|one| one.p50_us),
        p99_us: median(|one| one.p99_us),
        objects_per_s: median(|one| one.objects_per_s),
    }
}

fn print(rows: &[Row]) {
    println!(
        "Durable writes of 100 B: 4 servers, one of which is written to; files on this folder's disk\n"
    );
    println!(
        "{:<34}{:<14}{:>10}{:>10}{:>8}{:>12}{:>8}",
        "", "", "p50 us", "p99 us", "ratio", "thousand/s", "ratio"
    );
    for row in rows {
        let load = match (row.connections, row.under_way_each) {
            (1, 1) => "1 client".to_owned(),
            (count, 1) => format!("{count} clients"),
            (count, depth) => format!("{count} clients, {depth} under way on each"),
        };
        let Figures {
            p50_us,
            p99_us,
            objects_per_s,
        } = row.figures;
        println!(
            "{load:<34}{:<14}{p50_us:>10.1}{p99_us:>10.0}{:>8.2}{:>12.1}{:>8.2}",
            row.variant,
            row.p50_ratio,
            objects_per_s / 1000.0,
            row.rate_ratio
        );
    }
}
