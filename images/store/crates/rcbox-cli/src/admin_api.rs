//! Calls of the coordinator's admin API.

mod connecting;

use std::path::Path;
use std::sync::Arc;

use admin::admin_client::AdminClient;
use admin::{
    AcceptLossRequest, AcceptLossResponse, DrainMemberRequest, Draining, FinalizeUpgradeRequest,
    FinalizeUpgradeResponse, GetClusterStatusRequest, GetClusterStatusResponse,
    GetTimeTraceRequest, GetTimeTraceResponse, GiveUpMigrationRequest, GiveUpVolumesRequest,
    ListEventsRequest, ListEventsResponse, ListTablesRequest, MigrateTabletRequest,
    MigrateTabletResponse, RemoveMemberRequest, SetSettingsRequest, Settings, SplitTableRequest,
    SplitTableResponse, Table, UndrainMemberRequest,
};
use net::Address;
use program::locators::{AddressError, coordinators};
use program::{NoRuntime, tokio_runtime};
use tls::{ChannelError, CredentialsError, Guard};
use tonic::Code;
use tonic::transport::Channel;

use connecting::ConnectError;

/// A store's coordinators, and what they are shown.
#[derive(Clone)]
pub struct Coordinator {
    pub locators: String,
    /// Nothing, if their ports are open.
    guard: Option<Arc<Guard>>,
}

impl Coordinator {
    /// With the certificate in a folder, if one is named.
    pub fn new(locators: String, folder: Option<&Path>) -> Result<Coordinator, CredentialsError> {
        let guard = folder.map(Guard::open).transpose()?.map(Arc::new);
        Ok(Coordinator { locators, guard })
    }
}

/// Why the admin API has not done what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum AdminApiError {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error(transparent)]
    NoRuntime(#[from] NoRuntime),
    /// In the coordinator's words.
    #[error("{0}")]
    Refused(String),
    #[error("the coordinator's admin API does not answer ({}){}", list(.0), advice(.0))]
    NoAnswer(Vec<(Address, Problem)>),
}

/// The answer of one of several coordinators, or why there is none.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error(transparent)]
    NotReached(#[from] ConnectError),
    #[error("{}", .0.message())]
    Said(#[from] tonic::Status),
    #[error(
        "it asks for a certificate: give the folder of one of rcbox://NAMESPACE/STORE/operator with --tls"
    )]
    WantsCertificate,
    #[error("{0}")]
    Tls(ChannelError),
}

impl Problem {
    /// The cause, where a connection's protection is the reason.
    async fn explained(self, address: &Address, guard: Option<&Arc<Guard>>) -> Problem {
        match guard {
            Some(guard) => match connecting::refusal(address, guard).await {
                Some(error) => Problem::Tls(error),
                None => self,
            },
            None if connecting::is_encrypted(address).await => Problem::WantsCertificate,
            None => self,
        }
    }

    fn is_of_protection(&self) -> bool {
        matches!(self, Problem::Tls(_) | Problem::WantsCertificate)
    }
}

/// Advice where the reason may be another one.
fn advice(problems: &[(Address, Problem)]) -> &'static str {
    match problems
        .iter()
        .all(|(_, problem)| problem.is_of_protection())
    {
        true => "",
        false => {
            "; is the coordinator running, and is its admin port the client port + 200? (else add adminPort= to the locator; under Kubernetes \
             give -C tcp:host=STORE-coordinator.NAMESPACE.svc,port=11100)"
        }
    }
}

fn list(problems: &[(Address, Problem)]) -> String {
    let texts = problems.iter();
    let texts = texts.map(|(address, problem)| format!("{address}: {problem}"));
    texts.collect::<Vec<_>>().join("; ")
}

/// Asks the first coordinator of the list whose admin API answers.
fn call<A>(
    coordinator: &Coordinator,
    call: impl AsyncFn(&mut AdminClient<Channel>) -> Result<tonic::Response<A>, tonic::Status>,
) -> Result<A, AdminApiError> {
    let coordinators = coordinators(&coordinator.locators)?;
    tokio_runtime()?.block_on(async {
        let mut problems = Vec::new();
        for one in &coordinators {
            let address = &one.admin;
            let answer = async {
                let channel = connecting::connect(address, coordinator.guard.as_ref()).await?;
                Ok(call(&mut AdminClient::new(channel)).await?.into_inner())
            };
            match answer.await {
                Ok(answer) => return Ok(answer),
                Err(Problem::Said(status)) if is_refusal(&status) => {
                    return Err(AdminApiError::Refused(status.message().to_owned()));
                }
                Err(problem) => {
                    let problem = problem.explained(address, coordinator.guard.as_ref());
                    problems.push((address.clone(), problem.await));
                }
            }
        }
        Err(AdminApiError::NoAnswer(problems))
    })
}

