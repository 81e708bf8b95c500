//! A client of a store, for programs that wait for each answer.
//!
//! ```
//! use rcbox_client::{Cluster, Error};
//!
//! # test_store::with_store(|locator| {
//! // For example "tcp:host=127.0.0.1,port=11100".
//! let mut cluster = Cluster::connect(locator)?;
//! let table = cluster.create_table("fruit", 1)?;
//! let version = cluster.write(table, b"apple", b"green")?;
//! let object = cluster.read(table, b"apple")?;
//! assert_eq!((object.version, &object.value[..]), (version, &b"green"[..]));
//! cluster.remove(table, b"apple")?;
//! assert!(cluster.read(table, b"apple").is_err_and(|error| error.is_absent()));
//! # Ok::<(), Error>(())
//! # })
//! ```
//!
//! A [`Cluster`] belongs to one thread at a time; a program with several threads makes one for each. It keeps one
//! connection to the coordinator and one to each server it talks to, opened when first needed. While it waits for an answer
//! it spins for [`Options::spin`], then sleeps. Writes and removes take effect once, however often they have to be sent.

#![forbid(unsafe_code)]

mod asynchronous;
mod error;
mod link;
pub mod ops;
mod scan;
mod types;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use std::marker::PhantomData;

use client_core::{Client, Config, Owned};
use net::{Audience, FastConfig, Limits, Reactor, fast_config};

pub use asynchronous::{AsyncCluster, Pending};
pub use client_core::{IncrementObject, KeyObject, Multi, OperationId, WriteObject};
pub use error::Error;
pub use net::{Port, PortKind};
pub use scan::Scan;
/// What a thread does, and when: `let recorder = trace::start("mine");` before, `recorder.read(1000)` after.
pub use trace;
pub use types::{ControlOutput, Incremented, Keyed, Object, Server, Tablet};
pub use wire::ids::{ServerId, TableId};
pub use wire::proto::{LogMetrics, ServerConfig, ServerStatistics};
pub use wire::rpc::{Increment, Lease, PerfStats, RejectRules, control_op};
pub use wire::status::Status;

/// For each object of a multi-op, in order, what came of it.
pub type Each<T> = Vec<Result<T, Error>>;
/// One object of a multi-read.
pub type ReadObject<'a> = KeyObject<'a>;
/// One object of a multi-remove.
pub type RemoveObject<'a> = KeyObject<'a>;

use link::{Link, Results};
use ops::Operation;
use wire::time::Time;

/// Results of submitted operations that may wait to be asked for.
const MAX_UNCLAIMED: usize = 4096;

/// How long a way that is faster than TCP may take to open.
const FAST_CONNECT_TIMEOUT: Duration = Duration::from_millis(200);

/// How a client behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// An operation that is not over after this fails with [`Error::Timeout`]; until then it is tried again and again.
    pub timeout: Duration,
    /// How long to spin for an answer before sleeping. Spinning costs a core and saves the time to wake up.
    pub spin: Duration,
    /// A connection that owes answers and is silent for this long is given up and opened again.
    pub session_timeout: Duration,
    /// Servers that offer it are spoken to by the `fast` protocol over UDP; if that does not work, or with false, over TCP.
    pub fast: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            timeout: Duration::from_secs(10),
            spin: Duration::from_micros(100),
            session_timeout: Duration::from_millis(500),
            fast: true,
        }
    }
}

/// An operation that was started and is not waited for yet. One that is dropped goes on, and its result takes a place until the
/// client goes: rather give it to [`Cluster::cancel`].
#[must_use = "give it to `wait` or `cancel`"]
#[derive(Debug)]
pub struct Ticket<O> {
    operation: OperationId,
    kind: PhantomData<fn() -> O>,
}

impl<O> Ticket<O> {
    /// Names the operation; never reused within a client.
    pub fn id(&self) -> OperationId {
        self.operation
    }
}

