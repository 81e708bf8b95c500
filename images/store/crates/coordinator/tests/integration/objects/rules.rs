//! A test for every rule, with answers given by hand.

use std::sync::Arc;
use std::time::Duration;

use coordinator::state::objects::format::Root;
use coordinator::state::objects::{
    Answer, ChunkId, Ending, Keeper, Name, Output, Position, Request, RequestId, Settings, Tuning,
    Version,
};
use coordinator::state::{Changes, Pair};
use wire::time::Time;

use super::world::tuning;
use coordinator::state::objects::testing::{ApiServer, Pairs};

/// A keeper, and requests that it waits for.
struct Desk {
    keeper: Keeper,
    now: Time,
    open: Vec<(RequestId, Request)>,
    loaded: Option<Pairs>,
    committed: u64,
    ended: Option<(Ending, String)>,
}

/// It does not look at the root unless it writes, but where that is what is tested.
const NO_LOOKS: Duration = Duration::from_secs(86_400);

fn keeper(nonce: u64, look_interval: Duration) -> Keeper {
    Keeper::new(Settings {
        nonce,
        leader: format!("leader-{nonce}"),
        new_cluster_id: 77,
        awaits_seed: false,
        tuning: Tuning {
            sweep_interval: Tuning::default().sweep_interval,
            look_interval,
            ..tuning()
        },
    })
}

impl Desk {
    fn start(nonce: u64) -> Desk {
        Desk::start_looking(nonce, NO_LOOKS)
    }

    fn start_looking(nonce: u64, look_interval: Duration) -> Desk {
        let mut desk = Desk {
            keeper: keeper(nonce, look_interval),
            now: Time(1_000),
            open: Vec::new(),
            loaded: None,
            committed: 0,
            ended: None,
        };
        desk.keeper.start(desk.now);
        desk.take();
        desk
    }

    /// One that leads.
    fn leading(nonce: u64, server: &mut ApiServer) -> Desk {
        let mut desk = Desk::start(nonce);
        desk.serve(server);
        assert!(desk.loaded.is_some(), "{:?}", desk.ended);
        desk
    }

    fn take(&mut self) {
        while let Some(output) = self.keeper.take_output() {
            assert_eq!(self.ended, None, "nothing comes after the end: {output:?}");
            match output {
                Output::Request(id, request) => self.open.push((id, request)),
                Output::Loaded { pairs, .. } => {
                    let pairs = pairs.into_iter().map(|pair| (pair.key, pair.value));
                    self.loaded = Some(pairs.collect());
                }
                Output::Empty => panic!("nobody awaits a seed here"),
                Output::Committed(number) => self.committed = number,
                Output::Ended(ending, text) => self.ended = Some((ending, text)),
            }
        }
    }

    fn answer(&mut self, id: RequestId, answer: Answer) {
        self.open.retain(|(open, _)| *open != id);
        self.keeper.answered(self.now, id, answer);
        self.take();
    }

    /// The one request that is open.
    fn only(&self) -> (RequestId, Request) {
        assert_eq!(self.open.len(), 1, "{:?}", self.open);
        self.open[0].clone()
    }

    /// The API server answers all there is, and what comes of it.
    fn serve(&mut self, server: &mut ApiServer) {
        while let Some((id, request)) = self.open.first().cloned() {
            self.answer(id, server.execute(&request, 0).0);
        }
    }

    /// It executes what is asked, and the answer is lost.
    fn lose_answer(&mut self, server: &mut ApiServer) {
        let (id, request) = self.only();
        server.execute(&request, 0);
        self.answer(id, failed());
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.keeper.tick(self.now);
        self.take();
    }

    fn commit(&mut self, key: &str, value: &str) -> u64 {
        let number = self.keeper.commit(self.now, put(key, value));
        self.take();
        number
    }

    fn assert_ended(&self, ending: Ending, part: &str) {
        let (found, text) = self.ended.as_ref().expect("it is over");
        assert_eq!(*found, ending, "{text}");
        assert!(text.contains(part), "{text}");
        assert_eq!(self.keeper.next_wake(), Time::NEVER);
        assert_eq!(self.keeper.position(), None);
    }
}

fn failed() -> Answer {
    Answer::Failed("timed out".to_owned())
}

fn put(key: &str, value: &str) -> Changes {
    let pair = Pair {
        key: key.into(),
        value: value.into(),
    };
    Changes {
        puts: vec![pair],
        deletes: Vec::new(),
    }
}

fn server() -> ApiServer {
    ApiServer::new(1 << 20)
}

fn value<'a>(pairs: &'a Pairs, key: &str) -> Option<&'a str> {
    let value = pairs.get(key.as_bytes())?;
    Some(core::str::from_utf8(value).unwrap())
}

const SECOND: Duration = Duration::from_secs(1);

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

/// A server with a run of three chunks, and the chunks.
fn with_chunks() -> (ApiServer, Vec<ChunkId>) {
    let mut server = server();
    let mut desk = Desk::leading(1, &mut server);
    desk.commit("a", &"x".repeat(1000));
    desk.serve(&mut server);
    let chunks = server.chunks();
    assert_eq!(chunks.len(), 3);
    (server, chunks)
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
    desk.answer(id, Answer::Failed("forbidden".to_owned()));
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

fn at(term: u64, nonce: u64, sequence: u64) -> Position {
    Position {
        term,
        nonce,
        sequence,
    }
}

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

#[test]
fn answers_that_nobody_waits_for_are_ignored_and_wrong_ones_are_failures() {
    let mut server = server();
    let mut desk = Desk::start(1);
    desk.answer(99, Answer::NotFound);
    let (id, _) = desk.only();
    desk.answer(id, Answer::Listed(Vec::new()));
    assert!(
        desk.keeper.troubles()[0]
            .why
            .contains("another kind of request")
    );
    desk.pass(SECOND);
    let (id, request) = desk.only();
    desk.answer(id, server.execute(&request, 0).0);
    desk.answer(id, Answer::Done(Version("1".to_owned())));
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
