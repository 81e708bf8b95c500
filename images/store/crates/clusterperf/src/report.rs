//! How results are shown: RAMCloud's lines, then one table.

use std::fmt::Write;

use serde::Serialize;

use super::breakdown;
use super::data::KEY_BYTES;
use super::samples::{Samples, Summary};

/// RAMCloud's MB.
const MIB: f64 = 1_048_576.0;

/// What a kind of operation took.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// As RAMCloud names it, such as basic.read100.
    pub name: String,
    /// Of the line that shows bandwidth, where there is one.
    #[serde(skip)]
    pub bandwidth_name: Option<String>,
    /// In words.
    #[serde(rename = "description")]
    pub what: String,
    #[serde(skip)]
    pub bandwidth_what: String,
    pub object_bytes: usize,
    pub objects: u32,
    #[serde(flatten)]
    pub summary: Summary,
    #[serde(flatten)]
    pub samples: Samples,
}

/// How much a number of clients got done.
#[derive(Clone, Debug, Serialize)]
pub struct Rate {
    /// Such as readThroughput.3: with three clients.
    pub name: String,
    pub clients: u32,
    pub object_bytes: usize,
    pub objects_per_second: f64,
    /// What the server says that it did.
    pub server_reads: u64,
    pub server_writes: u64,
    /// Share of the time in which the server's thread was busy.
    pub server_busy: f64,
}

/// What one test gave.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Results {
    pub test: String,
    #[serde(rename = "results")]
    pub entries: Vec<Entry>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<Rate>,
    /// Points (microseconds, share of operations that took no longer) of tests that show a distribution.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cdf: Vec<(f64, f64)>,
}

#[derive(Serialize)]
struct Document<'a> {
    key_bytes: usize,
    tests: &'a [Results],
}

/// One JSON object.
pub fn json(tests: &[Results]) -> serde_json::Result<String> {
    let document = Document {
        key_bytes: KEY_BYTES,
        tests,
    };
    serde_json::to_string_pretty(&document)
}

/// RAMCloud's lines for each result, then a table of all.
pub fn text(tests: &[Results]) -> String {
    let mut text = String::new();
    for test in tests {
        test.entries
            .iter()
            .for_each(|entry| lines(&mut text, entry));
        if !test.entries.is_empty() {
            table(&mut text, &test.entries);
            test.entries
                .iter()
                .for_each(|entry| breakdown::text(&mut text, entry));
        }
        if !test.rates.is_empty() {
            rates(&mut text, &test.rates);
        }
        if !test.cdf.is_empty() {
            distribution(&mut text, &test.cdf);
        }
    }
    text
}

/// A line of the table of a run: one figure, in a unit that is the same in every run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    pub name: String,
    pub value: String,
    pub unit: &'static str,
    pub description: String,
    /// Of times, of which `value` is the median.
    #[serde(flatten)]
    pub spread: Option<Spread>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Spread {
    pub best: String,
    pub p99: String,
    pub worst: String,
}

/// The results as one list, in RAMCloud's order: latencies by size, each with its bandwidth, then throughputs.
pub fn rows(tests: &[Results]) -> Vec<Row> {
    let figure = |number: f64| format!("{number:.1}");
    let mut rows = Vec::new();
    for entry in tests.iter().flat_map(|test| &test.entries) {
        let summary = &entry.summary;
        rows.push(Row {
            name: entry.name.clone(),
            value: figure(summary.median_us),
            unit: "us",
            description: format!("{}, median", entry.what),
            spread: Some(Spread {
                best: figure(summary.best_us),
                p99: figure(summary.p99_us),
                worst: figure(summary.worst_us),
            }),
        });
        if let Some(name) = &entry.bandwidth_name {
            rows.push(Row {
                name: name.clone(),
                value: figure(summary.bytes_per_second / MIB),
                unit: "MB/s",
                description: entry.bandwidth_what.clone(),
                spread: None,
            });
        }
    }
    for rate in tests.iter().flat_map(|test| &test.rates) {
        rows.push(Row {
            name: rate.name.clone(),
            value: figure(rate.objects_per_second / 1000.0),
            unit: "k/s",
            description: format!(
                "{}B objects per second, clients: {}",
                size_name(rate.object_bytes),
                rate.clients
            ),
            spread: None,
        });
    }
    rows
}

