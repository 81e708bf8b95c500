//! A coordinator whose state is in objects of Kubernetes' API server: one of several candidates leads, the others wait.
//!
//! The thread with the sockets runs the leader ([`driver`]); this one talks to the API server: it stands for election, carries the
//! leader's requests out, and writes where the leader is.

mod api;
mod driver;
mod election;
mod endpoints;
mod lease;
mod objects;
pub mod standing;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use clap::Args;
use coordinator::leader;
use coordinator::state::objects::{Request, RequestId, Settings, Tuning};
use net::{Reactor, Remote};
use thiserror::Error;
use tls::Admits;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{oneshot, watch};
use wire::locator::Locator;

use super::error::CoordinatorError;
use super::probe::Probe;
use super::{Options, admin, announce, bind_admin, bound, client_base};
use daemon::http;
use daemon::mailbox::Mailbox;
use daemon::random::random_u64;
use daemon::runtime::{Loop, end_process, run_until_signal};
use daemon::security::Security;
use driver::{Channels, EXIT_DEPOSED, Event, Listeners};
use election::{Election, News, Timing};
use endpoints::{Endpoints, LeaderAddress};
use lease::Leases;
use objects::Objects;
use program::locators::{
    ADMIN_PORT_OFFSET, HTTP_PORT_OFFSET, MEMBER_PORT_OFFSET, beside, listen_address,
};
use program::tokio_runtime;
use standing::{Role, Standing};

/// The longest name of a state: chunks' names are made of it.
const MAX_NAME_BYTES: usize = 63;
/// Between two looks whether the root has changed that keeps a process from leading.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Why this process does not stand for election.
#[derive(Debug, Error)]
pub enum KubernetesError {
    #[error(
        "--state kubernetes needs --stateName NAME: what the store's objects are called, such as the store's name"
    )]
    NoStateName,
    #[error("this host has no name: name this process with --candidate")]
    NoCandidate,
    #[error(
        "--services needs --advertise with the address of this process: tcp:host=10.0.0.1,port=11100"
    )]
    NoAddress,
    #[error(transparent)]
    Connect(#[from] api::ConnectError),
}

/// What a store's objects cannot be called.
#[derive(Debug, Error)]
#[error(
    "expected 1 to {MAX_NAME_BYTES} lower-case letters, digits and dashes, as in names of Kubernetes' objects"
)]
struct BadStateName;

#[derive(Args, Debug)]
pub struct KubernetesOptions {
    /// With --state kubernetes: names the store's objects there, NAME-state-root and others, and the lease NAME-coordinator
    #[arg(long = "stateName", env = "RCBOX_STATE_NAME", value_name = "NAME", value_parser = state_name)]
    state_name: Option<String>,
    /// With --state kubernetes: where the objects are [default: the namespace of the pod, or of the kubeconfig's context]
    #[arg(long, env = "RCBOX_NAMESPACE", value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// With --state kubernetes: this process among all that may lead. Whoever is started in its place has the same name
    /// [default: the host's name, which is the pod's]
    #[arg(long, env = "RCBOX_CANDIDATE", value_name = "NAME")]
    candidate: Option<String>,
    /// With --state kubernetes: Services without selectors that are to lead to the leader, at the address that --advertise
    /// names: it writes the EndpointSlices NAME-leader
    #[arg(
        long,
        env = "RCBOX_SERVICES",
        value_delimiter = ',',
        value_name = "NAME,..."
    )]
    services: Vec<String>,
}

fn state_name(text: &str) -> Result<String, BadStateName> {
    let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last))
            if bytes.len() <= MAX_NAME_BYTES
                && bytes.iter().all(|byte| is_good(*byte))
                && *first != b'-'
                && *last != b'-' =>
        {
            Ok(text.to_owned())
        }
        _ => Err(BadStateName),
    }
}

/// What is known before anything is asked of the API server.
struct Plan {
    state_name: String,
    candidate: String,
    services: Vec<String>,
    /// What the Services are to lead to.
    address: Option<Ipv4Addr>,
    listeners: Listeners,
    settings: leader::Settings,
}

