//! What the coordinator shows: table configs for clients, status for the admin API.

use core::time::Duration;

use base::ids::TableId;
use base::time::Time;
use prost::Message;
use wire::member::{LogRoom, MemoryFull};
use wire::proto;

use crate::Coordinator;
use crate::directory::tables;
use crate::records;
use crate::registry::members::Server;
use crate::registry::ports;
use crate::status::{
    BackupStorage, ClusterStatus, Contact, Member, MemberState, Rebuilt, Shard, Table, TablePage,
    Tablet, TabletState,
};

fn rebuilt_view(rebuilt: &records::Rebuilt) -> Rebuilt {
    Rebuilt {
        cluster_time_ns: rebuilt.cluster_time_ns,
        checkpoint_term: rebuilt.checkpoint_term,
        checkpoint_number: rebuilt.checkpoint_number,
        without: rebuilt.without.clone(),
        given_up: rebuilt.given_up.clone(),
    }
}

impl Coordinator {
    /// The whole store at one moment.
    pub fn cluster_status(&self, now: Time) -> ClusterStatus {
        let cluster_time_ns = self.store.cluster_time_ns(now);
        let position = self.position().unwrap_or_default();
        ClusterStatus {
            cluster_id: self.store.config.cluster_id,
            cluster_tag: self.store.config.cluster_tag,
            cluster_time_ns,
            format_version: self.upgrades.format(),
            upgrade: self.upgrades.shown(&self.store.members),
            settings: self.settings(),
            build_version: self.store.config.build_version.clone(),
            members: self.member_views(now),
            table_count: self.store.tables.len() as u64,
            replicas: self.fewest_replicas(),
            recoveries: self.recoveries.shown(),
            migrations: self.movement.shown().cloned().collect(),
            balance: self.movement.shown_balance(),
            losses: self.recoveries.losses().iter().cloned().collect(),
            losses_dropped: self.recoveries.losses().dropped(),
            client_lease_count: self.store.leases.count(cluster_time_ns),
            term: position.term,
            sequence: position.sequence,
            refusal: self.refusal().unwrap_or_default().to_owned(),
            leading_ms: millis_since(now, self.leads_since),
            patience_ms: millis(self.store.config.silence_timeout),
            checkpoint: self.keeping.shown(now, &self.store.members),
            rebuilt: self.leading.rebuilt().1.map(rebuilt_view),
            state_wait: None,
        }
    }

    /// At most `limit` tables (0: 1000) with an id above `after`.
    pub fn tables(&self, after: u64, limit: u32) -> TablePage {
        let limit = if limit == 0 { 1000 } else { limit as usize };
        let mut following = self.store.tables.after(after);
        let tables: Vec<Table> = following
            .by_ref()
            .take(limit)
            .map(|table| self.table_view(table))
            .collect();
        let next_after_table_id = following
            .next()
            .and_then(|_| tables.last().map(|table| table.table_id));
        TablePage {
            tables,
            next_after_table_id,
        }
    }

    /// The encoded table config; empty for a table that is not there.
    pub(crate) fn table_config(&self, id: TableId) -> Vec<u8> {
        let Some(table) = self.store.tables.get(id.0) else {
            return Vec::new();
        };
        let tablet = table
            .tablets
            .iter()
            .map(|tablet| {
                let owner = self.store.members.server(tablet.owner);
                let state = match self.tablet_state(tablet) {
                    TabletState::Normal => proto::TabletState::Normal,
                    TabletState::Recovering => proto::TabletState::Recovering,
                };
                proto::Tablet {
                    table_id: table.id,
                    start_key_hash: tablet.start_key_hash,
                    end_key_hash: tablet.end_key_hash,
                    state: state.into(),
                    server_id: owner.map(|owner| owner.id.0),
                    service_locator: owner
                        .filter(|owner| owner.has_enlisted())
                        .map(|owner| owner.locator.clone()),
                    user_data: None,
                    ctime_log_head_id: 0,
                    ctime_log_head_offset: 0,
                }
            })
            .collect();
        proto::TableConfig { tablet }.encode_to_vec()
    }

    fn tablet_state(&self, tablet: &tables::Tablet) -> TabletState {
        match self.store.members.server(tablet.owner) {
            Some(owner) if owner.has_enlisted() => TabletState::Normal,
            _ => TabletState::Recovering,
        }
    }

