//! A client of a store, for programs that wait for each answer.
//!
//! ```no_run
//! use rcbox_client::{Cluster, Error};
//!
//! # fn main() -> Result<(), Error> {
//! let mut cluster = Cluster::connect("tcp:host=127.0.0.1,port=11100")?;
//! let table = cluster.create_table("fruit", 1)?;
//! let version = cluster.write(table, b"apple", b"green")?;
//! let object = cluster.read(table, b"apple")?;
//! assert_eq!((object.version, object.value.as_slice()), (version, &b"green"[..]));
//! cluster.remove(table, b"apple")?;
//! assert!(cluster.read(table, b"apple").is_err_and(|error| error.is_absent()));
//! # Ok(())
//! # }
//! ```
//!
//! A [`Cluster`] belongs to one thread at a time; a program with several threads makes one for each. It keeps one
//! connection to the coordinator and one to each server it talks to, opened when first needed. While it waits for an answer
//! it spins for [`Options::spin`], then sleeps. Writes and removes take effect once, however often they have to be sent.

#![forbid(unsafe_code)]

mod error;
mod link;

use std::time::Duration;

use client_core::{Client, Config, OperationId};
use net::{Limits, Reactor};
use wire::rpc::Lease;

pub use client_core::WriteObject;
pub use error::Error;
pub use wire::ids::TableId;
pub use wire::rpc::RejectRules;
pub use wire::status::Status;

use link::{Actions, Answer, Link};
use wire::time::Time;

/// How a client behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// An operation that is not over after this fails with [`Error::Timeout`]; until then it is tried again and again.
    pub timeout: Duration,
    /// How long to spin for an answer before sleeping. Spinning costs a core and saves the time to wake up.
    pub spin: Duration,
    /// A connection that owes answers and is silent for this long is given up and opened again.
    pub session_timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            timeout: Duration::from_secs(10),
            spin: Duration::from_micros(100),
            session_timeout: Duration::from_millis(500),
        }
    }
}

/// An object as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Grows with every write of this key; never 0.
    pub version: u64,
    pub value: Vec<u8>,
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
        let now = net::now();
        // The seed spreads the moments at which clients try again; clients that start in one nanosecond differ by their id.
        let seed = now.0 ^ u64::from(std::process::id()) << 40;
        let config = Config {
            timeout: options.session_timeout,
            ..Config::new(coordinator, seed)?
        };
        let reactor = Reactor::new(net::Options {
            spin: options.spin,
            limits: Limits::default(),
        })?;
        Ok(Cluster {
            reactor,
            link: Link::new(Client::new(config, now), coordinator),
            options,
        })
    }

    /// Makes a table, or finds the one of that name. It is spread over `span` servers.
    pub fn create_table(&mut self, name: &str, span: u32) -> Result<TableId, Error> {
        self.run(|core, now, out| core.create_table(now, name.as_bytes(), span, out))?
            .table()
    }

    /// The table of that name.
    ///
    /// # Errors
    /// [`Status::TableDoesntExist`] among others.
    pub fn table_id(&mut self, name: &str) -> Result<TableId, Error> {
        self.run(|core, now, out| core.table_id(now, name.as_bytes(), out))?
            .table()
    }

    /// Drops a table with all its objects; dropping one that is not there succeeds.
    pub fn drop_table(&mut self, name: &str) -> Result<(), Error> {
        self.run(|core, now, out| core.drop_table(now, name.as_bytes(), out))?
            .done()
    }

    /// Reads an object.
    ///
    /// # Errors
    /// [`Status::ObjectDoesntExist`] among others; see [`Error::is_absent`].
    pub fn read(&mut self, table: TableId, key: &[u8]) -> Result<Object, Error> {
        let mut value = Vec::new();
        let version = self.read_into(table, key, &RejectRules::default(), &mut value)?;
        Ok(Object { version, value })
    }

    /// Reads an object into `value`, whose former content is gone, unless `rules` reject its version. Gives the version.
    pub fn read_into(
        &mut self,
        table: TableId,
        key: &[u8],
        rules: &RejectRules,
        value: &mut Vec<u8>,
    ) -> Result<u64, Error> {
        std::mem::swap(&mut self.link.value, value);
        let answer = self.run(|core, now, out| core.read(now, table, key, rules, out));
        std::mem::swap(&mut self.link.value, value);
        answer?.version()
    }

    /// Writes an object; gives its new version.
    pub fn write(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<u64, Error> {
        self.write_if(table, key, value, &RejectRules::default())
    }

    /// Writes an object unless `rules` reject the version that is there; gives the new version.
    pub fn write_if(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        rules: &RejectRules,
    ) -> Result<u64, Error> {
        self.run(|core, now, out| core.write(now, table, key, value, rules, out))?
            .version()
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
        self.run(|core, now, out| core.remove(now, table, key, rules, out))?
            .version()
    }

    /// Writes many objects in few messages. Not atomic, and an object whose answer got lost may be written twice. Gives for
    /// each object, in order, its new version or why it was not written.
    pub fn multi_write(
        &mut self,
        objects: &[WriteObject<'_>],
    ) -> Result<Vec<Result<u64, Error>>, Error> {
        self.run(|core, now, out| core.multi_write(now, objects, out))?
            .versions()
    }

    /// Has every server write a line to its log. Levels: 1 error, 2 warning, 3 notice, 4 debug.
    pub fn log_message_all(&mut self, level: u32, text: &str) -> Result<(), Error> {
        self.run(|core, now, out| core.log_message_all(now, level, text, out))?
            .done()
    }

    /// Sends a control operation to every server; gives how many there were and how many answered.
    pub fn control_all(&mut self, operation: u32, input: &[u8]) -> Result<(u32, u32), Error> {
        self.run(|core, now, out| core.control_all(now, operation, input, out))?
            .control()
    }

    /// Gets what the first write would have to wait for.
    pub fn acquire_lease(&mut self) -> Result<Lease, Error> {
        self.run(|core, now, out| core.acquire_lease(now, out))?
            .lease()
    }

    /// Runs one operation to its end.
    fn run(
        &mut self,
        start: impl FnOnce(&mut Client, Time, &mut Actions<'_>) -> OperationId,
    ) -> Result<Answer, Error> {
        let now = net::now();
        let deadline = now + self.options.timeout;
        self.link.begin(deadline);
        let operation = self.link.start(now, self.reactor.io(), start);
        self.reactor.expect_answer();
        loop {
            if let Some(result) = self.link.take_result() {
                return result;
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
