//! The shards of a process: what they have in common, and how each is put together.

use std::net::SocketAddrV4;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

use backup::{Layout, Prompt};
use daemon::container;
use daemon::mailbox::Mailbox;
use daemon::random::random_u64;
use daemon::runtime::Loop;
use daemon::security::{Own, Security};
use master::Identity;
use net::{
    Address, Audience, Door, Limits, Options as ReactorOptions, PortKind, Protocol, Reactor,
};
use ports::{Ports, Serves, places};
use program::locators::{
    PEER_PORT_OFFSET, advertised, beside, coordinators, offset_port, peer_advertised,
    tcp_listen_address, with_fast,
};
use program::version;
use server::{BackupConfig, Config, Server};
use tls::Admits;

use super::actions::Unopened;
use super::driver::{Driver, Parts};
use super::error::ServerError;
use super::handoff::{Running, Seat};
use super::options::Options;
use super::probe::Probe;
use super::session::Session;
use super::settings::{BackupSettings, Buffers, Settings};
use super::storage::{AnyStorage, BackupFile, NoStorage, ProcessMemory, Reporter};
use crate::pages::{PagesError, Reserved};

pub struct Process<'a> {
    options: &'a Options,
    settings: Settings,
    /// Of each shard.
    buffers: Buffers,
    coordinators: Vec<Address>,
    process: u64,
    instance: String,
    host_id: String,
    /// Where the shards' logs and hash tables lie.
    pub memory: Vec<Range<*const u8>>,
    /// What is left of the pages that were reserved for them, if that is wanted.
    reserved: Option<Reserved>,
    pub probe: Probe,
    pub ports: Ports,
    pub security: Security,
}

/// What the ports of one shard are, to others and to itself.
#[derive(Default)]
struct Fast {
    locators: Vec<String>,
    /// For other servers.
    peer_locators: Vec<String>,
    kinds: Vec<PortKind>,
    /// Under which numbers sessions of other servers are reported.
    servers: Vec<usize>,
}

/// A shard's backup before it is in a cluster; nothing, if there is none.
#[derive(Default)]
struct Prepared {
    config: Option<BackupConfig>,
    unopened: Option<Unopened>,
    /// The cluster that the storage belongs to; 0: none yet.
    volume: u64,
    /// As errors name it.
    place: String,
}