/// A store, seen from one thread of a client.
pub struct Cluster {
    reactor: Reactor,
    link: Link,
    options: Options,
}

impl Cluster {
    /// A client of the store whose coordinator has this locator, or one of these (separated by `;`, tried in turn).
    /// Opens no connection yet.
    ///
    /// # Errors
    /// The locator cannot be used, or the process is out of file descriptors.
    pub fn connect(coordinator: &str) -> Result<Cluster, Error> {
        Cluster::with_options(coordinator, Options::default())
    }

    /// See [`Cluster::connect`].
    pub fn with_options(coordinator: &str, options: Options) -> Result<Cluster, Error> {
        let mut ports = Vec::new();
        if options.fast {
            let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
            let (receiver, sender) = net::open_udp(any, net::USUAL_MTU)?;
            ports.push(Port {
                kind: PortKind::Udp,
                number: 0,
                audience: Audience::Clients,
                receiver: Box::new(receiver),
                sender: Box::new(sender),
            });
        }
        Cluster::with_ports(coordinator, options, ports)
    }

    /// As [`Cluster::with_options`], with these ports in place of the kernel's: a NIC that this process has for itself, for example. Of several ways to a server
    /// the fastest is taken that works.
    pub fn with_ports(
        coordinator: &str,
        options: Options,
        ports: Vec<Port>,
    ) -> Result<Cluster, Error> {
        let now = net::now();
        // The seed spreads the moments at which clients try again; clients that start in one nanosecond differ by their id.
        let seed = now.0 ^ u64::from(std::process::id()) << 40;
        let kinds = ports.iter().map(|port| port.kind).collect();
        let config = Config {
            timeout: options.session_timeout,
            protocols: net::protocols(kinds),
            ..Config::new(coordinator, seed)?
        };
        let mut reactor = Reactor::new(net::Options {
            spin: options.spin,
            limits: Limits::default(),
        })?;
        for port in ports {
            let config = FastConfig {
                // There is another way to go.
                connect_timeout: FAST_CONNECT_TIMEOUT,
                // Nobody has anything to ask a client.
                accepts_ordered: false,
                accepts_unordered: false,
                ..fast_config(port.kind)
            };
            reactor.add_port(port, config)?;
        }
        Ok(Cluster {
            reactor,
            link: Link::new(Client::new(config, now), coordinator),
            options,
        })
    }

    /// Runs one operation to its end. The methods below do this for each kind.
    pub fn run<O: Operation>(&mut self, operation: O) -> Result<O::Output, Error> {
        let now = net::now();
        let (link, io) = (&mut self.link, self.reactor.io());
        let id = link.start(now, io, |core, now, out| operation.start(core, now, out));
        self.await_operation(id, now + self.options.timeout)
            .and_then(O::finish)
    }

    /// Starts an operation and goes on: several can be under way on each connection, which is what makes one thread fast. It fails
    /// after [`Options::timeout`] like any other. At most 4096 may be under way or not asked for.
    ///
    /// ```
    /// # test_store::with_store(|locator| {
    /// use rcbox_client::{Cluster, RejectRules, ops};
    ///
    /// let mut cluster = Cluster::connect(locator)?;
    /// let table = cluster.create_table("fruit", 1)?;
    /// let tickets: Vec<_> = (0..100_u32)
    ///     .map(|number| {
    ///         let (key, value) = (number.to_le_bytes(), b"green");
    ///         cluster.submit(ops::Write { table, key, value, rules: RejectRules::default() })
    ///     })
    ///     .collect::<Result<_, _>>()?;
    /// for ticket in tickets {
    ///     cluster.wait(ticket)?;
    /// }
    /// # Ok::<(), rcbox_client::Error>(())
    /// # })
    /// ```
    pub fn submit<O: Operation>(&mut self, operation: O) -> Result<Ticket<O>, Error> {
        if self.link.results.len() >= MAX_UNCLAIMED {
            return Err(Error::TooManyOperations);
        }
        let now = net::now();
        let (link, io) = (&mut self.link, self.reactor.io());
        let operation = link.start(now, io, |core, now, out| operation.start(core, now, out));
        self.link
            .set_deadline(operation, now + self.options.timeout);
        Ok(Ticket {
            operation,
            kind: PhantomData,
        })
    }

