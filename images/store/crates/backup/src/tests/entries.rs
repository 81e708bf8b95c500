//! What recoveries read out of segments, and what returning masters are told is there.

mod listing;
mod segment;

use core::ops::Range;

use base::ids::TableId;
use proptest::prelude::*;
use wire::entry::{EntryError, RawEntry};
use wire::hash::key_hash;
use wire::member::TabletRange;
use wire::peer::{ReadEntries, Request, SERVING_PROMISE};

use super::*;
use segment::Segment;

const LOG: ServerId = ServerId(1 << 32 | 1);

fn whole_table(table_id: u64) -> TabletRange {
    tablet(table_id, 0, u64::MAX)
}

fn tablet(table_id: u64, start_key_hash: u64, end_key_hash: u64) -> TabletRange {
    TabletRange {
        table_id,
        start_key_hash,
        end_key_hash,
    }
}

/// A backup for segments of the usual size.
fn with_large_frames(durability: Durability) -> Rig {
    Rig::of_segments(durability, 3, 8 << 20)
}

impl Rig {
    fn send_side(&mut self, replica: ReplicaId, bytes: u32) -> u64 {
        let data = content_of(replica, bytes);
        self.send(&Append {
            replica,
            role: Role::Side,
            offset: 0,
            closes: false,
            crc: crc32c::crc32c(&data),
            data: &data,
        })
    }

    fn put_segment(&mut self, segment_id: u64, role: Role, segment: &Segment, closes: bool) {
        let mut offset = 0;
        for data in segment.0.chunks(1 << 20) {
            let end = offset + data.len();
            let append = Append {
                replica: replica(1, segment_id),
                role,
                offset: offset as u32,
                closes: closes && end == segment.0.len(),
                crc: crc32c::crc32c(&segment.0[..end]),
                data,
            };
            let nonce = self.send(&append);
            self.settle();
            assert_eq!(self.answer(nonce), Some((Status::Ok, end as u32)));
            offset = end;
        }
    }

    fn read_entries(
        &mut self,
        segment_id: u64,
        offset: u32,
        bytes: u32,
        tablets: &[TabletRange],
    ) -> (Status, u32, Vec<u8>) {
        let mut request = Vec::new();
        let replica = replica(1, segment_id);
        ReadEntries::encode(replica, offset, bytes, tablets, &mut request);
        let Ok(Request::ReadEntries(read)) = Request::decode(&request) else {
            panic!("not what was written");
        };
        let to = self.to();
        let backup = self.backup.as_mut().unwrap();
        backup.read_entries(&read, to, &mut self.said);
        self.answer_to_read(to)
    }

    /// The same, once the data is compared: until then, answers have nothing in them.
    fn read_compared(
        &mut self,
        segment_id: u64,
        offset: u32,
        bytes: u32,
        tablets: &[TabletRange],
    ) -> (Status, u32, Vec<u8>) {
        for _ in 0..10 {
            let read = self.read_entries(segment_id, offset, bytes, tablets);
            if read != (Status::Ok, offset, Vec::new()) {
                return read;
            }
        }
        panic!("it does not end");
    }

    /// All entries of these tablets, and how many calls that took.
    fn read_all(&mut self, segment_id: u64, bytes: u32, tablets: &[TabletRange]) -> (Vec<u8>, u32) {
        let number = self.backup().replicas[&replica(1, segment_id)];
        let held = self.backup().frames[number].content().unwrap().bytes;
        let (mut offset, mut found, mut calls) = (0, Vec::new(), 0);
        while offset < held {
            let (status, next_offset, out) = self.read_entries(segment_id, offset, bytes, tablets);
            assert_eq!(status, Status::Ok);
            assert!(next_offset >= offset && next_offset <= held);
            if out.len() > bytes as usize {
                let first = RawEntry::read(&out).unwrap();
                assert_eq!(first.bytes.len(), out.len(), "one that is longer alone");
            }
            found.extend(out);
            (offset, calls) = (next_offset, calls + 1);
            assert!(calls < 100_000, "it does not end");
        }
        (found, calls)
    }

    fn inventory(&mut self) -> Vec<ReplicaInfo> {
        self.begin_recovery(LOG);
        self.settle();
        self.wait(2 * SERVING_PROMISE);
        self.said.released.pop().expect("released").replicas
    }
}

