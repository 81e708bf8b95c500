//! Published figures of RAMCloud to set results beside. They come from other machines and other networks: for scale, not for a race.

use std::fmt::Write;

use super::report::{Results, time};

/// Median latencies in microseconds of one published run, by the names of `basic`.
struct Published {
    title: &'static str,
    source: &'static str,
    figures: &'static [(&'static str, f64)],
}

const PUBLISHED: [Published; 3] = [
    Published {
        title: "Atom, TCP",
        source: "NEC's RAMCloud on Atom C2000 micro servers, kernel TCP, 2014",
        figures: &[("basic.read100", 67.8)],
    },
    Published {
        title: "Atom, DPDK",
        source: "NEC's RAMCloud on Atom C2000 micro servers, driver in user space on DPDK, 1 hop at 2.5 Gb/s, May 2014",
        figures: &[
            ("basic.read100", 13.8),
            ("basic.read1K", 17.9),
            ("basic.read10K", 48.6),
            ("basic.read100K", 369.0),
            ("basic.read1M", 3800.0),
            ("basic.write100", 18.1),
            ("basic.write1K", 22.7),
            ("basic.write10K", 60.1),
            ("basic.write100K", 428.3),
            ("basic.write1M", 4600.0),
        ],
    },
    Published {
        title: "InfiniBand",
        source: "RAMCloud on Xeon servers, 32 Gb/s InfiniBand, August 2013",
        figures: &[
            ("basic.read100", 5.1),
            ("basic.read1K", 6.9),
            ("basic.read10K", 10.4),
            ("basic.read100K", 47.2),
            ("basic.read1M", 420.8),
            ("basic.write100", 15.7),
        ],
    },
];

/// The figures of this name, one for each run.
fn published(name: &str) -> impl Iterator<Item = Option<f64>> {
    PUBLISHED.iter().map(move |run| {
        let mut figures = run.figures.iter();
        let found = figures.find(|(known, _)| *known == name);
        found.map(|(_, micros)| *micros)
    })
}

/// A table of medians, ours first. Empty if nothing of it was published.
pub fn table(tests: &[Results]) -> String {
    let mut text = String::new();
    let entries = tests.iter().flat_map(|test| &test.entries);
    for entry in entries.filter(|entry| published(&entry.name).any(|one| one.is_some())) {
        if text.is_empty() {
            let _ = write!(text, "\n{:<16} {:>12}", "median", "this run");
            for run in &PUBLISHED {
                let _ = write!(text, " {:>12}", run.title);
            }
            text.push('\n');
        }
        let _ = write!(
            text,
            "{:<16} {:>12}",
            entry.name,
            time(entry.summary.median_us)
        );
        for figure in published(&entry.name) {
            let _ = write!(text, " {:>12}", figure.map_or("-".to_owned(), time));
        }
        text.push('\n');
    }
    if text.is_empty() {
        return "\nNothing was published to compare these results with; `basic` has something.\n"
            .to_owned();
    }
    text.push_str("Other machines, other networks: for scale only.\n");
    for run in &PUBLISHED {
        let _ = writeln!(text, "  {}: {}", run.title, run.source);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::report::Entry;
    use super::super::samples::Samples;
    use super::*;

    #[test]
    fn a_result_stands_beside_what_was_published() {
        let samples = Samples::new(vec![8_000]);
        let entry = |name: &str| Entry {
            name: name.to_owned(),
            bandwidth_name: None,
            what: String::new(),
            bandwidth_what: String::new(),
            object_bytes: 100,
            objects: 1,
            summary: samples.summary(100),
            samples: samples.clone(),
        };
        let results = |name: &str| {
            vec![Results {
                entries: vec![entry(name)],
                ..Results::default()
            }]
        };
        let text = table(&results("basic.read100"));
        let line = "basic.read100          8.0 us      67.8 us      13.8 us       5.1 us";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("Other machines"), "{text}");
        assert!(table(&results("readDist")).contains("Nothing was published"));
    }
}
