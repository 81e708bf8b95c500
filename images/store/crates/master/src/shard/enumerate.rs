//! ENUMERATE: the objects of a table, a bounded piece at a time. docs/enumeration.md says why it misses nothing.
//!
//! The state that the client carries is a list of the ranges of hashes that are not finished, with how far each has come.

use base::bugs::{Bug, is_planted};
use base::ids::{ReplyTo, TableId};
use log::LogPosition;
use prost::Message;
use wire::cost;
use wire::proto::{EnumerationFrame, EnumerationIterator};
use wire::rpc::{EnumerateRequest, EnumerateResponse, EnumeratedObject, MAX_KEY_BYTES};
use wire::status::Status;

use crate::data::Access;
use crate::data::tablets::Use;
use crate::data::walk::{BUCKETS, Limits, Unfinished};
use crate::effects::ShardEffects;
use crate::shard::Shard;

/// Buckets that one request looks at: they lie in memory one behind the other.
const MAX_BUCKETS: usize = 16_384;
/// Ranges in a state, which has one or two more for each time that a tablet was split in the middle of its enumeration.
const MAX_RANGES: usize = 64;
/// Memory of so many, decoded; they are counted before.
const MAX_FRAMES_BYTES: usize = MAX_RANGES * size_of::<EnumerationFrame>();
/// A range, encoded: its keys and lengths, five numbers, and the key that comes next.
const MAX_FRAME_BYTES: usize = 4 + 5 * 11 + 4 + MAX_KEY_BYTES;
/// What [`State::encode`] gives at most.
const MAX_ITERATOR_BYTES: usize = MAX_RANGES * MAX_FRAME_BYTES;

