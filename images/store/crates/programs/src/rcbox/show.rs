//! How a store is shown.

use std::fmt::Write;

use admin::{
    DurabilityMode, GetClusterStatusResponse, MemberContact, MemberState, Table, TabletState,
};
use client::Server;
use serde_json::{Value, json};
use wire::ids::{ServerId, TableId};
use wire::opcode::Service;

use super::drain;
use super::leader;
use super::members;
use super::notation::escape;
use super::rebuild;
use super::tablet;
use super::{settings, upgrade};

/// Whether there is a member, and all are up.
pub fn is_all_up(status: &GetClusterStatusResponse) -> bool {
    let up = |member: &admin::Member| member.state() == MemberState::Up;
    !status.members.is_empty() && status.members.iter().all(up)
}

/// Text for people.
pub fn status(status: &GetClusterStatusResponse, colors: bool) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "Store {:#018x} (tag {:#010x}), cluster time {}, build {}, format {}",
        status.cluster_id,
        status.cluster_tag,
        duration(status.cluster_time_ns),
        escape(status.build_version.as_bytes()),
        status.format_version
    );
    let durability = status.durability.unwrap_or_default();
    let meaning = match durability.mode() {
        DurabilityMode::Unreplicated => {
            "each object is in the memory of one server only; if that dies, it is lost".to_owned()
        }
        DurabilityMode::Replicated => format!(
            "copies on other hosts: {}{}",
            durability.replicas,
            segments_short(status)
        ),
        DurabilityMode::Unspecified => "not known to this build".to_owned(),
    };
    let _ = writeln!(
        text,
        "Durability: {} ({meaning})",
        durability_name(durability.mode())
    );
    let up = status
        .members
        .iter()
        .filter(|member| member.state() == MemberState::Up)
        .count();
    let _ = writeln!(
        text,
        "Members: {} ({up} up), tables: {}, client leases: {}",
        status.members.len(),
        status.table_count,
        status.client_lease_count
    );
    leader::lines(&mut text, status.leader.as_ref());
    rebuild::line(&mut text, status);
    members::table(&mut text, status, colors);
    members::ports(&mut text, status, colors);
    members::full(&mut text, status);
    retired(&mut text, status);
    drain::under_way(&mut text, status);
    recoveries(&mut text, status);
    upgrade::line(&mut text, status);
    tablet::under_way(&mut text, status);
    tablet::balance(&mut text, status);
    losses(&mut text, status);
    text
}

/// What follows the number of copies: how many segments have fewer.
fn segments_short(status: &GetClusterStatusResponse) -> String {
    let shards = || status.members.iter().flat_map(|member| &member.shards);
    let short: u64 = shards().map(|shard| shard.segments_short).sum();
    match short {
        0 => String::new(),
        _ => {
            let segments: u64 = shards().map(|shard| shard.segments).sum();
            format!("; {short} of {segments} segments have fewer")
        }
    }
}

/// State of a server whose process is dead, before another has come.
pub const NO_PROCESS: &str = "no process";

pub fn shard_state(member: &admin::Member, shard: &admin::Shard) -> &'static str {
    let is_heard = shard.heard_ms.is_some() || member.contact() != MemberContact::NotYet;
    match shard.connected {
        true => "up",
        // The one that was is known to be dead.
        false if shard.locator.is_empty() => NO_PROCESS,
        false if is_heard => "unreachable",
        // Its absence means nothing: the leader has only just taken over.
        false => "not heard yet",
    }
}

/// Backups that take nothing new.
fn retired(text: &mut String, status: &GetClusterStatusResponse) {
    for member in &status.members {
        for shard in &member.shards {
            let Some(backup) = &shard.backup else {
                continue;
            };
            if !backup.retired_reason.is_empty() {
                let _ = writeln!(
                    text,
                    "\nThe backup of {} ({}) takes no more copies: {}\n  What it has is still read; others get copies of it. Replace its disk, and start the server again.",
                    escape(member.name.as_bytes()),
                    ServerId(shard.server_id),
                    escape(backup.retired_reason.as_bytes())
                );
            }
        }
    }
}

