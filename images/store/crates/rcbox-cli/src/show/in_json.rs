//! A store as JSON.

use super::*;

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
        "stalledReason": backup.stalled_reason,
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

/// JSON over several lines.
pub fn pretty(value: &Value) -> String {
    format!("{value:#}")
}
