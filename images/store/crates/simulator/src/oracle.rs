//! Watches one shard's replies: none may show what is not durable yet.
//!
//! It knows nothing of how the shard holds replies back. From the requests alone it keeps, for each key, how far the log had
//! got when the newest change of the key was surely made; a reply about the key must wait until the log is durable that far.

use std::collections::BTreeMap;

use master::LogPosition;
use wire::ids::{ReplyTo, TableId};
use wire::opcode::Opcode;
use wire::rpc::{
    self, EnumerateRequest, EnumerateResponse, EnumeratedObject, IncrementRequest, MultiKind,
    ReadRequest, RejectRules, RemoveRequest, WriteRequest,
};
use wire::status::Status;

use crate::attempts;

type Key = (TableId, Vec<u8>);

/// What is known of a key.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// It surely has an object, so that a remove changes it.
    exists: bool,
    /// The object, if there is one, surely has 8 bytes, so that an increment changes it.
    is_number: bool,
    changed_at: LogPosition,
}

/// A reply that must wait.
#[derive(Debug)]
struct Waiting {
    until: LogPosition,
    shows: Shows,
}

/// What a reply shows depends on what it says.
#[derive(Debug)]
enum Shows {
    /// All that it was asked for.
    All,
    /// Each part that it carried out, and where that key had last been changed.
    Parts(MultiKind, Vec<LogPosition>),
    /// Each object that it returns, of these.
    Objects(BTreeMap<Key, LogPosition>),
}

#[derive(Debug, Default)]
pub struct Oracle {
    keys: BTreeMap<Key, Known>,
    /// Where the log was after a numbered request was executed, by lease and RPC id.
    executed: BTreeMap<(u64, u64), LogPosition>,
    /// Replies that must wait.
    waiting: BTreeMap<ReplyTo, Waiting>,
}

/// What a request does to one key.
enum Effect {
    Looks,
    /// Writes if the rules let it; surely, if there are none and memory suffices.
    Writes {
        is_sure: bool,
        is_number: bool,
    },
    /// Adds to a number, if there is one.
    Adds {
        is_sure: bool,
    },
    Removes {
        is_sure: bool,
    },
}

impl Oracle {
    /// A request was handed to the shard, whose log went from `before` to `after` by it.
    pub fn requested(
        &mut self,
        to: ReplyTo,
        payload: &[u8],
        before: LogPosition,
        after: LogPosition,
    ) {
        let has_appended = after > before;
        // A reply to what was appended waits for that at least.
        let mut until = if has_appended {
            after
        } else {
            LogPosition::START
        };
        if let Some(numbers) = numbers(payload) {
            let executed = self.executed.entry(numbers).or_default();
            // Sent again, it shows no more than the first time.
            until = until.max(*executed);
            *executed = until;
        }
        let shows = self.shows(payload);
        for (key, effect) in effects(payload) {
            let known = self.keys.get(&key).copied();
            let changed_before = known.map_or(LogPosition::START, |known| known.changed_at);
            let existed = known.is_some_and(|known| known.exists);
            let was_number = known.is_some_and(|known| known.is_number);
            let (exists, is_number, is_changed) = match effect {
                Effect::Looks => {
                    until = until.max(changed_before);
                    continue;
                }
                _ if !has_appended => continue,
                Effect::Writes { is_sure, is_number } => (is_sure, is_sure && is_number, is_sure),
                Effect::Adds { is_sure } => {
                    let is_sure = is_sure && existed && was_number;
                    (is_sure, was_number, is_sure)
                }
                Effect::Removes { is_sure } => (false, was_number, is_sure && existed),
            };
            let changed_at = if is_changed { after } else { changed_before };
            let known = Known {
                exists,
                is_number,
                changed_at,
            };
            self.keys.insert(key, known);
        }
        self.waiting.insert(to, Waiting { until, shows });
    }

    fn shows(&self, payload: &[u8]) -> Shows {
        let changed_at = |key: &Key| {
            let known = self.keys.get(key);
            known.map_or(LogPosition::START, |known| known.changed_at)
        };
        match opcode(payload) {
            Some(Opcode::MultiOp) => {
                let names = attempts::names(payload).unwrap_or_default();
                let Some((kind, ..)) = names.first() else {
                    return Shows::All;
                };
                let parts = names
                    .iter()
                    .map(|(_, table, key)| changed_at(&(*table, key.clone())));
                Shows::Parts(*kind, parts.collect())
            }
            Some(Opcode::Enumerate) => {
                let request = EnumerateRequest::decode(payload);
                let table = request.map_or(TableId(0), |request| request.table_id);
                let its = self.keys.iter().filter(|((of, _), _)| *of == table);
                let its = its.map(|(key, known)| (key.clone(), known.changed_at));
                Shows::Objects(its.collect())
            }
            _ => Shows::All,
        }
    }

