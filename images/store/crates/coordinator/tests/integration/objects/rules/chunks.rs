//! Chunks: written before the root names them, missed or damaged, and swept.

use std::sync::Arc;

use coordinator::state::objects::{ChunkId, Ending, Name, ObjectResponse, Request};

use super::{Desk, SECOND, at, server, value, with_chunks};

#[test]
fn long_changes_are_in_chunks_before_the_root_names_them() {
    let mut server = server();
    let mut desk = Desk::leading(1, &mut server);
    let long = "x".repeat(1000);
    desk.commit("a", &long);
    desk.commit("b", "1");
    for _ in 0..3 {
        let (id, request) = desk.only();
        assert!(matches!(request, Request::Create(Name::Chunk(_), _)));
        desk.answer(id, server.execute(&request, 0).0);
    }
    assert!(matches!(desk.only().1, Request::Replace(..)));
    desk.serve(&mut server);
    assert_eq!(desk.committed, 2, "the second was in the same root");
    let root = server.root().unwrap();
    assert_eq!((root.runs.len(), root.runs[0].chunks.len()), (1, 3));
    assert_eq!(root.runs[0].chunks[0].bytes, 400);
    let next = Desk::leading(2, &mut server);
    assert_eq!(value(&next.loaded.unwrap(), "a"), Some(long.as_str()));
}

#[test]
fn a_chunk_that_is_there_already_must_be_the_same() {
    for is_same in [true, false] {
        let mut server = server();
        let mut desk = Desk::leading(1, &mut server);
        desk.commit("a", &"x".repeat(350));
        let (id, request) = desk.only();
        let Request::Create(name, bytes) = &request else {
            panic!("{request:?}");
        };
        let there = if is_same {
            bytes.clone()
        } else {
            Arc::from([1])
        };
        server.execute(&Request::Create(*name, there), 0);
        desk.answer(id, server.execute(&request, 0).0);
        assert_eq!(desk.only().1, Request::Get(*name));
        desk.serve(&mut server);
        match is_same {
            true => assert_eq!(desk.committed, 1),
            false => desk.assert_ended(Ending::Unreadable, "written by somebody else"),
        }
    }
}

#[test]
fn chunks_without_a_root_are_no_new_store() {
    let mut server = server();
    let mut desk = Desk::leading(1, &mut server);
    desk.commit("a", &"x".repeat(1000));
    desk.serve(&mut server);
    server.objects.remove(&Name::Root);
    let mut next = Desk::start(2);
    let (id, request) = next.only();
    next.answer(id, server.execute(&request, 0).0);
    let list = next.only().1;
    assert_eq!(
        list,
        Request::List { fresh: true },
        "an old one may lack them"
    );
    next.serve(&mut server);
    next.assert_ended(
        Ending::Incomplete,
        "the root is missing, but there are 3 chunks",
    );
    desk.commit("a", "2");
    desk.serve(&mut server);
    desk.assert_ended(Ending::Incomplete, "the root was deleted");
    assert!(server.root().is_none());
}

#[test]
fn chunks_of_a_store_that_was_made_just_now_are_no_alarm() {
    let mut server = server();
    let mut slow = Desk::start(1);
    let (id, get) = slow.only();
    slow.answer(id, server.execute(&get, 0).0);
    let mut desk = Desk::leading(2, &mut server);
    desk.commit("a", &"x".repeat(1000));
    desk.serve(&mut server);
    slow.serve(&mut server);
    assert_eq!(value(&slow.loaded.unwrap(), "a").unwrap().len(), 1000);
}

#[test]
fn a_root_that_goes_while_it_is_taken_over_is_no_new_store() {
    let mut server = server();
    let mut first = Desk::leading(1, &mut server);
    let mut second = Desk::start(2);
    let (id, get) = second.only();
    second.answer(id, server.execute(&get, 0).0);
    first.commit("a", "1");
    first.serve(&mut server);
    let (id, replace) = second.only();
    second.keeper.heard_of(second.now, at(1, 1, 9));
    second.answer(id, server.execute(&replace, 0).0);
    let (id, get) = second.only();
    second.answer(id, server.execute(&get, 0).0);
    assert_eq!(second.only().1, Request::Get(Name::Root), "it looks again");
    server.objects.clear();
    second.serve(&mut server);
    second.assert_ended(Ending::Incomplete, "the root was deleted");
    assert!(server.objects.is_empty());
}

