//! The admin API (gRPC) and the probes of the coordinator.

use std::future::Future;

use admin::admin_server::{Admin, AdminServer};
use admin::migrate_tablet_request::{Table as AskedTable, Target as AskedTarget};
use coordinator::orders::{
    self, AcceptLossError, ControlError, Drain, DrainError, FinalizeError, GiveUpMigrationError,
    MigrateError, MigrationOrder, MigrationTarget, RemoveMemberError, SettingsError,
    SurrenderError, TabletTable,
};
use coordinator::status;
use tokio::net::TcpListener;
use tonic::{Request, Response, Status};
use wire::ids::ServerId;
use wire::member::{LogRoom, Settings};

use super::driver::{Keeping, Question, Shown};
use super::kubernetes::standing::{self, Role};
use super::time_trace;
use crate::guarded::{Guarded, SILENCE};
use crate::mailbox::{Mailbox, NoAnswer};

/// Longest name of a member that is looked up.
const MAX_NAME_BYTES: usize = 1024;

/// Members of a store, at most.
const MAX_GIVEN_UP: usize = 1024;

/// Longest uid of a specification, which is noted.
const MAX_UID_BYTES: usize = 253;

/// Longest token of a loss that is looked at.
const MAX_TOKEN_BYTES: usize = 64;

/// Calls under way on one connection; more wait.
const MAX_CALLS: usize = 32;

/// Serves until `stop` completes. `standing` is of a coordinator that may be a standby.
pub async fn serve(
    listener: TcpListener,
    mailbox: Mailbox<Question>,
    standing: Option<standing::Receiver>,
    stop: impl Future<Output = ()>,
) -> Result<(), String> {
    let (reporter, health) = tonic_health::server::health_reporter();
    match standing.clone() {
        None => reporter.set_serving::<AdminServer<Service>>().await,
        Some(standing) => {
            reporter.set_not_serving::<AdminServer<Service>>().await;
            tokio::spawn(report_health(reporter, standing));
        }
    }
    let service = Service { mailbox, standing };
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(SILENCE / 3))
        .http2_keepalive_timeout(Some(SILENCE / 3))
        .concurrency_limit_per_connection(MAX_CALLS)
        .add_service(health)
        .add_service(AdminServer::new(service))
        .serve_with_incoming_shutdown(Guarded::new(listener), stop)
        .await
        .map_err(|error| format!("admin API: {error}"))
}

/// It serves from the moment on when it leads, until it ends.
async fn report_health(
    reporter: tonic_health::server::HealthReporter,
    mut standing: standing::Receiver,
) {
    let leads = |standing: &standing::Standing| standing.role == Role::Leading;
    if standing.wait_for(leads).await.is_ok() {
        reporter.set_serving::<AdminServer<Service>>().await;
    }
    if standing.wait_for(|standing| !leads(standing)).await.is_ok() {
        reporter.set_not_serving::<AdminServer<Service>>().await;
    }
}

struct Service {
    mailbox: Mailbox<Question>,
    standing: Option<standing::Receiver>,
}

impl Service {
    /// Asks the coordinator, if this one leads.
    async fn ask<A>(
        &self,
        question: impl FnOnce(tokio::sync::oneshot::Sender<A>) -> Question,
    ) -> Result<A, Status> {
        if let Some(standing) = &self.standing {
            let (role, why) = {
                let standing = standing.borrow();
                (standing.role.clone(), standing.why_not())
            };
            match (role, why) {
                (Role::Standby | Role::TakingOver, Some(why)) => {
                    return Err(Status::unavailable(why));
                }
                // One that did lead still shows what it knew, and says why it does not any more.
                (Role::Refused(_), Some(why)) => {
                    let answer = self.mailbox.ask(question).await;
                    return answer.map_err(|_| Status::failed_precondition(why));
                }
                _ => {}
            }
        }
        let answer = self.mailbox.ask(question).await;
        answer.map_err(|error| match error {
            NoAnswer::Gone if self.standing.is_some() => Status::unavailable(
                "no answer in time; it may be done all the same, later. The status says whether the state can be noted",
            ),
            error => error.into(),
        })
    }
}

impl From<NoAnswer> for Status {
    fn from(error: NoAnswer) -> Status {
        match error {
            NoAnswer::Busy => Status::resource_exhausted(error.to_string()),
            NoAnswer::Gone => Status::unavailable(error.to_string()),
        }
    }
}

#[tonic::async_trait]
impl Admin for Service {
    async fn get_cluster_status(
        &self,
        _request: Request<admin::GetClusterStatusRequest>,
    ) -> Result<Response<admin::GetClusterStatusResponse>, Status> {
        let Shown {
            status, keeping, ..
        } = self.ask(Question::Status).await?;
        Ok(Response::new(cluster_status(status, &keeping)))
    }

