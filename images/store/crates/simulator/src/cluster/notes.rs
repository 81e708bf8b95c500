//! What is noted of messages as they pass: for the trace, and for what is counted.

use core::fmt;

use base::ids::ReplyTo;
use prost::Message;
use wire::member::ToShard;
use wire::opcode::Opcode;
use wire::rpc::{IncrementRequest, RemoveRequest, WriteRequest};
use wire::status::Status;
use wire::{member, rpc};

use crate::cluster::describe::describe;
use crate::cluster::ports::Ports;
use crate::cluster::server::ShardNode;
use crate::cluster::{Cluster, host_name};
use crate::event::Party;
use crate::net::network::Host;

impl Cluster {
    /// Counts what is sent again.
    pub fn note_sent(&mut self, client: usize, session: u64, nonce: u64, payload: &[u8]) {
        let opcode = rpc::header(payload).map(|header| Opcode::from_u16(header.opcode));
        let rpc_id = match opcode {
            Ok(Some(Opcode::Write)) => WriteRequest::decode(payload).map(|request| request.rpc_id),
            Ok(Some(Opcode::Remove)) => {
                RemoveRequest::decode(payload).map(|request| request.rpc_id)
            }
            Ok(Some(Opcode::Increment)) => {
                IncrementRequest::decode(payload).map(|request| request.rpc_id)
            }
            Ok(Some(Opcode::MultiOp)) => {
                let attempts = &mut self.clients[client].attempts;
                match attempts.sent(session, nonce, payload, &mut self.history) {
                    Ok(again) => self.coverage.add("parts of multi-ops sent again", again),
                    Err(text) => self.fail(format!("client {client}: {text}")),
                }
                return;
            }
            _ => return,
        };
        match rpc_id {
            Ok(rpc_id) if rpc_id <= self.clients[client].highest_rpc_id => {
                self.coverage.hit("requests sent again");
                if opcode == Ok(Some(Opcode::Increment)) {
                    self.coverage.hit("increments sent again");
                }
            }
            Ok(rpc_id) => self.clients[client].highest_rpc_id = rpc_id,
            Err(status) => self.fail(format!("client {client} sent what is malformed: {status}")),
        }
    }

    pub fn note_request(&mut self, host: u32, to: ReplyTo, payload: &[u8]) {
        self.trace.event(
            self.now,
            || host_name(host),
            "request",
            &[to.connection, to.nonce],
            payload,
            || format!("{}/{} {}", to.connection, to.nonce, describe(payload)),
        );
    }

    pub fn note_reply(&mut self, host: u32, to: ReplyTo, payload: &[u8]) {
        self.trace.event(
            self.now,
            || host_name(host),
            "reply",
            &[to.connection, to.nonce],
            payload,
            || {
                let status = rpc::status(payload).map_or_else(|_| "malformed", Status::name);
                format!(
                    "{}/{} {status}, {} bytes",
                    to.connection,
                    to.nonce,
                    payload.len()
                )
            },
        );
    }

    /// A coordinator says something on a session, by this connection.
    pub fn note_order(&mut self, host: u32, on: (u64, u64), message: &ToShard) {
        self.deposed.ordered(message);
        self.note_format(message);
        self.note_hand_over(on, message);
        if let Some(member::coordinator::Kind::MigrateOut(_)) = &message.kind {
            self.coverage.hit("migrations begun");
            // A scan may see an object on both sides.
            self.history.move_tablets(self.now);
        }
        let is_ping = matches!(message.kind, Some(member::coordinator::Kind::Ping(_)));
        if !is_ping {
            self.trace.event(
                self.now,
                || host_name(host),
                "order",
                &[],
                &message.encode_to_vec(),
                || format!("{message:?}"),
            );
        }
    }

    /// Without copies it matters which process had a tablet when it died.
    fn note_hand_over(&mut self, (session, connection): (u64, u64), message: &ToShard) {
        let member = match self.parties.get(&(connection, 0)) {
            Some(Party::ShardLink { server, .. }) => self.servers[*server].name.as_str(),
            // Its process is dead already.
            _ => "",
        };
        let moved = self.moved.ordered(session, member, message);
        if let Some(moved) = moved.filter(|_| self.scenario.replicated.is_none()) {
            self.coverage.hit("migrations ended without copies");
            self.history.hand_over(self.now, moved);
        }
    }

    pub fn note_log(&mut self, host: u32, event: &(impl fmt::Display + ?Sized)) {
        let text = event.to_string();
        self.trace.event(
            self.now,
            || host_name(host),
            "log",
            &[],
            text.as_bytes(),
            || text.clone(),
        );
    }

    pub(crate) fn note_fault(&mut self, host: Host, what: &str, number: u64) {
        self.trace.event(
            self.now,
            || host_name(host),
            "fault",
            &[u64::from(host), number],
            what.as_bytes(),
            || format!("{what} {number}"),
        );
    }

    /// Takes over what a shard has counted.
    pub fn count_shard(&mut self, shard: &ShardNode) {
        let stats = shard.core.shard().stats();
        let coverage = &mut self.coverage;
        coverage.add("reads", stats.reads);
        coverage.add("writes", stats.writes);
        coverage.add("removes", stats.removes);
        coverage.add("increments", stats.increments);
        coverage.add("results answered from record", stats.duplicates);
        coverage.add("log segments cleaned", stats.segments_cleaned);
        let closed_early = shard.core.shard().room().closed_early;
        coverage.add("segments closed before they were full", closed_early);
        let report = shard.core.shard().replication_report();
        let last_resorts = report.map_or(0, |report| report.last_resorts);
        coverage.add(
            "copies on servers that leave for want of others",
            last_resorts,
        );
        let opened = shard.core.shard().head_position().0 / u64::from(self.scenario.segment_bytes);
        coverage.add("log segments opened", opened);
        if let Some(ports) = &shard.ports {
            self.count_ports(ports);
        }
    }

    /// The same for the ports of a process.
    pub fn count_ports(&mut self, ports: &Ports) {
        let coverage = &mut self.coverage;
        coverage.add("values lent", ports.loans);
        coverage.add("loans called back", ports.recalled);
        for port in &ports.ports {
            let counters = port.endpoint.counters();
            coverage.add("damaged datagrams dropped", counters.malformed);
            coverage.add("datagrams that came again or too late", counters.stale);
            coverage.add("requests repeated in a session", counters.retries);
            coverage.add("datagrams sent again", counters.resent);
        }
    }
}
