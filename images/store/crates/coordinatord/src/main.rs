//! The `coordinator` program: clients and members on one thread, admin API and HTTP on another.

mod admin;
mod connections;
mod controls;
mod driver;
mod error;
mod kubernetes;
mod onlookers;
mod probe;
mod state_file;
mod time_trace;

use std::net::{SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use coordinator::state::file::FileKeeper;
use coordinator::{Balancing, Coordinator};
use daemon::allocator::give_back_at_once;
use daemon::logging::Logging;
use daemon::mailbox::Mailbox;
use daemon::random::{NoRandom, random_u64};
use daemon::runtime::{Loop, raise_file_limit, run_until_signal};
use daemon::security::{Own, Security, SecurityOptions};
use daemon::{container, http};
use net::{Audience, Door, Limits, Options as ReactorOptions, Protocol, Reactor, Remote};
use program::locators::{
    ADMIN_PORT_OFFSET, AddressError, HTTP_PORT_OFFSET, MEMBER_PORT_OFFSET, advertised, beside,
    host_port, listen_address,
};
use program::{formats, tokio_runtime, version};
use tls::Admits;

use driver::State;
use error::{AdminError, CoordinatorError, ListenError};
use probe::Probe;
use state_file::{Directory, StateFile};

/// Keeps the membership and the tables of a store, and tells clients where to find what.
///
/// With `--state file:DIR` its state outlives it: the next coordinator on the same directory goes on with the same store. With
/// `--state kubernetes` it is in objects of Kubernetes, and of several coordinators one leads. With neither, a new coordinator is
/// a new, empty store.
#[derive(Parser, Debug)]
#[command(name = "coordinator", version = version(), after_help = EXAMPLES)]
struct Options {
    /// Where to listen for clients; members, admin API and HTTP are at the next hundreds unless given
    #[arg(
        short = 'C',
        long = "coordinator",
        env = "RCBOX_COORDINATOR",
        value_name = "LOCATOR"
    )]
    locator: String,
    /// What to tell others instead of the address that is listened on
    #[arg(long, env = "RCBOX_ADVERTISE", value_name = "LOCATOR")]
    advertise: Option<String>,
    /// Upper half of all table ids; random unless given [0 makes the ids of captured RAMCloud sessions]
    #[arg(long = "clusterTag", env = "RCBOX_CLUSTER_TAG", value_name = "NUMBER")]
    cluster_tag: Option<u32>,
    /// Where to keep what must outlive this process: `memory` is nowhere, `file:DIR` a directory on a disk that stays (one
    /// coordinator at a time uses it, and keeps a lock on it), `kubernetes` objects of the API server that the pod's service
    /// account or KUBECONFIG leads to (see --stateName)
    #[arg(long, env = "RCBOX_STATE", default_value = "memory", value_name = "memory|file:DIR|kubernetes", value_parser = state_place)]
    state: StatePlace,
    /// If there is no state, make the store again from the volumes of its servers, rather than begin an empty one; while there is any, this means
    /// nothing
    #[arg(long, env = "RCBOX_REBUILD", value_parser = clap::builder::BoolishValueParser::new())]
    rebuild: bool,
    #[command(flatten)]
    kubernetes: kubernetes::KubernetesOptions,
    /// Where to listen for members [default: client port + 100]
    #[arg(long = "memberListen", env = "RCBOX_MEMBER_LISTEN", value_name = "HOST:PORT", value_parser = host_port)]
    member_listen: Option<SocketAddrV4>,
    /// Where to serve the admin API [default: client port + 200]
    #[arg(long = "adminListen", env = "RCBOX_ADMIN_LISTEN", value_name = "HOST:PORT", value_parser = host_port)]
    admin_listen: Option<SocketAddrV4>,
    /// Where to serve health and metrics [default: client port + 300]
    #[arg(long = "httpListen", env = "RCBOX_HTTP_LISTEN", value_name = "HOST:PORT", value_parser = host_port)]
    http_listen: Option<SocketAddrV4>,
    /// How long to poll after the last message before sleeping
    #[arg(
        long = "pollMicros",
        env = "RCBOX_POLL_MICROS",
        default_value_t = 0,
        value_name = "MICROSECONDS"
    )]
    poll_micros: u64,
    /// Connections of clients and members at one time
    #[arg(
        long = "maxConnections",
        env = "RCBOX_MAX_CONNECTIONS",
        default_value_t = 10_000,
        value_name = "NUMBER"
    )]
    max_connections: usize,
    /// Serve requests that are for tests and do harm elsewhere: KILL
    #[arg(long = "allowTestRpcs", env = "RCBOX_ALLOW_TEST_RPCS", value_parser = clap::builder::BoolishValueParser::new())]
    allow_test_rpcs: bool,
    /// Give servers about as much of the tablets each, after their memory and by how much these are used; off: only members that drain are emptied
    #[arg(long, env = "RCBOX_REBALANCE", default_value = "on", value_name = "on|off", value_parser = on_off, action = clap::ArgAction::Set)]
    rebalance: bool,
    /// Of each migration that the coordinator begins by itself, at most
    #[arg(
        long = "rebalanceMBps",
        env = "RCBOX_REBALANCE_MBPS",
        default_value_t = 50,
        value_name = "MEGABYTES",
        value_parser = clap::value_parser!(u64).range(1..1_000_000)
    )]
    rebalance_mbps: u64,
    #[command(flatten)]
    security: SecurityOptions,
    #[command(flatten)]
    logging: Logging,
}

