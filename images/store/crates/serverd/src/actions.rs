//! Carries out what a server wants done.

use std::ops::Range;
use std::time::Duration;

use base::ids::{ReplyTo, ServerId};
use daemon::logging::{report, set_log_level};
use daemon::runtime::end_process;
use daemon::security::Security;
use master::{Channel, DriverCounters, Lender, ShardEvent};
use net::{Address, Io, Loan, Options, Protocol, Target};
use server::links::{ConnectionRole, Dial, Links};
use server::{ServerEffects, ServerEvent};
use tls::Admits;
use trace::{Format, Wanted};
use transport::session::ShardSession;
use wire::locator::{Locator, parse_list};
use wire::member::{Settings, ToCoordinator};

use super::processor::Processor;
use super::storage::{self, AnyStorage, Event, Reporter};

/// A storage until the server wants it.
pub struct Unopened {
    pub storage: AnyStorage,
    /// Of the thread that opens it.
    pub thread: String,
}

pub struct Actions<'a> {
    pub io: &'a mut Io,
    pub coordinator: Option<u64>,
    pub links: &'a mut Links,
    /// Time of ticks so far in which the cleaner was at work.
    pub cleaner_ns: u64,
    pub processor: &'a Processor,
    pub unopened: &'a mut Option<Unopened>,
    pub reporter: &'a Reporter,
    pub started_with: &'a Options,
    /// With the coordinator.
    pub member: &'a mut ShardSession,
    pub security: &'a Security,
}

/// Opens connections to backups.
pub struct Dialer<'a> {
    pub io: &'a mut Io,
    pub security: &'a Security,
}

impl Dial for Dialer<'_> {
    fn dial(&mut self, locator: &str) -> Option<u64> {
        let locator = Locator::parse(locator).ok()?;
        let target = Target::of(&locator).ok()?;
        let offers = locator.option("tls").is_some();
        let secure = self.security.dial(Admits::Members, offers);
        match (&target, secure) {
            (Target::Tcp(address), Some(secure)) => {
                tracing::debug!("connecting to a backup by {target}, encrypted");
                Some(self.io.connect_securely(address, Protocol::Rpc, secure))
            }
            // Datagrams are not protected yet.
            (Target::Fast(_), _) if !self.security.allows_plain() => None,
            (_, _) => {
                tracing::debug!("connecting to a backup by {target}");
                Some(self.io.connect_to(&target, true))
            }
        }
    }

    fn hang_up(&mut self, connection: u64) {
        self.io.close(connection);
    }
}

fn address(locator: &str) -> Option<Address> {
    let locators = parse_list(locator).ok()?;
    let (host, port) = locators.iter().find_map(|locator| locator.tcp().ok())?;
    Some(Address::new(host, port))
}

impl master::ShardEffects for Actions<'_> {
    fn reply(&mut self, to: ReplyTo, parts: &[&[u8]]) {
        self.io.send(to.connection, to.nonce, parts);
    }

    fn reply_lent(&mut self, to: ReplyTo, head: &[u8], token: u64, length: usize) -> bool {
        let loan = Loan { token, length };
        self.io.send_lent(to.connection, to.nonce, head, loan)
    }

    fn recall<'l>(&mut self, tokens: Range<u64>, lend: &Lender<'l>) {
        self.io.recall(|token| tokens.contains(&token), lend);
    }

    fn send_coordinator(&mut self, message: ToCoordinator) {
        let encoded = self.member.send(message);
        if let (Some(encoded), Some(connection)) = (encoded, self.coordinator) {
            self.io.send(connection, 0, &[&encoded]);
        }
    }

    fn report(&mut self, event: ShardEvent) {
        report(event.level(), &event);
    }

    fn driver_counters(&self) -> DriverCounters {
        let counters = self.io.counters();
        let used_ns = self.processor.used_ns();
        DriverCounters {
            input_bytes: counters.bytes_in,
            output_bytes: counters.bytes_out,
            busy_ns: used_ns.saturating_sub(counters.spin_ns),
            cleaner_ns: self.cleaner_ns,
        }
    }

    fn connect_server(&mut self, locator: &str) -> Option<u64> {
        let connection = self.io.connect(&address(locator)?, Protocol::Rpc);
        self.links.add(connection, ConnectionRole::Server);
        Some(connection)
    }

    fn send_server(&mut self, connection: u64, nonce: u64, payload: &[u8]) {
        // If the connection is gone, `closed` says so.
        self.io.send(connection, nonce, &[payload]);
    }

    fn close_server(&mut self, connection: u64) {
        if self.links.remove(connection).is_some() {
            self.io.close(connection);
        }
    }

    fn connect_backup(&mut self, channel: Channel, backup: ServerId, locator: &str) {
        let mut dialer = Dialer {
            io: self.io,
            security: self.security,
        };
        let links = &mut self.links;
        if !links.connect_backup(net::now(), channel, backup, locator, &mut dialer) {
            tracing::warn!("backup {backup} cannot be reached: there is no way in {locator:?}");
            self.links.unreachable.push((channel, backup));
        }
    }

    fn disconnect_backup(&mut self, channel: Channel, backup: ServerId) {
        if let Some(connection) = self.links.remove_backup(channel, backup) {
            self.io.close(connection);
        }
    }

    fn send_backup(&mut self, channel: Channel, backup: ServerId, nonce: u64, parts: &[&[u8]]) {
        // If the connection is gone, `closed` says so.
        if let Some(connection) = self.links.of_backup(channel, backup) {
            self.io.send(connection, nonce, parts);
        }
    }

    fn use_settings(&mut self, settings: &Settings) {
        let micros = |micros: u32| Duration::from_micros(micros.into());
        let spin = settings.poll_micros.map(micros);
        self.io.set_spin(spin.unwrap_or(self.started_with.spin));
        let connections = settings.max_connections.map(|count| count as usize);
        let started_with = self.started_with.limits.connections;
        self.io
            .set_max_connections(connections.unwrap_or(started_with));
        set_log_level(settings.log_level);
    }

    fn time_trace(&mut self, input: &[u8]) -> Option<Vec<u8>> {
        let wanted = Wanted::parse(input);
        let trace = trace::of_this_thread(wanted.last)?;
        Some(match wanted.format {
            Format::Text => trace.text().into_bytes(),
            Format::Raw => trace.to_bytes(),
        })
    }

    fn end_process(&mut self) {
        end_process();
    }
}

impl ServerEffects for Actions<'_> {
    fn open_backup(&mut self, config: backup::Config) {
        match self.unopened.take() {
            Some(Unopened { storage, thread }) => {
                storage::open(thread, config, storage, self.reporter.clone());
            }
            None => {
                let error = backup::StorageError("it was opened before".to_owned());
                let opened = Err(backup::OpenError::Storage(error));
                self.reporter.tell(Event::Opened(Box::new(opened)));
            }
        }
    }

    fn answer_peer(&mut self, to: ReplyTo, parts: &[&[u8]]) {
        self.io.send(to.connection, to.nonce, parts);
    }

    fn close_peer(&mut self, connection: u64) {
        if self.links.remove(connection).is_some() {
            self.io.close(connection);
        }
    }

    fn report_server(&mut self, event: ServerEvent) {
        report(event.level(), &event);
    }
}
