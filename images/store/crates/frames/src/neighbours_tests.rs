use proptest::prelude::*;

use super::*;

const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const MAC: Mac = [2, 0, 0, 0, 0, 2];
const OTHER_MAC: Mac = [2, 0, 0, 0, 0, 3];
const ROUTE: Route = Route {
    us: US,
    prefix_bits: 24,
    gateway: None,
};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn neighbours() -> Neighbours<u32> {
    Neighbours::new(ROUTE, Limits::default())
}

const NOBODY: [Ipv4Addr; 0] = [];
const NO_FRAMES: [u32; 0] = [];

/// Sends; who was asked for beside.
fn send(
    table: &mut Neighbours<u32>,
    now: Duration,
    to: Ipv4Addr,
    frame: u32,
) -> (Sending<u32>, Vec<Ipv4Addr>) {
    let mut asked = Vec::new();
    let sending = table.send(now, to, frame, |ip| asked.push(ip));
    (sending, asked)
}

fn ticked(table: &mut Neighbours<u32>, now: Duration) -> Vec<Ipv4Addr> {
    let mut asked = Vec::new();
    table.tick(now, |ip| asked.push(ip));
    asked
}

#[test]
fn frames_wait_for_the_answer_and_keep_their_order() {
    let mut table = neighbours();
    assert_eq!(
        send(&mut table, millis(0), PEER, 1),
        (Sending::Waits, vec![PEER])
    );
    assert_eq!(
        send(&mut table, millis(1), PEER, 2),
        (Sending::Waits, vec![]),
        "asked already"
    );
    assert_eq!(table.answered(millis(2), PEER, MAC), vec![1, 2]);
    assert_eq!(
        send(&mut table, millis(3), PEER, 3),
        (Sending::To(MAC, 3), vec![])
    );
    assert_eq!((table.waiting(), table.dropped()), (0, 0));
}

#[test]
fn a_question_is_repeated_and_then_given_up() {
    let mut table = neighbours();
    send(&mut table, millis(0), PEER, 1);
    assert_eq!(ticked(&mut table, millis(99)), NOBODY, "too early");
    for ask in 1..5 {
        assert_eq!(table.next_tick(), Some(millis(ask * 100)));
        assert_eq!(
            ticked(&mut table, millis(ask * 100)),
            vec![PEER],
            "question {ask}"
        );
    }
    assert_eq!(ticked(&mut table, millis(500)), NOBODY);
    assert_eq!(
        (table.waiting(), table.dropped(), table.next_tick()),
        (0, 1, None)
    );
    assert_eq!(
        send(&mut table, millis(1499), PEER, 2),
        (Sending::Dropped, vec![]),
        "rests"
    );
    assert_eq!(
        send(&mut table, millis(1500), PEER, 3),
        (Sending::Waits, vec![PEER]),
        "asks anew"
    );
    assert_eq!(table.answered(millis(1501), PEER, MAC), vec![3]);
}

/// Asks for the peer, which answers.
fn find(table: &mut Neighbours<u32>, now: Duration, mac: Mac) {
    assert_eq!(send(table, now, PEER, 0), (Sending::Waits, vec![PEER]));
    assert_eq!(table.answered(now, PEER, mac), vec![0]);
}

#[test]
fn who_was_silent_for_long_is_asked_again_while_it_is_used() {
    let mut table = neighbours();
    find(&mut table, millis(0), MAC);
    assert_eq!(
        send(&mut table, millis(29_999), PEER, 1),
        (Sending::To(MAC, 1), vec![])
    );
    assert_eq!(
        send(&mut table, millis(30_000), PEER, 2),
        (Sending::To(MAC, 2), vec![PEER])
    );
    assert_eq!(
        send(&mut table, millis(30_001), PEER, 3),
        (Sending::To(MAC, 3), vec![]),
        "not so fast"
    );
    table.answered(millis(30_002), PEER, MAC);
    assert_eq!(
        send(&mut table, millis(40_000), PEER, 4),
        (Sending::To(MAC, 4), vec![])
    );
    for ask in 0..5 {
        let now = millis(70_000 + ask * 100);
        assert_eq!(
            send(&mut table, now, PEER, 5),
            (Sending::To(MAC, 5), vec![PEER])
        );
    }
    assert_eq!(
        send(&mut table, millis(70_500), PEER, 6),
        (Sending::Waits, vec![PEER]),
        "no answer: it has gone"
    );
}

