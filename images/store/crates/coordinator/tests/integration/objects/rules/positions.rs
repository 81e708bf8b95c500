//! Roots that were put back to older ones: noticed by positions that members were told, and by looks at the root.

use std::sync::Arc;
use std::time::Duration;

use coordinator::state::objects::testing::ApiServer;
use coordinator::state::objects::{ChunkId, Ending, Name, Request};

use super::{Desk, at, failed, server, value, with_chunks};

#[test]
fn what_members_were_told_is_known_before_taking_over() {
    let newest = with_chunks().0.root().unwrap().position;
    for heard in [newest, at(1, 1, 1)] {
        let (mut server, _) = with_chunks();
        let mut desk = Desk::start(9);
        desk.keeper.heard_of(desk.now, heard);
        desk.serve(&mut server);
        assert!(desk.loaded.is_some(), "{:?}", desk.ended);
    }
    for lost in [at(1, 1, newest.sequence + 1), at(1, 5, 1), at(2, 5, 1)] {
        let (mut server, _) = with_chunks();
        let root = server.root();
        let mut desk = Desk::start(9);
        desk.keeper.heard_of(desk.now, lost);
        desk.serve(&mut server);
        desk.assert_ended(Ending::RolledBack, "does not come of");
        assert_eq!(server.root(), root, "nothing was written");
    }
    let mut server = server();
    let mut desk = Desk::start(9);
    desk.keeper.heard_of(desk.now, newest);
    desk.serve(&mut server);
    desk.assert_ended(Ending::RolledBack, "and there is no root");
    assert!(server.objects.is_empty());
}

#[test]
fn what_was_told_after_the_root_was_read_is_no_lie() {
    let mut server = server();
    let mut first = Desk::leading(1, &mut server);
    let mut second = Desk::start(2);
    let (id, get) = second.only();
    let old = server.execute(&get, 0).0;
    first.commit("a", "1");
    first.serve(&mut server);
    second
        .keeper
        .heard_of(second.now, first.keeper.position().unwrap());
    second.answer(id, old);
    second.serve(&mut server);
    assert_eq!(value(&second.loaded.unwrap(), "a"), Some("1"));
}

#[test]
fn a_leader_that_hears_of_what_it_does_not_know_looks_again() {
    let (mut server, _) = with_chunks();
    let mut old = Desk::leading(2, &mut server);
    let new = Desk::leading(3, &mut server);
    old.keeper.heard_of(old.now, new.keeper.position().unwrap());
    old.take();
    old.serve(&mut server);
    old.assert_ended(Ending::Deposed, "\"leader-3\" leads now");

    let own = new.keeper.position().unwrap();
    for heard in [
        at(2, 5, 4),
        at(own.term + 1, 5, own.sequence + 1),
        at(own.term, 5, 1),
    ] {
        let mut leader = Desk::leading(10 + heard.term, &mut server);
        let position = leader.keeper.position().unwrap();
        leader.keeper.heard_of(leader.now, position);
        leader.keeper.heard_of(leader.now, own);
        leader.take();
        assert_eq!(leader.open.len(), 0, "it knows of these");
        leader.keeper.heard_of(leader.now, heard);
        leader.take();
        leader.serve(&mut server);
        leader.assert_ended(Ending::RolledBack, "does not come of");
    }
}

#[test]
fn a_leader_whose_root_was_put_back_ends() {
    let (mut server, _) = with_chunks();
    let mut desk = Desk::leading(2, &mut server);
    let backup = server.objects.clone();
    desk.commit("b", "1");
    desk.serve(&mut server);
    server.roll_back(backup);
    desk.commit("c", "1");
    desk.serve(&mut server);
    desk.assert_ended(Ending::RolledBack, "Put the newer ones back");
    assert_eq!(desk.committed, 1);
}

#[test]
fn a_leader_that_writes_nothing_looks_at_the_root() {
    const INTERVAL: Duration = Duration::from_secs(5);
    let (mut server, _) = with_chunks();
    let looking = |nonce, server: &mut ApiServer| {
        let mut desk = Desk::start_looking(nonce, INTERVAL);
        desk.serve(server);
        assert!(desk.keeper.next_wake() <= desk.now + INTERVAL);
        desk
    };
    let mut desk = looking(2, &mut server);
    let backup = server.objects.clone();
    desk.commit("b", "1");
    desk.serve(&mut server);
    desk.pass(INTERVAL - Duration::from_millis(1));
    assert_eq!(desk.open, [], "a commit is a look");
    for _ in 0..3 {
        desk.pass(INTERVAL);
        let (id, request) = desk.only();
        assert_eq!(request, Request::Get(Name::Root));
        // It is tried again where nothing came, and all is well.
        desk.answer(id, failed());
        desk.pass(Duration::from_millis(200));
        desk.serve(&mut server);
        assert_eq!(desk.ended, None);
    }
    server.roll_back(backup);
    desk.pass(INTERVAL);
    desk.serve(&mut server);
    desk.assert_ended(Ending::RolledBack, "Put the newer ones back");

    let mut old = looking(3, &mut server);
    Desk::leading(4, &mut server);
    old.pass(INTERVAL);
    old.serve(&mut server);
    old.assert_ended(Ending::Deposed, "\"leader-4\" leads now");
}

#[test]
fn a_look_from_before_the_newest_commit_is_no_alarm() {
    let (mut server, _) = with_chunks();
    let mut desk = Desk::start(2);
    let orphan = ChunkId {
        term: 1,
        nonce: 5,
        number: 1,
    };
    server.execute(&Request::Create(Name::Chunk(orphan), Arc::from([])), 0);
    while desk
        .open
        .iter()
        .any(|(_, request)| *request != Request::Get(Name::Root))
        || desk.loaded.is_none()
    {
        let (id, request) = desk.open[0].clone();
        desk.answer(id, server.execute(&request, 0).0);
    }
    let (look, request) = desk.only();
    let old = server.execute(&request, 0).0;
    desk.commit("b", "1");
    let (swap, request) = desk.open[1].clone();
    desk.answer(swap, server.execute(&request, 0).0);
    assert_eq!(desk.committed, 1);
    desk.answer(look, old);
    desk.serve(&mut server);
    assert_eq!(desk.ended, None);
    assert!(!server.chunks().contains(&orphan));
}