fn lines(text: &mut String, entry: &Entry) {
    let Entry {
        name,
        summary,
        what,
        ..
    } = entry;
    let mut line = |suffix: &str, micros: f64, which: &str| {
        let full = format!("{name}{suffix}");
        // Writing to a string does not fail.
        let _ = writeln!(text, "{full:<22} {:>11}   {what}, {which}", time(micros));
    };
    line("", summary.median_us, "median");
    line(".avg", summary.average_us, "average");
    line(".min", summary.best_us, "best");
    line(".9", summary.p90_us, "90%");
    line(".99", summary.p99_us, "99%");
    line(".999", summary.p999_us, "99.9%");
    line(".max", summary.worst_us, "worst");
    if let Some(full) = &entry.bandwidth_name {
        let _ = writeln!(
            text,
            "{full:<22} {:>11}   {}",
            bandwidth(summary.bytes_per_second),
            entry.bandwidth_what
        );
    }
}

fn table(text: &mut String, entries: &[Entry]) {
    let width = entries.iter().map(|entry| entry.name.len()).max();
    let width = width.unwrap_or(0).max(16);
    let _ = writeln!(
        text,
        "\n{:<width$} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11} {:>9}",
        "", "average", "median", "best", "worst", "90%", "99%", "99.9%", "bandwidth", "samples"
    );
    for Entry { name, summary, .. } in entries {
        let _ = writeln!(
            text,
            "{name:<width$} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11} {:>9}",
            time(summary.average_us),
            time(summary.median_us),
            time(summary.best_us),
            time(summary.worst_us),
            time(summary.p90_us),
            time(summary.p99_us),
            time(summary.p999_us),
            bandwidth(summary.bytes_per_second),
            summary.samples
        );
    }
}

/// As RAMCloud's throughput tests: a line for each number of clients.
fn rates(text: &mut String, rates: &[Rate]) {
    let _ = writeln!(
        text,
        "{:<26} {:>8} {:>14} {:>14} {:>12}",
        "", "clients", "objects", "per client", "server busy"
    );
    for rate in rates {
        let _ = writeln!(
            text,
            "{:<26} {:>8} {:>12.1} k/s {:>10.1} k/s {:>10.0} %",
            rate.name,
            rate.clients,
            rate.objects_per_second / 1000.0,
            rate.objects_per_second / 1000.0 / f64::from(rate.clients),
            rate.server_busy * 100.0
        );
    }
}

/// As RAMCloud's distributions: time in microseconds, and the share that took no longer.
fn distribution(text: &mut String, cdf: &[(f64, f64)]) {
    text.push_str("\n# Cumulative distribution: microseconds, share of all\n");
    for (micros, share) in cdf {
        let _ = writeln!(text, "{micros:8.2} {share:11.5}");
    }
}

/// 100, 1K, 10K, 100K, 1M.
pub fn size_name(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1_000_000 && bytes.is_multiple_of(1_000_000) => {
            format!("{}M", bytes / 1_000_000)
        }
        _ if bytes >= 1_000 && bytes.is_multiple_of(1_000) => format!("{}K", bytes / 1_000),
        _ => bytes.to_string(),
    }
}

pub fn time(micros: f64) -> String {
    if micros < 1_000.0 {
        format!("{micros:.1} us")
    } else if micros < 1_000_000.0 {
        format!("{:.1} ms", micros / 1_000.0)
    } else {
        format!("{:.1} s", micros / 1_000_000.0)
    }
}

