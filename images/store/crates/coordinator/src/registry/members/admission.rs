//! Processes that are let in, and those that have ended.

use std::collections::{BTreeMap, VecDeque};

use base::ids::ServerId;
use base::time::Time;
use wire::format::Formats;
use wire::locator;
use wire::member::Hello;

use super::server::{MemberSession, Server};
use super::{MAX_GENERATION, MAX_PAST_PROCESSES, Member, Members, Process};
use crate::reports::Refusal;

const MAX_TEXT_BYTES: usize = 253;
/// Bounds the size of a table config, which names the locator with every tablet.
const MAX_LOCATOR_BYTES: usize = 256;

/// A process that has ended.
#[derive(Debug)]
pub struct Death {
    pub member: String,
    /// What its process said of itself.
    pub instance: String,
    /// Its servers as they were, by shard.
    pub servers: Vec<Server>,
    /// Server indexes of its successor, by shard; a prefix of the dead one's or an extension. Empty if there is none yet.
    pub successors: Vec<u32>,
}

/// A shard that was let in.
#[derive(Debug)]
pub struct Admission {
    pub index: u32,
    pub death: Option<Death>,
    /// An older connection of the same shard, which this one puts an end to.
    pub replaced: Option<MemberSession>,
}

/// Why a shard was not let in.
#[derive(Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    Refused(Refusal),
    /// Its process would take the place of another: it has to show first that it is alive.
    MustShowLife,
}

impl From<Refusal> for NotAdmitted {
    fn from(refusal: Refusal) -> NotAdmitted {
        NotAdmitted::Refused(refusal)
    }
}

impl Members {
    /// Lets a shard in, or says why not. On success the shard's connection is `connection`. `is_alive`: its process has
    /// answered since it sent `hello`.
    pub fn admit(
        &mut self,
        now: Time,
        cluster_id: u64,
        connection: u64,
        hello: &Hello,
        is_alive: bool,
    ) -> Result<Admission, NotAdmitted> {
        check_hello(hello, self.limits.max_shards_per_member)?;
        let process = (hello.instance.clone(), hello.process);
        let held = ServerId(hello.server_id);
        let held = (hello.cluster_id == cluster_id && held.is_valid()).then_some(held);
        let death = self.settle_process(hello, &process, held, is_alive)?;
        let member = self.members.get(&hello.member);
        let member = member.expect("it was settled");
        let index = member.servers[hello.shard_index as usize];
        let link = MemberSession {
            is_interrupted: false,
            connection,
            last_heard: now,
            next_sequence: 0,
            told_at: 0,
            takes_settings: hello.takes_settings,
            merges_tablets: hello.merges_tablets,
            unanswered: BTreeMap::new(),
        };
        let server = self
            .servers
            .get_mut(&index)
            .expect("every member's servers exist");
        server.locator.clone_from(&hello.locator);
        server.backup_locator.clone_from(&hello.backup_locator);
        server.peer_locator.clone_from(&hello.peer_locator);
        server.domain.clone_from(&hello.domain);
        server.replicas = hello.replicas;
        server.backup_only = hello.backup_only;
        server.log_capacity_bytes = hello.log_capacity_bytes;
        // Reports on another connection say nothing of the list that this connection was told.
        server.pong.sequence = 0;
        server.pong.on_draining = None;
        server.pong.settings = 0;
        let replaced = server.link.replace(link);
        if let Some(old) = &replaced {
            self.connections.remove(&old.connection);
        }
        self.connections.insert(connection, index);
        // Also if it says what it said before: a Welcome waits for a commit, and only who leads can commit.
        self.server_changed(index);
        Ok(Admission {
            index,
            death,
            replaced,
        })
    }

    /// Makes the process of `hello` its member's present one, unless it is that already or must not be.
    fn settle_process(
        &mut self,
        hello: &Hello,
        process: &Process,
        held: Option<ServerId>,
        is_alive: bool,
    ) -> Result<Option<Death>, NotAdmitted> {
        let name = &hello.member;
        if self
            .removed
            .get(&(name.clone(), hello.instance.clone()))
            .is_some()
        {
            let (member, instance) = (name.clone(), hello.instance.clone());
            return Err(Refusal::InstanceRemoved { member, instance }.into());
        }
        let Some(member) = self.members.get(name) else {
            if let Some(held) = held {
                let member = name.clone();
                return Err(Refusal::MemberRemoved { member, held }.into());
            }
            self.add_member(hello)?;
            return Ok(None);
        };
        if member.process == *process && !member.is_dead {
            if member.shard_count != hello.shard_count as usize {
                let refusal = Refusal::OtherShardCount {
                    member: name.clone(),
                    before: member.shard_count,
                    now: hello.shard_count,
                };
                return Err(refusal.into());
            }
            let known = self.servers[&member.servers[hello.shard_index as usize]].id;
            return match held {
                Some(held) if held != known => {
                    let refusal = Refusal::OtherServer {
                        member: name.clone(),
                        shard: hello.shard_index,
                        known,
                        held,
                    };
                    Err(refusal.into())
                }
                Some(_) | None => Ok(None),
            };
        }
        if member.is_dead && member.process == *process {
            let member = name.clone();
            return Err(Refusal::DeclaredDead { member }.into());
        }
        if held.is_some() || member.past.contains(process) {
            let refusal = Refusal::Replaced {
                member: name.clone(),
                by_instance: member.process.0.clone(),
            };
            return Err(refusal.into());
        }
        if !member.is_dead && self.is_connected(member) {
            // Data that is there is not given up because somebody else says that it has the name.
            let refusal = Refusal::NameTaken {
                member: name.clone(),
                by_instance: member.process.0.clone(),
            };
            return Err(refusal.into());
        }
        if !is_alive {
            return Err(NotAdmitted::MustShowLife);
        }
        let highest = member.servers.iter();
        let highest = highest.map(|index| self.servers[index].id.generation());
        if highest.max() >= Some(MAX_GENERATION) {
            let refusal = Refusal::IncarnationLimit {
                member: name.clone(),
                most: MAX_GENERATION,
            };
            return Err(refusal.into());
        }
        let mut death = self.end_process(name);
        let successors = self.replace_process(hello);
        if let Some(death) = &mut death {
            death.successors = successors;
        }
        Ok(death)
    }

