//! What all machines of a coordinator stand on: who belongs to the store, what tables there are, clocks and versions.

use std::collections::BTreeSet;

use base::ids::ServerId;
use base::time::Time;
use wire::member::{ToShard, coordinator};

use crate::directory::leases::Leases;
use crate::directory::tables::{Table, Tables, Tablet};
use crate::orders::MigrateError;
use crate::registry::members::{Members, Server};
use crate::resources::Resources;
use crate::status::EventKind;
use crate::{Config, CoordinatorEffects};

/// How far the bound of versions is noted ahead of those that were given out: more than a server gives out between two of its reports, or while
/// there is no coordinator.
const VERSIONS_AHEAD: u64 = 1 << 40;

/// Clocks, and versions that are not given out again.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// When this process's cluster time was `time_base_ns`.
    pub started: Time,
    pub time_base_ns: u64,
    /// Noted, or about to be. Unless it stands still, no cluster time is given out that is not below it.
    pub time_bound_ns: u64,
    /// No cluster time is given out that is not below it, whatever the clock says.
    pub time_limit_ns: u64,
    /// Noted, or about to be: no server has given out a version that is not below it.
    pub version_bound: u64,
    /// Versions below it may have been used in what was given up: recovered tablets get no such one any more. 0 while nothing was.
    pub version_floor: u64,
    /// The id given out last to a recovery or a migration. None is ever used again.
    pub last_id: u64,
    /// The number that the last question to servers got.
    last_question: u64,
    /// Versions below it may have been used in what a dead process has lost: no process begins with such a one any more. 0 while nothing was.
    pub first_version: u64,
}

impl Ledger {
    pub fn new(now: Time) -> Ledger {
        Ledger {
            started: now,
            time_base_ns: 0,
            time_bound_ns: 0,
            time_limit_ns: u64::MAX,
            last_id: 0,
            last_question: 0,
            version_bound: 0,
            version_floor: 0,
            first_version: 0,
        }
    }

    pub fn cluster_time_ns(&self, now: Time) -> u64 {
        let here = u64::try_from(now.since(self.started).as_nanos()).unwrap_or(u64::MAX);
        let limit_ns = self.time_limit_ns.saturating_sub(1).max(self.time_base_ns);
        self.time_base_ns.saturating_add(here).min(limit_ns)
    }

    /// If cluster time has come to its limit, it goes on from there, and not from where it would be by now.
    pub fn hold_time(&mut self, now: Time) {
        let cluster_time_ns = self.cluster_time_ns(now);
        if cluster_time_ns + 1 == self.time_limit_ns {
            (self.time_base_ns, self.started) = (cluster_time_ns, now);
        }
    }

    /// A server says, or was told, that versions below this one may be in use. A bound ahead of all of them is noted.
    pub fn note_versions(&mut self, next_version: u64) {
        if next_version.saturating_add(VERSIONS_AHEAD / 2) > self.version_bound {
            self.version_bound = next_version.saturating_add(VERSIONS_AHEAD);
        }
    }

    /// A number for a question to servers; see [`crate::pending::Pending::start`].
    pub fn next_question(&mut self) -> u64 {
        self.last_question += 1;
        self.last_question
    }

    /// An id for a recovery or a migration.
    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Nobody knows which versions were used in what is lost: none that anybody can have got is used again.
    pub fn leave_versions_out(&mut self) {
        self.version_floor = self.version_bound;
        self.note_versions(self.version_floor);
    }
}

/// The lower layers of a coordinator.
#[derive(Debug)]
pub(crate) struct Store {
    pub config: Config,
    pub ledger: Ledger,
    pub members: Members,
    pub tables: Tables,
    pub leases: Leases,
    /// What nothing else depends on.
    pub resources: Resources,
}

impl Store {
    /// An empty one; its cluster time is 0 at `now`.
    pub fn new(config: Config, now: Time) -> Store {
        let first_lease = u64::from(config.cluster_tag) << 32 | 1;
        Store {
            ledger: Ledger::new(now),
            members: Members::new(config.limits.clone()),
            tables: Tables::new(config.cluster_tag, config.limits.clone()),
            leases: Leases::new(first_lease, config.limits.max_client_leases),
            resources: Resources::default(),
            config,
        }
    }

    /// People may want to know that.
    pub fn record_event(&mut self, now: Time, kind: EventKind, text: String) {
        let cluster_time_ns = self.cluster_time_ns(now);
        self.resources.events.happened(cluster_time_ns, kind, text);
    }

    pub fn cluster_time_ns(&self, now: Time) -> u64 {
        self.ledger.cluster_time_ns(now)
    }

    /// Names of these tablets' tables (the first few), how many more there are, and how many tablets.
    pub fn name_tables<'a>(
        &self,
        tablets: impl Iterator<Item = (&'a Table, &'a Tablet)>,
    ) -> (Vec<String>, u64, u64) {
        let mut names = Vec::new();
        let (mut more, mut tablet_count, mut last) = (0, 0, None);
        for (table, _) in tablets {
            tablet_count += 1;
            if last == Some(table.id) {
                continue;
            }
            last = Some(table.id);
            if names.len() < self.config.limits.max_names_listed {
                names.push(table.display_name());
            } else {
                more += 1;
            }
        }
        (names, more, tablet_count)
    }

    /// The same of all tablets that these servers own.
    pub fn list_owned(&self, owners: &BTreeSet<u32>) -> (Vec<String>, u64, u64) {
        self.name_tables(self.tables.owned_by(owners))
    }

    pub fn id_of(&self, index: u32) -> ServerId {
        let server = self.members.server(index);
        server.map_or(ServerId::INVALID, |server| server.id)
    }

    pub fn member_of(&self, index: u32) -> String {
        let server = self.members.server(index);
        server.map_or_else(String::new, |server| server.member.clone())
    }

    /// If it is connected.
    pub fn tell(&self, index: u32, kind: coordinator::Kind, out: &mut impl CoordinatorEffects) {
        let server = self.members.server(index);
        if let Some(link) = server.and_then(|server| server.link.as_ref()) {
            out.send_member(link.connection, ToShard::from(kind));
        }
    }

    pub fn connected(&self, index: u32) -> Result<&Server, MigrateError> {
        let server = self.members.server(index);
        match server.filter(|server| server.link.is_some()) {
            Some(server) => Ok(server),
            None => Err(MigrateError::NotConnected {
                server: self.id_of(index),
            }),
        }
    }
}
