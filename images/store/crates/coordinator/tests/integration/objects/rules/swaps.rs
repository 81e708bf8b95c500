//! The root: commits as swaps, takeovers, and answers that are lost or wrong.

use coordinator::state::Changes;
use coordinator::state::objects::format::Root;
use coordinator::state::objects::testing::Pairs;
use coordinator::state::objects::{Ending, Name, ObjectResponse, Request, Version};

use super::{Desk, SECOND, failed, put, server, value};

#[test]
fn a_new_store_is_made_and_found_again() {
    let mut server = server();
    let mut first = Desk::leading(1, &mut server);
    assert_eq!(first.loaded, Some(Pairs::new()));
    let root = server.root().unwrap();
    assert_eq!((root.cluster_id, root.leader.as_str()), (77, "leader-1"));
    assert_eq!((root.position.term, root.position.sequence), (1, 1));
    assert_eq!(first.commit("a", "1"), 1);
    assert_eq!(first.committed, 0);
    first.serve(&mut server);
    assert_eq!(first.committed, 1);
    let second = Desk::leading(2, &mut server);
    assert_eq!(value(&second.loaded.unwrap(), "a"), Some("1"));
    let root = server.root().unwrap();
    assert_eq!((root.cluster_id, root.leader.as_str()), (77, "leader-2"));
    assert_eq!((root.position.term, root.position.sequence), (2, 3));
    assert_eq!(second.keeper.position(), Some(root.position));
}

#[test]
fn commits_that_come_while_one_is_under_way_are_one_swap() {
    let mut server = server();
    let mut desk = Desk::leading(1, &mut server);
    desk.commit("a", "1");
    let (first, request) = desk.only();
    assert_eq!(desk.commit("a", "2"), 2);
    assert_eq!(desk.commit("b", "1"), 3);
    let nothing = desk.keeper.commit(desk.now, Changes::default());
    assert_eq!(nothing, 3, "what is shown now may come of those before");
    assert_eq!(desk.open.len(), 1);
    desk.answer(first, server.execute(&request, 0).0);
    assert_eq!(desk.committed, 1);
    let (second, request) = desk.only();
    desk.answer(second, server.execute(&request, 0).0);
    assert_eq!((desk.committed, desk.open.len()), (3, 0));
    assert_eq!(server.root().unwrap().position.sequence, 3);
    assert_eq!(value(&server.state().unwrap(), "a"), Some("2"));
    let nothing = desk.keeper.commit(desk.now, Changes::default());
    desk.take();
    assert_eq!((nothing, desk.open.len()), (3, 0));
}

#[test]
fn a_swap_whose_answer_is_lost_is_found_done() {
    let mut server = server();
    let mut desk = Desk::leading(1, &mut server);
    desk.commit("a", "1");
    desk.commit("b", "1");
    desk.lose_answer(&mut server);
    assert_eq!(
        (desk.committed, desk.open.len()),
        (0, 0),
        "it waits a little"
    );
    let trouble = desk.keeper.troubles().remove(0);
    assert_eq!((trouble.doing, trouble.failures), ("write the root", 1));
    assert_eq!(
        (trouble.since, trouble.why.as_str()),
        (desk.now, "timed out")
    );
    desk.pass(SECOND);
    let (id, request) = desk.only();
    assert_eq!(request, Request::Get(Name::Root));
    desk.answer(id, server.execute(&request, 0).0);
    assert_eq!(desk.committed, 1);
    desk.serve(&mut server);
    assert_eq!(desk.committed, 2);
    assert_eq!(desk.keeper.troubles(), []);
}

#[test]
fn a_swap_that_was_not_executed_is_sent_again_with_the_same_content() {
    let mut server = server();
    let mut desk = Desk::leading(1, &mut server);
    desk.commit("a", "1");
    let (id, first) = desk.only();
    desk.answer(id, failed());
    desk.commit("b", "1");
    desk.pass(SECOND);
    let (id, request) = desk.only();
    desk.answer(id, server.execute(&request, 0).0);
    let (id, second) = desk.only();
    assert_eq!(first, second);
    // Now the first one gets there as well, and before.
    server.execute(&first, 0);
    desk.answer(id, server.execute(&second, 0).0);
    desk.serve(&mut server);
    assert_eq!(desk.committed, 2);
    assert_eq!(server.root().unwrap().position.sequence, 3);
}

