//! How members and their ports are shown.

use std::fmt::Write;

use admin::{GetClusterStatusResponse, MemberContact, NetworkPort};
use base::ids::ServerId;
use serde_json::{Value, json};

use super::notation::escape;
use super::show::{NO_PROCESS, bytes, columns, duration, shard_state};

/// A line for each shard.
pub fn table(text: &mut String, status: &GetClusterStatusResponse, colors: bool) {
    let mut rows = vec![
        [
            "MEMBER",
            "STATE",
            "SERVER",
            "LOCATOR",
            "TABLETS",
            "OBJECTS",
            "IN USE",
            "MEMORY",
            "KEPT FOR OTHERS",
        ]
        .map(str::to_owned),
    ];
    for member in &status.members {
        for shard in &member.shards {
            if shard_state(member, shard) == NO_PROCESS {
                let mut row = std::array::from_fn(|_| "-".to_owned());
                (row[0], row[1]) = (member.name.clone(), NO_PROCESS.to_owned());
                rows.push(row);
                continue;
            }
            rows.push([
                member.name.clone(),
                shard_state(member, shard).to_owned(),
                ServerId(shard.server_id).to_string(),
                shard.locator.clone(),
                shard.tablet_count.to_string(),
                shard.object_count.to_string(),
                bytes(shard.log_live_bytes),
                bytes(shard.log_capacity_bytes),
                kept_for_others(shard),
            ]);
        }
    }
    if rows.len() > 1 {
        text.push('\n');
        columns(text, &rows, colors);
    }
}

/// Copies of others' segments.
fn kept_for_others(shard: &admin::Shard) -> String {
    match &shard.backup {
        None => "-".to_owned(),
        Some(backup) => {
            let used = backup.frames.saturating_sub(backup.frames_free);
            let frame_bytes = u64::from(backup.segment_bytes);
            format!(
                "{} of {}",
                bytes(u64::from(used) * frame_bytes),
                bytes(u64::from(backup.frames) * frame_bytes)
            )
        }
    }
}

/// What the coordinator that answers has itself heard of a member.
pub fn contact(member: &admin::Member) -> &'static str {
    match member.contact() {
        MemberContact::NotYet => "NOT_YET",
        MemberContact::Heard => "HEARD",
        MemberContact::Dead => "DEAD",
        MemberContact::Unspecified => "UNKNOWN",
    }
}

/// Shards that refuse requests for want of memory.
pub fn full(text: &mut String, status: &GetClusterStatusResponse) {
    for member in &status.members {
        for shard in &member.shards {
            let Some((room, full)) = shard.log_room.as_ref().and_then(|it| Some((it, it.full?)))
            else {
                continue;
            };
            let data = shard.log_live_bytes.saturating_sub(room.tombstone_bytes);
            let ago = |ms: u64| duration(ms.saturating_mul(1_000_000));
            let _ = writeln!(
                text,
                "\nThe memory of {} ({}) is full: requests have been refused for {}, the last one {} ago. Its data takes {} of {}.\n  Remove objects, add members, or give members more memory.",
                escape(member.name.as_bytes()),
                ServerId(shard.server_id),
                ago(full.for_ms),
                ago(full.last_ms),
                bytes(data),
                bytes(room.max_live_bytes)
            );
        }
    }
}

pub fn room_json(room: &admin::LogRoom) -> Value {
    json!({
        "maxLiveBytes": room.max_live_bytes,
        "tombstoneBytes": room.tombstone_bytes,
        "fullRejections": room.full_rejections,
        "fullForMs": room.full.map(|full| full.for_ms),
        "fullLastMs": room.full.map(|full| full.last_ms),
    })
}

/// A line for each port beside TCP.
pub fn ports(text: &mut String, status: &GetClusterStatusResponse, colors: bool) {
    let heads = [
        "PORT OF",
        "INTERFACE",
        "PCI",
        "MAC",
        "IP",
        "DRIVER",
        "LINK",
        "PEERS",
    ];
    let mut rows = vec![heads.map(str::to_owned)];
    for member in &status.members {
        for port in &member.network {
            let of_port = [
                &port.interface,
                &port.pci,
                &port.mac,
                &port.ip,
                &port.driver,
            ];
            let [interface, pci, mac, ip, driver] = of_port.map(|text| or_none(text));
            let (link, peers) = (link(port), peers(port));
            rows.push([
                member.name.clone(),
                interface,
                pci,
                mac,
                ip,
                driver,
                link,
                peers,
            ]);
        }
    }
    if rows.len() > 1 {
        text.push('\n');
        columns(text, &rows, colors);
    }
}

fn or_none(text: &str) -> String {
    match text.is_empty() {
        true => "-".to_owned(),
        false => escape(text.as_bytes()),
    }
}

fn link(port: &NetworkPort) -> String {
    match (port.link_up, port.link_mbps) {
        (None, _) => "not known".to_owned(),
        (Some(false), _) => "down".to_owned(),
        (Some(true), 0) => "up".to_owned(),
        (Some(true), mbps) => format!("up, {mbps} Mb/s"),
    }
}

