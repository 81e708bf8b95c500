//! Leaders that meet a later one, or an older state.

use std::time::Duration;

use crate::common::{create_table, hello, renew_lease};
use base::ids::ReplyTo;
use coordinator::leader::{LeaderEffect, News};
use coordinator::state::objects::Ending;
use coordinator::state::objects::testing::ApiServer;
use wire::member::coordinator::Kind;
use wire::member::{ToCoordinator, shard};
use wire::rpc;
use wire::status::Status;

use super::{Bench, get_table_id, pings_in, resumed, status_of, welcome_in, with_member};

#[test]
fn who_tells_of_a_later_leader_is_put_off_until_the_root_was_looked_at() {
    let mut server = ApiServer::new(1 << 20);
    let (mut old, welcome) = with_member(&mut server);
    let mut new = Bench::leads(22, &mut server);
    // A connection whose end is held, and which the coordinator itself knows no more.
    old.request(1, &renew_lease(0));
    old.under_way.clear();
    old.says(3, shard::Kind::Hello(resumed(&welcome, None)));
    new.says(1, shard::Kind::Hello(resumed(&welcome, welcome.position)));
    new.serve(&mut server);
    let effects = new.take();
    let told = welcome_in(&effects).expect("it resumes").position;
    assert_eq!(told.map(|told| told.term), Some(2));

    let effects = old.says(2, shard::Kind::Hello(resumed(&welcome, told)));
    let [
        LeaderEffect::SendMember(2, refused),
        LeaderEffect::CloseMember(2),
    ] = &effects[..]
    else {
        panic!("{effects:?}");
    };
    assert!(
        matches!(&refused.kind, Some(Kind::Refused(refused)) if refused.text.contains("try again"))
    );
    assert_eq!(old.refusal(), "");
    old.serve(&mut server);
    let effects = old.take();
    assert!(
        matches!(
            effects.last(),
            Some(LeaderEffect::State(News::Ended(Ending::Deposed, _)))
        ),
        "{effects:?}"
    );
    for connection in [1, 3] {
        let is_its = |effect: &LeaderEffect<u32>| matches!(effect, LeaderEffect::CloseMember(at) if *at == connection);
        assert!(effects.iter().any(is_its), "{connection}: {effects:?}");
    }
    assert!(old.refusal().contains("leader-22"), "{}", old.refusal());
}

#[test]
fn objects_that_were_put_back_are_noticed_by_what_servers_were_told() {
    let mut server = ApiServer::new(1 << 20);
    let (mut bench, welcome) = with_member(&mut server);
    let backup = server.objects.clone();
    bench.request(1, &renew_lease(0));
    bench.serve(&mut server);
    bench.now += Duration::from_millis(200);
    let effects = bench.take();
    let told = pings_in(&effects)[0].position;
    drop(bench);
    server.roll_back(backup);
    let mut next = Bench::leads(22, &mut server);
    let effects = next.says(1, shard::Kind::Hello(resumed(&welcome, told)));
    assert!(welcome_in(&effects).is_none(), "{effects:?}");
    next.serve(&mut server);
    let effects = next.take();
    assert!(
        matches!(
            effects.last(),
            Some(LeaderEffect::State(News::Ended(Ending::RolledBack, _)))
        ),
        "{effects:?}"
    );
    assert!(
        next.refusal().contains("Put the newer ones back"),
        "{}",
        next.refusal()
    );
    // Nobody is served any more, and told why.
    let effects = next.says(2, shard::Kind::Hello(resumed(&welcome, None)));
    assert!(
        matches!(
            &effects[..],
            [LeaderEffect::SendMember(2, _), LeaderEffect::CloseMember(2)]
        ),
        "{effects:?}"
    );
    let effects = next.request(3, &get_table_id());
    assert_eq!(status_of(&effects), [Status::Retry]);
}

/// The lease and the table that the next who ask get.
fn new_ids(leader: &mut Bench, server: &mut ApiServer) -> (u64, u64) {
    leader.left.clear();
    let to = |nonce| ReplyTo {
        connection: 1,
        nonce,
    };
    let (lease, table) = (to(1), to(2));
    leader.leader.request(leader.now, lease, &renew_lease(0));
    leader
        .leader
        .request(leader.now, table, &create_table("of the moment", 1));
    leader.serve(server);
    let mut ids = (0, 0);
    for effect in std::mem::take(&mut leader.left) {
        match effect {
            LeaderEffect::Reply(to, bytes) if to == lease => {
                ids.0 = rpc::RenewLeaseResponse::decode(&bytes).unwrap().lease.id;
            }
            LeaderEffect::SendMember(_, message) => {
                if let Some(Kind::TakeTablet(order)) = message.kind {
                    ids.1 = order.tablet.table_id;
                }
            }
            _ => {}
        }
    }
    assert!(ids.0 > 0 && ids.1 > 0, "{ids:?}");
    ids
}

#[test]
fn an_older_state_that_goes_on_gives_no_id_of_a_lease_or_table_out_again() {
    let mut server = ApiServer::new(1 << 20);
    let (mut first, _) = with_member(&mut server);
    let older = server.objects.clone();
    let given_out = new_ids(&mut first, &mut server);
    // Somebody puts the older one back, and all who know of the newer one have ended.
    server.roll_back(older);
    let mut second = Bench::leads(3, &mut server);
    second.leader.member_message(
        second.now,
        9,
        ToCoordinator::from(shard::Kind::Hello(hello("m1", 8, 0, 1))),
    );
    second.serve(&mut server);
    let again = new_ids(&mut second, &mut server);
    assert!(
        again.0 > given_out.0 + 1000 && again.1 > given_out.1 + 100,
        "{given_out:?} {again:?}"
    );
}