impl Process<'_> {
    pub fn new(options: &Options, settings: Settings) -> Result<Process<'_>, ServerError> {
        let process = random_u64()?;
        let host_name = || {
            rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned()
        };
        let security = Security::open(&options.security, &Own::Member(options.member.as_deref()))?;
        let coordinators = coordinators(&options.coordinator)?;
        let reserved = reserve(options, &settings)?;
        let probe = Probe::new(
            settings.master.replication.is_some(),
            settings.backup.is_some(),
        );
        let ports = Ports::open(places(&options.local)?, &options.eal, options.cores)?;
        let buffers = settings.buffers(
            container::memory_bytes(),
            settings.apart_bytes(reserved.is_some(), options.cores) + ports.ordinary_bytes(),
            options.cores,
        );
        Ok(Process {
            ports,
            security,
            options,
            settings,
            buffers,
            coordinators: coordinators.into_iter().map(|one| one.member).collect(),
            process,
            instance: options
                .instance
                .clone()
                .unwrap_or_else(|| format!("{process:016x}")),
            host_id: options.host_id.clone().unwrap_or_else(host_name),
            memory: reserved.iter().map(Reserved::range).collect(),
            reserved,
            probe,
        })
    }

    /// Starts the shard with this index; they are started in order.
    pub fn start_shard(&mut self, index: u16) -> Result<Loop, ServerError> {
        let options = self.options;
        let mut reactor = self.reactor()?;
        let base = tcp_listen_address(&options.local)?;
        let address = SocketAddrV4::new(*base.ip(), offset_port(base.port(), index)?);
        let (_, bound) = reactor
            .listen(address, Protocol::Rpc, Audience::Clients, Door::Plain)
            .map_err(|error| ServerError::Listen {
                address,
                what: "clients",
                error,
                advice: "",
            })?;
        let fast = self.open_ports(index, &mut reactor)?;
        let given = options.advertise.as_deref();
        let tcp = advertised(given, bound, index)?;
        let locator = with_fast(&tcp, given, &fast.locators, index, 0)?;
        let (sender, events) = channel();
        let reporter = Reporter::new(sender, reactor.remote());
        let backup = match &self.settings.backup {
            Some(settings) => self.prepare_backup(settings, index, &reporter)?,
            None => Prepared::default(),
        };
        let (listener, peers_bound, peer_tcp) = self.listen_for_peers(index, &mut reactor)?;
        let mut peers = fast.servers;
        peers.push(listener);
        let mut identity = self.identity(&tcp, &locator, index);
        match backup.config {
            Some(_) => {
                let bound = &fast.peer_locators;
                identity.backup_locator =
                    with_fast(&peer_tcp, given, bound, index, PEER_PORT_OFFSET)?;
            }
            // Tablets that leave are read by byte streams alone.
            None => identity.peer_locator = peer_tcp,
        }
        tracing::info!(shard = index, %locator, listening = %bound, member = identity.member, "serving");
        tracing::info!(shard = index, locator = identity.peers(), listening = %peers_bound, "serving other servers");
        let config = Config {
            master: self.settings.master,
            backup: backup.config,
            backup_only: self.settings.backup_only,
        };
        let mut server = Server::new(config, identity, net::now());
        server.volume_belongs_to(backup.volume);
        match &mut self.reserved {
            Some(reserved) => {
                let [log, table] = sizes(&self.settings);
                server.use_memory(reserved.take(log), reserved.take_words(table / WORD_BYTES));
            }
            None => self.memory.extend(server.shard().memory()),
        }
        let (mailbox, inbox) = Mailbox::new(reactor.remote());
        let state = self.probe.add(locator, mailbox);
        let driver = Driver::new(Parts {
            server,
            session: Session::new(self.coordinators.clone(), random_u64()?),
            inbox,
            state,
            peers,
            // Datagrams are not protected yet: other servers are reached over TCP then.
            ports: match self.security.allows_plain() {
                true => fast.kinds,
                false => Vec::new(),
            },
            unopened: backup.unopened,
            place: backup.place,
            events,
            reporter,
            started_with: self.reactor_options(),
            security: self.security.clone(),
        });
        self.spawn(format!("shard-{index}"), reactor, driver)
    }

    fn spawn(&self, name: String, reactor: Reactor, driver: Driver) -> Result<Loop, ServerError> {
        let time_trace = self.options.time_trace;
        let record = |thread: String| move || time_trace.then(|| trace::start(&thread));
        let prepare = record(format!("{name}-2"));
        let seat = Seat::with_spare(&name, move || Box::new(prepare()));
        let seat = seat.map_err(ServerError::Spawn)?;
        let (prepare, remote) = (record(name.clone()), reactor.remote());
        let shard = Running::new(reactor, driver);
        Ok(Loop::spawn_with(name, remote, move || {
            let _recorder = prepare();
            seat.run(shard)
        })?)
    }

    fn reactor_options(&self) -> ReactorOptions {
        ReactorOptions {
            spin: Duration::from_micros(self.options.poll_micros),
            limits: Limits {
                connections: self.options.max_connections,
                buffer_bytes: self.buffers.clients,
                peer_buffer_bytes: self.buffers.peers,
                handshakes: (PROCESS_HANDSHAKES / usize::from(self.options.cores.max(1)))
                    .max(SHARD_HANDSHAKES),
                ..Limits::default()
            },
        }
    }

    fn reactor(&self) -> Result<Reactor, ServerError> {
        Reactor::new(self.reactor_options()).map_err(ServerError::Poll)
    }

    fn prepare_backup(
        &self,
        settings: &BackupSettings,
        index: u16,
        reporter: &Reporter,
    ) -> Result<Prepared, ServerError> {
        let place = match &settings.file {
            Some(path) => Some(BackupFile::open(&self.file(path, index)?)?),
            None => None,
        };
        let layout = Layout {
            segment_bytes: settings.segment_bytes,
            frame_count: settings.frame_count(place.as_ref())?,
        };
        let named = place.as_ref().map_or_else(
            || "memory".to_owned(),
            |place| format!("-f {}", place.path().display()),
        );
        let boot_id = match &place {
            Some(_) => boot_id()?,
            // Memory is never opened a second time.
            None => [0; 16],
        };
        let mut storage = match place {
            Some(place) => {
                AnyStorage::File(place.into_storage(&layout, index, reporter.remote().clone())?)
            }
            None => {
                let mib = layout.total_bytes() >> 20;
                tracing::warn!(
                    "copies of other servers' objects are kept in memory, up to {mib} MiB, and are gone when this process ends; give \
                     a file or block device with -f to keep them"
                );
                let memory = ProcessMemory::new(layout.total_bytes())?;
                AnyStorage::Memory(Prompt::new(memory))
            }
        };
        let volume = backup::owner(&mut storage).unwrap_or(0);
        Ok(Prepared {
            config: Some(BackupConfig {
                segment_bytes: layout.segment_bytes,
                frame_count: layout.frame_count,
                durability: settings.durability,
                boot_id,
            }),
            unopened: Some(Unopened {
                storage,
                thread: format!("open-{index}"),
            }),
            volume,
            place: named,
        })
    }

    /// The path of one shard's file.
    fn file(&self, path: &std::path::Path, index: u16) -> Result<PathBuf, NoStorage> {
        if self.options.cores == 1 {
            return Ok(path.to_owned());
        }
        if BackupFile::is_device(path) {
            return Err(NoStorage::SharedDevice {
                path: path.to_owned(),
                cores: self.options.cores,
            });
        }
        let mut path = path.as_os_str().to_owned();
        path.push(format!(".{index}"));
        Ok(path.into())
    }

    fn listen_for_peers(
        &self,
        index: u16,
        reactor: &mut Reactor,
    ) -> Result<(usize, SocketAddrV4, String), ServerError> {
        let options = self.options;
        let base = beside(
            options.peer_listen,
            tcp_listen_address(&options.local)?,
            PEER_PORT_OFFSET,
        )?;
        let address = SocketAddrV4::new(*base.ip(), offset_port(base.port(), index)?);
        let door = self.security.door(Admits::Members);
        let (listener, bound) = reactor
            .listen(address, Protocol::Rpc, Audience::Peers, door)
            .map_err(|error| ServerError::Listen {
                address,
                what: "other servers",
                error,
                advice: " (see --peerListen)",
            })?;
        let locator = peer_advertised(
            options.peer_advertise.as_deref(),
            options.advertise.as_deref(),
            bound,
            index,
        )?;
        let offer = match self.security.offers() {
            true => ",tls=offered",
            false => "",
        };
        Ok((listener, bound, locator + offer))
    }

    /// Opens this shard's lane of every port for datagrams.
    fn open_ports(&self, index: u16, reactor: &mut Reactor) -> Result<Fast, ServerError> {
        let mut fast = Fast::default();
        // Datagrams are not protected yet.
        let serves = match self.settings.backup {
            Some(_) if self.security.allows_plain() => Serves::PeersToo,
            _ => Serves::Clients,
        };
        for lane in self.ports.lanes(index, serves)? {
            let mut listeners = Vec::new();
            for port in lane.ports {
                let (kind, config) = (port.kind, net::fast_config(port.kind));
                let added = reactor
                    .add_port(port, config)
                    .map_err(|error| ServerError::Port {
                        locator: lane.locator.clone(),
                        error,
                    })?;
                fast.kinds.push(kind);
                listeners.push(added);
            }
            fast.locators.push(lane.locator);
            if let Some(locator) = lane.peer_locator {
                fast.peer_locators.push(locator);
                fast.servers.extend(listeners.last().map(|port| port.last));
            }
        }
        Ok(fast)
    }

    /// Without the locators for other servers.
    fn identity(&self, tcp: &str, locator: &str, index: u16) -> Identity {
        let options = self.options;
        let named = options.member.clone().or_else(|| self.security.member());
        let member = named.unwrap_or_else(|| {
            // tcp:host=H,port=P, as `advertised` writes it.
            let first = self.probe.first_locator().unwrap_or(tcp);
            let first = first.split(';').next().unwrap_or(tcp);
            first.replace("tcp:host=", "").replace(",port=", ":")
        });
        Identity {
            member,
            instance: self.instance.clone(),
            process: self.process,
            host_id: self.host_id.clone(),
            shard_index: u32::from(index),
            shard_count: u32::from(options.cores),
            locator: locator.to_owned(),
            coordinator: options.coordinator.clone(),
            build_version: version().to_owned(),
            backup_locator: String::new(),
            peer_locator: String::new(),
            domain: options.domain.clone(),
        }
    }
}