/// Those under way.
fn recoveries(text: &mut String, status: &GetClusterStatusResponse) {
    let under_way = |recovery: &&admin::Recovery| recovery.tablets_left > 0;
    for recovery in status.recoveries.iter().filter(under_way) {
        let for_ns = status.cluster_time_ns.saturating_sub(recovery.started_ns);
        let server = ServerId(recovery.server_id);
        let _ = writeln!(
            text,
            "\nRecovery of {} (server {server}), for {}: {} tablets are not served yet, {} of log to read",
            escape(recovery.member.as_bytes()),
            duration(for_ns),
            recovery.tablets_left,
            bytes(recovery.bytes)
        );
        if !recovery.waits_for.is_empty() {
            let _ = writeln!(
                text,
                "  It waits: {}",
                escape(recovery.waits_for.as_bytes())
            );
        }
        if !recovery.loss_token.is_empty() {
            let _ = writeln!(
                text,
                "  It goes on when a server with a disk that has this is started. If these disks are gone for ever: rcbox recovery accept-loss {server}"
            );
        }
    }
}

/// What a recovery misses, and what is left: lines.
pub fn missing(recovery: &admin::Recovery) -> String {
    const NAMED: usize = 32;
    let mut text = format!(
        "The recovery of server {} (member {}) misses, and nobody serves {} tablets until it is there or given up:\n",
        ServerId(recovery.server_id),
        escape(recovery.member.as_bytes()),
        recovery.tablets_left
    );
    for log in &recovery.missing {
        let server = ServerId(log.server_id);
        if log.lacks_head {
            let _ = writeln!(
                text,
                "  of the log of server {server}: its end. How much was written there last, and which older segments count, nobody can tell"
            );
        }
        if log.segment_count > 0 {
            let named: Vec<String> = log
                .segments
                .iter()
                .take(NAMED)
                .map(u64::to_string)
                .collect();
            let more = match log.segment_count.saturating_sub(named.len() as u64) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let _ = writeln!(
                text,
                "  of the log of server {server}: segments {}{more}",
                named.join(", ")
            );
        }
        let _ = writeln!(
            text,
            "  left of it: {} segments, {}",
            log.segments_left,
            bytes(log.bytes_left)
        );
    }
    let _ = writeln!(
        text,
        "  It waits: {}",
        escape(recovery.waits_for.as_bytes())
    );
    text
}

fn losses(text: &mut String, status: &GetClusterStatusResponse) {
    if status.losses.is_empty() {
        return;
    }
    let _ = writeln!(text, "\nLost for ever:");
    if status.losses_dropped > 0 {
        let _ = writeln!(
            text,
            "  ({} older ones are no longer listed)",
            status.losses_dropped
        );
    }
    for one in &status.losses {
        let ago = status.cluster_time_ns.saturating_sub(one.cluster_time_ns);
        let _ = writeln!(text, "  {} ago: {}", duration(ago), loss(one));
    }
}

/// A sentence.
pub fn loss(loss: &admin::Loss) -> String {
    let more = if loss.tables_dropped > 0 {
        format!(" and {} more", loss.tables_dropped)
    } else {
        String::new()
    };
    let member = escape(loss.member.as_bytes());
    let tables = escape(loss.tables.join(", ").as_bytes());
    if loss.uncounted {
        return format!(
            "{member} died with the only copy of {} tablets of tables {tables}{more}; how many objects these held nobody knows, for the coordinator had no report of them",
            loss.tablet_count
        );
    }
    if loss.missing.is_empty() {
        return format!(
            "{member} died with the only copy of {} tablets, about {} objects, {} of tables {tables}{more}",
            loss.tablet_count,
            loss.object_count,
            bytes(loss.live_bytes)
        );
    }
    format!(
        "{} tablets of tables {tables}{more} that {member} served may lack objects: missing {}",
        loss.tablet_count,
        escape(loss.missing.as_bytes())
    )
}