/// Whoever is on the link can say anything in anybody's name.
#[test]
fn nothing_is_learned_from_what_nobody_asked_for() {
    let mut table = neighbours();
    table.claimed(PEER, MAC);
    assert_eq!(table.answered(millis(0), PEER, MAC), NO_FRAMES);
    assert!(table.is_empty(), "strangers are not remembered");
    find(&mut table, millis(1), MAC);
    assert_eq!(table.answered(millis(2), PEER, OTHER_MAC), NO_FRAMES);
    table.claimed(PEER, OTHER_MAC);
    assert_eq!(table.station(PEER), Some(MAC), "it is what it answered");
    // It is asked, and says so once more.
    assert_eq!(
        send(&mut table, millis(3), PEER, 1),
        (Sending::To(MAC, 1), vec![PEER])
    );
    assert_eq!(table.answered(millis(4), PEER, OTHER_MAC), NO_FRAMES);
    assert_eq!(table.answered(millis(5), PEER, MAC), NO_FRAMES);
    assert_eq!(
        send(&mut table, millis(6), PEER, 2),
        (Sending::To(MAC, 2), vec![])
    );
    // Groups and ourselves are no neighbours.
    assert_eq!(table.answered(millis(7), US, MAC), NO_FRAMES);
    assert_eq!(table.answered(millis(7), PEER, crate::BROADCAST), NO_FRAMES);
    assert_eq!((table.len(), table.station(PEER)), (1, Some(MAC)));
}

/// A machine that has another station now says so; the old one is asked, and is silent.
#[test]
fn an_address_moves_when_its_station_does_not_answer() {
    let mut table = neighbours();
    find(&mut table, millis(0), MAC);
    table.claimed(PEER, OTHER_MAC);
    for now in [1, 101] {
        assert_eq!(
            send(&mut table, millis(now), PEER, 1),
            (Sending::To(MAC, 1), vec![PEER])
        );
        table.answered(millis(now + 1), PEER, OTHER_MAC);
    }
    assert_eq!(
        send(&mut table, millis(110), PEER, 2),
        (Sending::To(OTHER_MAC, 2), vec![])
    );
}

#[test]
fn what_was_told_stands_whatever_is_answered() {
    let mut table = neighbours();
    send(&mut table, millis(0), PEER, 1);
    assert_eq!(table.told(millis(1), PEER, MAC), vec![1]);
    for now in 2..200_000 {
        table.claimed(PEER, OTHER_MAC);
        assert_eq!(table.answered(millis(now), PEER, OTHER_MAC), NO_FRAMES);
        if now.is_multiple_of(1000) {
            let sending = send(&mut table, millis(now), PEER, 2);
            assert_eq!(sending, (Sending::To(MAC, 2), vec![]));
        }
    }
    // Whoever is to know says something else.
    table.told(millis(200_000), PEER, OTHER_MAC);
    assert_eq!(table.station(PEER), Some(OTHER_MAC));
}

#[test]
fn what_is_off_the_link_goes_to_the_router() {
    let gateway = Ipv4Addr::new(10, 0, 0, 254);
    let far = Ipv4Addr::new(192, 168, 7, 7);
    let route = Route {
        gateway: Some(gateway),
        ..ROUTE
    };
    let mut table = Neighbours::new(route, Limits::default());
    assert_eq!(
        send(&mut table, millis(0), far, 1),
        (Sending::Waits, vec![gateway])
    );
    assert_eq!(table.answered(millis(1), gateway, MAC), vec![1]);
    assert_eq!(send(&mut table, millis(2), far, 2).0, Sending::To(MAC, 2));
    table.told(millis(3), far, OTHER_MAC);
    assert_eq!(
        send(&mut table, millis(4), far, 3).0,
        Sending::To(OTHER_MAC, 3),
        "as it was told"
    );
    assert_eq!(
        Route {
            prefix_bits: 0,
            ..route
        }
        .next_hop(far),
        far
    );
    assert_eq!(
        Route {
            prefix_bits: 32,
            ..route
        }
        .next_hop(PEER),
        gateway
    );
    assert_eq!(
        ROUTE.next_hop(far),
        far,
        "without a router everybody is on the link"
    );
}

