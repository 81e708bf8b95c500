//! How connections open, fail, and make place for faster ones.

use core::time::Duration;
use std::collections::VecDeque;

use base::ids::ServerId;
use base::time::Time;
use wire::rpc::PingRequest;

use super::Client;
use crate::effects::ClientEffects;
use crate::error::Error;
use crate::operation::Kind;
use crate::operation_id::OperationId;
use crate::sessions::{Call, Session};
use crate::timer::Timer;

/// First delay after a connection failed to open; it doubles with every failure in a row, [`MAX_DOUBLINGS`] times at most.
const RECONNECT_MIN: Duration = Duration::from_millis(10);
const RECONNECT_MAX: Duration = Duration::from_millis(20);
const MAX_DOUBLINGS: u32 = 5;

impl Client {
    /// The connection is open.
    pub fn connected(&mut self, now: Time, session: u64, out: &mut impl ClientEffects) {
        let Some(known) = self.sessions.sessions.get_mut(session) else {
            return;
        };
        known.is_open = true;
        known.quiet_since = now;
        if let Some(locator) = known.alternatives.front() {
            self.paths.works(locator);
        }
        if let Some(former) = known.in_place_of.take() {
            self.supersede(now, former, session);
        } else {
            self.look_for_faster(session);
        }
        let Some(known) = self.sessions.sessions.get_mut(session) else {
            return;
        };
        let waiting = core::mem::take(&mut known.waiting);
        self.ready
            .extend(waiting.iter().map(|waiting| waiting.operation));
        if self.sessions.coordinator == Some(session) {
            self.sessions.coordinator_failures = 0;
            for call in core::mem::take(&mut self.sessions.waiting_for_coordinator) {
                self.call_coordinator(now, call, out);
            }
        }
        self.run_ready(now, out);
    }

    /// The connection failed, or could not be opened.
    pub fn disconnected(&mut self, now: Time, session: u64, out: &mut impl ClientEffects) {
        self.session_failed(now, session, out);
        self.run_ready(now, out);
    }

    /// The session to the server at this locator (or list of locators); opened if there is none.
    pub(crate) fn session_to(
        &mut self,
        now: Time,
        locator: &str,
        out: &mut impl ClientEffects,
    ) -> Option<u64> {
        if let Some(&session) = self.sessions.by_name.get(locator) {
            return Some(session);
        }
        let alternatives = self.paths.alternatives(now, locator)?;
        let first = alternatives.front()?.clone();
        let name = locator.to_owned();
        let session =
            self.sessions
                .add(now, self.config.connect_timeout, name.clone(), alternatives);
        self.sessions.by_name.insert(name, session);
        out.connect(session, &first);
        Some(session)
    }

    /// Sends a request to the coordinator, as soon as there is a connection.
    pub(crate) fn call_coordinator(&mut self, now: Time, call: Call, out: &mut impl ClientEffects) {
        match self.sessions.coordinator {
            Some(session) if self.sessions.is_open(session) => {
                self.send_call(now, session, call, out);
            }
            Some(_) => self.wait_for_coordinator(call),
            None => {
                self.wait_for_coordinator(call);
                if !self.sessions.is_reconnect_timer_set {
                    self.connect_coordinator(now, out);
                }
            }
        }
    }

    fn wait_for_coordinator(&mut self, call: Call) {
        let waiting = &mut self.sessions.waiting_for_coordinator;
        if waiting.len() >= 2 * self.config.max_operations {
            // Calls of operations that are over.
            let operations = &self.operations;
            waiting.retain(|call| match call {
                Call::Operation(id) => operations.get(id.0).is_some(),
                _ => true,
            });
        }
        waiting.push(call);
    }

    pub(crate) fn connect_coordinator(&mut self, now: Time, out: &mut impl ClientEffects) {
        let sessions = &mut self.sessions;
        sessions.is_reconnect_timer_set = false;
        if sessions.coordinator.is_some() || sessions.waiting_for_coordinator.is_empty() {
            return;
        }
        let count = sessions.coordinator_locators.len().max(1);
        let Some(locator) = sessions
            .coordinator_locators
            .get(sessions.next_locator % count)
            .cloned()
        else {
            return;
        };
        sessions.next_locator = (sessions.next_locator + 1) % count;
        let alternatives = VecDeque::from([locator.clone()]);
        let session = sessions.add(
            now,
            self.config.connect_timeout,
            String::new(),
            alternatives,
        );
        sessions.coordinator = Some(session);
        out.connect(session, &locator);
    }

