//! Pings other servers: for a client (PROXY_PING), who learns how long that took, and for the coordinator, who wants to know whether a server
//! is alive.
//!
//! The coordinator knows where the server is; a connection of its own leads there. Whoever answers must have the server id
//! that was asked for: its place may have gone to another process.

use core::time::Duration;

use base::ids::{ReplyTo, ServerId};
use base::time::Time;
use wire::member::{LocateServer, Probe, Probed, ServerLocation, ToCoordinator, shard};
use wire::opcode::{Opcode, Service};
use wire::rpc::{self, GetServerIdResponse, PingRequest, ProxyPingRequest, ProxyPingResponse};
use wire::status::Status;

use crate::continuations::table::Continuations;
use crate::effects::ShardEffects;
use crate::reports::MembershipEvent;

/// Pings under way for clients; more are told to come again.
const MAX_PINGS: usize = 16;
/// Pings under way for the coordinator. More are not answered: that a server is dead must not be said of one that nobody has looked at.
const MAX_PROBES: usize = 256;
/// However long who asks would wait.
const MAX_TIMEOUT: Duration = Duration::from_secs(10);
/// Numbers of the two requests on a connection.
const GET_SERVER_ID: u64 = 1;
const PING: u64 = 2;

/// Who wants to know.
#[derive(Clone, Copy)]
enum Asker {
    Client(ReplyTo),
    /// The coordinator, under this number.
    Coordinator(u64),
    /// A coordinator that is gone.
    Nobody,
}

struct Proxied {
    asker: Asker,
    server: ServerId,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The coordinator was asked where the server is, or will be when it is back.
    Locating,
    /// Waiting for the connection, or for the server to say who it is.
    Connecting(u64),
    Pinging {
        connection: u64,
        sent: Time,
    },
}

impl Stage {
    fn connection(self) -> Option<u64> {
        match self {
            Stage::Locating => None,
            Stage::Connecting(connection) | Stage::Pinging { connection, .. } => Some(connection),
        }
    }
}

/// Pings under way.
pub(crate) struct Proxies(Continuations<Proxied>);

impl Default for Proxies {
    fn default() -> Self {
        Proxies(Continuations::at_most(MAX_PINGS + MAX_PROBES))
    }
}

impl Proxies {
    pub fn next_deadline(&self) -> Time {
        self.0.next_deadline()
    }

    fn position(&self, connection: u64) -> Option<usize> {
        (self.0).position(|ping| ping.stage.connection() == Some(connection))
    }

    /// Ends a ping and answers it.
    fn finish(&mut self, at: usize, reply_ns: u64, out: &mut impl ShardEffects) {
        let ping = self.0.end(at);
        Self::answer(ping, reply_ns, out);
    }

    fn answer(ping: Proxied, reply_ns: u64, out: &mut impl ShardEffects) {
        if let Some(connection) = ping.stage.connection() {
            out.close_server(connection);
        }
        match ping.asker {
            Asker::Client(to) => {
                let mut bytes = Vec::with_capacity(ProxyPingResponse::FIXED_BYTES);
                let status = Status::Ok;
                ProxyPingResponse { status, reply_ns }.encode(&mut bytes);
                out.reply(to, &[&bytes]);
            }
            Asker::Coordinator(sequence) => {
                let is_alive = reply_ns != ProxyPingResponse::TIMED_OUT;
                let probed = Probed { sequence, is_alive };
                let kind = shard::Kind::Probed(probed);
                out.send_coordinator(ToCoordinator::from(kind));
            }
            Asker::Nobody => {}
        }
    }

    fn count(&self, is_meant: impl Fn(Asker) -> bool) -> usize {
        self.0.count(|ping| is_meant(ping.asker))
    }

    /// The coordinator that asked is gone, and another would not know what the answers are about.
    pub fn forget_probes(&mut self) {
        for ping in self.0.iter_mut() {
            if let Asker::Coordinator(_) = ping.state.asker {
                ping.state.asker = Asker::Nobody;
                ping.deadline = Time::ZERO;
            }
        }
    }

    fn fail(&mut self, at: usize, out: &mut impl ShardEffects) {
        self.finish(at, ProxyPingResponse::TIMED_OUT, out);
    }

