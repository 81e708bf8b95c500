//! A store is made again from what its volumes hold: docs/rebuild.md.
//!
//! A coordinator without any state hears what is in the volumes, takes the newest checkpoint once it has heard from enough of those that this one names,
//! and goes on as the store's next leader. Every process that served before counts as dead: what they had is recovered from their logs.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use base::ids::ServerId;
use base::time::Time;
use wire::member::{CheckpointPart, Hello, MAX_CHECKPOINT_BYTES, ReadCheckpoint, RefusedReason};
use wire::member::{ToShard, coordinator};

use crate::config::Config;
use crate::effects::{CoordinatorEffects, refuse};
use crate::orders::{OtherStore, Surrender, SurrenderError};
use crate::registry::members::check_hello;
use crate::reports::{CheckpointError, Refusal, RestoreError, StateEvent};
use crate::state::Pair;
use crate::state::checkpoint::{self, HEADER_BYTES, Header};

/// Servers are asked again, so that both sides know that the other is there.
pub(crate) const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Volumes that the store could do without are waited for so long after the last one that came.
const PATIENCE: Duration = Duration::from_secs(30);
/// Of what is fetched at once.
const PIECE_BYTES: u32 = 256 << 10;
/// A piece that does not come in this time is asked for elsewhere.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_NAMED: usize = 8;

/// Member and shard.
type MemberShard = (String, u32);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// It was asked.
    Unknown,
    /// The volume is empty: whatever it held is lost.
    Empty,
    /// It is of this store, and holds no checkpoint.
    None(u64),
    Checkpoint(Header),
    Unreadable(CheckpointError),
}

#[derive(Debug)]
struct Volume {
    /// 0: none at present.
    connection: u64,
    found: Found,
}

#[derive(Debug)]
struct Fetch {
    place: MemberShard,
    header: Header,
    bytes: Vec<u8>,
    since: Time,
}

/// A store out of a checkpoint.
pub(crate) trait FromVolumes: Sized {
    /// # Errors
    /// The pairs are of a newer build, or do not fit together.
    fn restored(config: Config, pairs: Vec<Pair>, now: Time) -> Result<Self, RestoreError>;
    /// Member and shard of each backup that may have a newer checkpoint.
    fn places_of_backups(&self) -> Vec<(String, u32)>;
    /// How many members must have a checkpoint before it counts as kept.
    fn keepers_wanted(&self) -> usize;
}

/// Of the leadership that begins with the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begins {
    /// Random.
    pub nonce: u64,
    /// Terms are noted with the state.
    pub notes_term: bool,
}

/// A store that can go on.
pub(crate) struct Finished<S> {
    pub store: Box<S>,
    /// Of its checkpoint.
    pub header: Header,
    pub begins: Begins,
    /// Members whose volumes are gone for good, as somebody has said.
    pub given_up: BTreeSet<String>,
}

/// What is known so far.
#[derive(Debug)]
pub(crate) struct Rebuild<S> {
    config: Config,
    begins: Begins,
    volumes: BTreeMap<MemberShard, Volume>,
    /// Whose volumes these are.
    members: BTreeSet<String>,
    connections: BTreeMap<u64, MemberShard>,
    ask_at: Time,
    /// When something was learned last.
    news_at: Time,
    fetch: Option<Fetch>,
    /// Out of the newest checkpoint.
    candidate: Option<(Header, Box<S>)>,
    /// Checkpoints that cannot be used, and why.
    spoiled: BTreeMap<(u64, u64), CheckpointError>,
    /// Members whose volumes are gone for good, as somebody has said.
    given_up: BTreeSet<String>,
}

/// Which members with volumes there are, by the newest checkpoint, and which of them have yet to show theirs.
struct Expected {
    members: usize,
    unheard: BTreeSet<String>,
    missing: BTreeSet<String>,
}

/// Whether the volumes suffice.
pub(crate) enum Verdict {
    /// These members are missing, and can be.
    Enough(Vec<String>),
    /// For people.
    Wait(String),
}

