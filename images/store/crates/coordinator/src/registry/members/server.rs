//! A shard's place in the store, and its connection.

use std::collections::BTreeMap;

use base::ids::ServerId;
use base::time::Time;
use wire::member::{BackupReport, Pong};

use crate::registry::ports::Told;

/// One shard's place. Its index is never given to another; its generation counts the processes that filled it.
#[derive(Debug)]
pub struct Server {
    pub id: ServerId,
    pub member: String,
    pub(super) shard_index: u32,
    /// For clients; empty until this incarnation has said hello.
    pub locator: String,
    pub link: Option<MemberSession>,
    /// Where its backup listens for masters; empty if it has none.
    pub backup_locator: String,
    /// Where it listens for other servers if it has no backup; empty if its build is older.
    pub peer_locator: String,
    /// What its backup reported last; `None` before it has opened its storage.
    pub backup: Option<BackupReport>,
    pub domain: String,
    /// Replicas that it wants of its log; 0: what it holds dies with it.
    pub replicas: u32,
    /// It takes no tablets.
    pub backup_only: bool,
    /// Open replicas of its log in older heads do not count; `None` before it had a head.
    pub open_floor: Option<u64>,
    pub log_capacity_bytes: u64,
    /// What it reported last, and when.
    pub pong: Pong,
    pub pong_heard: Option<Time>,
    /// When this coordinator heard it last on a connection that is gone.
    pub(super) last_link_heard: Option<Time>,
    pub ports: Told,
}

impl Server {
    pub(super) fn new(id: ServerId, member: &str, shard_index: u32) -> Server {
        Server {
            id,
            member: member.to_owned(),
            shard_index,
            locator: String::new(),
            link: None,
            backup_locator: String::new(),
            peer_locator: String::new(),
            backup: None,
            domain: String::new(),
            replicas: 0,
            backup_only: false,
            open_floor: None,
            log_capacity_bytes: 0,
            pong: Pong::default(),
            pong_heard: None,
            last_link_heard: None,
            ports: Told::default(),
        }
    }

    /// It has a session, and a connection.
    pub fn is_connected(&self) -> bool {
        self.link.as_ref().is_some_and(|link| !link.is_interrupted)
    }

    pub fn has_enlisted(&self) -> bool {
        !self.locator.is_empty()
    }

    /// Where other servers read tablets that leave; `None` of an older build that has no backup.
    pub fn reading_locator(&self) -> Option<&str> {
        let both = [&self.backup_locator, &self.peer_locator];
        let mut known = both.into_iter().filter(|locator| !locator.is_empty());
        known.next().map(String::as_str)
    }

    /// It has a backup, which has not said yet what it has.
    pub fn is_opening(&self) -> bool {
        self.link.is_some() && !self.backup_locator.is_empty() && self.backup.is_none()
    }

    /// When this coordinator heard it last; `None`: it knows it from the state only.
    pub fn last_heard(&self) -> Option<Time> {
        let link = self.link.as_ref().map(|link| link.last_heard);
        link.or(self.last_link_heard)
    }

    pub(super) fn disconnect(&mut self) -> Option<MemberSession> {
        self.last_link_heard = self.last_heard();
        self.link.take()
    }

    /// For people: what the store does when it is dead.
    pub fn what_becomes(&self) -> &'static str {
        match (self.backup_only, self.replicas) {
            (true, _) => "masters make the copies that it kept again at other servers",
            (false, 0) => "what it held is lost",
            (false, _) => "other servers bring back what it held, from copies",
        }
    }

    /// Whether the store goes on without it when it dies: what it holds is elsewhere, too.
    pub fn is_replaceable(&self) -> bool {
        self.replicas > 0 || self.backup_only
    }
}

/// The session of a shard.
#[derive(Debug)]
pub struct MemberSession {
    /// The first of the session.
    pub connection: u64,
    /// The connection is gone; the session may go on with another one.
    pub is_interrupted: bool,
    pub last_heard: Time,
    pub(super) next_sequence: u64,
    /// Sequence number that was given out last when it was told which backups there are.
    pub(super) told_at: u64,
    /// The build of its process takes settings.
    pub takes_settings: bool,
    /// It makes one tablet of several when it is told to.
    pub merges_tablets: bool,
    /// Orders and controls that were sent and not yet answered: sequence number to the operation that waits.
    pub unanswered: BTreeMap<u64, u64>,
}

impl MemberSession {
    /// A sequence number for the next message.
    pub fn sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence
    }

    /// The message that is sent now names the backups.
    pub fn note_told(&mut self) {
        self.told_at = self.next_sequence;
    }

    /// Whether the answer to a ping with this sequence number takes into account which backups there are.
    pub fn is_up_to_date(&self, sequence: u64) -> bool {
        sequence > self.told_at
    }
}