fn plan(options: &Options) -> Result<Plan, CoordinatorError> {
    let own = &options.kubernetes;
    let state_name = own.state_name.clone();
    let state_name = state_name.ok_or(KubernetesError::NoStateName)?;
    let candidate = match &own.candidate {
        Some(name) => name.clone(),
        None => rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned(),
    };
    if candidate.is_empty() {
        return Err(KubernetesError::NoCandidate.into());
    }
    let address = options.advertise.as_deref().and_then(literal_address);
    if address.is_none() && !own.services.is_empty() {
        return Err(KubernetesError::NoAddress.into());
    }
    let client = listen_address(&options.locator)?;
    let base = client_base(&options.locator, client)?;
    let member = beside(options.member_listen, base, MEMBER_PORT_OFFSET)?;
    let cluster_tag = match options.cluster_tag {
        Some(tag) => tag,
        None => random_u64()? as u32,
    };
    let new_cluster_id = random_u64()?;
    let config = coordinator::Config {
        allow_test_rpcs: options.allow_test_rpcs,
        balancing: options.balancing(),
        time_ahead: leader::TIME_AHEAD,
        formats: program::formats(),
        ..coordinator::Config::new(new_cluster_id, cluster_tag, program::version())
    };
    Ok(Plan {
        state_name,
        services: own.services.clone(),
        address,
        listeners: Listeners { client, member },
        settings: leader::Settings {
            keeper: Settings {
                nonce: random_u64()?,
                leader: candidate.clone(),
                new_cluster_id,
                awaits_seed: options.rebuild,
                tuning: Tuning::default(),
            },
            config,
            limits: leader::Limits::default(),
        },
        candidate,
    })
}

fn literal_address(locator: &str) -> Option<Ipv4Addr> {
    let locator = Locator::parse(locator).ok()?;
    let (host, _) = locator.tcp().ok()?;
    host.parse().ok()
}

/// Runs until a signal ends it, or somebody else leads.
pub fn run(
    options: &Options,
    security: Security,
    reactor: Reactor,
) -> Result<(), CoordinatorError> {
    let plan = plan(options)?;
    tokio_runtime()?.block_on(async {
        let namespace = options.kubernetes.namespace.as_deref();
        let connected = api::connect(namespace).await;
        let (client, namespace) = connected.map_err(KubernetesError::from)?;
        let base = client_base(&options.locator, plan.listeners.client)?;
        let admin = bind_admin(beside(options.admin_listen, base, ADMIN_PORT_OFFSET)?).await?;
        let admin_door = security.door(Admits::Operators);
        let http = http::bind(beside(options.http_listen, base, HTTP_PORT_OFFSET)?).await?;
        let (admin_address, http_address) = (bound(&admin)?, bound(&http)?);

        let remote = reactor.remote();
        let (mailbox, questions) = Mailbox::new(remote.clone());
        let (events, events_in) = mpsc::channel();
        let (requests_out, requests) = unbounded_channel();
        let (standing, seen) = watch::channel(Standing::default());
        let (serving_out, serving) = oneshot::channel();
        let channels = Channels {
            events: events_in,
            questions,
            requests: requests_out,
            standing: standing.clone(),
            serving: serving_out,
        };
        let (settings, listeners) = (plan.settings, plan.listeners);
        let door = security.door(Admits::Members);
        security.announce();
        tokio::spawn(security.stay_fresh());
        let thread = Loop::spawn_with("coordinator".to_owned(), remote.clone(), move || {
            Ok(driver::run(reactor, settings, channels, listeners, door)?)
        })?;

        let name = &plan.state_name;
        let mut leases = Leases::new(client.clone(), &namespace, name);
        let endpoints = Endpoints::new(client.clone(), &namespace, name, &plan.services);
        let objects = Arc::new(Objects::new(client, &namespace, name));
        let to_driver = ToDriver { events, remote };
        tracing::info!(
            admin = %admin_address, http = %http_address,
            "{} stands for election by the lease {namespace}/{}", plan.candidate, leases.name()
        );
        let election = Election::new(plan.candidate.clone(), Timing::default(), net::now());
        let candidate = Candidate {
            election,
            leases: &mut leases,
            standing: standing.clone(),
            to_driver: to_driver.clone(),
            logged: None,
        };
        let on_lead = async {
            let Ok((Listeners { client, member }, term)) = serving.await else {
                return std::future::pending().await;
            };
            announce(options, client, member, admin_address, http_address);
            let Some(address) = plan.address else {
                return std::future::pending().await;
            };
            let ports = vec![
                ("client", client.port()),
                ("member", member.port()),
                ("admin", admin_address.port()),
            ];
            let place = LeaderAddress {
                term,
                address,
                ports,
            };
            endpoints.lead_to(&place).await;
        };
        let probe = Arc::new(Probe::new(mailbox.clone(), Some(seen.clone())));
        let result = run_until_signal(vec![thread], |stop| async move {
            tokio::select! {
                result = async { tokio::try_join!(
                    async { Ok(http::serve(http, probe, stop.clone().wait()).await?) },
                    async { Ok(admin::serve((admin, admin_door), mailbox, Some(seen.clone()), stop.clone().wait()).await?) },
                ) } => result.map(drop).map_err(|error: CoordinatorError| error),
                () = candidate.run() => Ok(()),
                () = carry_out(requests, Arc::clone(&objects), to_driver) => Ok(()),
                () = on_lead => Ok(()),
                () = watch_the_root(seen.clone(), &objects) => Ok(()),
            }
        })
        .await;
        // The thread that led has ended: whoever comes next need not wait.
        leases.give_up(&plan.candidate).await;
        Ok(result?)
    })
}

