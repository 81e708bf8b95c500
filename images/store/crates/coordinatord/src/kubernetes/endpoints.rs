//! Where the leader is: it writes its address into an EndpointSlice of each Service that leads to it. The Services select no
//! pods: whether a process leads is known to itself first.

use std::net::Ipv4Addr;
use std::time::Duration;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, PostParams};

use super::api::{Failure, labels, within};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two looks at slices that are as they should be: somebody may have deleted one.
const LOOK: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(500);
/// In which term a slice was written.
const TERM: &str = "rcbox.dev/term";

/// Why a slice does not lead here.
#[derive(Debug, thiserror::Error)]
enum NotWritten {
    #[error("the EndpointSlice {0} cannot be made")]
    CannotBeMade(String),
    #[error("the EndpointSlice {0} has just changed")]
    HasChanged(String),
    #[error("{0}")]
    Unknown(String),
}

/// Address and named ports of a process, and the term in which it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderAddress {
    pub term: u64,
    pub address: Ipv4Addr,
    pub ports: Vec<(&'static str, u16)>,
}

pub struct Endpoints {
    slices: Api<EndpointSlice>,
    store: String,
    services: Vec<String>,
}

impl Endpoints {
    pub fn new(client: Client, namespace: &str, store: &str, services: &[String]) -> Endpoints {
        Endpoints {
            slices: Api::namespaced(client, namespace),
            store: store.to_owned(),
            services: services.to_vec(),
        }
    }

    /// Sees to it that all Services lead to `place`, for as long as it is polled.
    pub async fn lead_to(&self, place: &LeaderAddress) {
        let mut was_told = false;
        // Of a leader that goes on at the next look, a later term is one that was forgotten: an older state was put back.
        let mut waited_for = 0;
        loop {
            let mut pause = LOOK;
            let mut later = 0;
            for service in &self.services {
                match self.write(service, place, waited_for).await {
                    Ok(Written::Now) => {
                        tracing::info!("the Service {service} leads to {} now", place.address);
                    }
                    Ok(Written::Before) => {}
                    Ok(Written::ByLaterTerm(term)) => {
                        tracing::warn!(
                            "the Service {service} leads to a leader of term {term}, and this is one of term {}",
                            place.term
                        );
                        later = term.max(later);
                    }
                    Err(why) => {
                        pause = RETRY;
                        if !was_told {
                            tracing::warn!(
                                "the Service {service} may not lead here: {why}; trying again"
                            );
                        }
                        was_told = true;
                    }
                }
            }
            was_told &= pause == RETRY;
            waited_for = later.max(waited_for);
            tokio::time::sleep(pause).await;
        }
    }

    async fn write(
        &self,
        service: &str,
        place: &LeaderAddress,
        waited_for: u64,
    ) -> Result<Written, NotWritten> {
        let name = format!("{service}-leader");
        let parameters = PostParams::default();
        let written = match within(ANSWER_TIMEOUT, self.slices.get(&name)).await {
            // A leader of the past that wakes up reads what its successor has written since, and does not write over it. The election or its
            // next commit ends it before it looks again.
            Ok(slice) if term_of(&slice) > place.term.max(waited_for) => {
                return Ok(Written::ByLaterTerm(term_of(&slice)));
            }
            Ok(slice) if says(&slice, place) => return Ok(Written::Before),
            Ok(mut slice) => {
                note_term(&mut slice.metadata, place.term);
                slice.endpoints = endpoints(place);
                slice.ports = Some(ports(place));
                slice.metadata.managed_fields = None;
                // With the version that was read: what somebody else has written since is looked at first.
                let replaced = self.slices.replace(&name, &parameters, &slice);
                within(ANSWER_TIMEOUT, replaced).await
            }
            Err(Failure::NotFound) => {
                let slice = self.slice(service, &name, place);
                within(ANSWER_TIMEOUT, self.slices.create(&parameters, &slice)).await
            }
            Err(failure) => Err(failure),
        };
        match written {
            Ok(_) => Ok(Written::Now),
            Err(Failure::NotFound) => Err(NotWritten::CannotBeMade(name)),
            Err(Failure::Conflict) => Err(NotWritten::HasChanged(name)),
            Err(Failure::Unknown(why)) => Err(NotWritten::Unknown(why)),
        }
    }

    fn slice(&self, service: &str, name: &str, place: &LeaderAddress) -> EndpointSlice {
        let mut labels = labels(&self.store);
        let of_service = "kubernetes.io/service-name".to_owned();
        labels.insert(of_service, service.to_owned());
        let managed_by = "endpointslice.kubernetes.io/managed-by".to_owned();
        labels.insert(managed_by, "coordinator.rcbox.dev".to_owned());
        let mut metadata = ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels),
            ..ObjectMeta::default()
        };
        note_term(&mut metadata, place.term);
        EndpointSlice {
            metadata,
            address_type: "IPv4".to_owned(),
            endpoints: endpoints(place),
            ports: Some(ports(place)),
        }
    }
}

/// What came of writing a slice.
#[derive(Debug, PartialEq, Eq)]
enum Written {
    Now,
    /// It was as it should be.
    Before,
    ByLaterTerm(u64),
}

/// 0 if it does not say: nobody's, or an older build's.
fn term_of(slice: &EndpointSlice) -> u64 {
    let term = slice.metadata.annotations.as_ref();
    let term = term.and_then(|annotations| annotations.get(TERM)?.parse().ok());
    term.unwrap_or(0)
}

fn note_term(metadata: &mut ObjectMeta, term: u64) {
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(TERM.to_owned(), term.to_string());
}

fn endpoints(place: &LeaderAddress) -> Vec<Endpoint> {
    vec![Endpoint {
        addresses: vec![place.address.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(true),
            serving: Some(true),
            terminating: Some(false),
        }),
        ..Endpoint::default()
    }]
}

fn ports(place: &LeaderAddress) -> Vec<EndpointPort> {
    let port = |(name, number): &(&str, u16)| EndpointPort {
        name: Some((*name).to_owned()),
        port: Some(i32::from(*number)),
        protocol: Some("TCP".to_owned()),
        ..EndpointPort::default()
    };
    place.ports.iter().map(port).collect()
}

fn says(slice: &EndpointSlice, place: &LeaderAddress) -> bool {
    let ready = |one: &Endpoint| {
        one.conditions
            .as_ref()
            .and_then(|conditions| conditions.ready)
    };
    let there: Vec<_> = slice.ports.iter().flatten().collect();
    term_of(slice) == place.term
        && slice.endpoints.len() == 1
        && slice.endpoints[0].addresses == [place.address.to_string()]
        && ready(&slice.endpoints[0]) == Some(true)
        && there.len() == place.ports.len()
        && place
            .ports
            .iter()
            .zip(there)
            .all(|((name, number), there)| {
                there.name.as_deref() == Some(name) && there.port == Some(i32::from(*number))
            })
}
