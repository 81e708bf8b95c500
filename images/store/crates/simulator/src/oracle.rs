//! Watches one shard's replies: none may show what is not durable yet.
//!
//! It knows nothing of how the shard holds replies back. From the requests alone it keeps, for each key, how far the log had
//! got when the newest change of the key was surely made; a reply about the key must wait until the log is durable that far.

use std::collections::BTreeMap;

use master::LogPosition;
use wire::ids::{ReplyTo, TableId};
use wire::opcode::Opcode;
use wire::rpc::{self, MultiWriteRequest, ReadRequest, RejectRules, RemoveRequest, WriteRequest};
use wire::status::Status;

type Key = (TableId, Vec<u8>);

/// What is known of a key.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// It surely has an object, so that a remove changes it.
    exists: bool,
    changed_at: LogPosition,
}

#[derive(Debug, Default)]
pub struct Oracle {
    keys: BTreeMap<Key, Known>,
    /// Where the log was after a numbered request was executed, by lease and RPC id.
    executed: BTreeMap<(u64, u64), LogPosition>,
    /// Replies that must wait, and until when.
    waiting: BTreeMap<ReplyTo, LogPosition>,
}

/// What a request does to one key.
enum Effect {
    Looks,
    /// Writes if the rules let it; surely, if there are none and memory suffices.
    Writes {
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
        for (key, effect) in effects(payload) {
            let known = self.keys.get(&key).copied();
            match effect {
                Effect::Looks => {
                    until = known.map_or(until, |known| until.max(known.changed_at));
                }
                Effect::Writes { is_sure } if has_appended => {
                    let changed_at = if is_sure {
                        after
                    } else {
                        known.map_or(LogPosition::START, |known| known.changed_at)
                    };
                    let exists = is_sure;
                    self.keys.insert(key, Known { exists, changed_at });
                }
                Effect::Removes { is_sure } if has_appended => {
                    let existed = known.is_some_and(|known| known.exists);
                    let changed_at = if is_sure && existed {
                        after
                    } else {
                        known.map_or(LogPosition::START, |known| known.changed_at)
                    };
                    let exists = false;
                    self.keys.insert(key, Known { exists, changed_at });
                }
                Effect::Writes { .. } | Effect::Removes { .. } => {}
            }
        }
        self.waiting.insert(to, until);
    }

    /// The shard replies, while its log is durable up to `durable`. Says what is wrong with that.
    pub fn replied(
        &mut self,
        to: ReplyTo,
        payload: &[u8],
        durable: LogPosition,
    ) -> Result<(), String> {
        let Some(until) = self.waiting.remove(&to) else {
            return Err(format!("a second reply to request {to:?}"));
        };
        // These say nothing of any object.
        let is_silent = matches!(
            rpc::status(payload),
            Ok(Status::Retry
                | Status::UnknownTablet
                | Status::StaleRpc
                | Status::ExpiredLease
                | Status::NoTableSpace)
        );
        if is_silent || until <= durable {
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
        for until in self.waiting.values_mut() {
            *until = LogPosition::START;
        }
    }
}

/// Lease and RPC id of a request that has them.
fn numbers(payload: &[u8]) -> Option<(u64, u64)> {
    let header = rpc::header(payload).ok()?;
    match Opcode::from_u16(header.opcode)? {
        Opcode::Write => {
            let request = WriteRequest::decode(payload).ok()?;
            Some((request.lease.id, request.rpc_id))
        }
        Opcode::Remove => {
            let request = RemoveRequest::decode(payload).ok()?;
            Some((request.lease.id, request.rpc_id))
        }
        _ => None,
    }
}

/// The keys that a request concerns.
fn effects(payload: &[u8]) -> Vec<(Key, Effect)> {
    let Ok(header) = rpc::header(payload) else {
        return Vec::new();
    };
    let no_rules = RejectRules::default();
    match Opcode::from_u16(header.opcode) {
        Some(Opcode::Read) => ReadRequest::decode(payload)
            .map(|request| vec![((request.table_id, request.key.to_vec()), Effect::Looks)])
            .unwrap_or_default(),
        Some(Opcode::Write) => WriteRequest::decode(payload)
            .map(|request| {
                let key = (request.table_id, request.object.primary_key().to_vec());
                let is_sure = request.rules == no_rules;
                vec![(key, Effect::Writes { is_sure })]
            })
            .unwrap_or_default(),
        Some(Opcode::Remove) => RemoveRequest::decode(payload)
            .map(|request| {
                let key = (request.table_id, request.key.to_vec());
                let is_sure = request.rules == no_rules;
                vec![(key, Effect::Removes { is_sure })]
            })
            .unwrap_or_default(),
        Some(Opcode::MultiOp) => MultiWriteRequest::decode(payload)
            .map(|request| {
                request
                    .parts()
                    .map(|part| {
                        let key = (part.table_id, part.object.primary_key().to_vec());
                        // A part may have met a full memory without showing it in the log's position.
                        (key, Effect::Writes { is_sure: false })
                    })
                    .collect()
            })
            .unwrap_or_default(),
        _ => Vec::new(),
    }
}
