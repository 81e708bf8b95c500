//! Who is dead. A server whose connection is gone or silent is suspected; others are asked to ping it; only if these do not reach it either
//! is its process declared dead. Being wrong costs a recovery and harms nothing: the backups refuse the deposed one.
//!
//! A server that keeps the only copy of what it holds is never declared dead because of silence.

use core::time::Duration;
use std::collections::BTreeMap;

use base::bugs::{Bug, is_planted};
use base::time::Time;
use wire::member::{Probe, Probed, ToShard, coordinator};

use crate::CoordinatorEffects;
use crate::registry::members::{MemberSession, Server};
use crate::reports::MemberEvent;
use crate::store::Store;

/// Servers that are asked about one suspect at a time.
const PROBERS: usize = 3;
/// Rounds of questions follow one another in this pace where they brought no verdict, in parts of the death time-out.
const ROUND: u32 = 2;
/// Others are asked about a server that was silent for this part of the death time-out. They have the whole time-out to reach it.
const SILENT_PART: u32 = 2;
/// How much longer silent servers are waited for when they are most of all, in death time-outs.
const PATIENCE: u32 = 10;

/// What is known of servers that may be dead, by index.
#[derive(Debug, Default)]
pub(crate) struct Suspicions(BTreeMap<u32, Suspicion>);

#[derive(Debug)]
struct Suspicion {
    since: Time,
    /// Nothing is heard on its connection, which may be due to this side.
    is_silent: bool,
    /// Sequence numbers of probes by the server that was asked, and what it said.
    asked: BTreeMap<u32, (u64, Option<bool>)>,
    next_round: Time,
    /// So that others are asked each time.
    rounds: usize,
}

impl Suspicion {
    /// Most of those who were asked must say so, for one of them may be cut off itself.
    fn is_confirmed(&self) -> bool {
        let asked = self.asked.values();
        let dead = asked.filter(|(_, said)| *said == Some(false)).count();
        dead > self.asked.len() / 2 || dead > 0 && is_planted(Bug::BelieveOneProber)
    }
}

/// Its session, while that has a connection.
fn connected(server: &Server) -> Option<&MemberSession> {
    server.link.as_ref().filter(|link| !link.is_interrupted)
}

impl Suspicions {
    /// Something about this server broke, or it is silent. Nothing happens if it is well, or must not be declared dead.
    pub(crate) fn suspect(
        &mut self,
        store: &mut Store,
        now: Time,
        index: u32,
        is_silent: bool,
        out: &mut impl CoordinatorEffects,
    ) {
        let is_suspicious = store.members.server(index).is_some_and(|server| {
            server.has_enlisted()
                && server.is_replaceable()
                && connected(server)
                    .is_none_or(|link| now.since(link.last_heard) >= 2 * store.config.ping_interval)
        });
        if !is_suspicious {
            return;
        }
        let server = store.members.server(index);
        let is_silent = is_silent || server.is_some_and(Server::is_connected);
        self.0.entry(index).or_insert(Suspicion {
            since: now,
            is_silent,
            asked: BTreeMap::new(),
            next_round: now,
            rounds: 0,
        });
        self.ask_about(store, now, index, out);
    }

    /// Somebody says that this server is dead, which proves nothing. If it has missed two pings, all that have are asked about now, so that
    /// [`Self::patience`] counts them; a server without a connection is suspected when it should be without that.
    pub(crate) fn hinted(
        &mut self,
        store: &mut Store,
        now: Time,
        index: u32,
        out: &mut impl CoordinatorEffects,
    ) {
        let pings = 2 * store.config.ping_interval;
        let is_silent = |server: &Server| {
            let link = server.link.as_ref();
            link.is_some_and(|link| now.since(link.last_heard) >= pings)
        };
        if !store.members.server(index).is_some_and(is_silent) {
            return;
        }
        let silent = store.members.servers().filter(|server| is_silent(server));
        let silent: Vec<u32> = silent.map(|server| server.id.index()).collect();
        for index in silent {
            self.suspect(store, now, index, true, out);
        }
    }