fn ask(connection: u64, offset: usize, bytes: u32, out: &mut impl CoordinatorEffects) {
    let read = ReadCheckpoint {
        offset: offset as u64,
        bytes,
    };
    let kind = coordinator::Kind::ReadCheckpoint(read);
    out.send_member(connection, ToShard::from(kind));
}

impl<S: FromVolumes> Rebuild<S> {
    pub fn new(config: Config, begins: Begins, now: Time) -> Rebuild<S> {
        Rebuild {
            config,
            begins,
            volumes: BTreeMap::new(),
            members: BTreeSet::new(),
            connections: BTreeMap::new(),
            ask_at: now,
            news_at: now,
            fetch: None,
            candidate: None,
            spoiled: BTreeMap::new(),
            given_up: BTreeSet::new(),
        }
    }

    /// Ends all sessions. `None`: no checkpoint was read.
    pub fn finish(self, out: &mut impl CoordinatorEffects) -> Option<Finished<S>> {
        let (header, store) = self.candidate?;
        for connection in self.connections.keys() {
            out.close_member(*connection);
        }
        Some(Finished {
            store,
            header,
            begins: self.begins,
            given_up: self.given_up,
        })
    }

    pub fn hello(
        &mut self,
        now: Time,
        connection: u64,
        hello: &Hello,
        out: &mut impl CoordinatorEffects,
    ) {
        if ServerId(hello.server_id).is_valid() && hello.cluster_id != 0 {
            let text = "the store's coordinator has lost its state and makes it again from the volumes: processes that served before begin anew, start \
                        this one again";
            return refuse(connection, RefusedReason::Superseded, text.to_owned(), out);
        }
        if let Err(refusal) = self.check(hello) {
            return refuse(connection, refusal.reason(), refusal.to_string(), out);
        }
        let place = (hello.member.clone(), hello.shard_index);
        let is_empty = hello.volume_cluster_id == 0;
        let found = match is_empty {
            true => Found::Empty,
            false => Found::Unknown,
        };
        let here = if is_empty { 0 } else { connection };
        let before = self.volumes.get(&place);
        if before.is_none_or(|before| before.found == Found::Empty || is_empty) {
            self.news_at = now;
        }
        let volume = Volume {
            connection: here,
            // What was heard counts until something else is.
            found: match before {
                Some(before) if !is_empty => before.found.clone(),
                _ => found,
            },
        };
        self.volumes.insert(place.clone(), volume);
        if is_empty {
            let text = "the store is being made again from its volumes, and this server's is empty: it is let in afterwards".to_owned();
            return refuse(connection, RefusedReason::Invalid, text, out);
        }
        self.connections.insert(connection, place);
        ask(connection, 0, HEADER_BYTES as u32, out);
    }

    /// As many members as a store can have are heard, and as many shards of each: what is refused would be waited for like a volume that is gone.
    fn check(&mut self, hello: &Hello) -> Result<(), Refusal> {
        let limits = &self.config.limits;
        check_hello(hello, limits.max_shards_per_member)?;
        if self.members.contains(&hello.member) {
            return Ok(());
        }
        if self.members.len() >= limits.max_members {
            return Err(Refusal::MemberLimitOfRebuild {
                most: limits.max_members,
            });
        }
        self.members.insert(hello.member.clone());
        Ok(())
    }

    pub fn part(
        &mut self,
        now: Time,
        connection: u64,
        part: &CheckpointPart,
        out: &mut impl CoordinatorEffects,
    ) {
        let Some(place) = self.connections.get(&connection) else {
            return;
        };
        if let Some(fetch) = self.fetch.take_if(|fetch| fetch.place == *place) {
            return self.fetched(now, connection, fetch, part, out);
        }
        let found = match (part.total_bytes, Header::decode(&part.data)) {
            (0, _) => Found::None(part.cluster_id),
            (_, Ok(header)) => Found::Checkpoint(header),
            (_, Err(error)) => Found::Unreadable(error),
        };
        if let Some(volume) = self.volumes.get_mut(place)
            && volume.found != found
        {
            volume.found = found;
            self.news_at = now;
        }
    }

