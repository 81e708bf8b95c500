//! What a status says of members that this leader has not heard itself, and of full memory.

use std::time::Duration;

use coordinator::status::{ClusterStatus, Contact, MemberState};
use wire::member::{Hello, LogRoom, MemoryFull, Pong, shard};

use crate::common::replicated::with_replicas;
use crate::common::{CLUSTER, Harness, hello};

fn status(store: &Harness) -> ClusterStatus {
    store.coordinator.cluster_status(store.now)
}

fn contacts(store: &Harness) -> Vec<(MemberState, Contact)> {
    let members = status(store).members.into_iter();
    members
        .map(|member| (member.state, member.contact))
        .collect()
}

#[test]
fn a_leader_that_has_taken_over_tells_members_not_heard_yet_from_those_that_are_down() {
    let mut store = Harness::new();
    store.enlist(1, with_replicas("m0", 1));
    let (welcome, _) = store.enlist(2, with_replicas("m1", 2));
    store.enlist(3, with_replicas("m2", 3));
    assert_eq!(status(&store).replicas, 2);
    store.restart(Duration::from_secs(1));

    let shown = status(&store);
    assert_eq!((shown.leading_ms, shown.patience_ms), (0, 3_000));
    assert_eq!(shown.replicas, 2, "known from the state");
    let not_yet = (MemberState::Unreachable, Contact::NotYet);
    assert_eq!(contacts(&store), [not_yet; 3]);
    assert_eq!(shown.members[1].shards[0].heard_ms, None);

    store.advance(Duration::from_millis(100));
    let same = Hello {
        cluster_id: CLUSTER,
        server_id: welcome.server_id,
        ..with_replicas("m1", 2)
    };
    store.enlist(4, same);
    store.advance(Duration::from_millis(30));
    let up = (MemberState::Up, Contact::Heard);
    assert_eq!(contacts(&store), [not_yet, up, not_yet]);
    let shown = status(&store);
    assert_eq!(shown.leading_ms, 130);
    assert_eq!(shown.members[1].shards[0].heard_ms, Some(30));

    // One that was heard and is gone is another matter, and stays one.
    store.close(4);
    store.advance(Duration::from_millis(20));
    let gone = (MemberState::Unreachable, Contact::Heard);
    assert_eq!(contacts(&store), [not_yet, gone, not_yet]);
    assert_eq!(status(&store).members[1].shards[0].heard_ms, Some(50));
}

#[test]
fn a_member_whose_process_was_declared_dead_is_shown_as_dead_by_later_leaders_too() {
    let mut store = crate::common::replicated::Store::new(3);
    let contact_of = |harness: &Harness| {
        let members = status(harness).members;
        members.iter().map(|it| it.contact).collect::<Vec<_>>()
    };
    store.kill(3);
    let expected = [Contact::Heard, Contact::Heard, Contact::Dead];
    assert_eq!(contact_of(&store.harness), expected);
    store.harness.restart(Duration::from_secs(1));
    let expected = [Contact::NotYet, Contact::NotYet, Contact::Dead];
    assert_eq!(contact_of(&store.harness), expected);
}

#[test]
fn the_status_says_how_full_a_log_is_and_since_when_it_refuses_writes() {
    let mut store = Harness::new();
    store.enlist(1, hello("m0", 1, 0, 1));
    let room = |store: &Harness| status(store).members[0].shards[0].room;
    assert_eq!(room(&store), None, "it has not said yet");
    let told = LogRoom {
        max_live_bytes: 1000,
        tombstone_bytes: 10,
        full_rejections: 4,
        full: Some(MemoryFull {
            for_ms: 500,
            last_ms: 100,
        }),
    };
    let pong = Pong {
        log_live_bytes: 990,
        room: Some(told),
        ..Pong::default()
    };
    store.shard_says(1, shard::Kind::Pong(pong));
    assert_eq!(room(&store), Some(told));
    store.advance(Duration::from_millis(70));
    let full = room(&store).and_then(|room| room.full);
    let later = MemoryFull {
        for_ms: 570,
        last_ms: 170,
    };
    assert_eq!(full, Some(later), "time goes on between two reports");
}
