//! What returning masters are told is there.

use wire::peer::{Held, List, Listed, Listing};

use super::LOG;
use crate::tests::*;

fn is_closed(rig: &mut Rig) -> bool {
    matches!(
        listing(rig).replicas[0].held,
        Held::Closed { bytes: 100, .. }
    )
}

fn listing(rig: &mut Rig) -> Listing {
    rig.backup().list(List { log: LOG })
}

#[test]
fn a_listing_tells_of_closed_replicas_what_they_hold() {
    let mut rig = Rig::new(Durability::Buffered, 4);
    rig.put_now(replica(1, 1), 0..100, true);
    rig.put_now(replica(1, 2), 0..300, false);
    rig.put_now(replica(2, 1), 0..100, true);
    let nonce = rig.send_side(replica(1, 3), 50);
    assert_eq!(rig.answer(nonce), Some((Status::Ok, 50)));
    let crc = crc32c::crc32c(&content_of(replica(1, 1), 100));
    let listed = |segment_id, held| Listed { segment_id, held };
    let [open, part] = [listed(2, Held::OpenHead), listed(3, Held::Nothing)];
    let closed = listed(1, Held::Closed { bytes: 100, crc });
    assert_eq!(listing(&mut rig).replicas, [closed, open, part]);
    assert_eq!(listing(&mut rig).status, Status::Ok);
    rig.settle();
    let at = rig.place_of(replica(1, 1));
    rig.storage().rot(at, 1);
    assert_eq!(rig.read(replica(1, 1), 0, 10).0, Status::Mismatch);
    let damaged = listed(1, Held::Nothing);
    assert_eq!(listing(&mut rig).replicas, [damaged, open, part]);
    rig.begin_recovery(LOG);
    let fenced = listing(&mut rig);
    assert_eq!((fenced.status, fenced.replicas), (Status::Fenced, vec![]));
}

#[test]
fn a_listing_shows_nothing_that_a_crash_may_take() {
    let mut rig = Rig::flushed();
    rig.settle();
    rig.put_settled(replica(1, 1), 0..100, false);
    let nonce = rig.put(replica(1, 1), 100..100, true);
    assert_eq!(listing(&mut rig).replicas[0].held, Held::OpenHead);
    rig.finish_sync(Scope::All);
    assert_eq!(rig.answer(nonce), Some((Status::Ok, 100)));
    assert!(is_closed(&mut rig));
    rig.settle();
    for _ in 0..3 {
        rig.restart();
        assert!(is_closed(&mut rig));
        rig.settle();
    }
    rig.power_loss(|_| 0);
    assert!(is_closed(&mut rig));
    rig.storage().faults.writes = Some("as told".to_owned());
    rig.put(replica(1, 2), 0..100, false);
    assert_eq!(listing(&mut rig).status, Status::Retired);
}