/// Handshakes under way at one time, for all shards together; but of each shard so many.
const PROCESS_HANDSHAKES: usize = 512;
const SHARD_HANDSHAKES: usize = 32;

const WORD_BYTES: usize = size_of::<u64>();

/// Bytes of one shard's log and of its hash table.
fn sizes(settings: &Settings) -> [usize; 2] {
    let (log, words) = (settings.master.log(), settings.master.hash_table_words());
    [log.memory_bytes(), words * WORD_BYTES]
}

/// All at once, for all shards: a part of a page that one leaves is another's.
fn reserve(options: &Options, settings: &Settings) -> Result<Option<Reserved>, PagesError> {
    let of_shard: usize = sizes(settings).iter().sum();
    let bytes = of_shard.saturating_mul(usize::from(options.cores));
    Reserved::new(options.huge_pages, bytes)
}

/// Names this run of the kernel.
fn boot_id() -> Result<[u8; 16], NoStorage> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let text =
        std::fs::read_to_string(PATH).map_err(|error| NoStorage::BootId { path: PATH, error })?;
    let digits: String = text.trim().chars().filter(|&digit| digit != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok();
    match number.filter(|_| digits.len() == 32) {
        Some(number) => Ok(number.to_be_bytes()),
        None => Err(NoStorage::WrongBootId {
            path: PATH,
            found: text,
        }),
    }
}