    async fn list_tables(
        &self,
        request: Request<admin::ListTablesRequest>,
    ) -> Result<Response<admin::ListTablesResponse>, Status> {
        let admin::ListTablesRequest {
            page_size,
            after_table_id,
        } = request.into_inner();
        let page = self
            .ask(|answer| Question::Tables {
                after_table_id,
                page_size,
                answer,
            })
            .await?;
        Ok(Response::new(admin::ListTablesResponse {
            tables: page.tables.into_iter().map(table).collect(),
            next_after_table_id: page.next_after_table_id.unwrap_or(0),
        }))
    }

    async fn list_events(
        &self,
        _request: Request<admin::ListEventsRequest>,
    ) -> Result<Response<admin::ListEventsResponse>, Status> {
        let (cluster_time_ns, events) = self.ask(Question::Events).await?;
        let event = |event: status::Event| admin::Event {
            cluster_time_ns: event.cluster_time_ns,
            kind: i32::try_from(event.kind).unwrap_or_default(),
            text: event.text,
        };
        Ok(Response::new(admin::ListEventsResponse {
            cluster_time_ns,
            events: events.into_iter().map(event).collect(),
        }))
    }

    async fn remove_member(
        &self,
        request: Request<admin::RemoveMemberRequest>,
    ) -> Result<Response<admin::RemoveMemberResponse>, Status> {
        let admin::RemoveMemberRequest {
            name,
            instance,
            expected_cluster_id,
            gives_up_copies,
        } = request.into_inner();
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(Status::invalid_argument(format!(
                "a member's name has 1 to {MAX_NAME_BYTES} bytes"
            )));
        }
        if instance.len() > MAX_NAME_BYTES {
            return Err(Status::invalid_argument(format!(
                "an instance has at most {MAX_NAME_BYTES} bytes"
            )));
        }
        let removal = orders::Removal {
            name,
            instance,
            expected_cluster_id,
            gives_up_copies,
        };
        let removed = self
            .ask(|answer| Question::RemoveMember { removal, answer })
            .await?;
        removed.map_err(|error| match error {
            RemoveMemberError::NotFound { .. } => Status::not_found(error.to_string()),
            RemoveMemberError::OwnsTablets { .. }
            | RemoveMemberError::CopiesNeeded { .. }
            | RemoveMemberError::DoesNotLead(_) => Status::failed_precondition(error.to_string()),
            RemoveMemberError::OtherStore(_) => Status::aborted(error.to_string()),
            RemoveMemberError::TooManyRemoved { .. } => {
                Status::resource_exhausted(error.to_string())
            }
        })?;
        Ok(Response::new(admin::RemoveMemberResponse {}))
    }

    async fn drain_member(
        &self,
        request: Request<admin::DrainMemberRequest>,
    ) -> Result<Response<admin::DrainMemberResponse>, Status> {
        let admin::DrainMemberRequest {
            name,
            expected_cluster_id,
        } = request.into_inner();
        let drain = drain(name, expected_cluster_id)?;
        let begun = self
            .ask(|answer| Question::DrainMember { drain, answer })
            .await?;
        let draining = Some(draining(begun.map_err(why_not_drained)?));
        Ok(Response::new(admin::DrainMemberResponse { draining }))
    }

    async fn undrain_member(
        &self,
        request: Request<admin::UndrainMemberRequest>,
    ) -> Result<Response<admin::UndrainMemberResponse>, Status> {
        let admin::UndrainMemberRequest {
            name,
            expected_cluster_id,
        } = request.into_inner();
        let drain = drain(name, expected_cluster_id)?;
        let ended = self
            .ask(|answer| Question::UndrainMember { drain, answer })
            .await?;
        ended.map_err(why_not_drained)?;
        Ok(Response::new(admin::UndrainMemberResponse {}))
    }

    async fn accept_loss(
        &self,
        request: Request<admin::AcceptLossRequest>,
    ) -> Result<Response<admin::AcceptLossResponse>, Status> {
        let request = request.into_inner();
        if request.loss_token.is_empty() || request.loss_token.len() > MAX_TOKEN_BYTES {
            return Err(Status::invalid_argument(
                "repeat the loss_token that the status shows with the recovery",
            ));
        }
        let acceptance = orders::Acceptance {
            server_id: request.server_id,
            token: request.loss_token,
            expected_cluster_id: request.expected_cluster_id,
        };
        let accepted = self
            .ask(|answer| Question::AcceptLoss { acceptance, answer })
            .await?;
        let accepted = accepted.map_err(|error| match error {
            AcceptLossError::NoRecovery { .. } => Status::not_found(error.to_string()),
            AcceptLossError::NothingMissing { .. }
            | AcceptLossError::StillAsked { .. }
            | AcceptLossError::DoesNotLead(_) => Status::failed_precondition(error.to_string()),
            AcceptLossError::OtherLoss { .. } | AcceptLossError::OtherStore(_) => {
                Status::aborted(error.to_string())
            }
        })?;
        let loss = Some(loss(accepted));
        Ok(Response::new(admin::AcceptLossResponse { loss }))
    }

    async fn finalize_upgrade(
        &self,
        request: Request<admin::FinalizeUpgradeRequest>,
    ) -> Result<Response<admin::FinalizeUpgradeResponse>, Status> {
        let request = request.into_inner();
        let finalize = orders::Finalize {
            format: request.format,
            expected_cluster_id: request.expected_cluster_id,
        };
        let finalized = self
            .ask(|answer| Question::FinalizeUpgrade { finalize, answer })
            .await?;
        let format_version = finalized.map_err(|error| match error {
            FinalizeError::OldMembers { .. }
            | FinalizeError::NotPossible { .. }
            | FinalizeError::DoesNotLead(_) => Status::failed_precondition(error.to_string()),
            FinalizeError::OtherStore(_) => Status::aborted(error.to_string()),
        })?;
        Ok(Response::new(admin::FinalizeUpgradeResponse {
            format_version,
        }))
    }

    async fn set_settings(
        &self,
        request: Request<admin::SetSettingsRequest>,
    ) -> Result<Response<admin::SetSettingsResponse>, Status> {
        let request = request.into_inner();
        let Some(asked) = request.settings else {
            return Err(Status::invalid_argument(
                "no settings are given; give an empty message to take all of them back",
            ));
        };
        let asked_by = request.asked_by.map(|by| orders::SpecVersion {
            uid: by.uid,
            generation: by.generation,
        });
        if asked_by
            .as_ref()
            .is_some_and(|by| by.uid.len() > MAX_UID_BYTES)
        {
            return Err(Status::invalid_argument(format!(
                "the uid of a specification has at most {MAX_UID_BYTES} bytes"
            )));
        }
        let order = orders::SettingsOrder {
            settings: settings_of(&asked),
            expected_cluster_id: request.expected_cluster_id,
            asked_by,
            fewer_than: request.fewer_copies.map(|fewer| fewer.expected_replicas),
        };
        let set = self
            .ask(|answer| Question::SetSettings { order, answer })
            .await?;
        let set = set.map_err(|error| match error {
            SettingsError::NotPossible(_) => Status::invalid_argument(error.to_string()),
            SettingsError::FewerCopies { .. }
            | SettingsError::OtherCopies { .. }
            | SettingsError::NotNewer { .. }
            | SettingsError::DoesNotLead(_) => Status::failed_precondition(error.to_string()),
            SettingsError::OtherStore(_) => Status::aborted(error.to_string()),
        })?;
        let settings = Some(settings_view(&set));
        Ok(Response::new(admin::SetSettingsResponse { settings }))
    }

    async fn migrate_tablet(
        &self,
        request: Request<admin::MigrateTabletRequest>,
    ) -> Result<Response<admin::MigrateTabletResponse>, Status> {
        let order = migration_order(request.into_inner())?;
        let begun = self
            .ask(|answer| Question::MigrateTablet { order, answer })
            .await?;
        let begun = begun.map_err(|error| match error {
            MigrateError::NotFound(_) => Status::not_found(error.to_string()),
            MigrateError::IsThere { .. } => Status::already_exists(error.to_string()),
            MigrateError::Busy(_) => Status::resource_exhausted(error.to_string()),
            MigrateError::NotConnected { .. }
            | MigrateError::Refused(_)
            | MigrateError::DoesNotLead(_) => Status::failed_precondition(error.to_string()),
            MigrateError::OtherStore(_) => Status::aborted(error.to_string()),
        })?;
        let migration = Some(migration(begun));
        Ok(Response::new(admin::MigrateTabletResponse { migration }))
    }

    async fn get_time_trace(
        &self,
        request: Request<admin::GetTimeTraceRequest>,
    ) -> Result<Response<admin::GetTimeTraceResponse>, Status> {
        let order = time_trace::order(request.into_inner());
        if order.member.len() > MAX_NAME_BYTES {
            return Err(Status::invalid_argument(format!(
                "a member's name has at most {MAX_NAME_BYTES} bytes"
            )));
        }
        let controlled = self
            .ask(|answer| Question::Control { order, answer })
            .await?;
        let controlled = controlled.map_err(|error| match error {
            ControlError::NoMember(_) => Status::not_found(error.to_string()),
            ControlError::NotConnected => Status::failed_precondition(error.to_string()),
            ControlError::Busy => Status::resource_exhausted(error.to_string()),
        })?;
        Ok(Response::new(time_trace::response(controlled)))
    }

    async fn give_up_migration(
        &self,
        request: Request<admin::GiveUpMigrationRequest>,
    ) -> Result<Response<admin::GiveUpMigrationResponse>, Status> {
        let admin::GiveUpMigrationRequest {
            migration_id,
            expected_cluster_id,
        } = request.into_inner();
        let given_up = self
            .ask(|answer| Question::GiveUpMigration {
                migration_id,
                expected_cluster_id,
                answer,
            })
            .await?;
        given_up.map_err(|error| match error {
            GiveUpMigrationError::NotFound(_) => Status::not_found(error.to_string()),
            GiveUpMigrationError::DoesNotLead(_) => Status::failed_precondition(error.to_string()),
            GiveUpMigrationError::OtherStore(_) => Status::aborted(error.to_string()),
        })?;
        Ok(Response::new(admin::GiveUpMigrationResponse {}))
    }

    async fn give_up_volumes(
        &self,
        request: Request<admin::GiveUpVolumesRequest>,
    ) -> Result<Response<admin::GiveUpVolumesResponse>, Status> {
        let admin::GiveUpVolumesRequest {
            members,
            expected_cluster_id,
        } = request.into_inner();
        let is_long = |name: &String| name.is_empty() || name.len() > MAX_NAME_BYTES;
        if members.is_empty() || members.len() > MAX_GIVEN_UP || members.iter().any(is_long) {
            return Err(Status::invalid_argument(format!(
                "name 1 to {MAX_GIVEN_UP} members, of 1 to {MAX_NAME_BYTES} bytes each"
            )));
        }
        let surrender = orders::Surrender {
            members,
            expected_cluster_id,
        };
        let given_up = self
            .ask(|answer| Question::GiveUpVolumes { surrender, answer })
            .await?;
        given_up.map_err(|error| match error {
            SurrenderError::NotMissing { .. } => Status::not_found(error.to_string()),
            SurrenderError::NotRebuilding
            | SurrenderError::TooEarly(_)
            | SurrenderError::DoesNotLead(_) => Status::failed_precondition(error.to_string()),
            SurrenderError::OtherStore(_) => Status::aborted(error.to_string()),
        })?;
        Ok(Response::new(admin::GiveUpVolumesResponse {}))
    }
}

