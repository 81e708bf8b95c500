//! ENUMERATE: the objects of a table, a bounded piece at a time. docs/enumeration.md says why it misses nothing.
//!
//! Objects come in the order of the low 32 bits of their hashes, then of the whole hash: that of every hash table's buckets.
//! The state that the client carries is a list of the ranges of hashes that are not finished, with how far each has come.

use log::LogPosition;
use prost::Message;
use wire::entry::Kind;
use wire::ids::{ReplyTo, TableId};
use wire::keys::KeysAndValue;
use wire::proto::{EnumerationFrame, EnumerationIterator};
use wire::rpc::{EnumerateRequest, EnumerateResponse, EnumeratedObject};
use wire::status::Status;

use crate::output::Output;
use crate::shard::Shard;
use crate::store::{object_view, place_of};

/// Hash table slots that one request visits at least, if there are as many: each may be a cache miss.
const SLOTS: usize = 4096;
/// A piece ends when it has so many bytes; one object may make it longer.
const PIECE_BYTES: usize = 256 << 10;
/// Ranges in a state. It has one more for each tablet that was split behind the enumeration's back.
const MAX_RANGES: usize = 64;
/// As many buckets as there are low halves of hashes: what a state counts in.
const BUCKETS: u64 = 1 << 32;

/// A range of hashes that is not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unfinished {
    /// Closed range of key hashes.
    first: u64,
    last: u64,
    /// Objects before this, in the order of [`order_of`], have been returned.
    next: (u64, u64),
}

/// Where an object comes in the order of enumeration.
fn order_of(hash: u64) -> (u64, u64) {
    (hash % BUCKETS, hash)
}

impl Unfinished {
    fn new(first: u64, last: u64) -> Unfinished {
        Unfinished {
            first,
            last,
            next: (0, 0),
        }
    }

    fn is_finished(&self) -> bool {
        self.next.0 >= BUCKETS
    }

    /// A hash in the range by which the client finds the server to ask. It is 0 only if there is no other: together with no objects
    /// that would mean the end.
    fn cursor(&self) -> u64 {
        if self.first == 0 {
            self.last
        } else {
            self.first
        }
    }
}

/// The ranges that are not finished, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    ranges: Vec<Unfinished>,
}

impl State {
    /// Of a request; the first one starts at `tablet_first_hash`.
    fn of(request: &EnumerateRequest<'_>) -> Result<State, Status> {
        if request.iterator.is_empty() {
            let everything = Unfinished::new(request.tablet_first_hash, u64::MAX);
            return Ok(State {
                ranges: vec![everything],
            });
        }
        let decoded = EnumerationIterator::decode(request.iterator);
        let frames = decoded.map_err(|_| Status::RequestFormatError)?.frames;
        if frames.is_empty() || frames.len() > MAX_RANGES {
            return Err(Status::RequestFormatError);
        }
        let ranges: Vec<_> = frames
            .iter()
            .map(|frame| Unfinished {
                first: frame.tablet_start_hash,
                last: frame.tablet_end_hash,
                next: (frame.bucket_index, frame.bucket_next_hash),
            })
            .collect();
        let ordered = ranges.windows(2).all(|pair| pair[0].last < pair[1].first);
        let sound = ranges.iter().all(|range| range.first <= range.last);
        if ordered && sound && frames.iter().all(|frame| frame.num_buckets == BUCKETS) {
            Ok(State { ranges })
        } else {
            Err(Status::RequestFormatError)
        }
    }

    fn encode(&self) -> Vec<u8> {
        let frames = self.ranges.iter().map(|range| EnumerationFrame {
            tablet_start_hash: range.first,
            tablet_end_hash: range.last,
            num_buckets: BUCKETS,
            bucket_index: range.next.0,
            bucket_next_hash: range.next.1,
        });
        let iterator = EnumerationIterator {
            frames: frames.collect(),
        };
        iterator.encode_to_vec()
    }