/// In RAMCloud's units: MB and GB are powers of two.
fn bandwidth(bytes_per_second: f64) -> String {
    let mib = bytes_per_second / MIB;
    if mib >= 1024.0 {
        format!("{:.1} GB/s", mib / 1024.0)
    } else {
        format!("{mib:.1} MB/s")
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::Samples;
    use super::*;

    fn entry(operation: &str, size: usize, micros: u64) -> Entry {
        let samples = Samples::new(vec![micros * 1000; 10]);
        let text = size_name(size);
        Entry {
            name: format!("basic.{operation}{text}"),
            bandwidth_name: Some(format!("basic.{operation}Bw{text}")),
            what: format!("{operation} random {text}B object with 30B key"),
            bandwidth_what: format!("bandwidth of {operation}s of {text}B objects"),
            object_bytes: size,
            objects: 5,
            summary: samples.summary(size),
            samples,
        }
    }

    fn results() -> Vec<Results> {
        vec![
            Results {
                test: "basic".to_owned(),
                entries: vec![entry("read", 100, 13), entry("write", 1_000_000, 4_600)],
                ..Results::default()
            },
            Results {
                test: "readThroughput".to_owned(),
                rates: vec![Rate {
                    name: "readThroughput.2".to_owned(),
                    clients: 2,
                    object_bytes: 100,
                    objects_per_second: 200_000.0,
                    server_reads: 5,
                    server_writes: 0,
                    server_busy: 0.5,
                }],
                cdf: vec![(5.0, 0.5)],
                ..Results::default()
            },
        ]
    }

    #[test]
    fn lines_and_tables_have_ramclouds_names_and_units() {
        let text = text(&results());
        for line in [
            "basic.read100              13.0 us   read random 100B object with 30B key, median",
            "basic.read100.999          13.0 us   read random 100B object with 30B key, 99.9%",
            "basic.readBw100           7.3 MB/s   bandwidth of reads of 100B objects",
            "basic.write1M               4.6 ms   write random 1MB object with 30B key, median",
            "basic.writeBw1M         207.3 MB/s   bandwidth of writes of 1MB objects",
            "basic.write1M       4.6 ms    4.6 ms",
            "readThroughput.2                  2        200.0 k/s      100.0 k/s         50 %",
            "    5.00     0.50000",
        ] {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn rows_have_one_unit_for_each_kind() {
        let rows = rows(&results());
        let short: Vec<String> = rows
            .iter()
            .map(|row| format!("{} {} {}", row.name, row.value, row.unit))
            .collect();
        assert_eq!(
            short,
            [
                "basic.read100 13.0 us",
                "basic.readBw100 7.3 MB/s",
                "basic.write1M 4600.0 us",
                "basic.writeBw1M 207.3 MB/s",
                "readThroughput.2 200.0 k/s",
            ]
        );
        let json = serde_json::to_value(&rows).unwrap();
        assert_eq!(json[0]["p99"], "13.0");
        assert!(json[1].get("p99").is_none(), "{json}");
        assert_eq!(rows[4].description, "100B objects per second, clients: 2");
    }

    #[test]
    fn json_has_every_result() {
        let value: serde_json::Value = serde_json::from_str(&json(&results()).unwrap()).unwrap();
        let entries = &value["tests"][0]["results"];
        assert_eq!(entries.as_array().unwrap().len(), 2);
        assert_eq!(entries[1]["name"], "basic.write1M");
        assert_eq!(entries[1]["median_us"], 4600.0);
        assert_eq!(value["tests"][1]["rates"][0]["clients"], 2);
        assert_eq!(value["tests"][1]["cdf"][0][0], 5.0);
    }

    #[test]
    fn sizes_have_names() {
        let names: Vec<String> = [1, 100, 1_000, 1_500, 100_000, 1_000_000]
            .into_iter()
            .map(size_name)
            .collect();
        assert_eq!(names, ["1", "100", "1K", "1500", "100K", "1M"]);
    }
}
