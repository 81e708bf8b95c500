//! The store, or one object, again and again.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::time::Duration;

use admin::GetClusterStatusResponse;
use base::ids::ServerId;
use client::PerfStats;
use serde_json::{Map, Value, json};

use super::args::Watch;
use super::out::Out;
use super::session::Session;
use super::show::{bytes, columns, durability_name, duration, shard_state, status_json};
use super::{Failure, admin_api, complain};

pub fn run(session: &mut Session, watch: &Watch, out: &mut Out) -> Result<(), Failure> {
    match &watch.object[..] {
        [] => store(session, watch, out),
        [table, key] => match table.to_str() {
            Some(table) => object(session, watch, table, key, out),
            None => Err(Failure::Usage(format!(
                "{table:?} is not the name of a table: it is not UTF-8"
            ))),
        },
        _ => Err(Failure::Usage(
            "watch takes a table and a key, or neither of both".to_owned(),
        )),
    }
}

/// Shows an object, and again whenever its version has changed.
fn object(
    session: &mut Session,
    watch: &Watch,
    table_name: &str,
    key: &OsStr,
    out: &mut Out,
) -> Result<(), Failure> {
    let notation = watch.keys.notation();
    let key = notation.read(key)?;
    let table = session.table(table_name)?;
    let mut shown_version = None;
    let mut outputs = 0;
    loop {
        let object = match session.cluster()?.read(table, &key) {
            Ok(object) => Some(object),
            Err(error) if error.status() == Some(client::Status::ObjectDoesntExist) => None,
            Err(error) => return Err(session.about_object(&error, table_name, &key)),
        };
        let version = object.as_ref().map_or(0, |object| object.version);
        if shown_version != Some(version) {
            shown_version = Some(version);
            outputs += 1;
            let value = object.map(|object| object.value);
            if out.json {
                let mut shown = Map::new();
                notation.put_json(&mut shown, "key", &key);
                shown.insert("version".to_owned(), json!(version));
                if let Some(value) = &value {
                    watch.values.notation.put_json(&mut shown, value);
                }
                out.json_line(&Value::Object(shown))?;
            } else {
                out.text(&match value {
                    Some(value) => format!("{version}\t{}", watch.values.notation.show(&value)),
                    None => "0\t(absent)".to_owned(),
                })?;
            }
        }
        if watch.count.is_some_and(|count| outputs >= count) {
            return Ok(());
        }
        out.pause(watch.interval)?;
    }
}

/// What is known at one moment.
struct Sample {
    status: GetClusterStatusResponse,
    /// By server id; what they have done since they started.
    counters: HashMap<u64, Counters>,
    /// Why there are no counters.
    problem: Option<String>,
}

/// What a server has done since it started.
#[derive(Clone, Copy)]
struct Counters {
    seconds: f64,
    reads: u64,
    writes: u64,
}

impl Counters {
    fn new(stats: &PerfStats) -> Option<Counters> {
        (stats.cycles_per_second > 0.0).then(|| Counters {
            seconds: stats.collection_time as f64 / stats.cycles_per_second,
            reads: stats.read_count,
            writes: stats.write_count,
        })
    }
}

/// Operations per second of one server.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rates {
    reads: f64,
    writes: f64,
}

impl Rates {
    /// None if there is no time between both, or the counters were begun anew.
    fn between(before: Counters, after: Counters) -> Option<Rates> {
        let seconds = after.seconds - before.seconds;
        let per_second =
            |before: u64, after: u64| Some(after.checked_sub(before)? as f64 / seconds);
        if seconds <= 0.0 {
            return None;
        }
        Some(Rates {
            reads: per_second(before.reads, after.reads)?,
            writes: per_second(before.writes, after.writes)?,
        })
    }
}

