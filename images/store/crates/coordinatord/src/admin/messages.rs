//! Messages of the admin API: orders out of requests, and answers out of what a coordinator shows.

use admin::migrate_tablet_request::{Table as AskedTable, Target as AskedTarget};
use admin::split_table_request::Table as TableToSplit;
use base::ids::ServerId;
use coordinator::orders::{
    Drain, MigrationOrder, MigrationTarget, SplitOrder, TableSplit, TabletTable,
};
use coordinator::status;
use tonic::Status;
use wire::member::{LogRoom, Settings};

use crate::driver::Keeping;

/// Longest name of a member that is looked up.
pub(super) const MAX_NAME_BYTES: usize = 1024;

pub(super) fn drain(name: String, expected_cluster_id: u64) -> Result<Drain, Status> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(Status::invalid_argument(format!(
            "a member's name has 1 to {MAX_NAME_BYTES} bytes"
        )));
    }
    Ok(Drain {
        name,
        expected_cluster_id,
    })
}

pub(super) fn draining(draining: status::Draining) -> admin::Draining {
    admin::Draining {
        drained: draining.is_drained,
        tablets: draining.tablets,
        copies: draining.copies,
        waits_for: draining.waits_for.iter().map(ToString::to_string).collect(),
    }
}

pub(super) fn migration_order(
    request: admin::MigrateTabletRequest,
) -> Result<MigrationOrder, Status> {
    let is_long = |name: &String| name.is_empty() || name.len() > MAX_NAME_BYTES;
    let too_long = || {
        Status::invalid_argument(format!(
            "the name of a table, or of a member, has 1 to {MAX_NAME_BYTES} bytes"
        ))
    };
    let table = match request.table {
        Some(AskedTable::TableId(id)) => TabletTable::Id(id),
        Some(AskedTable::TableName(name)) if is_long(&name) => return Err(too_long()),
        Some(AskedTable::TableName(name)) => TabletTable::Name(name),
        None => return Err(Status::invalid_argument("say which table's tablet")),
    };
    let target = match request.target {
        Some(AskedTarget::ServerId(id)) => MigrationTarget::Server(ServerId(id)),
        Some(AskedTarget::Member(name)) if is_long(&name) => return Err(too_long()),
        Some(AskedTarget::Member(name)) => MigrationTarget::Member(name),
        None => {
            let text = "say which server, or member, is to have the tablet";
            return Err(Status::invalid_argument(text));
        }
    };
    Ok(MigrationOrder {
        table,
        key_hash: request.key_hash,
        target,
        bytes_per_second: request.bytes_per_second,
        expected_cluster_id: request.expected_cluster_id,
    })
}

pub(super) fn split_order(request: admin::SplitTableRequest) -> Result<SplitOrder, Status> {
    let table = match request.table {
        Some(TableToSplit::TableId(id)) => TabletTable::Id(id),
        Some(TableToSplit::TableName(name)) if (1..=MAX_NAME_BYTES).contains(&name.len()) => {
            TabletTable::Name(name)
        }
        Some(TableToSplit::TableName(_)) => {
            return Err(Status::invalid_argument(format!(
                "the name of a table has 1 to {MAX_NAME_BYTES} bytes"
            )));
        }
        None => return Err(Status::invalid_argument("say which table is to be split")),
    };
    Ok(SplitOrder {
        table,
        parts: request.parts,
        expected_cluster_id: request.expected_cluster_id,
    })
}

pub(super) fn table_split(split: TableSplit) -> admin::SplitTableResponse {
    // No table has as many tablets as would not fit.
    let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    admin::SplitTableResponse {
        table_id: split.table_id,
        tablets: count(split.tablets),
        boundaries_made: count(split.made),
        boundaries_kept: count(split.kept),
    }
}

pub(super) fn cluster_status(
    status: status::ClusterStatus,
    keeping: &Keeping,
) -> admin::GetClusterStatusResponse {
    let mode = match status.replicas {
        0 => admin::DurabilityMode::Unreplicated,
        _ => admin::DurabilityMode::Replicated,
    };
    let durability = admin::Durability {
        mode: mode.into(),
        replicas: status.replicas,
    };
    let (state_kind, leader_name) = match keeping {
        Keeping::Nowhere => (admin::StateKind::Memory, ""),
        Keeping::File { .. } => (admin::StateKind::File, ""),
        Keeping::Objects(leader) => (admin::StateKind::Kubernetes, leader.as_str()),
    };
    admin::GetClusterStatusResponse {
        cluster_id: status.cluster_id,
        cluster_tag: status.cluster_tag,
        cluster_time_ns: status.cluster_time_ns,
        format_version: status.format_version,
        build_version: status.build_version,
        members: status.members.into_iter().map(member).collect(),
        table_count: status.table_count,
        durability: Some(durability),
        losses: status.losses.into_iter().map(loss).collect(),
        losses_dropped: status.losses_dropped,
        client_lease_count: status.client_lease_count,
        recoveries: status.recoveries.into_iter().map(recovery).collect(),
        state_kind: state_kind.into(),
        leader: Some(admin::Leader {
            name: leader_name.to_owned(),
            term: status.term,
            sequence: status.sequence,
            refusal: status.refusal,
            state_wait: status.state_wait.map(|wait| admin::StateWait {
                waited_ms: wait.waited_ms,
                why: wait.why,
                held: wait.held,
            }),
            checkpoint: status.checkpoint.map(checkpoint),
            leading_ms: Some(status.leading_ms),
            patience_ms: Some(status.patience_ms),
        }),
        migrations: status.migrations.into_iter().map(migration).collect(),
        upgrade: Some(admin::Upgrade {
            oldest_format: status.upgrade.oldest_format,
            newest_format: status.upgrade.newest_format,
            hindrances: status.upgrade.hindrances,
        }),
        balance: Some(balance(status.balance)),
        rebuilt: status.rebuilt.map(|rebuilt| admin::Rebuilt {
            cluster_time_ns: rebuilt.cluster_time_ns,
            checkpoint_term: rebuilt.checkpoint_term,
            checkpoint_number: rebuilt.checkpoint_number,
            without: rebuilt.without,
            given_up: rebuilt.given_up,
        }),
        settings: Some(settings_view(&status.settings)),
    }
}