    fn fetched(
        &mut self,
        now: Time,
        connection: u64,
        mut fetch: Fetch,
        part: &CheckpointPart,
        out: &mut impl CoordinatorEffects,
    ) {
        if part.offset != fetch.bytes.len() as u64 || part.data.is_empty() {
            // It is another one by now, or the answer to what was asked before: the next look begins anew.
            return;
        }
        fetch.bytes.extend_from_slice(&part.data);
        fetch.since = now;
        let rank = fetch.header.rank();
        if part.total_bytes.max(fetch.bytes.len() as u64) > MAX_CHECKPOINT_BYTES {
            let bytes = part.total_bytes;
            self.spoiled
                .insert(rank, CheckpointError::TooLarge { bytes });
            return;
        }
        if (fetch.bytes.len() as u64) < part.total_bytes {
            ask(connection, fetch.bytes.len(), PIECE_BYTES, out);
            self.fetch = Some(fetch);
            return;
        }
        let restored = checkpoint::decode(&fetch.bytes).and_then(|(header, pairs)| {
            let store = S::restored(self.config.clone(), pairs, now);
            let store = store.map_err(CheckpointError::NoStore)?;
            Ok((header, Box::new(store)))
        });
        match restored {
            Ok(candidate) => self.candidate = Some(candidate),
            Err(error) => {
                let event = StateEvent::CheckpointUnusable {
                    checkpoint: fetch.header.id(),
                    error: error.clone(),
                };
                out.report(event.into());
                self.spoiled.insert(rank, error);
            }
        }
    }

    pub fn closed(&mut self, connection: u64) {
        let Some(place) = self.connections.remove(&connection) else {
            return;
        };
        self.fetch.take_if(|fetch| fetch.place == place);
        if let Some(volume) = self.volumes.get_mut(&place)
            && volume.connection == connection
        {
            volume.connection = 0;
        }
    }

    pub fn ask(&mut self, now: Time, out: &mut impl CoordinatorEffects) {
        self.fetch
            .take_if(|fetch| now >= fetch.since + FETCH_TIMEOUT);
        if now < self.ask_at {
            return;
        }
        self.ask_at = now + ASK_AGAIN;
        for (connection, place) in &self.connections {
            let is_fetched = self.fetch.as_ref().is_some_and(|it| it.place == *place);
            if !is_fetched {
                ask(*connection, 0, HEADER_BYTES as u32, out);
            }
        }
    }

    pub fn judge(&mut self, now: Time, out: &mut impl CoordinatorEffects) -> Verdict {
        let headers = self
            .volumes
            .iter()
            .filter_map(|(place, volume)| match volume.found {
                Found::Checkpoint(header) if !self.spoiled.contains_key(&header.rank()) => {
                    Some((header, place, volume.connection))
                }
                _ => None,
            });
        let headers: Vec<(Header, &MemberShard, u64)> = headers.collect();
        let stores: BTreeSet<u64> = headers.iter().map(|it| it.0.cluster_id).collect();
        if stores.len() > 1 {
            let named: Vec<String> = headers
                .iter()
                .map(|(header, place, _)| format!("{} has {:016x}", place.0, header.cluster_id))
                .take(MAX_NAMED)
                .collect();
            let text = format!(
                "the volumes are of different stores ({}): take those of all but one away",
                named.join(", ")
            );
            return Verdict::Wait(text);
        }
        let Some(newest) = headers.iter().map(|it| it.0).max_by_key(Header::rank) else {
            return Verdict::Wait(self.without_checkpoint());
        };
        if let Some((header, _)) = &self.candidate
            && *header == newest
        {
            return self.is_enough(now, &newest);
        }
        let mut holders = headers.iter().filter(|it| it.0 == newest && it.2 != 0);
        if self.fetch.is_none()
            && let Some(&(header, place, connection)) = holders.next()
        {
            ask(connection, 0, PIECE_BYTES, out);
            self.fetch = Some(Fetch {
                place: place.clone(),
                header,
                bytes: Vec::new(),
                since: now,
            });
        }
        Verdict::Wait(format!("reading checkpoint {}", newest.id()))
    }

