//! A server that holds a table is killed: when is it found dead, when is all of it served again, when has it all of its copies again.

use std::path::Path;
use std::time::{Duration, Instant};

use client::{Cluster, Options};
use serde::Serialize;

use crate::Failure;
use crate::filler::{Filler, KEY_BYTES, create_table, unaffected};
use crate::reader::{Kind, Latency, Reader};
use crate::store::{Plan, Store, shortness, wait};

/// How long the reads on other servers are watched before the kill, and after the last copy.
const CALM: Duration = Duration::from_secs(2);
/// Between two of these reads.
const PACE: Duration = Duration::from_millis(20);
/// Copies count as complete when none was missing for so long: servers report it several times a second.
const STEADY: Duration = Duration::from_secs(1);

/// Servers and copies; one server more than it takes, for one is killed.
const STORES: [(usize, u8); 2] = [(4, 2), (5, 3)];

#[derive(Serialize)]
struct Row {
    servers: usize,
    replicas: u8,
    value_bytes: u64,
    objects: u64,
    /// Of the log of the server that was killed.
    log_mb: f64,
    /// From the kill on, until the coordinator took the server for dead.
    detection_ms: f64,
    /// From the kill on, until the coordinator had a server for each tablet.
    served_ms: f64,
    /// From the kill on, until a client had its answers from all parts.
    client_ms: f64,
    /// From the kill on, until nothing lacked a copy.
    copies_ms: f64,
    /// From detection on, until the last tablet was served; before, the coordinator promised this.
    measured_ms: u64,
    promised_ms: u64,
    /// Of log, from the kill until the last tablet was served.
    mb_per_s: f64,
    mb_per_s_per_core: f64,
    /// Of reads on other servers: before the kill, until all was served, until all had its copies, after.
    reads_before: Latency,
    reads_recovering: Latency,
    reads_copying: Latency,
    reads_after: Latency,
}

pub fn measure(folder: &Path, sizes_mb: &[u64]) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let small = sizes_mb.iter().take(1).map(|mb| (*mb, 64));
    let loads: Vec<(u64, u64)> = sizes_mb.iter().map(|mb| (*mb, 1024)).chain(small).collect();
    for (servers, replicas) in STORES {
        for (mb, value_bytes) in &loads {
            eprintln!("{servers} servers, R={replicas}: {mb} MB of objects of {value_bytes} B");
            rows.push(one(
                &folder.join("store"),
                servers,
                replicas,
                *mb,
                *value_bytes,
            )?);
        }
    }
    std::fs::write(
        folder.join("recovery.json"),
        serde_json::to_string_pretty(&rows)?,
    )?;
    print(&rows);
    Ok(())
}

fn one(
    folder: &Path,
    servers: usize,
    replicas: u8,
    mb: u64,
    value_bytes: u64,
) -> Result<Row, Failure> {
    let plan = Plan {
        servers,
        replicas,
        is_flushed: false,
        memory_mb: mb * 3 / 2 + 400,
        // All of the log, small objects with what goes with each, twice: as it was and as it is brought back.
        frames: mb * 3 / 8 + 40,
    };
    let mut store = Store::start(folder, &plan)?;
    let options = Options {
        timeout: Duration::from_secs(60),
        ..Options::default()
    };
    let mut cluster = Cluster::with_options(&store.locator, options)?;
    let (table, victim) = create_table(&mut cluster, "victim")?;
    let elsewhere = (1..servers)
        .map(|number| unaffected(&mut cluster, number, &victim))
        .collect::<Result<Vec<_>, _>>()?;
    let filler = Filler {
        table,
        count: mb * 1_000_000 / (KEY_BYTES + value_bytes),
        value_bytes,
    };
    filler.fill(&mut cluster)?;
    wait("all copies of what was written", || {
        Ok((shortness(&store.status()?) == 0).then_some(()))
    })?;
    // What the fill left in the page cache is not to be written to the disk while it is measured.
    rustix::fs::sync();

    let reader = Reader::start(&store.locator, elsewhere, Kind::Read, PACE)?;
    let started = Instant::now();
    std::thread::sleep(CALM);
    let clock = clock(&store)?;
    let killed = Instant::now();
    let name = store.kill(&victim)?;
    let client = std::thread::spawn(move || filler.read_samples(&mut cluster, killed));

    let ended = wait("the recovery", || {
        let recoveries = store.status()?.recoveries;
        Ok(recoveries
            .into_iter()
            .find(|one| one.member == name && one.tablets_left == 0))
    })?;
    let client_ms = millis(client.join().map_err(|_| "the client has panicked")??);
    let detection_ms =
        (ended.started_ns as f64 - clock.ns as f64) / 1e6 - millis(killed - clock.at);
    let served_ms = detection_ms + ended.measured_ms as f64;
    let copied = copied(&store)?;
    std::thread::sleep(CALM);
    let served = killed + Duration::from_secs_f64(served_ms.max(0.0) / 1000.0);
    let latencies =
        reader.finish(&[started, killed, served, copied.max(served), Instant::now()])?;
    let log_mb = ended.bytes as f64 / 1e6;
    let mb_per_s = log_mb / served_ms * 1000.0;
    Ok(Row {
        servers,
        replicas,
        value_bytes,
        objects: filler.count,
        log_mb,
        detection_ms,
        served_ms,
        client_ms,
        copies_ms: millis(copied - killed),
        measured_ms: ended.measured_ms,
        promised_ms: ended.promised_ms,
        mb_per_s,
        mb_per_s_per_core: mb_per_s / cores()? as f64,
        reads_before: latencies[0],
        reads_recovering: latencies[1],
        reads_copying: latencies[2],
        reads_after: latencies[3],
    })
}

