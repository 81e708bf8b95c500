//! Watches one shard's replies: none may show what is not durable yet.
//!
//! It knows nothing of how the shard holds replies back. From the requests alone it keeps, for each key, how far the log had
//! got when the newest change of the key was surely made; a reply about the key must wait until the log is durable that far.

use std::collections::BTreeMap;

use base::ids::{ReplyTo, TableId};
use master::LogPosition;
use wire::opcode::Opcode;
use wire::rpc::{
    self, EnumerateRequest, EnumerateResponse, EnumeratedObject, IncrementRequest, MultiKind,
    ReadRequest, RejectRules, RemoveRequest, WriteRequest,
};
use wire::status::Status;

use crate::oracles::attempts;

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

#[cfg(test)]
mod tests {
    use super::*;
    use wire::keys::KeysAndValue;
    use wire::rpc::{
        Increment, Lease, MultiReadPart, MultiReadPartResponse, MultiRequest, MultiResponse,
    };

    const TABLE: TableId = TableId(1);
    const NOBODY: u64 = 0;

    fn to(nonce: u64) -> ReplyTo {
        ReplyTo {
            connection: 1,
            nonce,
        }
    }

    fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        bytes
    }

    fn write(key: &[u8], rpc_id: u64) -> Vec<u8> {
        encoded(|out| {
            WriteRequest {
                table_id: TABLE,
                lease: Lease::default(),
                rpc_id,
                ack_id: NOBODY,
                rules: RejectRules::default(),
                is_async: false,
                object: KeysAndValue::single(key, b"8 bytes.").unwrap(),
            }
            .encode(out);
        })
    }

    fn increment(key: &[u8], rpc_id: u64) -> Vec<u8> {
        encoded(|out| {
            IncrementRequest {
                table_id: TABLE,
                lease: Lease::default(),
                rpc_id,
                ack_id: NOBODY,
                by: Increment::default(),
                rules: RejectRules::default(),
                key,
            }
            .encode(out);
        })
    }

    fn multi_read(keys: &[&[u8]]) -> Vec<u8> {
        let part = |key| MultiReadPart {
            table_id: TABLE,
            rules: RejectRules::default(),
            key,
        };
        let parts: Vec<_> = keys.iter().copied().map(part).collect();
        encoded(|out| MultiRequest::encode_parts(&parts, out))
    }

    fn multi_answer(statuses: &[Status]) -> Vec<u8> {
        let part = |&status| MultiReadPartResponse {
            status,
            version: 1,
            object: (status == Status::Ok).then(|| KeysAndValue::single(b"k", b"v").unwrap()),
        };
        let parts: Vec<_> = statuses.iter().map(part).collect();
        encoded(|out| MultiResponse::encode_parts(Status::Ok, &parts, out))
    }

    /// Key "a" was written up to position 100, and "b" up to 200.
    fn oracle() -> Oracle {
        let mut oracle = Oracle::default();
        let (start, middle, end) = (LogPosition::START, LogPosition(100), LogPosition(200));
        oracle.requested(to(1), &write(b"a", 1), start, middle);
        oracle.requested(to(2), &write(b"b", 2), middle, end);
        oracle
    }

    /// Asks for something that changes nothing; whether this answer to it may leave while the log is durable up to `durable`.
    fn may_leave(oracle: &mut Oracle, request: &[u8], answer: &[u8], durable: u64) -> bool {
        let now = LogPosition(300);
        oracle.requested(to(9), request, now, now);
        oracle.replied(to(9), answer, LogPosition(durable)).is_ok()
    }

    #[test]
    fn a_multi_op_waits_for_the_parts_that_it_shows() {
        let mut oracle = oracle();
        let both = multi_read(&[b"a", b"b"]);
        let shown = multi_answer(&[Status::Ok, Status::Ok]);
        assert!(!may_leave(&mut oracle, &both, &shown, 199));
        assert!(may_leave(&mut oracle, &both, &shown, 200));
        let first = multi_answer(&[Status::WrongVersion, Status::UnknownTablet]);
        assert!(!may_leave(&mut oracle, &both, &first, 99));
        assert!(may_leave(&mut oracle, &both, &first, 100));
        let short = multi_answer(&[]);
        assert!(may_leave(&mut oracle, &both, &short, 0));
    }

    #[test]
    fn a_page_waits_for_the_objects_that_it_shows() {
        let mut oracle = oracle();
        let request = encoded(|out| {
            EnumerateRequest {
                table_id: TABLE,
                keys_only: false,
                tablet_first_hash: 0,
                iterator: &[],
            }
            .encode(out);
        });
        let page = |keys: &[&[u8]]| {
            let mut objects = Vec::new();
            for key in keys {
                let content = encoded(|out| KeysAndValue::single(key, b"v").unwrap().encode(out));
                EnumeratedObject::encode(0, 1, TABLE, &content, &mut objects);
            }
            encoded(|out| {
                EnumerateResponse {
                    status: Status::Ok,
                    tablet_first_hash: 1,
                    objects: &objects,
                    iterator: b"state",
                }
                .encode(out);
            })
        };
        assert!(!may_leave(&mut oracle, &request, &page(&[b"b"]), 199));
        assert!(may_leave(&mut oracle, &request, &page(&[b"b"]), 200));
        assert!(!may_leave(&mut oracle, &request, &page(&[b"a"]), 99));
        assert!(may_leave(&mut oracle, &request, &page(&[b"a"]), 100));
        assert!(may_leave(&mut oracle, &request, &page(&[]), 0));
    }

    #[test]
    fn an_increment_of_a_number_changes_it() {
        let mut oracle = oracle();
        let (before, after) = (LogPosition(300), LogPosition(400));
        oracle.requested(to(3), &increment(b"a", 3), before, after);
        let read = multi_read(&[b"a"]);
        assert!(!may_leave(
            &mut oracle,
            &read,
            &multi_answer(&[Status::Ok]),
            399
        ));
        // Sent again, it shows what it showed the first time.
        let answer = rpc::status_bytes(Status::Ok);
        assert!(!may_leave(&mut oracle, &increment(b"a", 3), &answer, 399));
        assert!(may_leave(&mut oracle, &increment(b"a", 3), &answer, 400));
        // Of what nobody knows to be a number, only its own reply must wait.
        oracle.requested(to(4), &increment(b"c", 4), after, LogPosition(500));
        let read = multi_read(&[b"c"]);
        assert!(may_leave(
            &mut oracle,
            &read,
            &multi_answer(&[Status::Ok]),
            400
        ));
        assert!(oracle.replied(to(4), &answer, LogPosition(499)).is_err());
    }
}
