//! A watch over a port that is simulated: what it is given leaves it, or not.

use super::*;

struct Simulated {
    watch: Watch,
    now: Duration,
    seen: Seen,
    works: bool,
    /// Its driver counts what leaves.
    counts: bool,
    /// Whether it works after it was opened anew.
    can_be_healed: bool,
    /// Frames of ours in each second.
    rate: u64,
    announced: u32,
    opened: Vec<(Duration, Why)>,
}

impl Simulated {
    fn new(works: bool) -> Simulated {
        Simulated {
            watch: Watch::default(),
            now: Duration::ZERO,
            seen: Seen {
                link_up: true,
                ..Seen::default()
            },
            works,
            counts: true,
            can_be_healed: true,
            rate: 0,
            announced: 0,
            opened: Vec::new(),
        }
    }

    fn send(&mut self, frames: u64) {
        self.seen.taken += frames;
        if self.works && self.seen.link_up && self.counts {
            self.seen.left += frames;
        }
    }

    fn run(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.now += LOOK;
            self.send(self.rate);
            let seen = self.seen;
            self.seen.asked = false;
            match self.watch.look(self.now, seen) {
                Advice::Nothing => {}
                Advice::Announce => {
                    self.announced += 1;
                    self.send(1);
                }
                Advice::OpenAnew(why) => {
                    self.opened.push((self.now, why));
                    self.works = self.can_be_healed;
                    // A device that is reset counts from the beginning.
                    self.seen.left = 0;
                    self.watch.attempted(self.now, true);
                }
            }
        }
    }

    fn whys(&self) -> Vec<Why> {
        self.opened.iter().map(|(_, why)| *why).collect()
    }
}

#[test]
fn a_port_that_works_is_left_alone_and_heard_of_now_and_then() {
    let mut port = Simulated::new(true);
    port.run(60);
    assert_eq!(port.whys(), []);
    assert!((8..=12).contains(&port.announced), "{}", port.announced);
    let announced = port.announced;
    port.rate = 5;
    port.run(60);
    assert_eq!((port.whys(), port.announced), (vec![], announced));
    assert!(!port.watch.is_dead());
}

#[test]
fn one_that_sends_nothing_is_opened_anew_soon_and_then_works() {
    for rate in [0, 100] {
        let mut port = Simulated::new(false);
        port.rate = rate;
        port.run(60);
        assert_eq!(port.whys(), [Why::Stuck]);
        assert!(
            port.opened[0].0 <= QUIET + STUCK + 3 * LOOK,
            "{:?}",
            port.opened
        );
        assert!(!port.watch.is_dead());
    }
}

#[test]
fn one_that_dies_later_too() {
    let mut port = Simulated::new(true);
    port.run(20);
    port.works = false;
    port.run(20);
    assert_eq!(port.whys(), [Why::Stuck]);
    port.works = false;
    port.run(20);
    assert_eq!(port.whys(), [Why::Stuck, Why::Stuck]);
}

#[test]
fn attempts_in_vain_become_rare_and_do_not_end() {
    let mut port = Simulated::new(false);
    port.can_be_healed = false;
    port.rate = 1;
    port.run(300);
    assert!(port.watch.is_dead());
    let times: Vec<Duration> = port.opened.iter().map(|(now, _)| *now).collect();
    let pauses: Vec<Duration> = times.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(pauses.iter().all(|pause| *pause >= STUCK), "{pauses:?}");
    assert!(
        pauses[4..].iter().all(|pause| *pause >= LONGEST_PAUSE),
        "{pauses:?}"
    );
    assert!((20..40).contains(&times.len()), "{}", times.len());
    port.can_be_healed = true;
    port.run(30);
    assert!(!port.watch.is_dead());
    let attempts = port.opened.len();
    port.run(100);
    assert_eq!(port.opened.len(), attempts);
}

#[test]
fn without_a_link_nothing_is_expected_to_leave() {
    let mut port = Simulated::new(true);
    port.rate = 3;
    port.run(10);
    port.seen.link_up = false;
    port.run(100);
    assert_eq!(port.whys(), []);
    port.seen.link_up = true;
    port.run(10);
    assert_eq!((port.whys(), port.announced), (vec![], 0));
    // It is back, and dead.
    port.works = false;
    port.run(10);
    assert_eq!(port.whys(), [Why::Stuck]);
}

#[test]
fn a_driver_that_asks_is_heard_also_without_a_link() {
    let mut port = Simulated::new(true);
    port.run(3);
    port.seen.link_up = false;
    port.seen.asked = true;
    port.run(1);
    assert_eq!(port.whys(), [Why::Asked]);
    // Whoever asks all the time is not heard each time.
    port.opened.clear();
    for _ in 0..60 {
        port.seen.asked = true;
        port.run(1);
    }
    assert!(port.opened.len() < 12, "{:?}", port.opened);
}

#[test]
fn a_driver_that_does_not_count_what_leaves_is_not_judged_by_it() {
    let mut port = Simulated::new(true);
    port.counts = false;
    port.rate = 10;
    port.seen.received = 7;
    port.run(1);
    port.seen.received = 8;
    port.run(100);
    assert_eq!(port.whys(), []);
}

#[test]
fn what_comes_in_shows_life_too() {
    let mut port = Simulated::new(true);
    port.run(10);
    port.works = false;
    port.rate = 1;
    for _ in 0..30 {
        port.seen.received += 1;
        port.run(1);
    }
    assert_eq!(port.whys(), []);
    port.run(10);
    assert_eq!(port.whys(), [Why::Stuck]);
}

#[test]
fn what_could_not_be_opened_is_tried_again() {
    let mut watch = Watch::default();
    let seen = Seen::default();
    let mut attempts = 0;
    for second in 0..100 {
        let now = LOOK * second;
        let seen = Seen {
            asked: second == 5,
            ..seen
        };
        if let Advice::OpenAnew(why) = watch.look(now, seen) {
            assert_eq!(why, Why::Asked);
            attempts += 1;
            watch.attempted(now, attempts == 4);
        }
    }
    assert_eq!(attempts, 4);
}
