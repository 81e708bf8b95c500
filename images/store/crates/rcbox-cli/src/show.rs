//! How a store is shown.

mod in_json;

use std::fmt::Write;

use admin::{
    DurabilityMode, GetClusterStatusResponse, MemberContact, MemberState, Table, TabletState,
};
use base::ids::{ServerId, TableId};
use client::Server;
use serde_json::{Value, json};
use wire::opcode::Service;

use super::drain;
use super::leader;
use super::members;
use super::notation::escape;
use super::rebuild;
use super::tablet;
use super::{settings, upgrade};

pub use in_json::{loss_json, pretty, recovery_json, servers_json, status_json, tables_json};

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

/// Backups that take nothing new, or nothing at the moment.
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
            } else if !backup.stalled_reason.is_empty() {
                let _ = writeln!(
                    text,
                    "\nThe storage of {} ({}) has stopped: {}.\n  The copies that it was to take go to other servers. See that its device works.",
                    escape(member.name.as_bytes()),
                    ServerId(shard.server_id),
                    escape(backup.stalled_reason.as_bytes())
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
mod tests;