    /// The delay before a connection is tried again that failed `failures` times in a row.
    pub(crate) fn reconnect_delay(&mut self, failures: u32) -> Duration {
        let scale = 1 << failures.saturating_sub(1).min(MAX_DOUBLINGS);
        self.random
            .delay(RECONNECT_MIN * scale, RECONNECT_MAX * scale)
    }

    /// Gives a connection up: tries its next alternative if it was not open, or else lets what waited for it look again.
    fn session_failed(&mut self, now: Time, session: u64, out: &mut impl ClientEffects) {
        let Some(known) = self.sessions.sessions.get_mut(session) else {
            return;
        };
        if !known.is_open && known.alternatives.len() > 1 {
            if let Some(failed) = known.alternatives.pop_front() {
                self.paths.failed(now, &failed);
            }
            known.quiet_since = now;
            self.sessions.next_check = self
                .sessions
                .next_check
                .min(now + self.config.connect_timeout);
            out.connect(session, &known.alternatives[0]);
            return;
        }
        let Some(known) = self.sessions.sessions.remove(session) else {
            return;
        };
        if self.sessions.coordinator == Some(session) {
            self.coordinator_failed(now, known, out);
            return;
        }
        if let Some(former) = known.in_place_of {
            if let Some(failed) = known.alternatives.front() {
                self.paths.failed(now, failed);
            }
            return self.look_for_faster(former);
        }
        if self.sessions.by_name.get(&known.name) == Some(&session) {
            self.sessions.by_name.remove(&known.name);
        }
        for waiting in known.waiting {
            self.tables
                .invalidate(waiting.table, waiting.config_generation);
            self.resume_after_failure(now, waiting.operation, known.is_open, out);
        }
        for (_, call) in known.calls {
            match call {
                Call::Operation(operation) => {
                    if let Some(object) = self.operations.get(operation.0) {
                        self.tables
                            .invalidate(object.table, object.config_generation);
                    }
                    self.resume_after_failure(now, operation, known.is_open, out);
                }
                Call::Objects(operation, objects) => {
                    self.objects_unanswered(operation, &objects);
                    self.resume_after_failure(now, operation, known.is_open, out);
                }
                // These go to the coordinator only, or need no answer.
                Call::TableConfig(_) | Call::RenewLease | Call::KeepAlive => {}
            }
        }
    }

    fn coordinator_failed(&mut self, now: Time, known: Session, out: &mut impl ClientEffects) {
        let sessions = &mut self.sessions;
        sessions.coordinator = None;
        let unanswered = known.calls.into_iter().map(|(_, call)| call);
        sessions
            .waiting_for_coordinator
            .extend(unanswered.filter(|call| *call != Call::KeepAlive));
        if known.is_open {
            self.connect_coordinator(now, out);
            return;
        }
        sessions.coordinator_failures += 1;
        sessions.is_reconnect_timer_set = true;
        let failures = sessions.coordinator_failures;
        let at = now + self.reconnect_delay(failures);
        self.set_timer(at, Timer::ConnectCoordinator);
    }

    /// Tries an operation again whose connection failed: at once the first time, if the connection had been open.
    fn resume_after_failure(
        &mut self,
        now: Time,
        id: OperationId,
        was_open: bool,
        out: &mut impl ClientEffects,
    ) {
        let Some(operation) = self.operations.get_mut(id.0) else {
            return;
        };
        if let Kind::At(..) = operation.kind {
            self.retire(id);
            return out.complete(id, Err(Error::Unreachable));
        }
        operation.failures += 1;
        let failures = operation.failures;
        if was_open && failures == 1 {
            self.ready.push_back(id);
        } else {
            let at = now + self.reconnect_delay(failures);
            self.set_timer(at, Timer::Resume(id));
        }
    }