/// What the coordinator's clock showed at some time.
struct Clock {
    at: Instant,
    ns: u64,
}

/// Of several answers the fastest says it best: it is off by less than half of the time that it took.
fn clock(store: &Store) -> Result<Clock, Failure> {
    const QUESTIONS: usize = 20;
    let ask = |_| -> Result<(Duration, Clock), Failure> {
        let asked = Instant::now();
        let ns = store.status()?.cluster_time_ns;
        let took = asked.elapsed();
        let at = asked + took / 2;
        Ok((took, Clock { at, ns }))
    };
    let answers = (0..QUESTIONS).map(ask).collect::<Result<Vec<_>, _>>()?;
    let fastest = answers.into_iter().min_by_key(|(took, _)| *took);
    Ok(fastest.ok_or("nothing was asked")?.1)
}

fn cores() -> Result<usize, Failure> {
    Ok(std::thread::available_parallelism()?.get())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// When nothing lacked a copy any more.
fn copied(store: &Store) -> Result<Instant, Failure> {
    let mut since = None;
    wait("all copies of what was recovered", || {
        if shortness(&store.status()?) > 0 {
            since = None;
        }
        let first = *since.get_or_insert_with(Instant::now);
        Ok((first.elapsed() >= STEADY).then_some(first))
    })
}

fn print(rows: &[Row]) {
    println!(
        "A server is killed; times in ms from the kill on. MB of its log in a second, and that by cores: those of all processes together\n"
    );
    let titles = [
        "servers",
        "R",
        "objects of",
        "log MB",
        "found dead",
        "served",
        "to client",
        "promised",
        "measured",
        "copies",
        "MB/s",
        "per core",
    ];
    println!("{}", titles.map(|title| format!("{title:>11}")).concat());
    for row in rows {
        let cells = [
            row.servers.to_string(),
            row.replicas.to_string(),
            format!("{} B", row.value_bytes),
            format!("{:.0}", row.log_mb),
            format!("{:.1}", row.detection_ms),
            format!("{:.0}", row.served_ms),
            format!("{:.0}", row.client_ms),
            row.promised_ms.to_string(),
            row.measured_ms.to_string(),
            format!("{:.0}", row.copies_ms),
            format!("{:.0}", row.mb_per_s),
            format!("{:.0}", row.mb_per_s_per_core),
        ];
        println!("{}", cells.map(|cell| format!("{cell:>11}")).concat());
    }
    println!(
        "\nReads of 100 B on the other servers, one each 20 ms, us from when it was due: median, 99 %, longest\n"
    );
    println!(
        "{:>11}{:>11}{:>11}{:>24}{:>24}{:>24}{:>24}",
        "R", "objects of", "log MB", "before", "recovering", "copying", "after"
    );
    for row in rows {
        let stretches = [
            row.reads_before,
            row.reads_recovering,
            row.reads_copying,
            row.reads_after,
        ];
        let cell = |one: Latency| format!("{:.0} {:.0} {:.0}", one.p50_us, one.p99_us, one.max_us);
        let cells = stretches.map(|one| format!("{:>24}", cell(one))).concat();
        println!(
            "{:>11}{:>11}{:>11.0}{cells}",
            row.replicas,
            format!("{} B", row.value_bytes),
            row.log_mb
        );
    }
}
