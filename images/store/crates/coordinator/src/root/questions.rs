//! What clients and tools ask about the store and its servers, beside tables and leases.

use core::time::Duration;

use base::bugs::{Bug, is_planted};
use base::ids::{ReplyTo, ServerId};
use base::time::Time;
use prost::Message;
use wire::member::{Ping, ServerLocation, ToShard, coordinator};
use wire::opcode::Service;
use wire::proto::{Metric, MetricList, ServerList, ServerListEntry};
use wire::rpc;
use wire::status::Status;

use crate::pending::Goal;
use crate::registry::members::Server;
use crate::reports::ClientEvent;
use crate::root::replies::{BUSY, Refused, reply_message, reply_ping, send};
use crate::{Coordinator, CoordinatorEffects};

/// How long a proxied ping waits at most, whatever the client asks for.
const MAX_PROXY_TIMEOUT: Duration = Duration::from_secs(10);
/// States of a server, as clients know them.
const UP: u32 = 0;
const CRASHED: u32 = 1;
/// Options of RAMCloud's coordinator; both make servers fail on purpose.
const CRASH_OPTIONS: [&[u8]; 2] = [b"failRecoveryMasters", b"crashCoordinator"];

/// A mask. Tools count backups before they begin: one that has not opened its storage yet takes no copies.
fn services_of(server: &Server) -> u32 {
    let master = match server.backup_only {
        true => 0,
        false => Service::Master.bit(),
    };
    let backup = match server.backup {
        Some(_) => Service::Backup.bit(),
        None => 0,
    };
    master | backup | Service::Admin.bit()
}

impl Coordinator {
    /// A server that is not connected is listed as crashed: nobody can reach it through the coordinator, and what it held is
    /// not served while it is away.
    pub(crate) fn get_server_list(
        &self,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), Refused> {
        let request = rpc::GetServerListRequest::decode(payload)?;
        let mut list = ServerList {
            server: Vec::new(),
            version_number: self.store.members.changes(),
            r#type: 0,
        };
        let servers = self
            .store
            .members
            .iter()
            .flat_map(|(_, member)| member.servers());
        let offering = servers
            .filter_map(|&index| self.store.members.server(index))
            .filter(|server| server.has_enlisted())
            .map(|server| (services_of(server), server))
            .filter(|(services, _)| request.service_mask & services != 0);
        list.server = offering
            .map(|(services, server)| ServerListEntry {
                services,
                server_id: server.id.0,
                service_locator: server.locator.clone(),
                expected_read_mbytes_per_sec: 0,
                status: if server.is_connected() { UP } else { CRASHED },
                replication_id: 0,
            })
            .collect();
        list.server
            .sort_unstable_by_key(|server| ServerId(server.server_id).index());
        reply_message(to, &list.encode_to_vec(), out);
        Ok(())
    }

    pub(crate) fn get_lease_info(
        &mut self,
        now: Time,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), Refused> {
        let request = rpc::GetLeaseInfoRequest::decode(payload)?;
        let timestamp_ns = self.store.cluster_time_ns(now);
        // That it has ended is said after that is noted.
        self.store.leases.expire(timestamp_ns);
        let expiration_ns = self.store.leases.expiration(request.lease_id, timestamp_ns);
        let response = rpc::RenewLeaseResponse {
            status: Status::Ok,
            lease: rpc::Lease {
                id: if expiration_ns == 0 {
                    0
                } else {
                    request.lease_id
                },
                expiration_ns,
                timestamp_ns,
            },
        };
        send(to, out, |bytes| response.encode(bytes));
        Ok(())
    }

    /// See [`crate::liveness::detection::Suspicions::hinted`].
    pub(crate) fn hint_server_crashed(
        &mut self,
        now: Time,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), Refused> {
        let hinted = rpc::HintServerCrashedRequest::decode(payload)?.server_id;
        let server = self.store.members.server(hinted.index());
        if server.is_some_and(|server| server.id == hinted) {
            let (store, index) = (&mut self.store, hinted.index());
            self.suspicions.hinted(store, now, index, out);
            if is_planted(Bug::BelieveHint) {
                let member = self.store.member_of(index);
                self.declare_dead(now, &member, out);
            }
        }
        out.reply(to, &rpc::status_bytes(Status::Ok));
        Ok(())
    }