impl Options {
    fn balancing(&self) -> Balancing {
        Balancing {
            evens_out: self.rebalance,
            bytes_per_second: self.rebalance_mbps * 1_000_000,
            ..Balancing::default()
        }
    }
}

/// A value of an option that is none of those there are.
#[derive(Debug, thiserror::Error)]
enum ValueError {
    #[error("expected on or off")]
    OnOff,
    #[error("expected memory, kubernetes, or file:DIR with the name of a directory")]
    State,
}

fn on_off(text: &str) -> Result<bool, ValueError> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(ValueError::OnOff),
    }
}

const EXAMPLES: &str = "\
Examples:
  coordinator -C tcp:host=127.0.0.1,port=11100
  coordinator -C tcp:host=0.0.0.0,port=11100 --advertise tcp:host=10.0.0.1,port=11100
  coordinator -C tcp:host=0.0.0.0,port=11100 --state file:/var/lib/rcbox
  coordinator -C tcp:host=0.0.0.0,port=11100 --state kubernetes --stateName box

Then start servers with: server -C tcp:host=127.0.0.1,port=11100 -L tcp:host=127.0.0.1,port=12100";

/// Where the coordinator's state is kept.
#[derive(Clone, Debug)]
enum StatePlace {
    Memory,
    Directory(PathBuf),
    Kubernetes,
}

fn state_place(text: &str) -> Result<StatePlace, ValueError> {
    match text.split_once(':') {
        None if text == "memory" => Ok(StatePlace::Memory),
        None if text == "kubernetes" => Ok(StatePlace::Kubernetes),
        Some(("file", path)) if !path.is_empty() => Ok(StatePlace::Directory(path.into())),
        _ => Err(ValueError::State),
    }
}

/// Memory for the buffers of clients' connections, and as much for those of members: the other half is for the state, for the admin API, and
/// for what is being decoded and answered.
fn buffer_bytes() -> usize {
    const MOST_BYTES: usize = 512 << 20;
    container::memory_bytes().map_or(MOST_BYTES, |memory| (memory / 4).min(MOST_BYTES))
}

fn main() -> ExitCode {
    program::report(run(&Options::parse()))
}

/// Runs until a signal ends it.
fn run(options: &Options) -> Result<(), CoordinatorError> {
    options.logging.start();
    raise_file_limit();
    give_back_at_once();
    let reactor = Reactor::new(ReactorOptions {
        spin: Duration::from_micros(options.poll_micros),
        limits: Limits {
            connections: options.max_connections,
            buffer_bytes: buffer_bytes(),
            peer_buffer_bytes: buffer_bytes(),
            ..Limits::default()
        },
    })
    .map_err(CoordinatorError::Poll)?;
    let security = Security::open(&options.security, &Own::Coordinator)?;
    match &options.state {
        StatePlace::Kubernetes => kubernetes::run(options, security, reactor),
        StatePlace::Memory => run_alone(options, None, security, reactor),
        StatePlace::Directory(path) => run_alone(options, Some(path), security, reactor),
    }
}