/// Leads to the thread with the sockets.
#[derive(Clone)]
struct ToDriver {
    events: mpsc::Sender<Event>,
    remote: Remote,
}

impl ToDriver {
    fn send(&self, event: Event) {
        // Nobody takes it if the program is ending.
        let _ = self.events.send(event);
        self.remote.wake();
    }
}

/// Carries the leader's requests out, each on its own: a slow one keeps no other waiting.
async fn carry_out(
    mut requests: UnboundedReceiver<(RequestId, Request)>,
    objects: Arc<Objects>,
    to_driver: ToDriver,
) {
    while let Some((id, request)) = requests.recv().await {
        let (objects, to_driver) = (Arc::clone(&objects), to_driver.clone());
        tokio::spawn(async move {
            let answer = objects.carry_out(request).await;
            to_driver.send(Event::Answered(id, answer));
        });
    }
    std::future::pending().await
}

/// A process that must not lead begins anew when what keeps it from it has changed.
async fn watch_the_root(mut seen: standing::Receiver, objects: &Objects) {
    let is_refused = |standing: &Standing| matches!(standing.role, Role::Refused(_));
    if seen.wait_for(is_refused).await.is_err() {
        return std::future::pending().await;
    }
    objects.root_changes(LOOK_AGAIN).await;
    tracing::warn!("the root has changed: beginning anew");
    end_process()
}

/// This process's part in the election.
struct Candidate<'a> {
    election: Election,
    leases: &'a mut Leases,
    standing: standing::Sender,
    to_driver: ToDriver,
    /// The trouble that was logged last.
    logged: Option<String>,
}

impl Candidate<'_> {
    async fn run(mut self) {
        loop {
            let mut next = self.election.next_request(net::now());
            while let Some(request) = next {
                let answer = self.leases.carry_out(request).await;
                let (request, news) = self.election.answered(net::now(), answer);
                next = request;
                if let Some(news) = news {
                    self.hear(news);
                }
                self.show();
            }
            let wake = self.election.next_wake();
            tokio::time::sleep(wake.since(net::now())).await;
        }
    }

    fn hear(&self, news: News) {
        match news {
            News::Elected => {
                tracing::info!("elected: this process leads once it has read the state");
                self.to_driver.send(Event::Elected);
            }
            News::Lost(holder) => {
                tracing::warn!(
                    "{holder} holds the lease {} now: this process is to start anew, as a standby",
                    self.leases.name()
                );
                std::process::exit(EXIT_DEPOSED);
            }
        }
    }

    fn show(&mut self) {
        let holder = self.election.holder().map(str::to_owned);
        let trouble = self.election.trouble().map(|trouble| {
            format!(
                "the lease {} cannot be used: {}",
                self.leases.name(),
                trouble.why
            )
        });
        match (&trouble, &self.logged) {
            (Some(trouble), None) => tracing::warn!("{trouble}; trying again every second"),
            (None, Some(_)) => tracing::info!("the lease {} is there again", self.leases.name()),
            _ => {}
        }
        self.logged.clone_from(&trouble);
        self.standing.send_if_modified(|standing| {
            let is_standby = standing.role == Role::Standby;
            let is_news = standing.holder != holder || is_standby && standing.trouble != trouble;
            standing.holder = holder;
            if is_standby {
                standing.trouble = trouble;
            }
            is_news
        });
    }
}
