//! Connections: one to the coordinator, one to each server that was needed so far.

use core::time::Duration;
use std::collections::VecDeque;

use base::ids::TableId;
use base::map::Map;
use base::time::Time;

use crate::effects::ClientEffects;
use crate::operation_id::OperationId;
use crate::slab::Slab;

/// What an answer is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Operation(OperationId),
    /// These objects (by number) of a multi-write.
    Objects(OperationId, Vec<u32>),
    TableConfig(TableId),
    RenewLease,
    KeepAlive,
}

/// An operation that waits for a connection, and the table config that led it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub operation: OperationId,
    pub table: TableId,
    pub config_generation: u64,
}

#[derive(Debug)]
pub struct Session {
    /// The text under which the session is known; empty for the coordinator's.
    pub name: String,
    /// Locators to try in turn; the first of them is being tried or open.
    pub alternatives: VecDeque<String>,
    pub is_open: bool,
    last_nonce: u64,
    /// Requests without answer, by nonce.
    pub calls: VecDeque<(u64, Call)>,
    pub waiting: Vec<Waiting>,
    /// The other side owes an answer, or a connection, since then.
    pub quiet_since: Time,
    pub is_pinged: bool,
    /// It tries a faster way to where this session leads.
    pub in_place_of: Option<u64>,
    /// Another session has taken its place: nothing new is asked on it.
    pub is_superseded: bool,
}

#[derive(Debug)]
pub struct Sessions {
    pub sessions: Slab<Session>,
    pub by_name: Map<String, u64>,
    pub coordinator_locators: Vec<String>,
    /// Next of the locators to try.
    pub next_locator: usize,
    pub coordinator: Option<u64>,
    /// Requests for the coordinator that wait for a connection.
    pub waiting_for_coordinator: Vec<Call>,
    /// Times in a row that the coordinator could not be reached.
    pub coordinator_failures: u32,
    pub is_reconnect_timer_set: bool,
    /// No session needs a look before this.
    pub next_check: Time,
}

impl Sessions {
    pub fn new(coordinator_locators: Vec<String>) -> Sessions {
        Sessions {
            sessions: Slab::default(),
            by_name: Map::default(),
            coordinator_locators,
            next_locator: 0,
            coordinator: None,
            waiting_for_coordinator: Vec::new(),
            coordinator_failures: 0,
            is_reconnect_timer_set: false,
            next_check: Time::NEVER,
        }
    }

    pub fn is_open(&self, session: u64) -> bool {
        self.sessions
            .get(session)
            .is_some_and(|known| known.is_open && !known.is_superseded)
    }

    pub fn add(
        &mut self,
        now: Time,
        connect_timeout: Duration,
        name: String,
        alternatives: VecDeque<String>,
    ) -> u64 {
        self.next_check = self.next_check.min(now + connect_timeout);
        self.sessions.insert(Session {
            name,
            alternatives,
            is_open: false,
            last_nonce: 0,
            calls: VecDeque::new(),
            waiting: Vec::new(),
            quiet_since: now,
            is_pinged: false,
            in_place_of: None,
            is_superseded: false,
        })
    }

    /// Sends a request on an open session.
    pub fn send(
        &mut self,
        now: Time,
        session: u64,
        call: Call,
        payload: &[u8],
        timeout: Duration,
        out: &mut impl ClientEffects,
    ) {
        let Some(known) = self.sessions.get_mut(session) else {
            return;
        };
        let newest = known.calls.back();
        assert!(
            newest.is_none_or(|(nonce, _)| *nonce <= known.last_nonce),
            "nonces grow"
        );
        known.last_nonce += 1;
        if known.calls.is_empty() {
            known.quiet_since = now;
            known.is_pinged = false;
            self.next_check = self.next_check.min(now + timeout / 2);
        }
        known.calls.push_back((known.last_nonce, call));
        out.send(session, known.last_nonce, payload);
    }

    /// Takes the call that an answer is for; `None` for an answer that nobody waits for.
    pub fn take_call(&mut self, now: Time, session: u64, nonce: u64) -> Option<Call> {
        let known = self.sessions.get_mut(session)?;
        known.quiet_since = now;
        known.is_pinged = false;
        let at = known
            .calls
            .binary_search_by_key(&nonce, |(sent, _)| *sent)
            .ok()?;
        known.calls.remove(at).map(|(_, call)| call)
    }

    /// Lets an operation go on when the session opens.
    pub fn wait(&mut self, session: u64, waiting: Waiting) {
        if let Some(known) = self.sessions.get_mut(session)
            && !known.waiting.contains(&waiting)
        {
            known.waiting.push(waiting);
        }
    }
}