/// The only coordinator of its store.
fn run_alone(
    options: &Options,
    directory: Option<&Path>,
    security: Security,
    mut reactor: Reactor,
) -> Result<(), CoordinatorError> {
    let client = listen_address(&options.locator)?;
    let (coordinator, state) = open_state(options, directory, reactor.remote())?;
    let (mailbox, inbox) = Mailbox::new(reactor.remote());
    let mut handler = driver::Driver::new(coordinator, state, inbox);
    handler.begin(reactor.io())?;
    let mut listen = |address: SocketAddrV4, protocol, (audience, door), what| {
        let listener = reactor.listen(address, protocol, audience, door);
        listener.map_err(|error| ListenError {
            address,
            what,
            error,
        })
    };
    let (client_listener, client) = listen(
        client,
        Protocol::Rpc,
        (Audience::Clients, Door::Plain),
        "clients",
    )?;
    let member = beside(
        options.member_listen,
        client_base(&options.locator, client)?,
        MEMBER_PORT_OFFSET,
    )?;
    let door = security.door(Admits::Members);
    let (_, member) = listen(member, Protocol::Member, (Audience::Peers, door), "members")?;

    handler.serve(client_listener);
    tokio_runtime()?.block_on(async {
        let base = client_base(&options.locator, client)?;
        let admin = bind_admin(beside(options.admin_listen, base, ADMIN_PORT_OFFSET)?).await?;
        let admin_door = security.door(Admits::Operators);
        let http = http::bind(beside(options.http_listen, base, HTTP_PORT_OFFSET)?).await?;
        announce(options, client, member, bound(&admin)?, bound(&http)?);
        let threads = vec![Loop::spawn(
            "coordinator".to_owned(),
            reactor,
            handler,
            driver::Driver::finish,
        )?];
        let probe = Arc::new(Probe::new(mailbox.clone(), None));
        security.announce();
        tokio::spawn(security.stay_fresh());
        run_until_signal(threads, |stop| async move {
            tokio::try_join!(
                async { Ok(http::serve(http, probe, stop.clone().wait()).await?) },
                async {
                    Ok(
                        admin::serve((admin, admin_door), mailbox, None, stop.clone().wait())
                            .await?,
                    )
                }
            )
            .map(|_| ())
            .map_err(|error: CoordinatorError| error)
        })
        .await?;
        Ok(())
    })
}

/// The coordinator as it was noted, or a new store's.
fn open_state(
    options: &Options,
    directory: Option<&Path>,
    remote: Remote,
) -> Result<(Coordinator, State), CoordinatorError> {
    let cluster_tag = match options.cluster_tag {
        Some(tag) => tag,
        None => random_u64()? as u32,
    };
    let config = coordinator::Config {
        allow_test_rpcs: options.allow_test_rpcs,
        formats: formats(),
        balancing: options.balancing(),
        ..coordinator::Config::new(random_u64()?, cluster_tag, version())
    };
    let Some(path) = directory else {
        if options.rebuild {
            let coordinator = rebuilding(config, "what this process knows ends with it")?;
            return Ok((coordinator, None));
        }
        tracing::info!(
            "a new, empty store {:016x}; what this process knows ends with it (see --state)",
            config.cluster_id
        );
        let mut coordinator = Coordinator::new(config, net::now());
        coordinator.begin_term(random_u64()?, 0);
        return Ok((coordinator, None));
    };
    let (coordinator, state) = open_directory(path, config, options.rebuild, remote)?;
    if coordinator.is_rebuilding() {
        return Ok((coordinator, state));
    }
    let status = coordinator.cluster_status(net::now());
    match options.cluster_tag {
        Some(asked) if asked != status.cluster_tag => Err(CoordinatorError::ClusterTag {
            path: path.to_owned(),
            found: status.cluster_tag,
            asked,
        }),
        _ => Ok((coordinator, state)),
    }
}

