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

/// Address and named ports of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
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
    pub async fn lead_to(&self, place: &Place) {
        let mut was_told = false;
        loop {
            let mut pause = LOOK;
            for service in &self.services {
                match self.write(service, place).await {
                    Ok(true) => {
                        tracing::info!("the Service {service} leads to {} now", place.address);
                    }
                    Ok(false) => {}
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
            tokio::time::sleep(pause).await;
        }
    }

    /// Whether it had to be changed.
    async fn write(&self, service: &str, place: &Place) -> Result<bool, String> {
        let name = format!("{service}-leader");
        let parameters = PostParams::default();
        let written = match within(ANSWER_TIMEOUT, self.slices.get(&name)).await {
            Ok(slice) if says(&slice, place) => return Ok(false),
            Ok(mut slice) => {
                slice.endpoints = endpoints(place);
                slice.ports = Some(ports(place));
                slice.metadata.managed_fields = None;
                // With the version that was read: a leader of the past, who wakes up, does not overwrite its successor.
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
            Ok(_) => Ok(true),
            Err(Failure::NotFound) => Err(format!("the EndpointSlice {name} cannot be made")),
            Err(Failure::Conflict) => Err(format!("the EndpointSlice {name} has just changed")),
            Err(Failure::Unknown(why)) => Err(why),
        }
    }

    fn slice(&self, service: &str, name: &str, place: &Place) -> EndpointSlice {
        let mut labels = labels(&self.store);
        let of_service = "kubernetes.io/service-name".to_owned();
        labels.insert(of_service, service.to_owned());
        let managed_by = "endpointslice.kubernetes.io/managed-by".to_owned();
        labels.insert(managed_by, "coordinator.rcbox.dev".to_owned());
        EndpointSlice {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            address_type: "IPv4".to_owned(),
            endpoints: endpoints(place),
            ports: Some(ports(place)),
        }
    }
}

fn endpoints(place: &Place) -> Vec<Endpoint> {
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

fn ports(place: &Place) -> Vec<EndpointPort> {
    let port = |(name, number): &(&str, u16)| EndpointPort {
        name: Some((*name).to_owned()),
        port: Some(i32::from(*number)),
        protocol: Some("TCP".to_owned()),
        ..EndpointPort::default()
    };
    place.ports.iter().map(port).collect()
}

fn says(slice: &EndpointSlice, place: &Place) -> bool {
    let ready = |one: &Endpoint| {
        one.conditions
            .as_ref()
            .and_then(|conditions| conditions.ready)
    };
    let there: Vec<_> = slice.ports.iter().flatten().collect();
    slice.endpoints.len() == 1
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