fn sample(session: &mut Session) -> Result<Sample, Failure> {
    let status = admin_api::status(&session.settings.coordinator)?;
    let (counters, problem) = match session.cluster()?.perf_stats_all() {
        Ok(stats) => (stats, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let counters = counters
        .iter()
        .filter_map(|(id, stats)| Some((id.0, Counters::new(stats)?)));
    Ok(Sample {
        status,
        counters: counters.collect(),
        problem,
    })
}

/// Shows the store, until it is told to end.
fn store(session: &mut Session, watch: &Watch, out: &mut Out) -> Result<(), Failure> {
    let in_place = out.has_cursor && !out.json;
    // Where nothing was ever to be seen, there is nothing to wait for.
    let mut last = sample(session)?;
    let mut now = None;
    let mut outputs = 0;
    loop {
        let view = match &now {
            None => Ok((&last, HashMap::new())),
            Some(Ok(sample)) => Ok((sample, rates(&last, sample))),
            Some(Err(Failure::Because(text))) => Err(text.clone()),
            Some(Err(_)) => Err("no answer".to_owned()),
        };
        match view {
            Ok((sample, rates)) if out.json => out.json_line(&view_json(sample, &rates))?,
            Ok((sample, rates)) if in_place => {
                out.repaint(&view_text(sample, &rates, watch.interval, out.colors))?;
            }
            Ok((sample, rates)) => {
                out.text(&view_text(sample, &rates, watch.interval, out.colors))?;
                out.bytes(b"\n")?;
            }
            Err(text) if in_place => out.repaint(&format!("error: {text}\ntrying again\n"))?,
            Err(text) => complain(&text),
        }
        outputs += 1;
        if watch.count.is_some_and(|count| outputs >= count) {
            return Ok(());
        }
        out.pause(watch.interval)?;
        if let Some(Ok(sample)) = now.take() {
            last = sample;
        }
        now = Some(sample(session));
    }
}

fn rates(before: &Sample, after: &Sample) -> HashMap<u64, Rates> {
    let rates = after.counters.iter().filter_map(|(id, counters)| {
        let before = before.counters.get(id)?;
        Some((*id, Rates::between(*before, *counters)?))
    });
    rates.collect()
}

fn view_text(
    sample: &Sample,
    rates: &HashMap<u64, Rates>,
    interval: Duration,
    colors: bool,
) -> String {
    let status = &sample.status;
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "Store {:#018x}, cluster time {}, {}; every {interval:?}, Ctrl-C ends",
        status.cluster_id,
        duration(status.cluster_time_ns),
        durability_name(status.durability.unwrap_or_default().mode()),
    );
    let _ = writeln!(
        text,
        "Members: {}, tables: {}, client leases: {}, losses: {}\n",
        status.members.len(),
        status.table_count,
        status.client_lease_count,
        status.losses.len() as u64 + status.losses_dropped,
    );
    columns(&mut text, &rows(status, rates), colors);
    if let Some(problem) = &sample.problem {
        let _ = writeln!(text, "\nno operations per second: {problem}");
    }
    text
}

fn rows(status: &GetClusterStatusResponse, rates: &HashMap<u64, Rates>) -> Vec<[String; 9]> {
    let mut rows = vec![
        [
            "MEMBER", "STATE", "SERVER", "TABLETS", "OBJECTS", "LIVE", "CAPACITY", "READS/S",
            "WRITES/S",
        ]
        .map(str::to_owned),
    ];
    let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.0}"));
    let (mut sum, mut has_rates) = (admin::Shard::default(), false);
    let mut all = Rates {
        reads: 0.0,
        writes: 0.0,
    };
    for member in &status.members {
        for shard in &member.shards {
            let own = rates.get(&shard.server_id);
            if let Some(own) = own {
                has_rates = true;
                all.reads += own.reads;
                all.writes += own.writes;
            }
            sum.tablet_count += shard.tablet_count;
            sum.object_count += shard.object_count;
            sum.log_live_bytes += shard.log_live_bytes;
            sum.log_capacity_bytes += shard.log_capacity_bytes;
            rows.push([
                member.name.clone(),
                shard_state(member, shard).to_owned(),
                ServerId(shard.server_id).to_string(),
                shard.tablet_count.to_string(),
                shard.object_count.to_string(),
                bytes(shard.log_live_bytes),
                bytes(shard.log_capacity_bytes),
                rate(own.map(|own| own.reads)),
                rate(own.map(|own| own.writes)),
            ]);
        }
    }
    if rows.len() > 2 {
        rows.push([
            "all".to_owned(),
            String::new(),
            String::new(),
            sum.tablet_count.to_string(),
            sum.object_count.to_string(),
            bytes(sum.log_live_bytes),
            bytes(sum.log_capacity_bytes),
            rate(has_rates.then_some(all.reads)),
            rate(has_rates.then_some(all.writes)),
        ]);
    }
    rows
}