    /// Waits for an operation that was started.
    pub fn wait<O: Operation>(&mut self, ticket: Ticket<O>) -> Result<O::Output, Error> {
        // It has its own deadline.
        self.await_operation(ticket.operation, Time::NEVER)
            .and_then(O::finish)
    }

    /// Whether [`Cluster::wait`] would give a result at once; receives what has come, and does not wait.
    pub fn is_ready<O: Operation>(&mut self, ticket: &Ticket<O>) -> Result<bool, Error> {
        if !self.link.results.has(ticket.operation) {
            self.reactor.poll(&mut self.link)?;
        }
        Ok(self.link.results.has(ticket.operation))
    }

    /// Waits until any operation that was started has ended, but no longer than `limit`; with none, receives what has come. The operation
    /// that it gives is one that [`Cluster::wait`] gives the result of at once, and is given again until that was done.
    pub fn wait_any(&mut self, limit: Duration) -> Result<Option<OperationId>, Error> {
        if self.link.results.len() == 0 && limit.is_zero() {
            self.reactor.poll(&mut self.link)?;
        } else if self.link.results.len() == 0 {
            self.turn_until(limit, |results| results.len() > 0)?;
        }
        Ok(self.link.results.first())
    }

    /// Whether the result of an operation has come with what was received so far.
    pub fn has<O: Operation>(&self, ticket: &Ticket<O>) -> bool {
        self.link.results.has(ticket.operation)
    }

    /// Waits for an operation, but no longer than `limit`; true when [`Cluster::wait`] would give its result at once. For callers
    /// that have to look at something else from time to time.
    pub fn wait_for<O: Operation>(
        &mut self,
        ticket: &Ticket<O>,
        limit: Duration,
    ) -> Result<bool, Error> {
        self.turn_until(limit, |results| results.has(ticket.operation))?;
        Ok(self.link.results.has(ticket.operation))
    }

    fn turn_until(
        &mut self,
        limit: Duration,
        is_enough: impl Fn(&Results) -> bool,
    ) -> Result<(), Error> {
        self.link.look_up_at(net::now() + limit);
        self.reactor.expect_answer();
        while !is_enough(&self.link.results) && !self.link.is_overdue() {
            self.reactor.turn(&mut self.link)?;
        }
        self.link.look_up_at(Time::NEVER);
        Ok(())
    }

    /// Gives an operation up. It may take effect all the same, or have done so.
    pub fn cancel<O: Operation>(&mut self, ticket: Ticket<O>) {
        self.link.cancel(ticket.operation, self.reactor.io());
    }

    fn await_operation(&mut self, operation: OperationId, deadline: Time) -> Result<Owned, Error> {
        self.link.wait_for(operation, deadline);
        match self.link.has_result() {
            // It came with another one's. What was submitted since goes out all the same.
            true => self.reactor.flush(),
            false => self.reactor.expect_answer(),
        }
        loop {
            if let Some(result) = self.link.take_result() {
                let timeout = self.options.timeout;
                return result.map_err(|error| self.link.explain(error, timeout));
            }
            if let Err(error) = self.reactor.turn(&mut self.link) {
                self.link.cancel(operation, self.reactor.io());
                return Err(error.into());
            }
            if self.link.is_overdue() && self.link.cancel(operation, self.reactor.io()) {
                return Err(self.link.timeout(self.options.timeout));
            }
        }
    }
}

/// Tables.
impl Cluster {
    /// Makes a table, or finds the one of that name. It is spread over `span` servers.
    pub fn create_table(&mut self, name: &str, span: u32) -> Result<TableId, Error> {
        self.run(ops::CreateTable { name, span })
    }