    /// The shard replies, while its log is durable up to `durable`. Says what is wrong with that.
    pub fn replied(
        &mut self,
        to: ReplyTo,
        payload: &[u8],
        durable: LogPosition,
    ) -> Result<(), String> {
        let Some(waiting) = self.waiting.remove(&to) else {
            return Err(format!("a second reply to request {to:?}"));
        };
        let until = waiting.until.max(waiting.shows.seen_in(payload));
        if rpc::status(payload).is_ok_and(is_silent) || until <= durable {
            return Ok(());
        }
        Err(format!(
            "a reply left that shows the log up to {}, which is durable up to {} only",
            until.0, durable.0
        ))
    }

    /// The shard dropped everything: positions begin anew.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.executed.clear();
        for waiting in self.waiting.values_mut() {
            waiting.until = LogPosition::START;
            waiting.shows = Shows::All;
        }
    }
}

impl Shows {
    /// How far the log must be durable for what this reply says of objects that were there before the request.
    fn seen_in(&self, payload: &[u8]) -> LogPosition {
        let positions: Vec<LogPosition> = match self {
            Shows::All => Vec::new(),
            Shows::Parts(kind, parts) => {
                let statuses = attempts::statuses(*kind, payload).into_iter();
                let parts = parts.iter().zip(statuses);
                let told = parts.filter(|(_, status)| !is_silent(*status));
                told.map(|(&position, _)| position).collect()
            }
            Shows::Objects(known) => {
                let response = EnumerateResponse::decode(payload);
                let objects = response.map_or(&[][..], |response| response.objects);
                EnumeratedObject::decode_all(objects)
                    .flatten()
                    .filter_map(|object| {
                        let key = object.object.primary_key().to_vec();
                        known.get(&(object.table_id, key)).copied()
                    })
                    .collect()
            }
        };
        positions.into_iter().max().unwrap_or(LogPosition::START)
    }
}

/// Whether a reply, or a part of one, says nothing of any object with this status.
fn is_silent(status: Status) -> bool {
    matches!(
        status,
        Status::Retry
            | Status::UnknownTablet
            | Status::StaleRpc
            | Status::ExpiredLease
            | Status::NoTableSpace
    )
}

fn opcode(payload: &[u8]) -> Option<Opcode> {
    Opcode::from_u16(rpc::header(payload).ok()?.opcode)
}

/// Lease and RPC id of a request that has them.
fn numbers(payload: &[u8]) -> Option<(u64, u64)> {
    match opcode(payload)? {
        Opcode::Write => {
            let request = WriteRequest::decode(payload).ok()?;
            Some((request.lease.id, request.rpc_id))
        }
        Opcode::Remove => {
            let request = RemoveRequest::decode(payload).ok()?;
            Some((request.lease.id, request.rpc_id))
        }
        Opcode::Increment => {
            let request = IncrementRequest::decode(payload).ok()?;
            Some((request.lease.id, request.rpc_id))
        }
        _ => None,
    }
}

/// The keys that a request concerns.
fn effects(payload: &[u8]) -> Vec<(Key, Effect)> {
    let is_sure = |rules| rules == RejectRules::default();
    let one = match opcode(payload) {
        Some(Opcode::Read | Opcode::ReadKeysAndValue) => ReadRequest::decode(payload)
            .map(|request| ((request.table_id, request.key.to_vec()), Effect::Looks)),
        Some(Opcode::Write) => WriteRequest::decode(payload).map(|request| {
            let key = (request.table_id, request.object.primary_key().to_vec());
            let (is_sure, is_number) = (is_sure(request.rules), request.object.value().len() == 8);
            (key, Effect::Writes { is_sure, is_number })
        }),
        Some(Opcode::Increment) => IncrementRequest::decode(payload).map(|request| {
            let key = (request.table_id, request.key.to_vec());
            let is_sure = is_sure(request.rules);
            (key, Effect::Adds { is_sure })
        }),
        Some(Opcode::Remove) => RemoveRequest::decode(payload).map(|request| {
            let key = (request.table_id, request.key.to_vec());
            let is_sure = is_sure(request.rules);
            (key, Effect::Removes { is_sure })
        }),
        Some(Opcode::MultiOp) => {
            let names = attempts::names(payload).unwrap_or_default();
            return names.into_iter().filter_map(part_effect).collect();
        }
        _ => return Vec::new(),
    };
    one.into_iter().collect()
}

/// A part may have met a full memory without showing it in the log's position. What it looks at, [`Shows::Parts`] knows.
fn part_effect((kind, table, key): attempts::PartName) -> Option<(Key, Effect)> {
    let effect = match kind {
        MultiKind::Read => return None,
        MultiKind::Write => Effect::Writes {
            is_sure: false,
            is_number: false,
        },
        MultiKind::Increment => Effect::Adds { is_sure: false },
        MultiKind::Remove => Effect::Removes { is_sure: false },
    };
    Some(((table, key), effect))
}