/// The ranges that are not finished, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
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
        if request.iterator.len() > MAX_ITERATOR_BYTES {
            return Err(Status::RequestFormatError);
        }
        let decoded = cost::decode::<EnumerationIterator>(request.iterator, MAX_FRAMES_BYTES);
        let frames = decoded.map_err(|_| Status::RequestFormatError)?.frames;
        let is_ours = |frame: &EnumerationFrame| {
            let key = frame.bucket_next_key.as_deref().unwrap_or_default();
            frame.num_buckets == BUCKETS && key.len() <= MAX_KEY_BYTES
        };
        if frames.is_empty() || !frames.iter().all(is_ours) {
            return Err(Status::RequestFormatError);
        }
        let ranges: Vec<_> = frames
            .into_iter()
            .map(|frame| Unfinished {
                first: frame.tablet_start_hash,
                last: frame.tablet_end_hash,
                next: (frame.bucket_index, frame.bucket_next_hash),
                next_key: frame.bucket_next_key.unwrap_or_default(),
            })
            .collect();
        let ordered = ranges.windows(2).all(|pair| pair[0].last < pair[1].first);
        let sound = ranges.iter().all(|range| range.first <= range.last);
        match ordered && sound {
            true => Ok(State { ranges }),
            false => Err(Status::RequestFormatError),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let frames = self.ranges.iter().map(|range| EnumerationFrame {
            tablet_start_hash: range.first,
            tablet_end_hash: range.last,
            num_buckets: BUCKETS,
            bucket_index: range.next.0,
            bucket_next_hash: range.next.1,
            bucket_next_key: (!range.next_key.is_empty()).then(|| range.next_key.clone()),
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
        let whole = &self.ranges[at];
        let piece = |first, last| Unfinished {
            first,
            last,
            ..whole.clone()
        };
        let (first, last) = (whole.first.max(first), whole.last.min(last));
        let left = (whole.first < first).then(|| piece(whole.first, first - 1));
        let right = (last < whole.last).then(|| piece(last + 1, whole.last));
        let place = at + usize::from(left.is_some());
        let pieces = [left, Some(piece(first, last)), right];
        self.ranges.splice(at..=at, pieces.into_iter().flatten());
        Some(place)
    }

    /// Makes one range of the last two until there are few enough: what one of them had returned may come again.
    fn shorten(&mut self) {
        while self.ranges.len() > MAX_RANGES
            && let Some(last) = self.ranges.pop()
            && let Some(before) = self.ranges.last_mut()
        {
            before.last = last.last;
            if before.has_come(last.next, &last.next_key) {
                (before.next, before.next_key) = (last.next, last.next_key);
            }
        }
    }
}

impl Shard {
    pub(crate) fn enumerate(
        &mut self,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl ShardEffects,
    ) -> Result<(), Status> {
        let request = EnumerateRequest::decode(payload)?;
        let mut state = State::of(&request)?;
        let (table_id, hash) = (request.table_id, request.tablet_first_hash);
        let access = Access {
            table_id,
            hash,
            what: Use::Scan,
        };
        self.store.admit_use(access)?;
        let tablet = self.store.tablets.range_of(table_id, hash);
        let tablet = tablet.ok_or(Status::UnknownTablet)?;
        let mut objects = std::mem::take(&mut self.enumerated);
        objects.clear();
        let mut seen = LogPosition::START;
        // A cursor outside of what is unfinished is sent on to what is.
        let (first, last) = (tablet.start_key_hash, tablet.end_key_hash);
        let ranges_before = state.ranges.len();
        if let Some(at) = state.cut(hash, first, last) {
            let was_cut = state.ranges.len() > ranges_before;
            let range = &mut state.ranges[at];
            let was_split = was_cut && range.next > (0, 0);
            if was_split && is_planted(Bug::ScanSkipsAfterSplit) {
                range.next.0 += BUCKETS / 8;
            }
            seen = self.collect(request.table_id, request.keys_only, range, &mut objects);
            range.leave_zero();
            if range.is_finished() && objects.is_empty() {
                state.ranges.remove(at);
            }
            state.shorten();
        }
        // The client finds the server to ask by the first hash that is not finished.
        let (cursor, iterator) = match state.ranges.first() {
            Some(range) => (range.first, state.encode()),
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
        let limits = Limits {
            slots: self.config.enumerated_slots,
            buckets: MAX_BUCKETS,
            bytes: self.config.enumerated_bytes,
        };
        let count = &mut self.counters.enumerated;
        let store = &self.store;
        store.walk(table_id, range, limits, objects, |_, object, objects| {
            let content = if keys_only {
                object.keys()
            } else {
                object.content
            };
            EnumeratedObject::encode(0, object.version, table_id, content, objects);
            *count += 1;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, last: u64, next: (u64, u64), next_key: &[u8]) -> Unfinished {
        let next_key = next_key.to_vec();
        Unfinished {
            first,
            last,
            next,
            next_key,
        }
    }

    #[test]
    fn states_survive_their_encoding() {
        let state = State {
            ranges: vec![
                range(0, 7, (3, 3), b"key"),
                range(8, 100, (0, 0), b""),
                range(200, u64::MAX, (BUCKETS, 0), b""),
            ],
        };
        let request = EnumerateRequest {
            table_id: TableId(1),
            keys_only: false,
            tablet_first_hash: 0,
            iterator: &state.encode(),
        };
        assert_eq!(State::of(&request), Ok(state));
    }

    #[test]
    fn a_cut_loses_no_hash() {
        let mut state = State {
            ranges: vec![range(10, 100, (5, 5), b"k"), range(200, 300, (0, 0), b"")],
        };
        assert_eq!(state.cut(150, 0, 500), None);
        assert_eq!(state.cut(50, 40, 60), Some(1));
        assert_eq!(state.cut(100, 61, 400), Some(2));
        let expected = [
            range(10, 39, (5, 5), b"k"),
            range(40, 60, (5, 5), b"k"),
            range(61, 100, (5, 5), b"k"),
            range(200, 300, (0, 0), b""),
        ];
        assert_eq!(state.ranges, expected);
        assert_eq!(state.cut(10, 0, 20), Some(0));
    }

    #[test]
    fn too_many_ranges_become_fewer_and_go_back_to_the_slowest() {
        let count = MAX_RANGES as u64 + 2;
        let all = |at: u64| range(at * 10, at * 10 + 9, (count - at, 0), b"");
        let mut state = State {
            ranges: (0..count).map(all).collect(),
        };
        state.shorten();
        assert_eq!(state.ranges.len(), MAX_RANGES);
        let last = state.ranges.last().unwrap();
        assert_eq!(*last, range((count - 3) * 10, count * 10 - 1, (1, 0), b""));
        assert_eq!(state.ranges[0], all(0));
    }
}