#[test]
fn a_chunk_that_is_missing_or_damaged_is_said() {
    let (mut server, chunks) = with_chunks();
    server.objects.remove(&Name::Chunk(chunks[1]));
    let mut desk = Desk::start(2);
    desk.serve(&mut server);
    desk.assert_ended(
        Ending::Incomplete,
        &format!("{}, which is not there", chunks[1]),
    );
    assert_eq!(desk.loaded, None);

    let (mut server, chunks) = with_chunks();
    let (version, bytes) = server.objects[&Name::Chunk(chunks[2])].clone();
    let mut bytes = bytes.to_vec();
    bytes[60] ^= 1;
    let object = (version, bytes.into());
    server.objects.insert(Name::Chunk(chunks[2]), object);
    let mut desk = Desk::start(2);
    desk.serve(&mut server);
    desk.assert_ended(Ending::Unreadable, &format!("{} is damaged", chunks[2]));
    assert_eq!(desk.loaded, None);
}

#[test]
fn a_chunk_that_a_later_leader_has_swept_is_not_missing() {
    let (mut server, chunks) = with_chunks();
    let mut slow = Desk::start(2);
    for _ in 0..2 {
        let (id, request) = slow.only();
        slow.answer(id, server.execute(&request, 0).0);
    }
    Desk::leading(3, &mut server);
    server.objects.remove(&Name::Chunk(chunks[0]));
    slow.serve(&mut server);
    slow.assert_ended(Ending::Deposed, "\"leader-3\" leads now");
}

#[test]
fn a_root_that_cannot_be_read_is_left_alone() {
    let (mut server, _) = with_chunks();
    let bytes: Arc<[u8]> = Arc::from(*b"rcboxCRT and then nothing");
    server.objects.insert(Name::Root, (1, bytes));
    let mut desk = Desk::start(2);
    desk.serve(&mut server);
    desk.assert_ended(Ending::Unreadable, "root is damaged");
}

#[test]
fn only_what_no_root_names_is_swept_so_many_at_a_time() {
    let (mut server, chunks) = with_chunks();
    let orphan = |term, nonce, number| ChunkId {
        term,
        nonce,
        number,
    };
    let old: Vec<ChunkId> = (0..12)
        .map(|number| orphan(1, number % 3, 100 + number))
        .collect();
    let future = [orphan(3, 2, 1), orphan(3, 9, 1)];
    for id in old.iter().chain(&future) {
        server.execute(&Request::Create(Name::Chunk(*id), Arc::from([])), 0);
    }
    let mut desk = Desk::leading(2, &mut server);
    assert_eq!(server.chunks().len(), 3 + 12 - 5 + 2);
    for _ in 0..2 {
        desk.pass(SECOND);
        desk.serve(&mut server);
    }
    let mut expected = chunks.clone();
    expected.extend(future);
    assert_eq!(server.chunks(), expected);
    assert_eq!(desk.keeper.troubles(), []);
    desk.pass(SECOND * 599);
    assert_eq!(desk.open.len(), 0, "the next sweep is in ten minutes");
    desk.pass(SECOND * 2);
    assert_eq!(desk.only().1, Request::List { fresh: false });
}

#[test]
fn a_sweep_that_fails_is_said_and_begun_again() {
    let (mut server, _) = with_chunks();
    let orphan = ChunkId {
        term: 1,
        nonce: 5,
        number: 1,
    };
    server.execute(&Request::Create(Name::Chunk(orphan), Arc::from([])), 0);
    let mut desk = Desk::start(2);
    while desk
        .open
        .iter()
        .any(|(_, request)| !matches!(request, Request::Delete(_)))
    {
        let (id, request) = desk.open[0].clone();
        desk.answer(id, server.execute(&request, 0).0);
    }
    let (id, request) = desk.only();
    assert_eq!(request, Request::Delete(orphan));
    desk.answer(id, ObjectResponse::Failed("forbidden".to_owned()));
    let trouble = desk.keeper.troubles().remove(0);
    assert_eq!(
        (trouble.doing, trouble.why.as_str()),
        ("delete old chunks", "forbidden")
    );
    desk.pass(SECOND);
    desk.serve(&mut server);
    assert!(!server.chunks().contains(&orphan));
    assert_eq!(desk.keeper.troubles(), []);
}

#[test]
fn nothing_is_swept_once_the_root_was_put_back() {
    let (mut server, _) = with_chunks();
    let mut desk = Desk::leading(2, &mut server);
    let backup = server.objects.clone();
    for number in 0..8 {
        desk.commit(&format!("{number}"), &"y".repeat(400));
        desk.serve(&mut server);
    }
    let root = server.root().unwrap();
    assert!(root.chunks().all(|chunk| chunk.id.term == 2), "{root:?}");
    server.roll_back(backup);
    let chunks = server.chunks();
    desk.pass(SECOND * 2);
    desk.serve(&mut server);
    desk.assert_ended(
        Ending::RolledBack,
        "the objects were put back to an older state",
    );
    assert_eq!(server.chunks(), chunks);
}