/// One that makes its store again before it leads.
fn rebuilding(config: coordinator::Config, place: &str) -> Result<Coordinator, NoRandom> {
    tracing::warn!("there is no state ({place}): making the store again from its volumes");
    let nonce = random_u64()?;
    Ok(Coordinator::rebuilding(config, nonce, true, net::now()))
}

fn open_directory(
    path: &Path,
    config: coordinator::Config,
    rebuild: bool,
    remote: Remote,
) -> Result<(Coordinator, State), CoordinatorError> {
    let began = net::now();
    let directory = Directory::lock(path)?;
    let Some(mut loaded) = directory.read()? else {
        let keeper = FileKeeper::new();
        let file = StateFile::start(directory, None, remote)?;
        let coordinator = match rebuild {
            true => rebuilding(config, &format!("nothing was noted in {}", path.display()))?,
            false => {
                tracing::info!(
                    "nothing was noted in {}: a new, empty store {:016x}",
                    path.display(),
                    config.cluster_id
                );
                let mut coordinator = Coordinator::new(config, began);
                coordinator.begin_term(random_u64()?, 0);
                coordinator
            }
        };
        return Ok((coordinator, Some((file, keeper))));
    };
    if loaded.torn_bytes > 0 {
        tracing::warn!(
            "cut {} bytes off the end of the state in {}: the process before ended while it wrote them, and had answered nothing that needs them",
            loaded.torn_bytes,
            path.display()
        );
    }
    let (bytes, commits) = (loaded.whole_bytes, loaded.commits);
    let mut coordinator =
        Coordinator::restore(config, loaded.take_pairs(), began).map_err(|error| {
            CoordinatorError::State {
                path: path.to_owned(),
                error,
            }
        })?;
    coordinator.begin_term(random_u64()?, loaded.writer.last_sequence());
    let keeper = FileKeeper::go_on(&loaded);
    let file = directory.open(&loaded)?;
    let file = StateFile::start(directory, Some(file), remote)?;
    let status = coordinator.cluster_status(began);
    tracing::info!(
        members = status.members.len(),
        tables = status.table_count,
        leases = status.client_lease_count,
        "going on with store {:016x} of {}: read {bytes} bytes with {commits} commits in {} ms",
        status.cluster_id,
        path.display(),
        net::now().since(began).as_millis()
    );
    Ok((coordinator, Some((file, keeper))))
}

/// What other ports are counted from: the port that was asked for. If the kernel chooses, it chooses all of them.
fn client_base(locator: &str, bound: SocketAddrV4) -> Result<SocketAddrV4, AddressError> {
    let asked = listen_address(locator)?;
    Ok(SocketAddrV4::new(*bound.ip(), asked.port()))
}

async fn bind_admin(address: SocketAddrV4) -> Result<tokio::net::TcpListener, AdminError> {
    tokio::net::TcpListener::bind(address)
        .await
        .map_err(|error| AdminError::Listen { address, error })
}

/// Where a listener listens.
fn bound(listener: &tokio::net::TcpListener) -> Result<SocketAddrV4, AdminError> {
    match listener.local_addr() {
        Ok(SocketAddr::V4(address)) => Ok(address),
        Ok(address) => Err(AdminError::NotIpv4(address)),
        Err(error) => Err(AdminError::NoAddress(error)),
    }
}

fn announce(
    options: &Options,
    client: SocketAddrV4,
    member: SocketAddrV4,
    admin: SocketAddrV4,
    http: SocketAddrV4,
) {
    // Only the log names it, so that 0.0.0.0 needs no advice here.
    let mut locator = advertised(options.advertise.as_deref(), client, 0)
        .unwrap_or_else(|_| format!("tcp:host={},port={}", client.ip(), client.port()));
    // What others cannot derive, the locator says.
    let usual = |offset| client.port().checked_add(offset);
    if usual(MEMBER_PORT_OFFSET) != Some(member.port()) {
        locator += &format!(",memberPort={}", member.port());
    }
    if usual(ADMIN_PORT_OFFSET) != Some(admin.port()) {
        locator += &format!(",adminPort={}", admin.port());
    }
    tracing::info!(%locator, %client, %member, %admin, %http, "serving");
}