#[test]
fn entries_of_tablets_come_and_no_others() {
    let mut segment = Segment::head();
    let header = segment.0.len();
    segment.digest(&[4, 5]);
    let key = |number: u64| number.to_le_bytes();
    let hash = |number| key_hash(TableId(1), &key(number));
    let first = segment.object(1, &key(1), 100);
    let gone = segment.tombstone(1, &key(1));
    let result = segment.result(1, hash(1));
    segment.object(2, &key(1), 100);
    segment.tombstone(2, &key(1));
    segment.result(2, hash(1));
    let second = segment.object(1, &key(2), 100);
    let mut rig = Rig::buffered();
    rig.put_segment(1, Role::Side, &segment, true);
    let expect = |ranges: &[&Range<usize>]| {
        let mut bytes = segment.0[..header].to_vec();
        for range in ranges {
            bytes.extend_from_slice(&segment.0[(*range).clone()]);
        }
        bytes
    };
    let end = segment.0.len() as u32;
    let mut read = |tablets: &[TabletRange]| rig.read_entries(1, 0, 4096, tablets);
    let all = expect(&[&first, &gone, &result, &second]);
    assert_eq!(read(&[whole_table(1)]), (Status::Ok, end, all));
    let one = expect(&[&first, &gone, &result]);
    let only = tablet(1, hash(1), hash(1));
    assert_eq!(read(&[only]), (Status::Ok, end, one.clone()));
    let other = expect(&[&second]);
    let both = if hash(1) < hash(2) {
        [tablet(1, 0, hash(2) - 1), tablet(1, hash(2), u64::MAX)]
    } else {
        [tablet(1, 0, hash(1) - 1), tablet(1, hash(1), u64::MAX)]
    };
    assert_eq!(read(&[tablet(1, hash(2), hash(2))]).2, other);
    assert_eq!(read(&both).2, expect(&[&first, &gone, &result, &second]));
    assert_eq!(read(&[]).2, expect(&[]));
    assert_eq!(read(&[whole_table(3)]).2, expect(&[]));
    assert_eq!(
        rig.read_entries(9, 0, 100, &[]),
        (Status::Missing, 0, vec![])
    );
    assert_eq!(rig.read_entries(1, end, 100, &[]).1, end);
    assert_eq!(rig.read_entries(1, u32::MAX, 100, &[]).1, end);
}

#[test]
fn an_open_head_is_read_and_an_incomplete_side_segment_is_not() {
    let mut segment = Segment::head();
    segment.object(1, b"key", 10);
    let mut rig = Rig::buffered();
    rig.put_segment(1, Role::Head, &segment, false);
    rig.put_segment(2, Role::Side, &segment, false);
    assert_eq!(rig.read_all(1, 4096, &[whole_table(1)]).0, segment.0);
    let (status, _, out) = rig.read_entries(2, 0, 4096, &[whole_table(1)]);
    assert_eq!((status, out), (Status::Missing, vec![]));
    segment.object(1, b"next", 10);
    rig.put_segment(1, Role::Head, &segment, false);
    assert_eq!(rig.read_all(1, 4096, &[whole_table(1)]).0, segment.0);
}

#[test]
fn one_call_does_a_bounded_amount_of_work_and_data_is_compared_once() {
    let mut rig = with_large_frames(Durability::Buffered);
    let mut segment = Segment::head();
    let mut number = 0_u64;
    while segment.0.len() < (8 << 20) - 200 {
        segment.object(1 + number % 2, &number.to_le_bytes(), 100);
        number += 1;
    }
    rig.put_segment(1, Role::Head, &segment, true);
    const MOST: u64 = (512 << 10) + (256 << 10);
    let mut calls = 0;
    let mut read_all = |rig: &mut Rig| {
        let (mut offset, mut found, before) = (0, Vec::new(), rig.storage().bytes_read);
        while offset < segment.0.len() as u32 {
            let before = rig.storage().bytes_read;
            let (status, next_offset, out) =
                rig.read_entries(1, offset, u32::MAX, &[whole_table(2)]);
            assert_eq!(status, Status::Ok);
            assert!(rig.storage().bytes_read - before <= MOST);
            (offset, calls) = (next_offset, calls + 1);
            found.extend(out);
        }
        assert_eq!(found, segment.of_tablets(&[whole_table(2)]));
        rig.storage().bytes_read - before
    };
    let (first, second) = (read_all(&mut rig), read_all(&mut rig));
    let length = segment.0.len() as u64;
    assert!(first >= 2 * length && first < 2 * length + MOST, "{first}");
    assert!(second >= length && second < length + MOST, "{second}");
    assert!(calls < 60, "{calls} calls");
}

#[test]
fn entries_longer_than_a_piece_come_whole() {
    let mut rig = with_large_frames(Durability::Flushed);
    let mut segment = Segment::head();
    for bytes in [10, 1 << 20, 300_000, 10, 131_072, 1 << 20, 1] {
        segment.object(1, b"key", bytes);
    }
    rig.put_segment(1, Role::Side, &segment, true);
    for bytes in [0, 1000, 200_000, u32::MAX] {
        assert_eq!(rig.read_all(1, bytes, &[whole_table(1)]).0, segment.0);
    }
}