fn drain(name: String, expected_cluster_id: u64) -> Result<Drain, Status> {
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

fn why_not_drained(error: DrainError) -> Status {
    let text = error.to_string();
    match error {
        DrainError::NotFound { .. } => Status::not_found(text),
        DrainError::CannotEnd { .. } | DrainError::DoesNotLead(_) => {
            Status::failed_precondition(text)
        }
        DrainError::OtherStore(_) => Status::aborted(text),
    }
}

fn draining(draining: status::Draining) -> admin::Draining {
    admin::Draining {
        drained: draining.is_drained,
        tablets: draining.tablets,
        copies: draining.copies,
        waits_for: draining.waits_for.iter().map(ToString::to_string).collect(),
    }
}

fn migration_order(request: admin::MigrateTabletRequest) -> Result<MigrationOrder, Status> {
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

fn cluster_status(
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
        Keeping::File(_) => (admin::StateKind::File, ""),
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

fn settings_view(settings: &Settings) -> admin::Settings {
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

fn settings_of(asked: &admin::Settings) -> Settings {
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

fn checkpoint(checkpoint: status::Checkpoint) -> admin::Checkpoint {
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

fn member(member: status::Member) -> admin::Member {
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

fn port(port: status::Port) -> admin::NetworkPort {
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

fn shard(shard: status::Shard) -> admin::Shard {
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

fn log_room(room: LogRoom) -> admin::LogRoom {
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

fn backup(storage: status::BackupStorage) -> admin::BackupStorage {
    admin::BackupStorage {
        frames: storage.frames,
        frames_free: storage.frames_free,
        frames_damaged: storage.frames_damaged,
        segment_bytes: storage.segment_bytes,
        retired_reason: storage.retired_reason,
    }
}

fn recovery(recovery: status::Recovery) -> admin::Recovery {
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

fn balance(balance: status::Balance) -> admin::Balance {
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

fn migration(migration: status::Migration) -> admin::Migration {
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

fn missing_log(log: status::MissingLog) -> admin::MissingLog {
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

fn loss(loss: status::Loss) -> admin::Loss {
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

fn table(table: status::Table) -> admin::Table {
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