pub(super) fn settings_view(settings: &Settings) -> admin::Settings {
    let level = settings.log_level.and_then(|level| level.try_into().ok());
    admin::Settings {
        number: settings.number,
        replicas: settings.replicas,
        min_replicas: settings.min_replicas,
        repair_mbps: settings.repair_mbps,
        poll_micros: settings.poll_micros,
        cleaner_free_percent: settings.cleaner_free_percent,
        max_connections: settings.max_connections,
        log_level: level.unwrap_or_default(),
        rebalance_mbps: settings.rebalance_mbps,
    }
}

pub(super) fn settings_of(asked: &admin::Settings) -> Settings {
    let level = u32::try_from(asked.log_level).unwrap_or(u32::MAX);
    Settings {
        number: 0,
        replicas: asked.replicas,
        min_replicas: asked.min_replicas,
        repair_mbps: asked.repair_mbps,
        poll_micros: asked.poll_micros,
        cleaner_free_percent: asked.cleaner_free_percent,
        max_connections: asked.max_connections,
        log_level: Some(level).filter(|level| *level > 0),
        rebalance_mbps: asked.rebalance_mbps,
    }
}

pub(super) fn checkpoint(checkpoint: status::Checkpoint) -> admin::Checkpoint {
    let keepers = checkpoint.keepers.into_iter();
    let keepers = keepers.map(|keeper| admin::CheckpointKeeper {
        server_id: keeper.server_id,
        number: keeper.number,
        is_current: keeper.is_current,
        failure: keeper.failure,
    });
    admin::Checkpoint {
        term: checkpoint.term,
        number: checkpoint.number,
        bytes: checkpoint.bytes,
        age_ms: checkpoint.age_ms,
        members_wanted: checkpoint.members_wanted,
        is_current: checkpoint.is_current,
        keepers: keepers.collect(),
    }
}

pub(super) fn member(member: status::Member) -> admin::Member {
    let state = match member.state {
        status::MemberState::Up => admin::MemberState::Up,
        status::MemberState::Unreachable => admin::MemberState::Unreachable,
    };
    let contact = match member.contact {
        status::Contact::NotYet => admin::MemberContact::NotYet,
        status::Contact::Heard => admin::MemberContact::Heard,
        status::Contact::Dead => admin::MemberContact::Dead,
    };
    admin::Member {
        name: member.name,
        state: state.into(),
        contact: contact.into(),
        instance: member.instance,
        host_id: member.host_id,
        build_version: member.build_version,
        oldest_format: member.oldest_format,
        newest_format: member.newest_format,
        shards: member.shards.into_iter().map(shard).collect(),
        incarnations: member.incarnations,
        domain: member.domain,
        draining: member.draining.map(draining),
        network: member.ports.into_iter().map(port).collect(),
    }
}

pub(super) fn port(port: status::Port) -> admin::NetworkPort {
    let node = |node: Option<u32>| node.and_then(|node| i32::try_from(node).ok());
    let ping = |ping: status::Ping| admin::PeerPing {
        member: ping.member,
        ip: ping.ip,
        round_trip_ns: ping.round_trip_ns,
        age_ms: ping.age_ms,
    };
    admin::NetworkPort {
        interface: port.interface,
        pci: port.pci,
        mac: port.mac,
        ip: port.ip,
        driver: port.driver,
        link_up: port.link_up,
        link_mbps: port.link_mbps,
        numa_node: node(port.numa_node),
        cores_numa_node: node(port.cores_numa_node),
        mtu: port.mtu,
        pings: port.pings.into_iter().map(ping).collect(),
    }
}

