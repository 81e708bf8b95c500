//! A store, seen from one thread of a client: how operations are begun and waited for.

mod many;
mod objects;
mod servers;

use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use base::time::Time;
use client_core::{Client, Config, OperationId, Owned};
use net::{Audience, FastConfig, Limits, Port, PortKind, Reactor, fast_config};

use crate::driver::{ClientDriver, Results};
use crate::ops::Operation;
use crate::{Error, Options};

/// Results of submitted operations that may wait to be asked for.
const MAX_UNCLAIMED: usize = 4096;

/// How long a way that is faster than TCP may take to open.
const FAST_CONNECT_TIMEOUT: Duration = Duration::from_millis(200);

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
    pub(crate) reactor: Reactor,
    pub(crate) link: ClientDriver,
    pub(crate) options: Options,
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
            link: ClientDriver::new(Client::new(config, now), coordinator),
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
