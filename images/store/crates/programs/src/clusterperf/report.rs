//! How results are shown: RAMCloud's lines, then one table.

use std::fmt::Write;

use serde::Serialize;

use super::basic::{KEY_BYTES, Measured};
use super::samples::Summary;

/// RAMCloud's MB.
const MIB: f64 = 1_048_576.0;

#[derive(Serialize)]
struct Document<'a> {
    test: &'a str,
    key_bytes: usize,
    results: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    /// As RAMCloud names it, such as basic.read100.
    name: String,
    object_bytes: usize,
    objects: u32,
    #[serde(flatten)]
    summary: Summary,
}

fn entries(results: &[Measured]) -> Vec<Entry> {
    let of = |operation: &str, samples: fn(&Measured) -> Summary| {
        let entries = results.iter().map(|measured| Entry {
            name: format!("basic.{operation}{}", size_name(measured.size)),
            object_bytes: measured.size,
            objects: measured.objects,
            summary: samples(measured),
        });
        entries.collect::<Vec<_>>()
    };
    let mut entries = of("read", |measured| measured.reads.summary(measured.size));
    entries.extend(of("write", |measured| {
        measured.writes.summary(measured.size)
    }));
    entries
}

/// One JSON object.
pub fn json(results: &[Measured]) -> Result<String, String> {
    let document = Document {
        test: "basic",
        key_bytes: KEY_BYTES,
        results: entries(results),
    };
    serde_json::to_string_pretty(&document).map_err(|error| error.to_string())
}

/// RAMCloud's lines for each result, then a table of all.
pub fn text(results: &[Measured]) -> String {
    let mut text = String::new();
    let entries = entries(results);
    for entry in &entries {
        lines(&mut text, entry);
    }
    table(&mut text, &entries);
    text
}

fn lines(text: &mut String, entry: &Entry) {
    let Entry { name, summary, .. } = entry;
    let (operation, size) = split(name);
    let object = format!("{size}B object with {KEY_BYTES}B key");
    let mut line = |suffix: &str, micros: f64, what: &str| {
        let full = format!("{name}{suffix}");
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{full:<22} {:>11}   {operation} random {object}, {what}",
            time(micros)
        );
    };
    line("", summary.median_us, "median");
    line(".avg", summary.average_us, "average");
    line(".min", summary.best_us, "best");
    line(".9", summary.p90_us, "90%");
    line(".99", summary.p99_us, "99%");
    line(".999", summary.p999_us, "99.9%");
    line(".max", summary.worst_us, "worst");
    let doing = if operation == "read" {
        "reading"
    } else {
        "writing"
    };
    let full = format!("basic.{operation}Bw{size}");
    let _ = writeln!(
        text,
        "{full:<22} {:>11}   bandwidth {doing} {object}",
        bandwidth(summary.bytes_per_second)
    );
}

fn table(text: &mut String, entries: &[Entry]) {
    let _ = writeln!(
        text,
        "\n{:<16} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11} {:>9}",
        "", "average", "median", "best", "worst", "90%", "99%", "99.9%", "bandwidth", "samples"
    );
    for Entry { name, summary, .. } in entries {
        let _ = writeln!(
            text,
            "{name:<16} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11} {:>9}",
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

/// "basic.read100" is about reading objects of "100".
fn split(name: &str) -> (&str, &str) {
    let name = name.strip_prefix("basic.").unwrap_or(name);
    name.split_at(
        name.find(|character: char| character.is_ascii_digit())
            .unwrap_or(name.len()),
    )
}

/// 100, 1K, 10K, 100K, 1M.
fn size_name(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1_000_000 && bytes.is_multiple_of(1_000_000) => {
            format!("{}M", bytes / 1_000_000)
        }
        _ if bytes >= 1_000 && bytes.is_multiple_of(1_000) => format!("{}K", bytes / 1_000),
        _ => bytes.to_string(),
    }
}

fn time(micros: f64) -> String {
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

    fn measured() -> Vec<Measured> {
        let samples = |micros: u64| Samples::new(vec![micros * 1000; 10]);
        vec![
            Measured {
                size: 100,
                objects: 5,
                reads: samples(13),
                writes: samples(18),
            },
            Measured {
                size: 1_000_000,
                objects: 5,
                reads: samples(3_800),
                writes: samples(4_600),
            },
        ]
    }

    #[test]
    fn lines_and_table_have_ramclouds_names_and_units() {
        let text = text(&measured());
        for line in [
            "basic.read100              13.0 us   read random 100B object with 30B key, median",
            "basic.read100.999          13.0 us   read random 100B object with 30B key, 99.9%",
            "basic.readBw100           7.3 MB/s   bandwidth reading 100B object with 30B key",
            "basic.write1M               4.6 ms   write random 1MB object with 30B key, median",
            "basic.writeBw1M         207.3 MB/s   bandwidth writing 1MB object with 30B key",
        ] {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
        assert!(
            text.contains("basic.read1M        3.8 ms    3.8 ms"),
            "{text}"
        );
    }

    #[test]
    fn json_has_every_result() {
        let value: serde_json::Value = serde_json::from_str(&json(&measured()).unwrap()).unwrap();
        assert_eq!(value["results"].as_array().unwrap().len(), 4);
        assert_eq!(value["results"][3]["name"], "basic.write1M");
        assert_eq!(value["results"][3]["median_us"], 4600.0);
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