#[test]
fn rot_is_found_before_anything_is_given_out() {
    let mut segment = Segment::head();
    segment.object(1, b"key", 1000);
    let mut rig = Rig::buffered();
    rig.put_segment(1, Role::Side, &segment, true);
    let at = rig.place_of(replica(1, 1)) + segment.0.len() as u64 - 100;
    rig.storage().rot(at, 1);
    let nothing = (Status::Mismatch, 0, vec![]);
    assert_eq!(rig.read_compared(1, 0, 100, &[]), nothing);
    rig.tick();
    assert!(
        rig.has_reported_damage(replica(1, 1), |damage| *damage == Damage::Rotten),
        "{:?}",
        rig.said.events
    );
    assert_eq!(rig.damage_of(replica(1, 1)), Some(Damage::Rotten));
}

#[test]
fn nothing_is_given_out_of_a_long_segment_that_is_rotten_at_its_end() {
    let mut rig = with_large_frames(Durability::Buffered);
    let mut segment = Segment::head();
    for _ in 0..7 {
        segment.object(1, b"key", 1 << 20);
    }
    rig.put_segment(1, Role::Side, &segment, true);
    let at = rig.place_of(replica(1, 1)) + segment.0.len() as u64 - 100;
    rig.storage().rot(at, 1);
    let mut status = Status::Ok;
    let mut calls = 0;
    while status == Status::Ok {
        let read = rig.read_entries(1, 0, u32::MAX, &[whole_table(1)]);
        assert!(read.2.is_empty());
        (status, calls) = (read.0, calls + 1);
        assert!(calls < 20, "it does not end");
    }
    assert_eq!(status, Status::Mismatch);
    assert_eq!(rig.damage_of(replica(1, 1)), Some(Damage::Rotten));
}

#[test]
fn what_rots_after_it_was_compared_is_not_passed_over() {
    let mut segment = Segment::head();
    let first = segment.object(1, b"key", 1000);
    let mut rig = Rig::buffered();
    rig.put_segment(1, Role::Side, &segment, true);
    assert_eq!(rig.read_all(1, 4096, &[whole_table(1)]).0, segment.0);
    // In the key: it would be another one's.
    let at = rig.place_of(replica(1, 1)) + first.start as u64 + 8 + 16 + 3;
    rig.storage().rot(at, 1);
    let nothing = (Status::Mismatch, 0, vec![]);
    assert_eq!(rig.read_compared(1, 0, 4096, &[whole_table(1)]), nothing);
    rig.tick();
    let start = u32::try_from(first.start).unwrap();
    assert!(rig.said.events.iter().any(|event| {
        matches!(event, BackupEvent::NoEntryAt { offset, .. } if *offset == start)
    }));
    assert_eq!(rig.read_compared(1, 0, 4096, &[whole_table(1)]), nothing);
    assert_eq!(rig.damage_of(replica(1, 1)), Some(Damage::Rotten));
}

#[test]
fn what_is_no_entry_is_named_and_harms_nobody() {
    let mut segment = Segment::head();
    segment.object(1, b"key", 1000);
    let mut rig = Rig::buffered();
    rig.put_segment(1, Role::Side, &segment, true);
    let nothing = (Status::Mismatch, 0, vec![]);
    assert_eq!(rig.read_compared(1, 8, 4096, &[whole_table(1)]), nothing);
    assert_eq!(rig.read_compared(1, 1, 4096, &[whole_table(1)]), nothing);
    rig.tick();
    assert!(rig.said.events.iter().any(|event| {
        matches!(event, BackupEvent::NoEntryAt { replica: of, offset: 8, .. } if *of == replica(1, 1))
    }));
    assert_eq!(rig.damage_of(replica(1, 1)), None);
    assert_eq!(rig.read_all(1, 4096, &[whole_table(1)]).0, segment.0);
}

#[test]
fn storage_that_fails_to_read_is_named() {
    let mut segment = Segment::head();
    segment.object(1, b"key", 1000);
    let mut rig = Rig::buffered();
    rig.put_segment(1, Role::Side, &segment, true);
    let at = rig.place_of(replica(1, 1)) + 500;
    rig.storage().faults.unreadable_at = Some(at);
    assert_eq!(rig.read_entries(1, 0, 4096, &[]).0, Status::Mismatch);
    assert_eq!(rig.damage_of(replica(1, 1)), Some(Damage::Unreadable));
}

