//! What servers have done last.

use std::fmt::Write;

use admin::{GetTimeTraceRequest, GetTimeTraceResponse, ShardTrace, TraceEvent};
use base::ids::ServerId;
use serde_json::{Value, json};

use super::Failure;
use super::admin_api;
use super::notation::escape;
use super::out::Out;
use super::session::Settings;

pub fn run(
    settings: &Settings,
    request: &GetTimeTraceRequest,
    out: &mut Out,
) -> Result<(), Failure> {
    let trace = admin_api::time_trace(&settings.coordinator, request)?;
    match out.json {
        true => out.json_line(&json(&trace)),
        false => out.text(&text(&trace)),
    }
}

/// A table for each shard: time since the event before, and what happened.
fn text(trace: &GetTimeTraceResponse) -> String {
    let mut text = String::new();
    for shard in &trace.shards {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{}{} shard {}, server {}: {} events",
            if text.is_empty() { "" } else { "\n" },
            escape(shard.member.as_bytes()),
            shard.shard_index,
            ServerId(shard.server_id),
            shard.events.len()
        );
        if !shard.refusal.is_empty() {
            let _ = writeln!(text, "  {}", escape(shard.refusal.as_bytes()));
        }
        for (gap_ns, event) in with_gaps(shard) {
            let _ = writeln!(
                text,
                "{:>14}  {:<18} {}",
                gap(gap_ns),
                event.name,
                escape(event.description.as_bytes())
            );
        }
    }
    let silent = trace.asked.saturating_sub(trace.shards.len() as u32);
    if silent > 0 {
        let _ = writeln!(text, "{silent} of {} shards did not answer", trace.asked);
    }
    text
}

/// Events, each with the time since the one before.
fn with_gaps(shard: &ShardTrace) -> impl Iterator<Item = (u64, &TraceEvent)> {
    let times = shard.events.iter().map(|event| event.time_ns);
    let before = shard.events.first().map(|event| event.time_ns);
    let before = before.into_iter().chain(times);
    let events = shard.events.iter().zip(before);
    events.map(|(event, before)| (event.time_ns.saturating_sub(before), event))
}

fn gap(ns: u64) -> String {
    match ns {
        0..10_000 => format!("+{ns} ns"),
        10_000..10_000_000 => format!("+{:.1} us", ns as f64 / 1e3),
        _ => format!("+{:.1} ms", ns as f64 / 1e6),
    }
}

fn json(trace: &GetTimeTraceResponse) -> Value {
    let event = |(gap_ns, event): (u64, &TraceEvent)| {
        json!({
            "timeNs": event.time_ns,
            "sinceBeforeNs": gap_ns,
            "name": event.name,
            "description": event.description,
            "place": event.place,
            "argument": event.argument,
        })
    };
    let shard = |shard: &ShardTrace| {
        json!({
            "member": shard.member,
            "shard": shard.shard_index,
            "serverId": ServerId(shard.server_id).to_string(),
            "refusal": shard.refusal,
            "events": with_gaps(shard).map(event).collect::<Vec<_>>(),
        })
    };
    json!({
        "asked": trace.asked,
        "shards": trace.shards.iter().map(shard).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_since_the_event_before() {
        let event = |time_ns, name: &str| TraceEvent {
            time_ns,
            name: name.to_owned(),
            description: format!("{name} in words"),
            place: 3,
            argument: 17,
        };
        let trace = GetTimeTraceResponse {
            shards: vec![
                ShardTrace {
                    member: "m1".to_owned(),
                    server_id: 1 << 32 | 4,
                    events: vec![
                        event(5_000_000, "Received"),
                        event(5_000_170, "FrameIn"),
                        event(5_030_170, "Flushed"),
                        event(25_030_170, "Woke"),
                    ],
                    ..ShardTrace::default()
                },
                ShardTrace {
                    member: "m2".to_owned(),
                    refusal: "off".to_owned(),
                    ..ShardTrace::default()
                },
            ],
            asked: 3,
        };
        let expected = "m1 shard 0, server 4.1: 4 events
         +0 ns  Received           Received in words
       +170 ns  FrameIn            FrameIn in words
      +30.0 us  Flushed            Flushed in words
      +20.0 ms  Woke               Woke in words

m2 shard 0, server 0.0: 0 events
  off
1 of 3 shards did not answer
";
        assert_eq!(text(&trace), expected);
        let json = json(&trace);
        assert_eq!(json["shards"][0]["events"][1]["sinceBeforeNs"], 170);
        assert_eq!(json["shards"][1]["refusal"], "off");
    }
}