/// Text for people.
pub fn tables(tables: &[Table], program: &str) -> String {
    let mut rows = vec![
        [
            "TABLE",
            "ID",
            "FIRST HASH",
            "LAST HASH",
            "STATE",
            "SERVER",
            "MEMBER",
        ]
        .map(str::to_owned),
    ];
    for table in tables {
        for tablet in &table.tablets {
            rows.push([
                table.name.clone(),
                TableId(table.table_id).to_string(),
                format!("{:#018x}", tablet.start_key_hash),
                format!("{:#018x}", tablet.end_key_hash),
                tablet_state(tablet.state()).to_owned(),
                match tablet.server_id {
                    0 => "-".to_owned(),
                    id => ServerId(id).to_string(),
                },
                tablet.member.clone(),
            ]);
        }
    }
    if rows.len() == 1 {
        return format!("There are no tables; create one with: {program}create-table NAME\n");
    }
    let mut text = String::new();
    columns(&mut text, &rows, false);
    text
}

/// Rows with aligned cells. Names come from others: what is not text is shown with escapes.
pub fn columns<const N: usize>(text: &mut String, rows: &[[String; N]], colors: bool) {
    let rows: Vec<[String; N]> = rows
        .iter()
        .map(|row| std::array::from_fn(|column| escape(row[column].as_bytes())))
        .collect();
    let widths: [usize; N] = std::array::from_fn(|column| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    });
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let padded = format!("{cell:<width$}  ");
            match color(cell) {
                Some(color) if colors => {
                    let _ = write!(line, "{color}{padded}{DEFAULT_COLOR}");
                }
                _ => line.push_str(&padded),
            }
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const DEFAULT_COLOR: &str = "\x1b[39m";

/// All that is ever written to a terminal to color a text.
pub const COLORS: [&str; 3] = [RED, GREEN, DEFAULT_COLOR];

/// What a state looks like.
fn color(cell: &str) -> Option<&'static str> {
    match cell {
        "up" => Some(GREEN),
        "unreachable" | NO_PROCESS => Some(RED),
        _ => None,
    }
}

/// Ids of servers as "index.generation", 64-bit ids as hexadecimal strings.
pub fn status_json(status: &GetClusterStatusResponse) -> Value {
    let members = status.members.iter().map(|member| {
        let shards = member.shards.iter().map(|shard| {
            json!({
                "serverId": ServerId(shard.server_id).to_string(),
                "locator": shard.locator,
                "connected": shard.connected,
                "tabletCount": shard.tablet_count,
                "logCapacityBytes": shard.log_capacity_bytes,
                "replicas": shard.replicas,
                "segments": shard.segments,
                "segmentsShort": shard.segments_short,
                "serving": shard.serving,
                "logLiveBytes": shard.log_live_bytes,
                "objectCount": shard.object_count,
                "heardMs": shard.heard_ms,
                "logRoom": shard.log_room.as_ref().map(members::room_json),
                "backup": shard.backup.as_ref().map(backup_json),
            })
        });
        let state = match member.state() {
            MemberState::Up => "UP",
            MemberState::Unreachable => "UNREACHABLE",
            MemberState::Unspecified => "UNKNOWN",
        };
        json!({
            "name": member.name,
            "state": state,
            "contact": members::contact(member),
            "instance": member.instance,
            "hostId": member.host_id,
            "buildVersion": member.build_version,
            "incarnations": member.incarnations,
            "draining": member.draining.as_ref().map(drain::json),
            "shards": shards.collect::<Vec<_>>(),
            "network": members::ports_json(&member.network),
        })
    });
    let losses = status.losses.iter().map(loss_json);
    let durability = status.durability.unwrap_or_default();
    json!({
        "clusterId": format!("{:#018x}", status.cluster_id),
        "clusterTag": status.cluster_tag,
        "clusterTimeNs": status.cluster_time_ns,
        "formatVersion": status.format_version,
        "upgrade": upgrade::json(status),
        "settings": settings::json(status),
        "buildVersion": status.build_version,
        "durability": { "mode": durability_name(durability.mode()), "replicas": durability.replicas },
        "members": members.collect::<Vec<_>>(),
        "tableCount": status.table_count,
        "clientLeaseCount": status.client_lease_count,
        "losses": losses.collect::<Vec<_>>(),
        "lossesDropped": status.losses_dropped,
        "recoveries": status.recoveries.iter().map(recovery_json).collect::<Vec<_>>(),
        "stateKind": leader::state_kind(status),
        "leader": leader::leader_json(status.leader.as_ref()),
        "balance": status.balance.as_ref().map(tablet::balance_json),
        "rebuilt": rebuild::json(status),
        "migrations": status.migrations.iter().map(tablet::json).collect::<Vec<_>>(),
    })
}