    /// It was heard of.
    pub(crate) fn is_well(&mut self, index: u32) {
        self.0.remove(&index);
    }

    /// This process was away: what others did meanwhile has yet to be read.
    pub(crate) fn begin_anew(&mut self) {
        self.0.clear();
    }

    /// Servers that have been silent for too long are suspected, and those that are suspected already are asked about again.
    pub(crate) fn look(
        &mut self,
        store: &mut Store,
        now: Time,
        out: &mut impl CoordinatorEffects,
    ) -> Time {
        let timeout = store.config.death_timeout;
        let silent = |server: &Server| match connected(server) {
            Some(link) => now.since(link.last_heard) >= timeout / SILENT_PART,
            None => now.since(store.ledger.started) >= store.config.silence_timeout,
        };
        let enlisted = store.members.enlisted();
        let suspects: Vec<u32> = enlisted
            .filter(|(server, _)| server.is_replaceable() && silent(server))
            .map(|(server, _)| server.id.index())
            .collect();
        for index in suspects {
            self.suspect(store, now, index, true, out);
        }
        let due: Vec<u32> = self.0.keys().copied().collect();
        for index in due {
            self.ask_about(store, now, index, out);
        }
        let rounds = self.0.values();
        rounds
            .map(|suspicion| suspicion.next_round)
            .min()
            .unwrap_or(Time::NEVER)
    }

    /// Begins the next round of questions, if it is time.
    fn ask_about(
        &mut self,
        store: &mut Store,
        now: Time,
        index: u32,
        out: &mut impl CoordinatorEffects,
    ) {
        let timeout = store.config.death_timeout;
        let Some(suspicion) = self.0.get_mut(&index) else {
            return;
        };
        if suspicion.next_round > now {
            return;
        }
        let Some(suspect) = store
            .members
            .server(index)
            .filter(|server| server.has_enlisted())
        else {
            self.0.remove(&index);
            return;
        };
        let (id, member) = (suspect.id, suspect.member.clone());
        let locator = suspect.locator.clone();
        suspicion.next_round = now + timeout * ROUND;
        suspicion.asked.clear();
        suspicion.rounds += 1;
        let skip = suspicion.rounds * PROBERS;
        let others: Vec<u32> = store.members.linked().map(|(other, _, _)| other).collect();
        let others: Vec<u32> = others
            .into_iter()
            .filter(|other| {
                let server = store.members.server(*other);
                server.is_some_and(|server| server.member != member)
            })
            .collect();
        let probers = others.iter().cycle().skip(skip % others.len().max(1));
        for &prober in probers.take(PROBERS.min(others.len())) {
            let server = store.members.server_mut(prober);
            let Some(link) = server.and_then(|server| server.link.as_mut()) else {
                continue;
            };
            let sequence = link.sequence();
            suspicion.asked.insert(prober, (sequence, None));
            let probe = Probe {
                sequence,
                server_id: id.0,
                locator: locator.clone(),
                timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
            };
            let kind = coordinator::Kind::Probe(probe);
            out.send_member(link.connection, ToShard::from(kind));
        }
    }

    /// A server says whether it reaches a suspect. What is returned is the member whose process is dead by that.
    pub(crate) fn probed(
        &mut self,
        store: &mut Store,
        now: Time,
        prober: u32,
        probed: Probed,
        out: &mut impl CoordinatorEffects,
    ) -> Option<String> {
        let of_prober = |(_, suspicion): &(&u32, &mut Suspicion)| {
            let asked = suspicion.asked.get(&prober);
            asked.is_some_and(|(sequence, _)| *sequence == probed.sequence)
        };
        let (&index, suspicion) = self.0.iter_mut().find(of_prober)?;
        suspicion
            .asked
            .insert(prober, (probed.sequence, Some(probed.is_alive)));
        let waited = now.since(suspicion.since);
        let is_sure = !suspicion.is_silent || waited >= self.patience(store);
        if self.0[&index].is_confirmed() && is_sure {
            return self.declare_dead(store, index, waited, out);
        }
        None
    }