    /// The table of that name.
    ///
    /// # Errors
    /// [`Status::TableDoesntExist`] among others.
    pub fn table_id(&mut self, name: &str) -> Result<TableId, Error> {
        self.run(ops::GetTableId { name })
    }

    /// Drops a table with all its objects; dropping one that is not there succeeds.
    pub fn drop_table(&mut self, name: &str) -> Result<(), Error> {
        self.run(ops::DropTable { name })
    }

    /// Makes two tablets of the one that holds `key_hash`, which becomes the first of the second. Nothing moves.
    pub fn split_tablet(&mut self, name: &str, key_hash: u64) -> Result<(), Error> {
        self.run(ops::SplitTablet { name, key_hash })
    }

    /// Where the tablets of a table are, as the coordinator knows it; empty if there is no such table.
    pub fn table_config(&mut self, table: TableId) -> Result<Vec<Tablet>, Error> {
        self.run(ops::TableConfig { table })
    }
}

/// Objects, one at a time. Each of these operations is linearizable, and takes effect once.
impl Cluster {
    /// Reads an object.
    ///
    /// # Errors
    /// [`Status::ObjectDoesntExist`] among others; see [`Error::is_absent`].
    pub fn read(&mut self, table: TableId, key: &[u8]) -> Result<Object, Error> {
        let rules = RejectRules::default();
        self.run(ops::Read { table, key, rules })
    }

    /// Reads an object into `value`, whose former content is gone, unless `rules` reject its version. Gives the version.
    pub fn read_into(
        &mut self,
        table: TableId,
        key: &[u8],
        rules: &RejectRules,
        value: &mut Vec<u8>,
    ) -> Result<u64, Error> {
        let now = net::now();
        let (link, io) = (&mut self.link, self.reactor.io());
        let id = link.start(now, io, |core, now, out| {
            core.read(now, table, key, rules, out)
        });
        std::mem::swap(&mut self.link.results.value, value);
        self.link.results.into_value = true;
        let answer = self.await_operation(id, now + self.options.timeout);
        self.link.results.into_value = false;
        std::mem::swap(&mut self.link.results.value, value);
        match answer? {
            Owned::Version(version) => Ok(version),
            _ => Err(Error::Invalid(
                "the client mixed up two answers; please report this",
            )),
        }
    }

    /// Reads an object with all its keys.
    pub fn read_keys_and_value(&mut self, table: TableId, key: &[u8]) -> Result<Keyed, Error> {
        let rules = RejectRules::default();
        self.run(ops::ReadKeysAndValue { table, key, rules })
    }