    /// The options that there are would make servers crash, which this version has no use for.
    pub(crate) fn set_runtime_option(&self, payload: &[u8]) -> Result<(), Refused> {
        let request = rpc::SetRuntimeOptionRequest::decode(payload)?;
        Err(no_such_option(request.option).into())
    }

    pub(crate) fn get_runtime_option(&self, payload: &[u8]) -> Result<(), Refused> {
        let request = rpc::GetRuntimeOptionRequest::decode(payload)?;
        Err(no_such_option(request.option).into())
    }

    /// A coordinator is no server of the list: it has no id.
    pub(crate) fn get_server_id(
        &self,
        to: ReplyTo,
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), Refused> {
        let response = rpc::GetServerIdResponse {
            status: Status::Ok,
            server_id: ServerId::INVALID,
        };
        send(to, out, |bytes| response.encode(bytes));
        Ok(())
    }

    /// No answer comes: the process ends, as if it had crashed.
    pub(crate) fn kill(&mut self, out: &mut impl CoordinatorEffects) -> Result<(), Refused> {
        if self.store.config.allow_test_rpcs {
            out.report(ClientEvent::Killed.into());
            out.end_process();
            return Ok(());
        }
        if !core::mem::replace(&mut self.told_of_test_rpcs, true) {
            out.report(ClientEvent::KillRefused.into());
        }
        Err(Status::UnimplementedRequest.into())
    }

    /// Where clients reach a server; empty if there is no such server.
    pub(crate) fn location(&self, server_id: u64) -> ServerLocation {
        let id = ServerId(server_id);
        let server = self.store.members.server(id.index());
        let server = server.filter(|server| server.id == id);
        ServerLocation {
            server_id,
            locator: server.map_or_else(String::new, |server| server.locator.clone()),
        }
    }

    pub(crate) fn get_metrics(
        &self,
        now: Time,
        to: ReplyTo,
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), Refused> {
        let status = self.cluster_status(now);
        let up = |member: &&crate::status::Member| member.state == crate::status::MemberState::Up;
        let metrics = [
            ("clusterTimeNanoseconds", self.store.cluster_time_ns(now)),
            ("coordinator.members", status.members.len() as u64),
            (
                "coordinator.membersUp",
                status.members.iter().filter(up).count() as u64,
            ),
            ("coordinator.tables", self.store.tables.len() as u64),
            ("coordinator.pendingReplies", self.pending.load() as u64),
        ];
        reply_message(to, &metric_list(metrics).encode_to_vec(), out);
        Ok(())
    }

    /// Pings a server over its connection to the coordinator; the answer says how long that took.
    pub(crate) fn proxy_ping(
        &mut self,
        now: Time,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), Refused> {
        let request = rpc::ProxyPingRequest::decode(payload)?;
        if self.pending.load() >= self.store.config.limits.max_pending_replies {
            return Err(BUSY);
        }
        let (cluster_time_ns, position) = (self.store.cluster_time_ns(now), self.position());
        let number = self.store.ledger.next_question();
        let server = self.store.members.server_mut(request.server_id.index());
        let link = server
            .filter(|server| server.id == request.server_id)
            .and_then(|server| server.link.as_mut());
        let Some(link) = link else {
            reply_ping(to, rpc::ProxyPingResponse::TIMED_OUT, out);
            return Ok(());
        };
        let sequence = link.sequence();
        link.unanswered.insert(sequence, number);
        let ping = Ping {
            sequence,
            cluster_time_ns,
            position,
        };
        let kind = coordinator::Kind::Ping(ping);
        out.send_member(link.connection, ToShard::from(kind));
        let goal = Goal::ProxyPing {
            sent: now,
            reply_ns: rpc::ProxyPingResponse::TIMED_OUT,
        };
        let timeout = Duration::from_nanos(request.timeout_ns).min(MAX_PROXY_TIMEOUT);
        self.pending.start(number, goal, to, 1, now + timeout);
        Ok(())
    }
}

/// Those that are known to exist elsewhere are not served here; others are not known at all.
fn no_such_option(option: &[u8]) -> Status {
    if CRASH_OPTIONS.contains(&option) {
        Status::UnimplementedRequest
    } else {
        Status::ObjectDoesntExist
    }
}

fn metric_list<const N: usize>(metrics: [(&str, u64); N]) -> MetricList {
    let metric = metrics.into_iter().map(|(name, value)| Metric {
        name: name.to_owned(),
        value,
    });
    MetricList {
        metric: metric.collect(),
    }
}