pub fn loss_json(loss: &admin::Loss) -> Value {
    let server_ids = loss.server_ids.iter().map(|id| ServerId(*id).to_string());
    json!({
        "clusterTimeNs": loss.cluster_time_ns,
        "member": loss.member,
        "serverIds": server_ids.collect::<Vec<_>>(),
        "tables": loss.tables,
        "tablesDropped": loss.tables_dropped,
        "tabletCount": loss.tablet_count,
        "objectCount": loss.object_count,
        "liveBytes": loss.live_bytes,
        "missing": loss.missing,
        "uncounted": loss.uncounted,
        "instance": loss.instance,
    })
}

pub fn recovery_json(recovery: &admin::Recovery) -> Value {
    json!({
        "serverId": ServerId(recovery.server_id).to_string(),
        "member": recovery.member,
        "startedNs": recovery.started_ns,
        "tabletCount": recovery.tablet_count,
        "tabletsLeft": recovery.tablets_left,
        "waitsFor": recovery.waits_for,
        "bytes": recovery.bytes,
        "promisedMs": recovery.promised_ms,
        "measuredMs": recovery.measured_ms,
        "lossToken": recovery.loss_token,
        "missing": recovery.missing.iter().map(missing_json).collect::<Vec<_>>(),
    })
}

fn missing_json(log: &admin::MissingLog) -> Value {
    json!({
        "serverId": ServerId(log.server_id).to_string(),
        "segments": log.segments,
        "segmentCount": log.segment_count,
        "lacksHead": log.lacks_head,
        "segmentsLeft": log.segments_left,
        "bytesLeft": log.bytes_left,
    })
}

fn backup_json(backup: &admin::BackupStorage) -> Value {
    json!({
        "frames": backup.frames,
        "framesFree": backup.frames_free,
        "framesDamaged": backup.frames_damaged,
        "segmentBytes": backup.segment_bytes,
        "retiredReason": backup.retired_reason,
    })
}

/// One JSON array.
pub fn tables_json(tables: &[Table]) -> Value {
    let tables = tables.iter().map(|table| {
        let tablets = table.tablets.iter().map(|tablet| {
            json!({
                "startKeyHash": format!("{:#018x}", tablet.start_key_hash),
                "endKeyHash": format!("{:#018x}", tablet.end_key_hash),
                "state": tablet_state(tablet.state()),
                "serverId": ServerId(tablet.server_id).to_string(),
                "member": tablet.member,
                "bytes": tablet.bytes,
                "objects": tablet.objects,
                "operationsPerSecond": tablet.operations_per_second,
            })
        });
        json!({
            "name": table.name,
            "tableId": format!("{:#018x}", table.table_id),
            "tablets": tablets.collect::<Vec<_>>(),
        })
    });
    Value::Array(tables.collect())
}

/// Text for people.
pub fn servers(servers: &[Server]) -> String {
    let mut rows = vec![["SERVER", "SERVICES", "STATUS", "LOCATOR"].map(str::to_owned)];
    for server in servers {
        rows.push([
            server.id.to_string(),
            services(server.services).join(","),
            server_status(server.status),
            server.locator.clone(),
        ]);
    }
    if rows.len() == 1 {
        return "There are no servers; start one with: server -C LOCATOR -L tcp:host=HOST,port=PORT\n".to_owned();
    }
    let mut text = String::new();
    columns(&mut text, &rows, false);
    text
}