#[test]
fn pauses_grow_to_two_seconds_and_never_end() {
    let mut server = server();
    let mut desk = Desk::leading(1, &mut server);
    desk.commit("a", "1");
    let mut pauses = Vec::new();
    for _ in 0..100 {
        let (id, _) = desk.only();
        desk.answer(id, failed());
        let pause = desk.keeper.next_wake().since(desk.now);
        pauses.push(pause.as_millis());
        desk.pass(pause);
    }
    assert_eq!(pauses[..6], [100, 200, 400, 800, 1600, 2000]);
    assert_eq!(pauses[99], 2000);
    assert_eq!(desk.keeper.troubles()[0].failures, 100);
    desk.serve(&mut server);
    assert_eq!(desk.committed, 1);
}

#[test]
fn a_root_with_other_labels_is_still_the_same() {
    let mut server = server();
    let mut desk = Desk::leading(1, &mut server);
    server.touch_root();
    desk.commit("a", "1");
    desk.serve(&mut server);
    assert_eq!(
        desk.committed, 0,
        "not at once, if somebody does that all the time"
    );
    desk.pass(SECOND);
    desk.serve(&mut server);
    assert_eq!(desk.committed, 1);
}

#[test]
fn whoever_is_taken_over_from_commits_nothing_more() {
    let mut server = server();
    let mut first = Desk::leading(1, &mut server);
    first.commit("a", "1");
    first.serve(&mut server);
    let second = Desk::leading(2, &mut server);
    assert_eq!(value(second.loaded.as_ref().unwrap(), "a"), Some("1"));
    first.commit("a", "2");
    first.serve(&mut server);
    assert_eq!(first.committed, 1);
    first.assert_ended(Ending::Deposed, "\"leader-2\" leads now, with term 2");
    assert_eq!(first.keeper.commit(first.now, put("a", "3")), u64::MAX);
    assert_eq!(value(&server.state().unwrap(), "a"), Some("1"));
}

#[test]
fn a_takeover_goes_on_from_what_the_former_leader_wrote_meanwhile() {
    let mut server = server();
    let mut first = Desk::leading(1, &mut server);
    let mut second = Desk::start(2);
    let (id, get) = second.only();
    second.answer(id, server.execute(&get, 0).0);
    first.commit("a", "1");
    first.serve(&mut server);
    second.serve(&mut server);
    assert_eq!(value(&second.loaded.unwrap(), "a"), Some("1"));
}

#[test]
fn a_takeover_gives_way_to_one_that_was_faster() {
    let mut server = server();
    Desk::leading(1, &mut server);
    let mut second = Desk::start(2);
    let (id, get) = second.only();
    second.answer(id, server.execute(&get, 0).0);
    Desk::leading(3, &mut server);
    second.serve(&mut server);
    second.assert_ended(Ending::Deposed, "\"leader-3\" leads now");

    let mut server = self::server();
    let mut slow = Desk::start(1);
    for _ in 0..2 {
        let (id, request) = slow.only();
        slow.answer(id, server.execute(&request, 0).0);
    }
    Desk::leading(2, &mut server);
    slow.serve(&mut server);
    slow.assert_ended(Ending::Deposed, "\"leader-2\" leads now");
}

#[test]
fn answers_that_nobody_waits_for_are_ignored_and_wrong_ones_are_failures() {
    let mut server = server();
    let mut desk = Desk::start(1);
    desk.answer(99, ObjectResponse::NotFound);
    let (id, _) = desk.only();
    desk.answer(id, ObjectResponse::Listed(Vec::new()));
    assert!(
        desk.keeper.troubles()[0]
            .why
            .contains("another kind of request")
    );
    desk.pass(SECOND);
    let (id, request) = desk.only();
    desk.answer(id, server.execute(&request, 0).0);
    desk.answer(id, ObjectResponse::Done(Version("1".to_owned())));
    desk.serve(&mut server);
    assert!(desk.loaded.is_some());
    let bytes = server.objects[&Name::Root].1.clone();
    assert!(Root::decode(&bytes).is_ok());
}

#[test]
#[should_panic(expected = "nothing is committed before the state is loaded")]
fn a_commit_before_the_state_is_there_is_a_mistake() {
    let mut desk = Desk::start(1);
    desk.commit("a", "1");
}