pub(super) fn shard(shard: status::Shard) -> admin::Shard {
    admin::Shard {
        server_id: shard.server_id,
        locator: shard.locator,
        connected: shard.connected,
        tablet_count: shard.tablet_count,
        log_capacity_bytes: shard.log_capacity_bytes,
        log_live_bytes: shard.log_live_bytes,
        object_count: shard.object_count,
        replicas: shard.replicas,
        segments: shard.segments,
        segments_short: shard.segments_short,
        backups_usable: shard.backups_usable,
        serving: shard.serving,
        backup: shard.backup.map(backup),
        settings: shard.settings,
        heard_ms: shard.heard_ms,
        log_room: shard.room.map(log_room),
    }
}

pub(super) fn log_room(room: LogRoom) -> admin::LogRoom {
    admin::LogRoom {
        max_live_bytes: room.max_live_bytes,
        tombstone_bytes: room.tombstone_bytes,
        full_rejections: room.full_rejections,
        full: room.full.map(|full| admin::MemoryFull {
            for_ms: full.for_ms,
            last_ms: full.last_ms,
        }),
    }
}

pub(super) fn backup(storage: status::BackupStorage) -> admin::BackupStorage {
    admin::BackupStorage {
        frames: storage.frames,
        frames_free: storage.frames_free,
        frames_damaged: storage.frames_damaged,
        segment_bytes: storage.segment_bytes,
        retired_reason: storage.retired_reason,
        stalled_reason: storage.stalled_reason,
    }
}

pub(super) fn recovery(recovery: status::Recovery) -> admin::Recovery {
    let took_ns = recovery.ended_ns.saturating_sub(recovery.began_ns);
    admin::Recovery {
        server_id: recovery.server_id,
        member: recovery.member,
        started_ns: recovery.began_ns,
        tablets_left: recovery.tablets_left,
        waits_for: recovery.waits_for,
        bytes: recovery.bytes,
        promised_ms: recovery.expected_ms,
        // 0 is for one that has not ended.
        measured_ms: match recovery.ended_ns {
            0 => 0,
            _ => took_ns.div_ceil(1_000_000).max(1),
        },
        missing: recovery.missing.into_iter().map(missing_log).collect(),
        loss_token: recovery.loss_token,
        tablet_count: recovery.tablet_count,
    }
}

pub(super) fn balance(balance: status::Balance) -> admin::Balance {
    admin::Balance {
        on: balance.is_on,
        doing: balance.doing,
        waits_for: balance.waits_for,
        tablets_to_evacuate: balance.tablets_to_evacuate,
        bytes_to_evacuate: balance.bytes_to_evacuate,
        bytes_to_even_out: balance.bytes_to_even_out,
        moves_begun: balance.moves_begun,
        merges: balance.merges,
        tablets_left_alone: balance.tablets_left_alone,
        servers_left_alone: balance.servers_left_alone,
    }
}

pub(super) fn migration(migration: status::Migration) -> admin::Migration {
    admin::Migration {
        migration_id: migration.id,
        table_id: migration.table_id,
        table: migration.table,
        start_key_hash: migration.start_key_hash,
        end_key_hash: migration.end_key_hash,
        source_server_id: migration.source_id,
        source_member: migration.source_member,
        target_server_id: migration.target_id,
        target_member: migration.target_member,
        started_ns: migration.began_ns,
        ended_ns: migration.ended_ns,
        bytes: migration.bytes,
        objects: migration.objects,
        frozen: migration.is_frozen,
        failure: migration.failure,
        waits_for: migration.waits_for,
        reason: migration
            .reason
            .map_or_else(String::new, |reason| reason.to_string()),
    }
}

pub(super) fn missing_log(log: status::MissingLog) -> admin::MissingLog {
    admin::MissingLog {
        server_id: log.server_id,
        segments: log.segments,
        segment_count: log.segment_count,
        lacks_head: log.lacks_head,
        segments_left: log.segments_left,
        bytes_left: log.bytes_left,
        text: log.text,
    }
}

pub(super) fn loss(loss: status::Loss) -> admin::Loss {
    admin::Loss {
        cluster_time_ns: loss.cluster_time_ns,
        member: loss.member,
        server_ids: loss.server_ids,
        tables: loss.tables,
        tables_dropped: loss.tables_dropped,
        tablet_count: loss.tablet_count,
        object_count: loss.object_count,
        live_bytes: loss.live_bytes,
        missing: loss.missing,
        uncounted: loss.uncounted,
        instance: loss.instance,
    }
}

pub(super) fn table(table: status::Table) -> admin::Table {
    let tablets = table.tablets.into_iter().map(|tablet| {
        let state = match tablet.state {
            status::TabletState::Normal => admin::TabletState::Normal,
            status::TabletState::Recovering => admin::TabletState::Recovering,
        };
        admin::Tablet {
            start_key_hash: tablet.start_key_hash,
            end_key_hash: tablet.end_key_hash,
            state: state.into(),
            server_id: tablet.server_id,
            member: tablet.member,
            bytes: tablet.bytes,
            objects: tablet.objects,
            operations_per_second: tablet.operations_per_second,
        }
    });
    admin::Table {
        table_id: table.table_id,
        name: table.name,
        tablets: tablets.collect(),
    }
}