/// One JSON array.
pub fn servers_json(servers: &[Server]) -> Value {
    let servers = servers.iter().map(|server| {
        json!({
            "serverId": server.id.to_string(),
            "services": services(server.services),
            "status": server_status(server.status),
            "locator": server.locator,
        })
    });
    Value::Array(servers.collect())
}

/// What a server offers, of a mask of services.
fn services(mask: u32) -> Vec<&'static str> {
    let known = [(Service::Master, "master"), (Service::Backup, "backup")];
    let offered = known
        .into_iter()
        .filter(|(service, _)| mask & service.bit() != 0);
    offered.map(|(_, name)| name).collect()
}

fn server_status(status: u32) -> String {
    match status {
        0 => "UP".to_owned(),
        1 => "CRASHED".to_owned(),
        2 => "REMOVE".to_owned(),
        other => other.to_string(),
    }
}

/// JSON over several lines.
pub fn pretty(value: &Value) -> String {
    format!("{value:#}")
}

pub fn durability_name(mode: DurabilityMode) -> &'static str {
    match mode {
        DurabilityMode::Unreplicated => "UNREPLICATED",
        DurabilityMode::Replicated => "REPLICATED",
        DurabilityMode::Unspecified => "UNKNOWN",
    }
}

fn tablet_state(state: TabletState) -> &'static str {
    match state {
        TabletState::Normal => "NORMAL",
        TabletState::Recovering => "RECOVERING",
        TabletState::Unspecified => "UNKNOWN",
    }
}

