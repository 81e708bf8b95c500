//! The lease that elects, as an object.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, PostParams};

use super::api::{Failure, labels, within};
use super::election::{Claim, LeaseResponse, Request};

/// How long an answer may take: shorter than a claim lasts.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

pub struct Leases {
    leases: Api<Lease>,
    name: String,
    store: String,
    /// As it was last read or written: what else is in it stays.
    known: Option<Lease>,
}

impl Leases {
    pub fn new(client: Client, namespace: &str, store: &str) -> Leases {
        Leases {
            leases: Api::namespaced(client, namespace),
            name: format!("{store}-coordinator"),
            store: store.to_owned(),
            known: None,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Carries a request out. There is an answer in any case, and in time.
    pub async fn carry_out(&mut self, request: Request) -> LeaseResponse {
        let result = match request {
            Request::Read => self.read().await,
            Request::Create(claim) => self.create(&claim).await,
            Request::Replace(version, claim) => self.replace(version, &claim).await,
        };
        match result {
            Ok(answer) => answer,
            Err(Failure::NotFound) => LeaseResponse::NotFound,
            Err(Failure::Conflict) => LeaseResponse::Conflict,
            Err(Failure::Unknown(why)) => LeaseResponse::Failed(why),
        }
    }

    /// If `me` holds it, nobody does any more: whoever waits need not wait until the claim expires.
    pub async fn give_up(&mut self, me: &str) {
        let LeaseResponse::Found(version, claim) = self.carry_out(Request::Read).await else {
            return;
        };
        if claim.holder != me {
            return;
        }
        let nobody = Claim {
            holder: String::new(),
            ..claim
        };
        match self.carry_out(Request::Replace(version, nobody)).await {
            LeaseResponse::Done(_) => tracing::info!("gave the lease {} up", self.name),
            answer => tracing::warn!("could not give the lease {} up: {answer:?}", self.name),
        }
    }

    async fn read(&mut self) -> Result<LeaseResponse, Failure> {
        let lease = within(ANSWER_TIMEOUT, self.leases.get(&self.name)).await?;
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
        let claim = Claim {
            holder: spec.holder_identity.unwrap_or_default(),
            duration: Duration::from_secs(seconds),
            transitions: u32::try_from(spec.lease_transitions.unwrap_or(0)).unwrap_or(0),
        };
        let version = version_of(&lease);
        self.known = Some(lease);
        Ok(LeaseResponse::Found(version, claim))
    }

    async fn create(&mut self, claim: &Claim) -> Result<LeaseResponse, Failure> {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(labels(&self.store)),
                ..ObjectMeta::default()
            },
            spec: Some(spec(claim, None)),
        };
        let parameters = PostParams::default();
        let created = within(ANSWER_TIMEOUT, self.leases.create(&parameters, &lease)).await;
        match created {
            Ok(created) => Ok(self.wrote(created)),
            Err(Failure::NotFound) => Err(Failure::Unknown(format!(
                "there is no namespace for the lease {}: create it",
                self.name
            ))),
            Err(failure) => Err(failure),
        }
    }

    async fn replace(&mut self, version: String, claim: &Claim) -> Result<LeaseResponse, Failure> {
        let mut lease = self.known.clone().unwrap_or_default();
        lease.metadata.resource_version = Some(version);
        lease.metadata.name = Some(self.name.clone());
        // Written by the API server, and refused from others.
        lease.metadata.managed_fields = None;
        lease.spec = Some(spec(claim, lease.spec.as_ref()));
        let parameters = PostParams::default();
        let replaced = self.leases.replace(&self.name, &parameters, &lease);
        let replaced = within(ANSWER_TIMEOUT, replaced).await?;
        Ok(self.wrote(replaced))
    }

    fn wrote(&mut self, lease: Lease) -> LeaseResponse {
        let version = version_of(&lease);
        self.known = Some(lease);
        LeaseResponse::Done(version)
    }
}

fn version_of(lease: &Lease) -> String {
    lease.metadata.resource_version.clone().unwrap_or_default()
}

/// The times are for people: nobody's clock is compared with another's.
fn spec(claim: &Claim, before: Option<&LeaseSpec>) -> LeaseSpec {
    let now = Some(MicroTime(Timestamp::now()));
    let holder = Some(claim.holder.clone()).filter(|holder| !holder.is_empty());
    let held_before = before.filter(|before| before.holder_identity == holder);
    LeaseSpec {
        acquire_time: held_before
            .and_then(|before| before.acquire_time.clone())
            .or_else(|| now.clone()),
        renew_time: now,
        lease_duration_seconds: i32::try_from(claim.duration.as_secs()).ok(),
        lease_transitions: Some(i32::try_from(claim.transitions).unwrap_or(i32::MAX)),
        holder_identity: holder,
        ..LeaseSpec::default()
    }
}
