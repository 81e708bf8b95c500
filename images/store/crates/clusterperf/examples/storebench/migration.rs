//! A table moves from one server to another while it is used: how fast, how long its clients wait at most, and what clients of other tables notice.

use std::path::Path;
use std::time::{Duration, Instant};

use client::{Cluster, Options};
use serde::Serialize;

use crate::Failure;
use crate::filler::{Filler, KEY_BYTES, create_table, unaffected};
use crate::reader::{Kind, Latency, Reader};
use crate::store::{Plan, Store, shortness, wait};

/// How long everything is watched before the migration, and after it.
const CALM: Duration = Duration::from_secs(2);
/// Between two operations of each kind.
const PACE: Duration = Duration::from_millis(2);
/// Objects of the table that are read and written all the time.
const HOT: u64 = 16;
const SERVERS: usize = 3;
const REPLICAS: u8 = 2;

#[derive(Serialize)]
struct Row {
    value_bytes: u64,
    objects: u64,
    /// That the target has read.
    mb: f64,
    took_ms: f64,
    mb_per_s: f64,
    /// Of the table that moves: before, while it moves, after. The longest is the longest pause of a key, from when the operation was due.
    reads: [Latency; 3],
    writes: [Latency; 3],
    /// Of tables on all servers that stay where they are.
    others: [Latency; 3],
}

pub fn measure(folder: &Path, sizes_mb: &[u64]) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for &mb in sizes_mb {
        for value_bytes in [1024, 64] {
            eprintln!("{mb} MB of objects of {value_bytes} B");
            rows.push(one(&folder.join("store"), mb, value_bytes)?);
        }
    }
    let json = serde_json::to_string_pretty(&rows)?;
    std::fs::write(folder.join("migration.json"), json)?;
    print(&rows);
    Ok(())
}

fn one(folder: &Path, mb: u64, value_bytes: u64) -> Result<Row, Failure> {
    let plan = Plan {
        servers: SERVERS,
        replicas: REPLICAS,
        is_flushed: false,
        memory_mb: mb * 3 / 2 + 400,
        frames: mb * 3 / 8 + 40,
    };
    let store = Store::start(folder, &plan)?;
    let options = Options {
        timeout: Duration::from_secs(60),
        ..Options::default()
    };
    let mut cluster = Cluster::with_options(&store.locator, options)?;
    let (table, source) = create_table(&mut cluster, "moves")?;
    let mut others = (1..SERVERS)
        .map(|number| unaffected(&mut cluster, number, &source))
        .collect::<Result<Vec<_>, _>>()?;
    // One more on the source: tables are dealt out in turn.
    let (stays, _) = create_table(&mut cluster, "stays")?;
    cluster.write(stays, b"key", &[7; 100])?;
    others.push((stays, b"key".to_vec()));
    let filler = Filler {
        table,
        count: mb * 1_000_000 / (KEY_BYTES + value_bytes),
        value_bytes,
    };
    filler.fill(&mut cluster)?;
    wait("all copies of what was written", || {
        Ok((shortness(&store.status()?) == 0).then_some(()))
    })?;
    rustix::fs::sync();

    let hot = |what: u64| {
        let numbers = 0..HOT;
        let keys = numbers.map(|number| (table, Filler::key(number * 2 + what)));
        keys.collect::<Vec<_>>()
    };
    let reads = Reader::start(&store.locator, hot(0), Kind::Read, PACE)?;
    let writes = Reader::start(&store.locator, hot(1), Kind::Write, PACE)?;
    let others = Reader::start(&store.locator, others, Kind::Read, PACE)?;
    let started = Instant::now();
    std::thread::sleep(CALM);
    let target = target_of(&store, &source)?;
    let begun = Instant::now();
    let migration = store.migrate(table.0, &target)?;
    let ended = Instant::now();
    std::thread::sleep(CALM);
    let times = [started, begun, ended, Instant::now()];
    let three = |reader: Reader| -> Result<[Latency; 3], Failure> {
        let all = reader.finish(&times)?;
        Ok([all[0], all[1], all[2]])
    };
    let (reads, writes, others) = (three(reads)?, three(writes)?, three(others)?);
    let took_ns = migration.ended_ns - migration.started_ns;
    let mb = migration.bytes as f64 / 1e6;
    Ok(Row {
        value_bytes,
        objects: migration.objects,
        mb,
        took_ms: took_ns as f64 / 1e6,
        mb_per_s: mb / (took_ns as f64 / 1e9),
        reads,
        writes,
        others,
    })
}

/// Some other server than the one that serves there.
fn target_of(store: &Store, source: &str) -> Result<String, Failure> {
    let members = store.status()?.members;
    let other = members
        .into_iter()
        .find(|member| member.shards.iter().all(|shard| shard.locator != source));
    Ok(other.ok_or("there is one server only")?.name)
}

fn print(rows: &[Row]) {
    println!("A table moves from one of {SERVERS} servers (R={REPLICAS}) to another\n");
    let titles = ["objects of", "objects", "MB", "ms", "MB/s"];
    println!("{}", titles.map(|title| format!("{title:>11}")).concat());
    for row in rows {
        let cells = [
            format!("{} B", row.value_bytes),
            row.objects.to_string(),
            format!("{:.0}", row.mb),
            format!("{:.0}", row.took_ms),
            format!("{:.0}", row.mb_per_s),
        ];
        println!("{}", cells.map(|cell| format!("{cell:>11}")).concat());
    }
    println!(
        "\nOne operation each {} ms, us from when it was due: median, 99 %, longest\n",
        PACE.as_millis()
    );
    println!(
        "{:>11}{:>9}  {:<24}{:>24}{:>24}{:>24}",
        "objects of", "MB", "", "before", "while it moves", "after"
    );
    for row in rows {
        for (what, stretches) in [
            ("reads of it", row.reads),
            ("writes of it", row.writes),
            ("reads of other tables", row.others),
        ] {
            let cell =
                |one: Latency| format!("{:.0} {:.0} {:.0}", one.p50_us, one.p99_us, one.max_us);
            let cells = stretches.map(|one| format!("{:>24}", cell(one))).concat();
            let bytes = format!("{} B", row.value_bytes);
            println!("{bytes:>11}{:>9.0}  {what:<24}{cells}", row.mb);
        }
    }
}