#[test]
fn groups_are_sent_nothing() {
    let mut table = neighbours();
    for to in [
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(224, 0, 0, 1),
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::LOCALHOST,
    ] {
        assert_eq!(
            send(&mut table, millis(0), to, 1),
            (Sending::Dropped, vec![])
        );
    }
    assert!(table.is_empty());
}

#[test]
fn strangers_do_not_push_out_whom_we_talk_to() {
    let mut table = neighbours();
    table.told(millis(0), PEER, MAC);
    let friend = Ipv4Addr::new(10, 0, 0, 3);
    send(&mut table, millis(0), friend, 1);
    table.answered(millis(0), friend, MAC);
    for number in 0..5000u32 {
        let stranger = Ipv4Addr::from(0x0b00_0000 + number);
        send(&mut table, millis(1), friend, 1);
        // Somebody has asked us in its name; nobody there answers ARP.
        send(&mut table, millis(1), stranger, 1);
    }
    assert_eq!(table.len(), Limits::default().entries);
    assert_eq!(
        (table.station(PEER), table.station(friend)),
        (Some(MAC), Some(MAC))
    );
}

#[derive(Clone, Debug)]
enum Step {
    Send(u8),
    Answered(u8),
    Claimed(u8),
    Told(u8),
    Wait(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1u8..40).prop_map(Step::Send),
        2 => (1u8..40).prop_map(Step::Answered),
        1 => (1u8..40).prop_map(Step::Claimed),
        1 => (1u8..40).prop_map(Step::Told),
        2 => (1u16..40_000).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 0..400)
}

proptest! {
    /// Whatever happens: bounds hold, no frame is lost unseen or comes twice, and no frame waits for ever.
    #[test]
    fn every_frame_has_one_end_and_memory_is_bounded(steps in steps()) {
        let limits = Limits { entries: 8, waiting_of_one: 3, waiting: 10, ..Limits::default() };
        let mut table: Neighbours<u32> = Neighbours::new(ROUTE, limits);
        let (mut now, mut sent, mut gone, mut asks, mut last_ask) = (millis(0), 0, Vec::new(), 0u64, BTreeMap::new());
        let mut ask = |now: Duration, ip: Ipv4Addr| {
            asks += 1;
            let last = last_ask.insert(ip, now);
            // An entry that was evicted and made again may ask at once.
            assert!(last.is_none_or(|last| last <= now));
        };
        for step in steps {
            match step {
                Step::Send(last) => {
                    sent += 1;
                    if let Sending::To(_, frame) = table.send(now, Ipv4Addr::new(10, 0, 0, last), sent, |ip| ask(now, ip)) {
                        gone.push(frame);
                    }
                }
                Step::Answered(last) => gone.extend(table.answered(now, Ipv4Addr::new(10, 0, 0, last), MAC)),
                Step::Claimed(last) => table.claimed(Ipv4Addr::new(10, 0, 0, last), OTHER_MAC),
                Step::Told(last) => gone.extend(table.told(now, Ipv4Addr::new(10, 0, 0, last), OTHER_MAC)),
                Step::Wait(wait) => {
                    now += millis(wait.into());
                    table.tick(now, |ip| ask(now, ip));
                }
            }
            prop_assert!(table.len() <= limits.entries && table.waiting() <= limits.waiting);
            prop_assert_eq!(gone.len() as u64 + table.dropped() + table.waiting() as u64, u64::from(sent));
            prop_assert!(table.waiting() == 0 || table.next_tick().is_some(), "what waits has an end");
        }
        gone.sort_unstable();
        gone.dedup();
        for _ in 0..=limits.asks {
            now += limits.ask_again;
            table.tick(now, |ip| ask(now, ip));
        }
        prop_assert_eq!(table.waiting(), 0);
        prop_assert_eq!(gone.len() as u64 + table.dropped(), u64::from(sent));
    }
}