    /// How long a silent server is waited for although others do not reach it. If most servers are silent it may be this one that is cut off,
    /// together with those that it still hears.
    fn patience(&self, store: &Store) -> Duration {
        let silent = self.0.values();
        let silent = silent.filter(|suspicion| suspicion.is_silent).count();
        let is_most = silent > 1 && silent * 2 > store.members.enlisted().count();
        if is_most {
            store.config.death_timeout * PATIENCE
        } else {
            Duration::ZERO
        }
    }

    /// Nobody reaches it: its process has ended for the store, whatever it believes itself.
    fn declare_dead(
        &mut self,
        store: &Store,
        index: u32,
        waited: Duration,
        out: &mut impl CoordinatorEffects,
    ) -> Option<String> {
        let server = store.members.server(index)?;
        let (id, member) = (server.id, server.member.clone());
        let process = store.members.get(&member)?;
        // All that its other shards hold must be elsewhere as well.
        let shards = process.servers().to_vec();
        let is_replaceable = |index: &u32| {
            let server = store.members.server(*index);
            server.is_some_and(|server| {
                server.is_replaceable() || store.tables.tablets_of(*index) == 0
            })
        };
        if !shards.iter().all(is_replaceable) {
            return None;
        }
        let event = MemberEvent::ServerDead {
            server: id,
            member: member.clone(),
            suspected_ms: waited.as_millis(),
        };
        out.report(event.into());
        for shard in shards {
            self.0.remove(&shard);
        }
        Some(member)
    }
}

#[cfg(test)]
mod tests {
    use base::bugs::plant;
    use wire::member::coordinator::Kind;

    use super::*;
    use crate::alone::{self, Said, index};

    struct Alone {
        store: Store,
        suspicions: Suspicions,
        out: Said,
        now: Time,
    }

    impl Alone {
        fn new() -> Alone {
            let (store, _) = alone::store(4);
            Alone {
                store,
                suspicions: Suspicions::default(),
                out: Said::default(),
                now: Time(10_000_000_000),
            }
        }

        /// Server 1 is silent; who is asked about it.
        fn suspects(&mut self) -> Vec<(u64, Probe)> {
            let first = index(&self.store, 1);
            let (store, out) = (&mut self.store, &mut self.out);
            self.suspicions.suspect(store, self.now, first, true, out);
            let said = self.out.take().into_iter();
            let probes = said.filter_map(|(on, kind)| match kind {
                Kind::Probe(probe) => Some((on - 100, probe)),
                _ => None,
            });
            probes.collect()
        }

        fn says(&mut self, (prober, probe): &(u64, Probe), is_alive: bool) -> Option<String> {
            let probed = Probed {
                sequence: probe.sequence,
                is_alive,
            };
            let prober = index(&self.store, *prober);
            let (store, out) = (&mut self.store, &mut self.out);
            self.suspicions.probed(store, self.now, prober, probed, out)
        }
    }

    /// Whether nobody is dead because one server says so, and somebody is because most do.
    fn most_are_believed() -> bool {
        let mut alone = Alone::new();
        let asked = alone.suspects();
        assert_eq!(asked.len(), PROBERS, "{asked:?}");
        let by_one = alone.says(&asked[0], false);
        let by_two = alone.says(&asked[1], false);
        by_one.is_none() && by_two.as_deref() == Some("m1")
    }

    #[test]
    fn most_of_those_who_are_asked_must_say_so() {
        assert!(most_are_believed());
        plant(Some(Bug::BelieveOneProber));
        let is_missed = most_are_believed();
        plant(None);
        assert!(!is_missed, "the planted bug is not found");
    }

    #[test]
    fn whoever_is_heard_of_is_not_suspected_any_more() {
        let mut alone = Alone::new();
        let asked = alone.suspects();
        alone.suspicions.is_well(index(&alone.store, 1));
        for one in &asked {
            assert_eq!(alone.says(one, false), None);
        }
        let mut alone = Alone::new();
        let asked = alone.suspects();
        for one in &asked {
            assert_eq!(alone.says(one, true), None);
        }
        assert!(alone.suspects().is_empty(), "the next round comes later");
    }
}