    /// If there is a faster way to where a session leads, that is tried when its time has come.
    fn look_for_faster(&mut self, session: u64) {
        let Some(known) = self.sessions.sessions.get(session) else {
            return;
        };
        let present = known.alternatives.front();
        let better = present.and_then(|present| self.paths.better(&known.name, present));
        if let Some((_, at)) = better
            && !known.is_superseded
        {
            self.set_timer(at, Timer::TryFaster(session));
        }
    }

    pub(crate) fn try_faster(&mut self, now: Time, session: u64, out: &mut impl ClientEffects) {
        let Some(known) = self.sessions.sessions.get(session) else {
            return;
        };
        let present = known.alternatives.front();
        let better = present.and_then(|present| self.paths.better(&known.name, present));
        let Some((locator, at)) = better.filter(|_| !known.is_superseded) else {
            return;
        };
        if at > now {
            return self.set_timer(at, Timer::TryFaster(session));
        }
        let alternatives = VecDeque::from([locator.clone()]);
        let timeout = self.config.connect_timeout;
        let trial = self.sessions.add(now, timeout, String::new(), alternatives);
        if let Some(known) = self.sessions.sessions.get_mut(trial) {
            known.in_place_of = Some(session);
        }
        out.connect(trial, &locator);
    }

    /// A faster way is open: what is asked from now on goes there.
    fn supersede(&mut self, now: Time, former: u64, session: u64) {
        let Some(replaced) = self.sessions.sessions.get_mut(former) else {
            return; // It has ended meanwhile; this one ends when it has been idle for long.
        };
        replaced.is_superseded = true;
        let name = replaced.name.clone();
        // It ends with its last answer.
        self.sessions.next_check = self.sessions.next_check.min(now);
        self.sessions.by_name.insert(name.clone(), session);
        if let Some(known) = self.sessions.sessions.get_mut(session) {
            known.name = name;
        }
        self.look_for_faster(session);
    }

    /// Pings sessions that have been quiet for half the timeout, gives up those that have been for all of it.
    pub(crate) fn check_sessions(&mut self, now: Time, out: &mut impl ClientEffects) {
        if now < self.sessions.next_check {
            return;
        }
        let timeout = self.config.timeout;
        let mut next_check = Time::NEVER;
        let (mut silent, mut quiet) = (Vec::new(), Vec::new());
        for session in self.sessions.sessions.numbers() {
            let Some(known) = self.sessions.sessions.get(session) else {
                continue;
            };
            let give_up_at = if !known.is_open {
                known.quiet_since + self.config.connect_timeout
            } else if known.calls.is_empty() && known.is_superseded {
                silent.push(session);
                continue;
            } else if known.calls.is_empty() {
                let end_at = known.quiet_since + self.config.idle_timeout;
                if now >= end_at {
                    silent.push(session);
                } else {
                    next_check = next_check.min(end_at);
                }
                continue;
            } else {
                known.quiet_since + timeout
            };
            let ping_at = known.quiet_since + timeout / 2;
            // A server that answers pings only would otherwise be owed answers without end.
            let owes_too_much = known.calls.len() > 4 * self.config.max_operations;
            if now >= give_up_at || owes_too_much {
                silent.push(session);
            } else if known.is_open && !known.is_pinged && now >= ping_at {
                quiet.push(session);
                next_check = next_check.min(give_up_at);
            } else if known.is_open && !known.is_pinged {
                next_check = next_check.min(ping_at);
            } else {
                next_check = next_check.min(give_up_at);
            }
        }
        self.sessions.next_check = next_check;
        for session in quiet {
            self.send_call(now, session, Call::KeepAlive, out);
            if let Some(known) = self.sessions.sessions.get_mut(session) {
                known.is_pinged = true;
            }
        }
        for session in silent {
            out.close(session);
            self.session_failed(now, session, out);
        }
    }

    pub(crate) fn send_ping(&mut self, now: Time, session: u64, out: &mut impl ClientEffects) {
        let mut request = Vec::with_capacity(PingRequest::FIXED_BYTES);
        PingRequest {
            caller: ServerId::INVALID,
        }
        .encode(&mut request);
        self.sessions.send(
            now,
            session,
            Call::KeepAlive,
            &request,
            self.config.timeout,
            out,
        );
    }
}