    /// Gives up what is late.
    pub fn expire(&mut self, now: Time, out: &mut impl ShardEffects) {
        while let Some(ping) = self.0.take_expired(now) {
            Self::answer(ping, ProxyPingResponse::TIMED_OUT, out);
        }
    }

    /// The coordinator knows, or does not know, where a server is.
    pub fn located(&mut self, location: &ServerLocation, out: &mut impl ShardEffects) {
        let is_meant =
            |ping: &Proxied| ping.stage == Stage::Locating && ping.server.0 == location.server_id;
        while let Some(at) = self.0.position(is_meant) {
            match out.connect_server(&location.locator) {
                Some(connection) => self.0.at(at).stage = Stage::Connecting(connection),
                None => self.fail(at, out),
            }
        }
    }

    /// What to ask the coordinator again when it is back.
    pub fn questions(&self) -> impl Iterator<Item = LocateServer> {
        let waiting = self.0.iter().filter(|ping| ping.stage == Stage::Locating);
        waiting.map(|ping| LocateServer {
            server_id: ping.server.0,
        })
    }

    /// A client wants to know how long a ping takes; no if too many do.
    pub fn ask(&mut self, now: Time, to: ReplyTo, request: &ProxyPingRequest) -> bool {
        let for_clients = |asker| matches!(asker, Asker::Client(_));
        if self.count(for_clients) >= MAX_PINGS {
            return false;
        }
        let timeout = Duration::from_nanos(request.timeout_ns).min(MAX_TIMEOUT);
        let ping = Proxied {
            asker: Asker::Client(to),
            server: request.server_id,
            stage: Stage::Locating,
        };
        self.0.push(now + timeout, ping).is_some()
    }

    /// The coordinator wants to know whether a server is alive.
    pub fn probe(&mut self, now: Time, probe: &Probe, out: &mut impl ShardEffects) {
        let for_others = |asker| !matches!(asker, Asker::Client(_));
        if self.count(for_others) >= MAX_PROBES {
            let event = MembershipEvent::TooManyProbes { most: MAX_PROBES };
            return out.report(event.into());
        }
        let timeout = Duration::from_millis(probe.timeout_ms.into()).min(MAX_TIMEOUT);
        let connection = out.connect_server(&probe.locator);
        let ping = Proxied {
            asker: Asker::Coordinator(probe.sequence),
            server: ServerId(probe.server_id),
            stage: connection.map_or(Stage::Locating, Stage::Connecting),
        };
        if let Some(at) = self.0.push(now + timeout, ping)
            && connection.is_none()
        {
            self.fail(at, out);
        }
    }

    /// A connection that [`ShardEffects::connect_server`] began is there.
    pub fn connected(&mut self, connection: u64, out: &mut impl ShardEffects) {
        if self.position(connection).is_some() {
            let mut question = Vec::new();
            rpc::encode_bare_request(Opcode::GetServerId, Service::Admin, &mut question);
            out.send_server(connection, GET_SERVER_ID, &question);
        }
    }

    /// An answer came on such a connection.
    pub fn answered(
        &mut self,
        now: Time,
        connection: u64,
        nonce: u64,
        payload: &[u8],
        out: &mut impl ShardEffects,
    ) {
        let Some(at) = self.position(connection) else {
            return;
        };
        let ping = self.0.at(at);
        match (ping.stage, nonce) {
            (Stage::Connecting(_), GET_SERVER_ID) => {
                let answer = GetServerIdResponse::decode(payload);
                if answer.is_ok_and(|answer| answer.server_id == ping.server) {
                    let mut request = Vec::new();
                    let caller = ServerId::INVALID;
                    PingRequest { caller }.encode(&mut request);
                    out.send_server(connection, PING, &request);
                    let sent = now;
                    ping.stage = Stage::Pinging { connection, sent };
                } else {
                    self.fail(at, out);
                }
            }
            (Stage::Pinging { sent, .. }, PING) if rpc::status(payload) == Ok(Status::Ok) => {
                let took = now.since(sent).as_nanos();
                let took = u64::try_from(took).unwrap_or(ProxyPingResponse::TIMED_OUT);
                self.finish(at, took, out);
            }
            _ => self.fail(at, out),
        }
    }

    /// Such a connection is gone, or could not be made.
    pub fn disconnected(&mut self, connection: u64, out: &mut impl ShardEffects) {
        if let Some(at) = self.position(connection) {
            self.fail(at, out);
        }
    }
}