    fn without_checkpoint(&self) -> String {
        let heard = self.volumes.len();
        let spoiled = self.spoiled.values().map(CheckpointError::to_string);
        let spoiled: Vec<String> = spoiled.take(MAX_NAMED).collect();
        let mut text =
            format!("heard from {heard} servers, and none has a checkpoint that can be used");
        if !spoiled.is_empty() {
            text += &format!(" ({})", spoiled.join("; "));
        }
        text
    }

    /// Whether no checkpoint that the store relied on can be newer than this one.
    fn is_enough(&self, now: Time, newest: &Header) -> Verdict {
        let Some((_, store)) = &self.candidate else {
            return Verdict::Wait("reading the checkpoint".to_owned());
        };
        let Expected {
            members,
            unheard,
            missing,
        } = self.expected(store);
        let wanted = store.keepers_wanted();
        let may_lack = missing.len() < wanted.max(1);
        let until = self.news_at + PATIENCE;
        let may_come = !unheard.is_subset(&self.given_up) && now < until;
        if may_lack && !may_come || missing.is_subset(&self.given_up) {
            return Verdict::Enough(missing.into_iter().collect());
        }
        let named: Vec<&str> = missing.iter().map(String::as_str).take(MAX_NAMED).collect();
        let mut text = format!(
            "heard from {} of {} members with volumes of store {:016x}, newest checkpoint {} of term {}; waiting for {}",
            members - missing.len(),
            members,
            newest.cluster_id,
            newest.number,
            newest.position.term,
            named.join(", ")
        );
        text += &match may_lack {
            true => format!(", for {} s after the last one at most", PATIENCE.as_secs()),
            false => format!(
                ": a newer checkpoint may lie with {wanted} of them. Only if their volumes are gone for good: rcbox rebuild give-up {}",
                named.join(" ")
            ),
        };
        Verdict::Wait(text)
    }

    fn expected(&self, store: &S) -> Expected {
        let places = store.places_of_backups();
        let found = |place: &MemberShard| self.volumes.get(place).map(|volume| &volume.found);
        let names = |is_meant: fn(Option<&Found>) -> bool| -> BTreeSet<String> {
            let places = places.iter().filter(|place| is_meant(found(place)));
            places.map(|(name, _)| name.clone()).collect()
        };
        let unheard = names(|found| matches!(found, None | Some(Found::Unknown)));
        let lost = names(|found| matches!(found, Some(Found::Empty | Found::Unreadable(_))));
        Expected {
            members: names(|_| true).len(),
            missing: unheard.union(&lost).cloned().collect(),
            unheard,
        }
    }

    pub fn give_up(&mut self, surrender: &Surrender, why: String) -> Result<(), SurrenderError> {
        let Some((header, store)) = &self.candidate else {
            return Err(SurrenderError::TooEarly(why));
        };
        let expected_cluster_id = surrender.expected_cluster_id;
        if expected_cluster_id != 0 && expected_cluster_id != header.cluster_id {
            return Err(SurrenderError::OtherStore(OtherStore {
                expected_cluster_id,
                cluster_id: header.cluster_id,
            }));
        }
        let missing = self.expected(store).missing;
        let named = surrender.members.iter();
        let others: Vec<String> = named.filter(|it| !missing.contains(*it)).cloned().collect();
        if !others.is_empty() {
            return Err(SurrenderError::NotMissing {
                members: others,
                missing: missing.into_iter().take(MAX_NAMED).collect(),
            });
        }
        self.given_up.extend(surrender.members.iter().cloned());
        Ok(())
    }
}
