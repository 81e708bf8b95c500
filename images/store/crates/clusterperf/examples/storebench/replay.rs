//! What `cargo bench -p master --bench replay` measured, as the other results are shown.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::Failure;

#[derive(Serialize)]
struct Row {
    value_bytes: u64,
    log_mb: f64,
    ms: f64,
    mb_per_s: f64,
}

/// Reads what criterion has left in its folder.
pub fn show(folder: &Path, criterion: &Path) -> Result<(), Failure> {
    let rows = [64, 1024].map(|value_bytes| row(criterion, value_bytes));
    let rows: Vec<Row> = rows.into_iter().collect::<Result<_, _>>()?;
    std::fs::write(
        folder.join("replay.json"),
        serde_json::to_string_pretty(&rows)?,
    )?;
    println!("Replaying 20 segments of 8 MiB that are in memory, keys of 30 B, one core\n");
    println!("{:>12}{:>10}{:>10}", "objects of", "ms", "MB/s");
    for row in rows {
        println!(
            "{:>12}{:>10.0}{:>10.0}",
            format!("{} B", row.value_bytes),
            row.ms,
            row.mb_per_s
        );
    }
    Ok(())
}

fn row(criterion: &Path, value_bytes: u64) -> Result<Row, Failure> {
    let folder = criterion.join(format!("replay 20 segments/objects of {value_bytes} B/new"));
    let number = |file: &str, path: &str| -> Result<f64, Failure> {
        let text = std::fs::read_to_string(folder.join(file))?;
        let json: Value = serde_json::from_str(&text)?;
        let number = json.pointer(path).and_then(Value::as_f64);
        Ok(number.ok_or_else(|| format!("{file} has no {path}"))?)
    };
    let log_mb = number("benchmark.json", "/throughput/Bytes")? / 1e6;
    let ms = number("estimates.json", "/median/point_estimate")? / 1e6;
    Ok(Row {
        value_bytes,
        log_mb,
        ms,
        mb_per_s: log_mb / ms * 1000.0,
    })
}