    fn add_member(&mut self, hello: &Hello) -> Result<(), Refusal> {
        if self.members.len() >= self.limits.max_members {
            let members = self.members.len();
            return Err(Refusal::MemberLimit { members });
        }
        let servers = (0..hello.shard_count)
            .map(|shard| self.add_server(&hello.member, shard))
            .collect();
        let member = Member {
            process: (hello.instance.clone(), hello.process),
            host_id: hello.host_id.clone(),
            build_version: hello.build_version.clone(),
            formats: formats_of(hello),
            servers,
            shard_count: hello.shard_count as usize,
            incarnations: 1,
            is_dead: false,
            is_draining: false,
            is_last_resort: false,
            past: VecDeque::new(),
        };
        self.members.insert(hello.member.clone(), member);
        self.changes += 1;
        Ok(())
    }

    fn add_server(&mut self, member: &str, shard_index: u32) -> u32 {
        self.last_index += 1;
        let server = Server::new(ServerId::new(self.last_index, 0), member, shard_index);
        self.servers.insert(self.last_index, server);
        self.server_changed(self.last_index);
        self.last_index
    }

    /// The member's present process is dead. `None` if that is known already, or there is no such member.
    pub fn end_process(&mut self, name: &str) -> Option<Death> {
        if self.members.get(name)?.is_dead {
            return None;
        }
        let member = self.members.get_mut(name)?;
        member.is_dead = true;
        self.changes += 1;
        if member.past.len() == MAX_PAST_PROCESSES {
            member.past.pop_front();
        }
        let instance = member.process.0.clone();
        member.past.push_back(member.process.clone());
        let mut servers = Vec::new();
        for (shard, index) in member.servers.iter().enumerate() {
            self.changed_servers.insert(*index);
            let place = self.servers.get_mut(index)?;
            // Also for places that the process did not fill: a generation once given out never comes back.
            let next = ServerId::new(*index, place.id.generation() + 1);
            let next = Server::new(next, name, place.shard_index);
            let dead = std::mem::replace(place, next);
            if let Some(link) = &dead.link {
                self.connections.remove(&link.connection);
            }
            if shard < member.shard_count {
                servers.push(dead);
            }
        }
        Some(Death {
            member: name.to_owned(),
            instance,
            servers,
            successors: Vec::new(),
        })
    }

    /// The member's process is dead, and `hello`'s takes its place. Returns its servers' indexes.
    fn replace_process(&mut self, hello: &Hello) -> Vec<u32> {
        let known = self.members.get(&hello.member);
        let known = known.map_or(0, |member| member.servers.len());
        let new_count = hello.shard_count as usize;
        let added: Vec<u32> = (known..new_count)
            .map(|shard| self.add_server(&hello.member, shard as u32))
            .collect();
        let member = self
            .members
            .get_mut(&hello.member)
            .expect("looked up by the caller");
        member.servers.extend(added);
        member.shard_count = new_count;
        member.incarnations += 1;
        member.is_dead = false;
        self.changes += 1;
        member.host_id.clone_from(&hello.host_id);
        member.build_version.clone_from(&hello.build_version);
        member.formats = formats_of(hello);
        member.process = (hello.instance.clone(), hello.process);
        member.servers().to_vec()
    }
}

/// Whether what a shard says of itself can be.
pub fn check_hello(hello: &Hello, max_shards: u32) -> Result<(), Refusal> {
    for (what, text, may_be_empty) in [
        ("member name", &hello.member, false),
        ("instance", &hello.instance, false),
        ("host id", &hello.host_id, true),
        ("build version", &hello.build_version, true),
        ("domain", &hello.domain, true),
        ("backup's locator", &hello.backup_locator, true),
        ("locator for other servers", &hello.peer_locator, true),
    ] {
        if text.is_empty() && !may_be_empty {
            return Err(Refusal::Empty { what });
        }
        if text.len() > MAX_TEXT_BYTES {
            return Err(Refusal::TooLong {
                what,
                bytes: text.len(),
                most_bytes: MAX_TEXT_BYTES,
            });
        }
    }
    if hello.shard_count == 0
        || hello.shard_count > max_shards
        || hello.shard_index >= hello.shard_count
    {
        return Err(Refusal::OddShard {
            shard: hello.shard_index,
            shards: hello.shard_count,
            most_shards: max_shards,
        });
    }
    if hello.locator.len() > MAX_LOCATOR_BYTES {
        return Err(Refusal::TooLong {
            what: "service locator",
            bytes: hello.locator.len(),
            most_bytes: MAX_LOCATOR_BYTES,
        });
    }
    match locator::parse_list(&hello.locator) {
        Ok(list) if !list.is_empty() => Ok(()),
        Ok(_) => Err(Refusal::Empty {
            what: "service locator",
        }),
        Err(error) => Err(Refusal::OddLocator {
            locator: hello.locator.clone(),
            error,
        }),
    }
}

/// What a process reads.
pub fn formats_of(hello: &Hello) -> Formats {
    Formats::said(hello.oldest_format, hello.newest_format)
}