    fn table_view(&self, table: &tables::Table) -> Table {
        let tablets = table
            .tablets
            .iter()
            .map(|tablet| {
                let owner = self.store.members.server(tablet.owner);
                let load = self.movement.load_of(&table.range(tablet));
                Tablet {
                    start_key_hash: tablet.start_key_hash,
                    end_key_hash: tablet.end_key_hash,
                    state: self.tablet_state(tablet),
                    server_id: owner.map_or(0, |owner| owner.id.0),
                    member: owner.map_or_else(String::new, |owner| owner.member.clone()),
                    bytes: load.map_or(0, |load| load.bytes),
                    objects: load.map_or(0, |load| load.objects),
                    operations_per_second: load.map_or(0, |load| load.rate),
                }
            })
            .collect();
        Table {
            table_id: table.id,
            name: table.display_name(),
            tablets,
        }
    }

    /// Of the logs of all masters that are not known to be dead: a leader that has taken over has heard none of them yet.
    fn fewest_replicas(&self) -> u32 {
        let masters = self
            .store
            .members
            .servers()
            .filter(|server| server.has_enlisted() && !server.backup_only);
        masters.map(|server| server.replicas).min().unwrap_or(0)
    }

    fn member_views(&self, now: Time) -> Vec<Member> {
        let view = |(name, member): (&String, &crate::registry::members::Member)| Member {
            name: name.clone(),
            state: if self.store.members.is_up(member.servers()) {
                MemberState::Up
            } else {
                MemberState::Unreachable
            },
            contact: self.contact(member),
            instance: member.process.0.clone(),
            host_id: member.host_id.clone(),
            build_version: member.build_version.clone(),
            oldest_format: member.formats.oldest,
            newest_format: member.formats.newest,
            shards: self.shard_views(now, member.servers()),
            incarnations: member.incarnations,
            domain: member
                .servers()
                .first()
                .and_then(|&index| self.store.members.server(index))
                .map_or_else(String::new, |server| server.domain.clone()),
            draining: member.is_draining.then(|| self.departures().draining(name)),
            ports: self.port_views(now, member.servers()),
        };
        self.store.members.iter().map(view).collect()
    }

    fn port_views(&self, now: Time, servers: &[u32]) -> Vec<ports::Port> {
        let members = &self.store.members;
        let servers = servers.iter();
        let shards = servers.filter_map(|&index| Some(&members.server(index)?.ports));
        ports::views(now, shards, |id| {
            let server = members.server(id.index());
            let server = server.filter(|server| server.id == id)?;
            Some(server.member.clone())
        })
    }

    fn contact(&self, member: &crate::registry::members::Member) -> Contact {
        let is_heard = |index: &u32| {
            let server = self.store.members.server(*index);
            server.is_some_and(|server| server.last_heard().is_some())
        };
        if member.is_dead {
            Contact::Dead
        } else if member.servers().iter().all(is_heard) {
            Contact::Heard
        } else {
            Contact::NotYet
        }
    }

    fn shard_views(&self, now: Time, servers: &[u32]) -> Vec<Shard> {
        servers
            .iter()
            .filter_map(|&index| {
                let server = self.store.members.server(index)?;
                Some(Shard {
                    server_id: server.id.0,
                    locator: server.locator.clone(),
                    connected: server.is_connected(),
                    tablet_count: self.store.tables.tablets_of(index),
                    log_capacity_bytes: server.log_capacity_bytes,
                    log_live_bytes: server.pong.log_live_bytes,
                    object_count: server.pong.object_count,
                    replicas: server.replicas,
                    segments: server.pong.segments,
                    segments_short: server.pong.segments_short,
                    backups_usable: server.pong.backups,
                    serving: server.pong.serving,
                    backup: backup_view(server),
                    settings: server.pong.settings,
                    heard_ms: server.last_heard().map(|heard| millis_since(now, heard)),
                    room: room_view(now, server),
                })
            })
            .collect()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn millis_since(now: Time, then: Time) -> u64 {
    millis(now.since(then))
}

/// As it was told, which is some time ago by now.
fn room_view(now: Time, server: &Server) -> Option<LogRoom> {
    let age_ms = millis_since(now, server.pong_heard?);
    let aged = |full: MemoryFull| MemoryFull {
        for_ms: full.for_ms.saturating_add(age_ms),
        last_ms: full.last_ms.saturating_add(age_ms),
    };
    server.pong.room.map(|room| LogRoom {
        full: room.full.map(aged),
        ..room
    })
}

fn backup_view(server: &Server) -> Option<BackupStorage> {
    let report = server.backup.as_ref()?;
    Some(BackupStorage {
        frames: report.frames,
        frames_free: report.frames_free,
        frames_damaged: report.frames_damaged,
        segment_bytes: report.segment_bytes,
        retired_reason: report.retired.clone(),
        stalled_reason: report.stalled.clone(),
    })
}