/// A time for people.
pub fn duration(nanos: u64) -> String {
    let seconds = nanos / 1_000_000_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// An amount of memory for people.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" {
        format!("{count} B")
    } else {
        format!("{value:.1} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(
            [bytes(0), bytes(1023), bytes(1536), bytes(5 << 30)],
            ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
        );
        assert_eq!(duration(59_999_999_999), "59 s");
        assert_eq!(duration(3_661_000_000_000), "1 h 1 min");
    }

    #[test]
    fn a_status_says_what_is_not_durable_and_what_was_lost() {
        let lost = GetClusterStatusResponse {
            cluster_time_ns: 90_000_000_000,
            durability: Some(admin::Durability {
                mode: DurabilityMode::Unreplicated.into(),
                replicas: 0,
            }),
            members: vec![admin::Member {
                name: "box-master-0".to_owned(),
                state: MemberState::Up.into(),
                shards: vec![admin::Shard {
                    server_id: 1,
                    connected: true,
                    object_count: 7,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            losses: vec![admin::Loss {
                cluster_time_ns: 60_000_000_000,
                member: "box-master-0".to_owned(),
                tables: vec!["fruit".to_owned()],
                tablet_count: 2,
                ..Default::default()
            }],
            ..Default::default()
        };
        let shown = status(&lost, false);
        for part in [
            "UNREPLICATED",
            "it is lost",
            "1 up",
            "box-master-0  up",
            "1.0",
            "30 s ago: box-master-0 died with the only copy of 2 tablets",
        ] {
            assert!(shown.contains(part), "{part} is not in\n{shown}");
        }
        assert!(is_all_up(&lost));
        let mut uncounted = lost.clone();
        uncounted.losses[0].uncounted = true;
        let shown = status(&uncounted, false);
        assert!(
            shown.contains("nobody knows") && !shown.contains("about 0 objects"),
            "{shown}"
        );
        let nothing = GetClusterStatusResponse::default();
        assert!(!is_all_up(&nothing));
        assert_eq!(status_json(&nothing)["members"], json!([]));
    }

    #[test]
    fn a_status_says_what_has_too_few_copies_and_what_is_being_recovered() {
        let mut replicated = GetClusterStatusResponse {
            cluster_time_ns: 90_000_000_000,
            durability: Some(admin::Durability {
                mode: DurabilityMode::Replicated.into(),
                replicas: 2,
            }),
            members: vec![admin::Member {
                shards: vec![admin::Shard {
                    segments: 10,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            recoveries: vec![admin::Recovery {
                server_id: 2,
                member: "box-master-1".to_owned(),
                started_ns: 85_000_000_000,
                tablets_left: 4,
                waits_for: "segment 7 of 2.0".to_owned(),
                bytes: 1 << 20,
                ..Default::default()
            }],
            ..Default::default()
        };
        let shown = status(&replicated, false);
        for part in [
            "Durability: REPLICATED (copies on other hosts: 2)",
            "Recovery of box-master-1 (server 2.0), for 5 s: 4 tablets are not served yet, 1.0 MiB of log to read",
            "It waits: segment 7 of 2.0",
        ] {
            assert!(shown.contains(part), "{part} is not in\n{shown}");
        }
        replicated.members[0].shards[0].segments_short = 1;
        replicated.recoveries[0].tablets_left = 0;
        let shown = status(&replicated, false);
        assert!(shown.contains("copies on other hosts: 2; 1 of 10 segments have fewer"));
        assert!(!shown.contains("Recovery"), "one that has ended:\n{shown}");
    }

    #[test]
    fn a_status_says_what_somebody_has_to_decide_and_what_was_decided() {
        let mut waiting = GetClusterStatusResponse {
            cluster_time_ns: 90_000_000_000,
            members: vec![admin::Member {
                name: "b".to_owned(),
                shards: vec![admin::Shard {
                    server_id: 3,
                    connected: true,
                    backup: Some(admin::BackupStorage {
                        frames: 10,
                        frames_free: 4,
                        segment_bytes: 1 << 20,
                        retired_reason: "No space left".to_owned(),
                        ..Default::default()
                    }),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            recoveries: vec![admin::Recovery {
                server_id: 2,
                member: "m".to_owned(),
                tablets_left: 4,
                waits_for: "nobody has it".to_owned(),
                loss_token: "5f3a9c01".to_owned(),
                missing: vec![admin::MissingLog {
                    server_id: 2,
                    segments: vec![5, 7],
                    segment_count: 3,
                    segments_left: 11,
                    bytes_left: 1 << 20,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let shown = status(&waiting, false);
        for part in [
            "6.0 MiB of 10.0 MiB",
            "The backup of b (3.0) takes no more copies: No space left",
            "If these disks are gone for ever: rcbox recovery accept-loss 2.0",
        ] {
            assert!(shown.contains(part), "{part} is not in\n{shown}");
        }
        waiting.members[0].shards[0].connected = false;
        assert!(status(&waiting, false).contains("b       no process  -"));
        let shown = missing(&waiting.recoveries[0]);
        for part in [
            "of the log of server 2.0: segments 5, 7 and 1 more",
            "left of it: 11 segments, 1.0 MiB",
            "It waits: nobody has it",
        ] {
            assert!(shown.contains(part), "{part} is not in\n{shown}");
        }
        waiting.losses = vec![admin::Loss {
            cluster_time_ns: 60_000_000_000,
            member: "m".to_owned(),
            tables: vec!["fruit".to_owned()],
            tablet_count: 4,
            missing: "of the log of server 2.0: 3 segments".to_owned(),
            ..Default::default()
        }];
        let shown = status(&waiting, false);
        let part = "30 s ago: 4 tablets of tables fruit that m served may lack objects: missing of the log of server 2.0";
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }

    #[test]
    fn colors_do_not_move_columns_and_names_are_shown_with_escapes() {
        let rows = [["up", "a"], ["unreachable", "\x1b[31m"]].map(|row| row.map(str::to_owned));
        let mut plain = String::new();
        columns(&mut plain, &rows, false);
        assert_eq!(plain, "up           a\nunreachable  \\x1b[31m\n");
        let mut colored = String::new();
        columns(&mut colored, &rows, true);
        let bare = COLORS
            .iter()
            .fold(colored, |text, code| text.replace(code, ""));
        assert_eq!(bare, plain);
    }
}
