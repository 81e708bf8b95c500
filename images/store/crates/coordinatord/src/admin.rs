//! The admin API (gRPC) and the probes of the coordinator.

mod changes;
mod messages;

use std::future::Future;

use admin::admin_server::{Admin, AdminServer};
use coordinator::orders::{
    self, AcceptLossError, ControlError, DrainError, FinalizeError, GiveUpMigrationError,
    MigrateError, RemoveMemberError, SettingsError, SplitTableError, SurrenderError,
};
use daemon::guarded::{Guarded, SILENCE};
use daemon::mailbox::{Mailbox, NoAnswer};
use daemon::secured::secured;
use net::Door;
use tokio::net::TcpListener;
use tonic::{Request, Response, Status};

use changes::{Changes, Streams};
use messages::{
    MAX_NAME_BYTES, cluster_status, drain, draining, loss, migration, migration_order, settings_of,
    settings_view, split_order, table, table_split,
};

use super::driver::{Question, Shown};
use super::error::AdminError;
use super::kubernetes::standing::{self, Role};
use super::time_trace;

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
    (listener, door): (TcpListener, Door),
    mailbox: Mailbox<Question>,
    standing: Option<standing::Receiver>,
    stop: impl Future<Output = ()>,
) -> Result<(), AdminError> {
    let (reporter, health) = tonic_health::server::health_reporter();
    match standing.clone() {
        None => reporter.set_serving::<AdminServer<Service>>().await,
        Some(standing) => {
            reporter.set_not_serving::<AdminServer<Service>>().await;
            tokio::spawn(report_health(reporter, standing));
        }
    }
    let service = Service {
        mailbox,
        standing,
        streams: Streams::default(),
    };
    let connections = secured(Guarded::new(listener), door).map_err(AdminError::NoThread)?;
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(SILENCE / 3))
        .http2_keepalive_timeout(Some(SILENCE / 3))
        .concurrency_limit_per_connection(MAX_CALLS)
        .add_service(health)
        .add_service(AdminServer::new(service))
        .serve_with_incoming_shutdown(connections, stop)
        .await
        .map_err(AdminError::Serve)
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

#[derive(Clone)]
struct Service {
    mailbox: Mailbox<Question>,
    standing: Option<standing::Receiver>,
    streams: Streams,
}

impl Service {
    async fn status(&self) -> Result<admin::GetClusterStatusResponse, Status> {
        let Shown {
            status, keeping, ..
        } = self.ask(Question::Status).await?;
        Ok(cluster_status(status, &keeping))
    }

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
            error => no_answer(error),
        })
    }
}

fn no_answer(error: NoAnswer) -> Status {
    match error {
        NoAnswer::Busy => Status::resource_exhausted(error.to_string()),
        NoAnswer::Gone => Status::unavailable(error.to_string()),
    }
}

#[tonic::async_trait]
impl Admin for Service {
    async fn get_cluster_status(
        &self,
        _request: Request<admin::GetClusterStatusRequest>,
    ) -> Result<Response<admin::GetClusterStatusResponse>, Status> {
        Ok(Response::new(self.status().await?))
    }

    type WatchClusterStatusStream = Changes;

    async fn watch_cluster_status(
        &self,
        _request: Request<admin::WatchClusterStatusRequest>,
    ) -> Result<Response<Changes>, Status> {
        let service = self.clone();
        let look = move || {
            let service = service.clone();
            async move { service.status().await }
        };
        Ok(Response::new(self.streams.begin(look).await?))
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
        let event = |event: coordinator::status::Event| admin::Event {
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
            SettingsError::Impossible(_) | SettingsError::WithoutCopies { .. } => {
                Status::invalid_argument(error.to_string())
            }
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

    async fn split_table(
        &self,
        request: Request<admin::SplitTableRequest>,
    ) -> Result<Response<admin::SplitTableResponse>, Status> {
        let order = split_order(request.into_inner())?;
        let split = self
            .ask(|answer| Question::SplitTable { order, answer })
            .await?;
        let split = split.map_err(|error| match error {
            SplitTableError::NotFound(_) => Status::not_found(error.to_string()),
            SplitTableError::Parts { .. } => Status::invalid_argument(error.to_string()),
            SplitTableError::Limit { .. } => Status::out_of_range(error.to_string()),
            SplitTableError::Recovering { .. }
            | SplitTableError::Moving { .. }
            | SplitTableError::DoesNotLead(_) => Status::failed_precondition(error.to_string()),
            SplitTableError::OtherStore(_) => Status::aborted(error.to_string()),
        })?;
        Ok(Response::new(table_split(split)))
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