    /// Cuts the part out of the range that holds `hash` which lies between `first` and `last`; gives its place. What is left and
    /// right of it stays as far as it was.
    fn cut(&mut self, hash: u64, first: u64, last: u64) -> Option<usize> {
        let at = self
            .ranges
            .iter()
            .position(|range| range.first <= hash && hash <= range.last)?;
        let whole = self.ranges[at];
        let work = Unfinished {
            first: whole.first.max(first),
            last: whole.last.min(last),
            ..whole
        };
        let mut pieces = Vec::with_capacity(3);
        if whole.first < work.first {
            pieces.push(Unfinished {
                last: work.first - 1,
                ..whole
            });
        }
        let place = at + pieces.len();
        pieces.push(work);
        if work.last < whole.last {
            pieces.push(Unfinished {
                first: work.last + 1,
                ..whole
            });
        }
        self.ranges.splice(at..=at, pieces);
        Some(place)
    }
}

impl Shard {
    pub(crate) fn enumerate(
        &mut self,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl Output,
    ) -> Result<(), Status> {
        let request = EnumerateRequest::decode(payload)?;
        let mut state = State::of(&request)?;
        let hash = request.tablet_first_hash;
        let tablet = self.store.tablets.find(request.table_id, hash);
        let tablet = tablet.ok_or(Status::UnknownTablet)?;
        let mut objects = std::mem::take(&mut self.enumerated);
        objects.clear();
        let mut seen = LogPosition::START;
        // A cursor outside of what is unfinished is sent on to what is.
        let (first, last) = (tablet.start_key_hash, tablet.end_key_hash);
        if let Some(at) = state.cut(hash, first, last) {
            let range = &mut state.ranges[at];
            seen = self.collect(request.table_id, request.keys_only, range, &mut objects);
            if range.is_finished() && objects.is_empty() {
                state.ranges.remove(at);
            }
            if state.ranges.len() > MAX_RANGES {
                return Err(Status::RequestFormatError);
            }
        }
        let (cursor, iterator) = match state.ranges.first() {
            Some(range) => (range.cursor(), state.encode()),
            None => (0, Vec::new()),
        };
        let fixed =
            EnumerateResponse::fixed_bytes(cursor, objects.len() as u32, iterator.len() as u32);
        let durable = self.durable_position();
        self.gate
            .reply(durable, seen, to, &[&fixed, &objects, &iterator], out);
        self.enumerated = objects;
        Ok(())
    }

    /// Appends the next objects of a range, and moves the range on. Gives what must be durable before that is shown.
    fn collect(
        &mut self,
        table_id: TableId,
        keys_only: bool,
        range: &mut Unfinished,
        objects: &mut Vec<u8>,
    ) -> LogPosition {
        let (log, index) = (&self.store.log, &self.store.keeper.index);
        let mut seen = LogPosition::START;
        let mut slots = 0;
        // All hashes of a range of one hash lie in one bucket.
        let (first, last) = match range.first == range.last {
            true => (range.first % BUCKETS, range.first % BUCKETS),
            false => (range.next.0.min(BUCKETS), BUCKETS - 1),
        };
        let mut bucket = index.bucket_of(first);
        let last_bucket = index.bucket_of(last);
        let mut found = Vec::new();
        while !range.is_finished() {
            found.clear();
            for at in index.bucket(bucket) {
                slots += 1;
                let entry = log.entry(at);
                let place = place_of(&entry);
                let wanted = place.table_id == table_id
                    && (range.first..=range.last).contains(&place.hash)
                    && order_of(place.hash) >= range.next;
                if wanted {
                    // That a removed object is missing is shown, too.
                    seen = seen.max(self.store.position_seen(at));
                    if entry.kind == Kind::Object {
                        found.push((order_of(place.hash), at));
                    }
                }
            }
            found.sort_unstable_by_key(|&(order, _)| order);
            for &(order, at) in &found {
                if objects.len() >= PIECE_BYTES && order != range.next {
                    range.next = order;
                    return seen;
                }
                // Two keys may have one hash: they come together.
                range.next = order;
                let object = object_view(&log.entry(at));
                let content = if keys_only {
                    object.keys()
                } else {
                    object.content
                };
                debug_assert!(KeysAndValue::parse(content).is_ok());
                EnumeratedObject::encode(0, object.version, table_id, content, objects);
                self.counters.enumerated += 1;
            }
            range.next = match bucket < last_bucket {
                true => (index.first_hash_of(bucket + 1), 0),
                false => (BUCKETS, 0),
            };
            bucket += 1;
            if slots >= SLOTS || objects.len() >= PIECE_BYTES || bucket % SLOTS == 0 {
                break;
            }
        }
        seen
    }
}
