//! What of the members is durable.

use std::collections::{BTreeMap, BTreeSet};

use base::ids::ServerId;
use wire::format::Formats;

use super::{MAX_GENERATION, MAX_PAST_PROCESSES, Member, Members, Process, Server};
use crate::Limits;
use crate::journaled::Journaled;
use crate::records::{self, Key, Record};
use crate::resource::Resource;

fn process_record((instance, number): &Process) -> records::Process {
    records::Process {
        instance: instance.clone(),
        number: *number,
    }
}

fn process_of(record: records::Process) -> Process {
    (record.instance, record.number)
}

fn member_record(name: &str, member: &Member) -> Record {
    Record::Member(records::Member {
        name: name.to_owned(),
        process: process_record(&member.process),
        host_id: member.host_id.clone(),
        build_version: member.build_version.clone(),
        servers: member.servers.clone(),
        shard_count: member.shard_count as u32,
        incarnations: member.incarnations,
        past: member.past.iter().map(process_record).collect(),
        is_dead: member.is_dead,
        is_draining: member.is_draining,
        is_last_resort: member.is_last_resort,
        oldest_format: member.formats.oldest,
        newest_format: member.formats.newest,
    })
}

fn server_record(server: &Server) -> Record {
    Record::Server(records::Server {
        id: server.id.0,
        member: server.member.clone(),
        shard_index: server.shard_index,
        locator: server.locator.clone(),
        backup_locator: server.backup_locator.clone(),
        peer_locator: server.peer_locator.clone(),
        domain: server.domain.clone(),
        open_floor: server.open_floor,
        log_capacity_bytes: server.log_capacity_bytes,
        replicas: server.replicas,
        backup_only: server.backup_only,
    })
}

fn removed_record((member, instance): &(String, String)) -> Record {
    Record::Removed(records::Removed {
        member: member.clone(),
        instance: instance.clone(),
    })
}

impl Resource for Members {
    fn is_worth_a_checkpoint(&self) -> bool {
        self.members.is_changed() || self.removed.is_changed() || !self.changed_servers.is_empty()
    }

    fn take_changed(&mut self) -> BTreeSet<Key> {
        let members = self.members.take_changed().into_iter();
        let removed = self.removed.take_changed().into_iter();
        let removed = removed.map(|(member, instance)| Key::Removed(member, instance));
        let servers = core::mem::take(&mut self.changed_servers).into_iter();
        let keys = members.map(Key::Member).chain(servers.map(Key::Server));
        keys.chain(removed).collect()
    }

    fn record(&self, key: &Key) -> Option<Record> {
        match key {
            Key::Member(name) => self
                .members
                .get(name)
                .map(|member| member_record(name, member)),
            Key::Server(index) => self.servers.get(index).map(server_record),
            Key::Removed(member, instance) => {
                let removed = (member.clone(), instance.clone());
                self.removed.get(&removed)?;
                Some(removed_record(&removed))
            }
            _ => None,
        }
    }

    fn records(&self) -> Box<dyn Iterator<Item = Record> + '_> {
        let members = self.members.iter();
        let members = members.map(|(name, member)| member_record(name, member));
        let servers = self.servers.values().map(server_record);
        let removed = self.removed.iter();
        let removed = removed.map(|(removed, ())| removed_record(removed));
        Box::new(members.chain(servers).chain(removed))
    }

    fn audit(&self) -> Result<(), String> {
        self.recount()
    }
}

impl Members {
    /// Notes that what is durable of a server has changed.
    pub fn server_changed(&mut self, index: u32) {
        self.changed_servers.insert(index);
    }

    /// Index of the server that was added last.
    pub fn last_index(&self) -> u32 {
        self.last_index
    }

    /// The state may be an older one, and all processes of it are dead: indexes and generations go on so much further. The highest generation that
    /// a process may get next.
    pub fn begin_again(&mut self, further: u32) -> u32 {
        self.last_index = self.last_index.saturating_add(further);
        self.changes += u64::from(further);
        let mut highest = further;
        for server in self.servers.values_mut() {
            let (index, generation) = (server.id.index(), server.id.generation());
            let generation = generation.saturating_add(further).min(MAX_GENERATION);
            server.id = ServerId::new(index, generation);
            highest = highest.max(generation + 1);
        }
        highest
    }

    /// As they were noted. Nobody is connected.
    ///
    /// # Errors
    /// Says what contradicts what.
    pub fn restore(
        limits: Limits,
        meta: &records::Meta,
        members: Vec<records::Member>,
        servers: Vec<records::Server>,
        removed: Vec<records::Removed>,
    ) -> Result<Members, String> {
        let mut restored = Members::new(limits);
        restored.last_index = meta.last_server_index;
        restored.changes = meta.member_changes;
        for record in servers {
            let id = ServerId(record.id);
            let index = id.index();
            if index == 0 || index > meta.last_server_index || id.generation() > MAX_GENERATION {
                return Err(format!(
                    "server {id} cannot have been given out: the last index was {}",
                    meta.last_server_index
                ));
            }
            restored.servers.insert(index, server_of(record));
        }
        let mut noted = BTreeMap::new();
        for record in members {
            let name = record.name.clone();
            noted.insert(name, restored.member_of(record)?);
        }
        let in_members: usize = noted.values().map(|member| member.servers.len()).sum();
        if in_members != restored.servers.len() {
            return Err(format!(
                "there are {} servers, and members have {in_members}",
                restored.servers.len()
            ));
        }
        restored.members = Journaled::noted(noted);
        let removed = removed.into_iter();
        let removed = removed.map(|record| ((record.member, record.instance), ()));
        restored.removed = Journaled::noted(removed.collect());
        Ok(restored)
    }

    fn member_of(&self, record: records::Member) -> Result<Member, String> {
        let name = &record.name;
        let (known, shard_count) = (record.servers.len(), record.shard_count as usize);
        if shard_count == 0 || shard_count > known || record.past.len() > MAX_PAST_PROCESSES {
            return Err(format!(
                "member {name:?} has {known} servers, {shard_count} of them in use, and {} former processes",
                record.past.len()
            ));
        }
        for (shard, index) in record.servers.iter().enumerate() {
            let is_its = self.servers.get(index).is_some_and(|server| {
                server.member == *name && server.shard_index as usize == shard
            });
            if !is_its {
                return Err(format!(
                    "shard {shard} of member {name:?} is to be the server with index {index}, which is not there or another's"
                ));
            }
        }
        Ok(Member {
            process: process_of(record.process),
            host_id: record.host_id,
            build_version: record.build_version,
            formats: Formats::said(record.oldest_format, record.newest_format),
            servers: record.servers,
            shard_count,
            incarnations: record.incarnations,
            past: record.past.into_iter().map(process_of).collect(),
            is_dead: record.is_dead,
            is_draining: record.is_draining,
            is_last_resort: record.is_last_resort,
        })
    }
}

fn server_of(record: records::Server) -> Server {
    let id = ServerId(record.id);
    Server {
        locator: record.locator,
        backup_locator: record.backup_locator,
        peer_locator: record.peer_locator,
        domain: record.domain,
        replicas: record.replicas,
        backup_only: record.backup_only,
        open_floor: record.open_floor,
        log_capacity_bytes: record.log_capacity_bytes,
        ..Server::new(id, &record.member, record.shard_index)
    }
}