/// The JSON of `status`, with rates in each shard; null where they are not known.
fn view_json(sample: &Sample, rates: &HashMap<u64, Rates>) -> Value {
    let mut value = status_json(&sample.status);
    let shards = sample.status.members.iter().map(|member| &member.shards);
    for (member, shards) in shards.enumerate() {
        for (shard, about) in shards.iter().enumerate() {
            let own = rates.get(&about.server_id);
            let shown = &mut value["members"][member]["shards"][shard];
            shown["readsPerSecond"] = json!(own.map(|own| own.reads));
            shown["writesPerSecond"] = json!(own.map(|own| own.writes));
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64, reads: u64, writes: u64) -> Counters {
        Counters {
            seconds,
            reads,
            writes,
        }
    }

    fn two_shards() -> Sample {
        let shard = |server_id| admin::Shard {
            server_id,
            connected: true,
            object_count: 4,
            ..Default::default()
        };
        Sample {
            status: GetClusterStatusResponse {
                members: vec![admin::Member {
                    name: "m0".to_owned(),
                    shards: vec![shard(1), shard(2)],
                    ..Default::default()
                }],
                ..Default::default()
            },
            counters: HashMap::from([(1, at(12.0, 300, 5))]),
            problem: None,
        }
    }

    #[test]
    fn rates_are_differences() {
        assert_eq!(
            Rates::between(at(10.0, 100, 5), at(12.0, 300, 5)),
            Some(Rates {
                reads: 100.0,
                writes: 0.0
            })
        );
        assert_eq!(Rates::between(at(10.0, 1, 1), at(10.0, 2, 2)), None);
        // The server was started again.
        assert_eq!(Rates::between(at(10.0, 9, 9), at(11.0, 2, 2)), None);
    }

    #[test]
    fn a_view_has_rates_where_they_are_known_and_a_sum() {
        let (before, after) = (
            Sample {
                counters: HashMap::from([(1, at(10.0, 100, 5))]),
                ..two_shards()
            },
            two_shards(),
        );
        let rates = rates(&before, &after);
        let text = view_text(&after, &rates, Duration::from_secs(1), false);
        let cells = |line: usize| -> Vec<_> {
            let line = text.lines().nth(line).unwrap();
            line.split_whitespace().map(str::to_owned).collect()
        };
        let known = cells(4);
        assert_eq!(known[known.len() - 2..], ["100", "0"], "{text}");
        let unknown = cells(5);
        assert_eq!(unknown[unknown.len() - 2..], ["-", "-"], "{text}");
        let all = cells(6);
        assert_eq!((all[0].as_str(), all[2].as_str()), ("all", "8"), "{text}");
        assert_eq!(all[all.len() - 2..], ["100", "0"], "{text}");
        let value = view_json(&after, &rates);
        let shards = &value["members"][0]["shards"];
        assert_eq!(shards[0]["readsPerSecond"], 100.0);
        assert_eq!(shards[1]["writesPerSecond"], Value::Null);
    }
}