    /// Writes an object; gives its new version.
    pub fn write(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<u64, Error> {
        self.write_if(table, key, value, &RejectRules::default())
    }

    /// Writes an object unless `rules` reject the version that is there; gives the new version.
    ///
    /// ```
    /// # test_store::with_store(|locator| {
    /// use rcbox_client::{Cluster, RejectRules, Status};
    ///
    /// let mut cluster = Cluster::connect(locator)?;
    /// let table = cluster.create_table("fruit", 1)?;
    /// let version = cluster.write(table, b"apple", b"green")?;
    /// let unchanged = RejectRules { version_ne_given: true, given_version: version, ..RejectRules::default() };
    /// cluster.write_if(table, b"apple", b"red", &unchanged)?;
    /// let error = cluster.write_if(table, b"apple", b"blue", &unchanged).unwrap_err();
    /// assert_eq!(error.status(), Some(Status::WrongVersion));
    /// # Ok::<(), rcbox_client::Error>(())
    /// # })
    /// ```
    pub fn write_if(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        rules: &RejectRules,
    ) -> Result<u64, Error> {
        let rules = *rules;
        self.run(ops::Write {
            table,
            key,
            value,
            rules,
        })
    }

    /// Writes an object with several keys, the first of them the primary one, by which it is found.
    pub fn write_keys(
        &mut self,
        table: TableId,
        keys: &[&[u8]],
        value: &[u8],
        rules: &RejectRules,
    ) -> Result<u64, Error> {
        let (keys, rules) = (keys.to_vec(), *rules);
        self.run(ops::WriteKeys {
            table,
            keys,
            value,
            rules,
        })
    }

    /// Removes an object; gives the version that was removed, 0 if there was none.
    pub fn remove(&mut self, table: TableId, key: &[u8]) -> Result<u64, Error> {
        self.remove_if(table, key, &RejectRules::default())
    }

    /// Removes an object unless `rules` reject the version that is there.
    pub fn remove_if(
        &mut self,
        table: TableId,
        key: &[u8],
        rules: &RejectRules,
    ) -> Result<u64, Error> {
        let rules = *rules;
        self.run(ops::Remove { table, key, rules })
    }

    /// Adds to a value of 8 bytes that is a little-endian integer; one that is not there counts as 0. Wraps around.
    ///
    /// ```
    /// # test_store::with_store(|locator| {
    /// let mut cluster = rcbox_client::Cluster::connect(locator)?;
    /// let table = cluster.create_table("counters", 1)?;
    /// assert_eq!(cluster.increment(table, b"visits", 2)?.value, 2);
    /// assert_eq!(cluster.increment(table, b"visits", -5)?.value, -3);
    /// # Ok::<(), rcbox_client::Error>(())
    /// # })
    /// ```
    ///
    /// # Errors
    /// [`Status::InvalidObject`] if the value has not 8 bytes.
    pub fn increment(
        &mut self,
        table: TableId,
        key: &[u8],
        by: i64,
    ) -> Result<Incremented<i64>, Error> {
        self.increment_if(table, key, by, &RejectRules::default())
    }

    /// As [`Cluster::increment`], unless `rules` reject the version that is there.
    pub fn increment_if(
        &mut self,
        table: TableId,
        key: &[u8],
        by: i64,
        rules: &RejectRules,
    ) -> Result<Incremented<i64>, Error> {
        let rules = *rules;
        self.run(ops::IncrementI64 {
            table,
            key,
            by,
            rules,
        })
    }

    /// Adds to a value of 8 bytes that is a little-endian floating point number; see [`Cluster::increment`].
    pub fn increment_f64(
        &mut self,
        table: TableId,
        key: &[u8],
        by: f64,
    ) -> Result<Incremented<f64>, Error> {
        self.increment_f64_if(table, key, by, &RejectRules::default())
    }

    /// As [`Cluster::increment_f64`], unless `rules` reject the version that is there.
    pub fn increment_f64_if(
        &mut self,
        table: TableId,
        key: &[u8],
        by: f64,
        rules: &RejectRules,
    ) -> Result<Incremented<f64>, Error> {
        let rules = *rules;
        self.run(ops::IncrementF64 {
            table,
            key,
            by,
            rules,
        })
    }
}

/// Many objects at a time, in few messages to all servers at once. Not atomic, and a part whose answer got lost may take effect again.
impl Cluster {
    /// Reads many objects. Gives for each, in order, the object or why it was not read.
    ///
    /// ```
    /// # test_store::with_store(|locator| {
    /// use rcbox_client::{Cluster, ReadObject, RejectRules};
    ///
    /// let mut cluster = Cluster::connect(locator)?;
    /// let table = cluster.create_table("fruit", 1)?;
    /// cluster.write(table, b"apple", b"green")?;
    /// let rules = RejectRules::default();
    /// let wanted = [&b"apple"[..], b"ghost"].map(|key| ReadObject { table, key, rules });
    /// let objects = cluster.multi_read(&wanted)?;
    /// assert_eq!(objects[0].as_ref().unwrap().value, b"green"[..]);
    /// assert!(objects[1].as_ref().unwrap_err().is_absent());
    /// # Ok::<(), rcbox_client::Error>(())
    /// # })
    /// ```
    pub fn multi_read(&mut self, objects: &[ReadObject<'_>]) -> Result<Each<Object>, Error> {
        let multi = Multi::reads(objects)?;
        self.run(ops::MultiRead { multi })
    }

    /// Reads many objects with all their keys.
    pub fn multi_read_keys(&mut self, objects: &[ReadObject<'_>]) -> Result<Each<Keyed>, Error> {
        let multi = Multi::reads(objects)?;
        self.run(ops::MultiReadKeys { multi })
    }

    /// Writes many objects. Gives for each, in order, its new version or why it was not written.
    pub fn multi_write(&mut self, objects: &[WriteObject<'_>]) -> Result<Each<u64>, Error> {
        let multi = Multi::writes(objects)?;
        self.run(ops::MultiChange { multi })
    }

    /// Removes many objects. Gives for each, in order, the version that was removed (0: there was none) or why it was not.
    pub fn multi_remove(&mut self, objects: &[RemoveObject<'_>]) -> Result<Each<u64>, Error> {
        let multi = Multi::removes(objects)?;
        self.run(ops::MultiChange { multi })
    }

    /// Increments many objects. Gives for each, in order, its 8 bytes as they are now or why it was not changed.
    pub fn multi_increment(
        &mut self,
        objects: &[IncrementObject<'_>],
    ) -> Result<Each<Incremented<[u8; 8]>>, Error> {
        let multi = Multi::increments(objects)?;
        self.run(ops::MultiIncrement { multi })
    }

    /// All objects of a table. Those that are there from the beginning of the scan to its end come at least once.
    ///
    /// ```
    /// # test_store::with_store(|locator| {
    /// let mut cluster = rcbox_client::Cluster::connect(locator)?;
    /// let table = cluster.create_table("fruit", 1)?;
    /// cluster.write(table, b"apple", b"green")?;
    /// for object in cluster.scan(table) {
    ///     let object = object?;
    ///     println!("{:?} version {}: {:?}", object.key(), object.version, object.value);
    /// }
    /// # Ok::<(), rcbox_client::Error>(())
    /// # })
    /// ```
    pub fn scan(&mut self, table: TableId) -> Scan<'_> {
        Scan::new(self, table)
    }
}

/// The store and its servers.
impl Cluster {
    /// The store's servers.
    pub fn server_list(&mut self) -> Result<Vec<Server>, Error> {
        self.run(ops::ServerList {})
    }

    /// Gets what the first write would have to wait for.
    pub fn acquire_lease(&mut self) -> Result<Lease, Error> {
        self.run(ops::AcquireLease {})
    }

    /// When a client lease ends; its id is 0 if it has.
    pub fn lease_info(&mut self, lease_id: u64) -> Result<Lease, Error> {
        self.run(ops::LeaseInfo { lease_id })
    }

    /// Tells the coordinator that a server could not be reached.
    pub fn hint_server_crashed(&mut self, server_id: ServerId) -> Result<(), Error> {
        self.run(ops::HintServerCrashed { server_id })
    }

    /// An option of the coordinator.
    pub fn runtime_option(&mut self, option: &str) -> Result<Vec<u8>, Error> {
        self.run(ops::GetRuntimeOption { option })
    }

    /// Sets an option of the coordinator.
    pub fn set_runtime_option(&mut self, option: &str, value: &str) -> Result<(), Error> {
        self.run(ops::SetRuntimeOption { option, value })
    }

    /// A control operation for the server that owns a key; see [`control_op`].
    pub fn server_control(
        &mut self,
        table: TableId,
        key: &[u8],
        operation: u32,
        input: &[u8],
    ) -> Result<ControlOutput, Error> {
        self.run(ops::ServerControl {
            table,
            key,
            operation,
            input,
        })
    }

    /// A control operation for every server; those that did not answer in time, or refused it, are missing.
    pub fn control_all(
        &mut self,
        operation: u32,
        input: &[u8],
    ) -> Result<Vec<ControlOutput>, Error> {
        self.run(ops::ControlAll { operation, input })
    }

    /// Has every server write a line to its log. Levels: 1 error, 2 warning, 3 notice, 4 debug.
    pub fn log_message_all(&mut self, level: u32, text: &str) -> Result<(), Error> {
        let text = text.to_owned();
        self.run(ops::LogMessageAll { level, text })
    }

    /// The performance counters of the server that owns a key.
    pub fn perf_stats(&mut self, table: TableId, key: &[u8]) -> Result<PerfStats, Error> {
        self.run(ops::GetPerfStats { table, key })
    }

    /// The performance counters of every server.
    pub fn perf_stats_all(&mut self) -> Result<Vec<(ServerId, PerfStats)>, Error> {
        self.run(ops::GetAllPerfStats {})
    }

    /// Makes objects for tests; the servers must allow it.
    pub fn fill_with_test_data(
        &mut self,
        table: TableId,
        objects: u32,
        object_bytes: u32,
    ) -> Result<(), Error> {
        self.run(ops::FillWithTestData {
            table,
            objects,
            object_bytes,
        })
    }
}

/// One server, by its locator (`tcp:host=10.0.0.1,port=12100`). A connection that fails is not tried again: [`Error::Unreachable`].
impl Cluster {
    /// Is anybody there?
    pub fn ping(&mut self, locator: &str) -> Result<(), Error> {
        let locator = locator.to_owned();
        self.run(ops::Ping { locator })
    }

    /// Who is there? [`ServerId::INVALID`] for a coordinator, or a server that is in no store yet.
    pub fn server_id(&mut self, locator: &str) -> Result<ServerId, Error> {
        let locator = locator.to_owned();
        self.run(ops::GetServerId { locator })
    }

    /// How it was started.
    pub fn server_config(&mut self, locator: &str) -> Result<ServerConfig, Error> {
        let locator = locator.to_owned();
        self.run(ops::GetServerConfig { locator })
    }

    /// What its tablets were used for.
    pub fn server_statistics(&mut self, locator: &str) -> Result<ServerStatistics, Error> {
        let locator = locator.to_owned();
        self.run(ops::GetServerStatistics { locator })
    }

    /// Names and numbers.
    pub fn metrics(&mut self, locator: &str) -> Result<Vec<(String, u64)>, Error> {
        let locator = locator.to_owned();
        self.run(ops::GetMetrics { locator })
    }

    /// What happened in its log.
    pub fn log_metrics(&mut self, locator: &str) -> Result<LogMetrics, Error> {
        let locator = locator.to_owned();
        self.run(ops::GetLogMetrics { locator })
    }

    /// Sends bytes there and gets `answer_bytes` of its own back.
    pub fn echo(
        &mut self,
        locator: &str,
        bytes: &[u8],
        answer_bytes: u32,
    ) -> Result<Vec<u8>, Error> {
        let locator = locator.to_owned();
        self.run(ops::Echo {
            locator,
            bytes,
            answer_bytes,
        })
    }

    /// Has it ping another server; `None` if that did not answer in time.
    pub fn proxy_ping(
        &mut self,
        locator: &str,
        server_id: ServerId,
        timeout: Duration,
    ) -> Result<Option<Duration>, Error> {
        let locator = locator.to_owned();
        self.run(ops::ProxyPing {
            locator,
            server_id,
            timeout,
        })
    }

    /// Ends it, if it allows that.
    pub fn kill(&mut self, locator: &str) -> Result<(), Error> {
        let locator = locator.to_owned();
        match self.run(ops::Kill { locator }) {
            // It says nothing any more.
            Err(Error::Unreachable(_)) => Ok(()),
            other => other,
        }
    }
}