/// Whether the coordinator has said no, and not: nothing.
fn is_refusal(status: &tonic::Status) -> bool {
    matches!(
        status.code(),
        Code::FailedPrecondition
            | Code::NotFound
            | Code::AlreadyExists
            | Code::Aborted
            | Code::InvalidArgument
            | Code::OutOfRange
            | Code::ResourceExhausted
    )
}

/// The store as its coordinator sees it.
pub fn status(coordinator: &Coordinator) -> Result<GetClusterStatusResponse, AdminApiError> {
    call(coordinator, async |client| {
        client.get_cluster_status(GetClusterStatusRequest {}).await
    })
}

/// Gives up what a recovery misses.
pub fn accept_loss(
    coordinator: &Coordinator,
    request: &AcceptLossRequest,
) -> Result<AcceptLossResponse, AdminApiError> {
    call(coordinator, async |client| {
        client.accept_loss(request.clone()).await
    })
}

/// Takes a member out of the store.
pub fn remove_member(
    coordinator: &Coordinator,
    request: &RemoveMemberRequest,
) -> Result<(), AdminApiError> {
    call(coordinator, async |client| {
        client.remove_member(request.clone()).await
    })
    .map(|_| ())
}

/// Puts the newest format in force.
pub fn finalize_upgrade(
    coordinator: &Coordinator,
    request: FinalizeUpgradeRequest,
) -> Result<FinalizeUpgradeResponse, AdminApiError> {
    call(coordinator, async |client| {
        client.finalize_upgrade(request).await
    })
}

/// Changes what can be changed while the store runs.
pub fn set_settings(
    coordinator: &Coordinator,
    request: SetSettingsRequest,
) -> Result<Settings, AdminApiError> {
    let set = call(coordinator, async |client| {
        client.set_settings(request.clone()).await
    })?;
    Ok(set.settings.unwrap_or_default())
}

/// A member is to leave the store.
pub fn drain_member(coordinator: &Coordinator, name: &str) -> Result<Draining, AdminApiError> {
    let request = DrainMemberRequest {
        name: name.to_owned(),
        expected_cluster_id: 0,
    };
    let begun = call(coordinator, async |client| {
        client.drain_member(request.clone()).await
    })?;
    Ok(begun.draining.unwrap_or_default())
}

/// A member stays after all.
pub fn undrain_member(coordinator: &Coordinator, name: &str) -> Result<(), AdminApiError> {
    let request = UndrainMemberRequest {
        name: name.to_owned(),
        expected_cluster_id: 0,
    };
    call(coordinator, async |client| {
        client.undrain_member(request.clone()).await
    })
    .map(|_| ())
}

/// Begins to move a tablet.
pub fn migrate_tablet(
    coordinator: &Coordinator,
    request: &MigrateTabletRequest,
) -> Result<MigrateTabletResponse, AdminApiError> {
    call(coordinator, async |client| {
        client.migrate_tablet(request.clone()).await
    })
}

/// Splits a table at even distances.
pub fn split_table(
    coordinator: &Coordinator,
    request: &SplitTableRequest,
) -> Result<SplitTableResponse, AdminApiError> {
    call(coordinator, async |client| {
        client.split_table(request.clone()).await
    })
}

/// Ends a migration.
pub fn give_up_migration(
    coordinator: &Coordinator,
    request: &GiveUpMigrationRequest,
) -> Result<(), AdminApiError> {
    call(coordinator, async |client| {
        client.give_up_migration(*request).await
    })
    .map(|_| ())
}

/// A store that is made again does without these members' volumes.
pub fn give_up_volumes(
    coordinator: &Coordinator,
    members: Vec<String>,
) -> Result<(), AdminApiError> {
    let request = GiveUpVolumesRequest {
        members,
        expected_cluster_id: 0,
    };
    call(coordinator, async |client| {
        client.give_up_volumes(request.clone()).await
    })
    .map(|_| ())
}

/// What has happened to the store lately.
pub fn events(coordinator: &Coordinator) -> Result<ListEventsResponse, AdminApiError> {
    call(coordinator, async |client| {
        client.list_events(ListEventsRequest {}).await
    })
}

/// What servers have done last.
pub fn time_trace(
    coordinator: &Coordinator,
    request: &GetTimeTraceRequest,
) -> Result<GetTimeTraceResponse, AdminApiError> {
    call(coordinator, async |client| {
        client.get_time_trace(request.clone()).await
    })
}

/// All tables, page by page.
pub fn tables(coordinator: &Coordinator) -> Result<Vec<Table>, AdminApiError> {
    let mut tables = Vec::new();
    let mut after_table_id = 0;
    loop {
        let page = call(coordinator, async |client| {
            client
                .list_tables(ListTablesRequest {
                    page_size: 0,
                    after_table_id,
                })
                .await
        })?;
        tables.extend(page.tables);
        if page.next_after_table_id <= after_table_id {
            return Ok(tables);
        }
        after_table_id = page.next_after_table_id;
    }
}