#[test]
fn an_inventory_has_the_last_digest_of_each_open_head() {
    let mut rig = Rig::new(Durability::Flushed, 6);
    let mut head = Segment::head();
    head.digest(&[1, 2]);
    head.object(1, b"key", 10);
    rig.put_segment(3, Role::Head, &head, true);
    head.digest(&[2, 3, 9]);
    head.object(1, b"key", 10);
    rig.put_segment(4, Role::Head, &head, false);
    let mut without = Segment::head();
    without.object(1, b"key", 10);
    rig.put_segment(5, Role::Head, &without, false);
    let mut garbage = Segment::head();
    let end = garbage.0.len() as u32;
    garbage.0.extend([7; 24]);
    rig.put_segment(6, Role::Head, &garbage, false);
    rig.put_segment(7, Role::Side, &head, false);
    rig.put_segment(8, Role::Head, &head, false);
    let at = rig.place_of(replica(1, 8));
    rig.storage().rot(at + 9, 1);
    let digests: Vec<(u64, Vec<u64>, Option<Flaw>)> = rig
        .inventory()
        .into_iter()
        .map(|info| (info.segment_id, info.digest, info.damage))
        .collect();
    let error = EntryError::Truncated;
    let offset = end;
    assert_eq!(
        digests,
        [
            (3, vec![], None),
            (4, vec![2, 3, 9], None),
            (5, vec![], Some(Flaw::NoDigest)),
            (6, vec![], Some(Flaw::NoEntry { offset, error })),
            (7, vec![], None),
            (8, vec![], Some(Flaw::Damaged(Damage::Rotten))),
        ]
    );
    assert_eq!(Flaw::NoDigest.to_string(), "is a head without a digest");
}

#[test]
fn the_storage_is_told_what_a_recovery_will_read() {
    let mut rig = Rig::buffered();
    rig.put_now(replica(1, 1), 0..100, true);
    rig.put_now(replica(2, 1), 0..100, true);
    rig.put_now(replica(1, 2), 0..300, false);
    let places = [replica(1, 1), replica(1, 2)].map(|replica| rig.place_of(replica));
    rig.begin_recovery(LOG);
    rig.begin_recovery(LOG);
    let announced = &rig.storage().announced;
    assert_eq!(announced[..], [(places[0], 100), (places[1], 300)]);
}

#[derive(Clone, Debug)]
enum Item {
    Object {
        table_id: u64,
        key: u16,
        value_bytes: usize,
    },
    Tombstone {
        table_id: u64,
        key: u16,
    },
    Result {
        table_id: u64,
        key_hash: u64,
    },
    Digest(Vec<u64>),
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    let table = 1..4_u64;
    let size = prop_oneof![20 => 0..300_usize, 1 => 0..200_000_usize];
    let item = prop_oneof![
        8 => (table.clone(), any::<u16>(), size).prop_map(|(table_id, key, value_bytes)| Item::Object { table_id, key, value_bytes }),
        3 => (table.clone(), any::<u16>()).prop_map(|(table_id, key)| Item::Tombstone { table_id, key }),
        2 => (table, any::<u64>()).prop_map(|(table_id, key_hash)| Item::Result { table_id, key_hash }),
        1 => prop::collection::btree_set(any::<u64>(), 0..5).prop_map(|ids| Item::Digest(ids.into_iter().collect())),
    ];
    prop::collection::vec(item, 0..300)
}

/// Ranges between random bounds, every one or every other.
fn tablets() -> impl Strategy<Value = Vec<TabletRange>> {
    let of_table = |table_id| {
        let bounds = prop::collection::btree_set(any::<u64>(), 0..12);
        (bounds, 1..3_usize).prop_map(move |(bounds, step)| {
            let bounds: Vec<u64> = [0].into_iter().chain(bounds).collect();
            let ends = bounds[1..].iter().map(|bound| bound - 1).chain([u64::MAX]);
            let ranges = bounds.iter().zip(ends).filter(|(start, end)| *start <= end);
            let ranges = ranges.map(|(&start, end)| tablet(table_id, start, end));
            ranges.step_by(step).collect::<Vec<TabletRange>>()
        })
    };
    (of_table(1), of_table(3)).prop_map(|(first, third)| [first, third].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_entries_by_any_tablets_in_any_pieces(
        items in items(),
        readers in prop::collection::vec((tablets(), 0..50_000_u32), 1..4),
    ) {
        let mut segment = Segment::head();
        for item in &items {
            match item {
                Item::Object { table_id, key, value_bytes } => drop(segment.object(*table_id, &key.to_le_bytes(), *value_bytes)),
                Item::Tombstone { table_id, key } => drop(segment.tombstone(*table_id, &key.to_le_bytes())),
                Item::Result { table_id, key_hash } => drop(segment.result(*table_id, *key_hash)),
                Item::Digest(ids) => segment.digest(ids),
            }
        }
        prop_assume!(segment.0.len() <= 8 << 20);
        let mut rig = with_large_frames(Durability::Buffered);
        rig.put_segment(1, Role::Side, &segment, true);
        for (tablets, bytes) in &readers {
            let (found, _) = rig.read_all(1, *bytes, tablets);
            prop_assert!(found == segment.of_tablets(tablets));
        }
    }
}
