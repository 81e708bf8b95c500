//! Who has brought tablets back crashes as well: the old log is replayed again, together with the new one; or the new one alone, once it has
//! everything.

use super::*;

/// So few that most of what is written dies, and the cleaner has to run.
const KEYS: u8 = 10;

#[derive(Clone, Debug)]
enum Later {
    Step(Step),
    /// Says that the old log is not needed any more, if that is so by now.
    Release,
}

fn any_later() -> impl Strategy<Value = Later> {
    prop_oneof![
        9 => any_step(KEYS).prop_map(Later::Step),
        1 => Just(Later::Release),
    ]
}

/// The second owner of the tablet.
struct Heir {
    life: Original,
    replay: Replay,
    named: Option<LogPosition>,
    is_released: bool,
}

impl Heir {
    /// Replays the segments, with some background work between them.
    fn replay(life: &mut Original, segments: &[Vec<u8>], work: &[Step]) -> Replay {
        let mut replay = patiently(life, |store| Ok(store.begin_replay(vec![whole()])?));
        let mut work = work.iter().cycle();
        for segment in segments {
            patiently(life, |store| store.replay(&mut replay, segment));
            if let Some(step) = work.next() {
                life.run(0, step);
            }
        }
        replay
    }

    fn release(&mut self) {
        let log = &mut self.life.store.log;
        let mut sides = self.replay.sides().iter();
        if self.is_released || !sides.all(|&id| log.is_settled(id)) {
            return;
        }
        if self.named.is_none() {
            self.named = log.name_segments();
        }
        if self
            .named
            .is_some_and(|named| named <= log.durable_position())
        {
            log.release_source();
            self.is_released = true;
        }
    }

    fn run(&mut self, n: usize, later: &Later) {
        match later {
            // Most keys are left alone after a while, so that what has died of them can come back.
            Later::Step(step) => self
                .life
                .run(n, &step.of_keys(if n < 60 { KEYS } else { 3 })),
            Later::Release => self.release(),
        }
    }
}

impl Step {
    fn of_keys(&self, keys: u8) -> Step {
        let mut step = self.clone();
        if let Step::Write { key, .. } | Step::Increment { key } | Step::Remove { key } = &mut step
        {
            *key %= keys;
        }
        step
    }
}

/// Writes to another table, and the cleaner has to run.
fn write_elsewhere(life: &mut Original, count: usize) {
    let elsewhere = TableId(2);
    life.store.tablets.take(TabletRange {
        table_id: elsewhere.0,
        ..whole()
    });
    for n in 0..count {
        let key = [n as u8 % 5];
        let content = KeysAndValue::single(&key, &[7; 400]).unwrap();
        execute(
            &mut life.store,
            elsewhere,
            &key,
            Action::Write(content),
            None,
        );
        life.store.clean(1000);
        life.follow(255);
    }
    let now = life.store.log.head_position();
    life.snapshots.push_back((now, life.model.clone()));
}

/// Nothing of the tablet is needed in a segment that was there before.
fn check_segments(heir: &Heir) {
    let store = &heir.life.store;
    for key in 0..KEYS {
        if let Some(at) = store.look_up(&HashedKey::of(TABLE, &[key])).object {
            let segment_id = store.log.segment_id_of(at);
            assert!(segment_id >= heir.replay.from_segment(), "key {key}");
        }
    }
}