/// How fast others are reached, and who is spoken to over the pod network though it has a port.
fn peers(port: &NetworkPort) -> String {
    let times = port.pings.iter().map(|ping| ping.round_trip_ns);
    let times: Vec<u64> = times.filter(|&time| time > 0).collect();
    let micros = |nanos: &u64| *nanos as f64 / 1e3;
    let mut text = match (times.iter().min(), times.iter().max()) {
        (Some(least), Some(most)) => format!(
            "{} in {:.1} to {:.1} us",
            times.len(),
            micros(least),
            micros(most)
        ),
        _ => "-".to_owned(),
    };
    let missed = port.pings.iter().filter(|ping| ping.round_trip_ns == 0);
    let missed: Vec<_> = missed.map(|ping| escape(ping.member.as_bytes())).collect();
    if !missed.is_empty() {
        text.push_str("; by TCP only: ");
        text.push_str(&missed.join(", "));
    }
    text
}

pub fn ports_json(ports: &[NetworkPort]) -> Value {
    let port = |port: &NetworkPort| {
        let ping = |ping: &admin::PeerPing| {
            json!({
                "member": ping.member,
                "ip": ping.ip,
                "roundTripNs": ping.round_trip_ns,
                "ageMs": ping.age_ms,
            })
        };
        json!({
            "interface": port.interface,
            "pci": port.pci,
            "mac": port.mac,
            "ip": port.ip,
            "driver": port.driver,
            "linkUp": port.link_up,
            "linkMbps": port.link_mbps,
            "mtu": port.mtu,
            "numaNode": port.numa_node,
            "coresNumaNode": port.cores_numa_node,
            "pings": port.pings.iter().map(ping).collect::<Vec<_>>(),
        })
    };
    ports.iter().map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ping(member: &str, round_trip_ns: u64) -> admin::PeerPing {
        admin::PeerPing {
            member: member.to_owned(),
            ip: "10.0.0.9".to_owned(),
            round_trip_ns,
            age_ms: 1,
        }
    }

    #[test]
    fn a_member_that_is_not_heard_yet_is_not_shown_as_unreachable() {
        let mut member = admin::Member {
            contact: MemberContact::NotYet.into(),
            ..Default::default()
        };
        let mut shard = admin::Shard {
            locator: "tcp:host=10.0.0.1,port=1".to_owned(),
            ..Default::default()
        };
        assert_eq!(shard_state(&member, &shard), "not heard yet");
        shard.heard_ms = Some(7);
        assert_eq!(shard_state(&member, &shard), "unreachable");
        // Of an older coordinator, which does not say.
        (shard.heard_ms, member.contact) = (None, MemberContact::Unspecified.into());
        assert_eq!(shard_state(&member, &shard), "unreachable");
    }

    #[test]
    fn full_memory_is_shown_with_since_when_and_how_much_there_is() {
        let mut status = GetClusterStatusResponse {
            members: vec![admin::Member {
                name: "a".to_owned(),
                shards: vec![admin::Shard {
                    server_id: 1,
                    log_live_bytes: 100 << 20,
                    log_room: Some(admin::LogRoom {
                        max_live_bytes: 90 << 20,
                        tombstone_bytes: 10 << 20,
                        full_rejections: 5,
                        full: Some(admin::MemoryFull {
                            for_ms: 61_000,
                            last_ms: 2_000,
                        }),
                    }),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut shown = String::new();
        full(&mut shown, &status);
        let line = "The memory of a (1.0) is full: requests have been refused for 1 min 1 s, the last one 2 s ago. Its data takes 90.0 MiB of 90.0 MiB.";
        assert!(shown.contains(line), "{shown}");
        let room = status.members[0].shards[0].log_room.as_mut();
        room.expect("set above").full = None;
        shown.clear();
        full(&mut shown, &status);
        assert_eq!(shown, "");
    }

    #[test]
    fn a_port_is_shown_with_whom_it_reaches() {
        let port = NetworkPort {
            mac: "02:52:0a:00:00:01".to_owned(),
            ip: "10.0.0.1".to_owned(),
            driver: "net_x".to_owned(),
            link_up: Some(true),
            link_mbps: 10_000,
            pings: vec![ping("b", 8_000), ping("c", 0), ping("d", 12_340)],
            ..Default::default()
        };
        let mut status = GetClusterStatusResponse {
            members: vec![admin::Member {
                name: "a".to_owned(),
                network: vec![port],
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut shown = String::new();
        ports(&mut shown, &status, false);
        let line = shown.lines().last().unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "a - - 02:52:0a:00:00:01 10.0.0.1 net_x up, 10000 Mb/s 2 in 8.0 to 12.3 us; by TCP only: c"
        );
        status.members[0].network[0].link_up = Some(false);
        status.members[0].network[0].pings.clear();
        shown.clear();
        ports(&mut shown, &status, false);
        let words: Vec<&str> = shown.split_whitespace().collect();
        assert!(words.ends_with(&["net_x", "down", "-"]), "{shown}");
        status.members[0].network.clear();
        shown.clear();
        ports(&mut shown, &status, false);
        assert_eq!(shown, "");
    }
}