/// Cleans until there is room.
fn patiently<T>(
    life: &mut Original,
    mut attempt: impl FnMut(&mut Store) -> Result<T, ReplayError>,
) -> T {
    for _ in 0..100 {
        match attempt(&mut life.store) {
            Ok(done) => return done,
            Err(ReplayError::NoRoom(NoRoom::Cleaning)) => {
                life.store.clean(4096);
                life.follow(255);
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("cleaning does not help");
}

fn is_background(step: &Step) -> bool {
    matches!(step, Step::Clean { .. } | Step::Durable { .. })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn what_was_durable_comes_back_from_the_old_log_and_the_new_one(
        steps in proptest::collection::vec(any_step(KEYS), 1..200),
        later in proptest::collection::vec(any_later(), 0..900),
        work in proptest::collection::vec(any_step(KEYS).prop_filter("background", is_background), 0..4),
        elsewhere in 0usize..120,
        gives_up in any::<Option<prop::sample::Index>>(),
        order in any::<prop::sample::Index>(),
    ) {
        let mut original = Original::new();
        for (n, step) in steps.iter().enumerate() {
            original.run(n, step);
        }
        let (old, model) = original.crash();
        let mut old: Vec<_> = old.into_values().collect();
        let turn = order.index(old.len().max(1));
        old.rotate_left(turn);

        let mut life = Original::from(small_survivor(2, 12), model);
        write_elsewhere(&mut life, elsewhere);
        if let Some(index) = gives_up {
            let some = index.index(old.len() + 1);
            let replay = Heir::replay(&mut life, &old[..some], &work);
            life.store.give_up_replay(replay);
            while !life.store.purge(10) {}
            prop_assert_eq!(life.store.keeper.results.count(), 0);
            prop_assert_eq!(life.store.audit(), Ok(()));
        }
        let mut replay = Heir::replay(&mut life, &old, &work);
        life.store.complete_replay(&mut replay);
        life.store.commit_replay(&replay, &[whole()]);
        let mut heir = Heir { life, replay, named: None, is_released: false };
        for (n, step) in later.iter().enumerate() {
            heir.run(n, step);
        }
        prop_assert_eq!(heir.life.store.audit(), Ok(()));
        check_segments(&heir);

        let (new, model) = heir.life.crash();
        let mut segments: Vec<_> = new.range(heir.replay.from_segment()..).map(|(_, bytes)| bytes.clone()).collect();
        if !heir.is_released {
            segments.extend(old);
        }
        let turn = order.index(segments.len().max(1));
        segments.rotate_left(turn);
        let mut store = survivor(3);
        let mut replay = store.begin_replay(vec![whole()]).unwrap();
        for segment in &segments {
            store.replay(&mut replay, segment).unwrap();
        }
        store.complete_replay(&mut replay);
        store.commit_replay(&replay, &[whole()]);
        let known = known_results(&mut store, &model);
        prop_assert!(known.iter().eq(model.results.keys()), "{known:?} of {:?}", model.results);
        check_part(&mut store, whole(), &model);
    }
}

/// An heir of some objects, to whose replay nothing more belongs.
fn heir_of(keys: u8) -> (Heir, Vec<Vec<u8>>) {
    let mut original = Original::new();
    for key in 0..keys {
        original.run(0, &Step::Write { key, bytes: 300 });
    }
    original.follow(255);
    let (old, model) = original.crash();
    let old: Vec<_> = old.into_values().collect();
    let mut life = Original::from(small_survivor(2, 12), model);
    let mut replay = Heir::replay(&mut life, &old, &[]);
    life.store.complete_replay(&mut replay);
    life.store.commit_replay(&replay, &[whole()]);
    life.follow(255);
    let heir = Heir {
        life,
        replay,
        named: None,
        is_released: false,
    };
    (heir, old)
}

#[test]
fn a_tombstone_outlives_its_object_while_the_old_log_has_that_object_too() {
    let (mut heir, old) = heir_of(10);
    for key in 0..9 {
        heir.life.run(1, &Step::Remove { key });
    }
    let side = heir.replay.sides()[0];
    while heir.life.store.log.segment(side).is_some() {
        write_elsewhere(&mut heir.life, 10);
    }
    // Cleaned and cleaned again.
    write_elsewhere(&mut heir.life, 200);
    heir.life.follow(255);
    assert_eq!(heir.life.store.audit(), Ok(()));

    let (new, model) = heir.life.crash();
    assert_eq!(model.objects.len(), 1);
    let mut store = survivor(3);
    let mut replay = store.begin_replay(vec![whole()]).unwrap();
    for segment in old.iter().chain(new.values()) {
        store.replay(&mut replay, segment).unwrap();
    }
    store.complete_replay(&mut replay);
    store.commit_replay(&replay, &[whole()]);
    assert_eq!(store.object_count, 1, "the removed ones came back");

    // Then it goes as any other.
    let tombstones = |heir: &Heir| heir.life.store.log.usage().tombstone_bytes;
    let kept = tombstones(&heir);
    heir.release();
    heir.life.follow(255);
    heir.release();
    assert!(heir.is_released);
    assert!(tombstones(&heir) + 9 * 40 <= kept, "{kept} bytes");
    assert_eq!(heir.life.store.audit(), Ok(()));
}

#[test]
fn a_copy_that_dies_in_the_replay_gets_a_tombstone() {
    let mut original = Original::new();
    for key in [0, 1, 2, 3, 4, 5, 6, 7, 0] {
        original.run(0, &Step::Write { key, bytes: 690 });
    }
    original.follow(255);
    let (old, _) = original.crash();
    let mut store = survivor(2);
    let mut replay = store.begin_replay(vec![whole()]).unwrap();
    for segment in old.values() {
        store.replay(&mut replay, segment).unwrap();
    }
    assert_eq!(replay.stats().objects, 9);
    let usage = store.log.usage();
    assert_eq!(usage.tombstone_bytes, 40, "of the first copy of key 0");
}

#[test]
fn no_segment_that_is_open_when_a_replay_begins_takes_more() {
    let mut life = Original::from(small_survivor(2, 12), Model::default());
    for _ in 0..40 {
        write_elsewhere(&mut life, 7);
        let replay = life.store.begin_replay(vec![whole()]).unwrap();
        let before = 1..replay.from_segment();
        let lengths = |life: &Original| {
            let length = |id| life.store.log.segment(id).map(<[u8]>::len);
            before.clone().map(length).collect::<Vec<_>>()
        };
        let then = lengths(&life);
        write_elsewhere(&mut life, 20);
        for (now, then) in lengths(&life).into_iter().zip(then) {
            assert!(
                now.is_none() || now == then,
                "{now:?} bytes, {then:?} before"
            );
        }
        life.store.give_up_replay(replay);
        while !life.store.purge(10) {}
    }
}
