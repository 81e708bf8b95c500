use std::collections::VecDeque;

use super::*;

/// The lease at an API server that may be away.
#[derive(Default)]
struct Lease {
    version: u64,
    claim: Option<Claim>,
    is_away: bool,
}

impl Lease {
    fn carry_out(&mut self, request: &Request) -> LeaseResponse {
        if self.is_away {
            return LeaseResponse::Failed("connection refused".to_owned());
        }
        match request {
            Request::Read => match &self.claim {
                Some(claim) => LeaseResponse::Found(self.version.to_string(), claim.clone()),
                None => LeaseResponse::NotFound,
            },
            Request::Create(_) if self.claim.is_some() => LeaseResponse::Conflict,
            Request::Replace(version, _) if *version != self.version.to_string() => {
                LeaseResponse::Conflict
            }
            Request::Create(claim) | Request::Replace(_, claim) => {
                self.version += 1;
                self.claim = Some(claim.clone());
                LeaseResponse::Done(self.version.to_string())
            }
        }
    }

    fn holder(&self) -> &str {
        self.claim
            .as_ref()
            .map_or("", |claim| claim.holder.as_str())
    }
}

struct Candidate {
    election: Election,
    /// Candidates' clocks have nothing to do with each other.
    clock: fn(Duration) -> Time,
    news: VecDeque<News>,
    is_dead: bool,
    /// What it writes takes effect, and it is told that it failed.
    is_deaf: bool,
}

impl Candidate {
    fn new(name: &str, clock: fn(Duration) -> Time) -> Candidate {
        Candidate {
            election: Election::new(name.to_owned(), Timing::default(), clock(Duration::ZERO)),
            clock,
            news: VecDeque::new(),
            is_dead: false,
            is_deaf: false,
        }
    }

    fn run(&mut self, at: Duration, lease: &mut Lease) {
        let now = (self.clock)(at);
        let mut next = if self.is_dead {
            None
        } else {
            self.election.next_request(now)
        };
        while let Some(request) = next {
            let mut answer = lease.carry_out(&request);
            if self.is_deaf {
                answer = LeaseResponse::Failed("timed out".to_owned());
            }
            let (request, news) = self.election.answered(now, answer);
            self.news.extend(news);
            next = request;
        }
    }
}

fn first_clock(at: Duration) -> Time {
    Time(1_000_000_000 + at.as_nanos() as u64)
}

/// One part in two hundred too fast, and hours away from the first.
fn second_clock(at: Duration) -> Time {
    Time(50_000_000_000_000 + at.as_nanos() as u64 / 200 * 201)
}

struct World {
    at: Duration,
    lease: Lease,
    candidates: Vec<Candidate>,
}

impl World {
    fn new() -> World {
        World {
            at: Duration::ZERO,
            lease: Lease::default(),
            candidates: vec![
                Candidate::new("a", first_clock),
                Candidate::new("b", second_clock),
            ],
        }
    }

    fn run(&mut self, for_ms: u64) {
        let until = self.at + Duration::from_millis(for_ms);
        while self.at < until {
            for candidate in &mut self.candidates {
                candidate.run(self.at, &mut self.lease);
            }
            self.at += Duration::from_millis(50);
        }
    }

    fn leaders(&self) -> Vec<&str> {
        let candidates = self.candidates.iter();
        let leaders = candidates.filter(|one| !one.is_dead && one.election.is_leader());
        leaders.map(|one| one.election.me.as_str()).collect()
    }
}

#[test]
fn the_first_candidate_leads_and_goes_on_leading() {
    let mut world = World::new();
    world.run(600_000);
    assert_eq!(world.leaders(), ["a"]);
    assert_eq!(world.candidates[0].news, [News::Elected]);
    assert_eq!(world.candidates[1].news, []);
    assert_eq!(world.candidates[1].election.holder(), Some("a"));
    assert_eq!(world.lease.claim.as_ref().unwrap().transitions, 0);
    assert!(
        (300..=400).contains(&world.lease.version),
        "renewed {} times in ten minutes",
        world.lease.version
    );
}

#[test]
fn a_standby_follows_a_leader_that_is_gone_within_seconds() {
    let mut world = World::new();
    world.run(10_000);
    world.candidates[0].is_dead = true;
    world.run(4_000);
    assert!(world.leaders().is_empty(), "its claim has not expired");
    world.run(4_500);
    assert_eq!(world.leaders(), ["b"]);
    assert_eq!(world.lease.claim.as_ref().unwrap().transitions, 1);
}

#[test]
fn a_claim_that_was_given_up_is_taken_at_the_next_look() {
    let mut world = World::new();
    world.run(10_000);
    world.candidates[0].is_dead = true;
    let claim = Claim {
        holder: String::new(),
        ..world.lease.claim.clone().unwrap()
    };
    let version = world.lease.version.to_string();
    world.lease.carry_out(&Request::Replace(version, claim));
    world.run(1_100);
    assert_eq!(world.leaders(), ["b"]);
}

#[test]
fn the_process_that_comes_after_the_leaders_leads_at_once() {
    let mut world = World::new();
    world.run(10_000);
    world.candidates[0] = Candidate::new("a", second_clock);
    world.run(100);
    assert_eq!(world.leaders(), ["a"]);
    assert_eq!(world.lease.claim.as_ref().unwrap().transitions, 0);
}

#[test]
fn while_the_api_server_is_away_the_leader_goes_on_and_afterwards_too() {
    let mut world = World::new();
    world.run(10_000);
    for away_ms in [3_000, 7_000, 60_000, 3_600_000] {
        world.lease.is_away = true;
        world.run(away_ms);
        assert_eq!(world.leaders(), ["a"]);
        let trouble = world.candidates[0].election.trouble().unwrap();
        assert_eq!(trouble.why, "connection refused");
        world.lease.is_away = false;
        world.run(20_000);
        assert_eq!(world.leaders(), ["a"], "after {away_ms} ms");
        assert_eq!(world.candidates[0].election.trouble(), None);
        assert_eq!(world.candidates[1].news, []);
    }
}

#[test]
fn an_api_server_that_fails_now_and_then_does_not_keep_a_standby_from_leading() {
    let mut world = World::new();
    world.run(10_000);
    world.candidates[0].is_dead = true;
    for round in 0..30 {
        world.lease.is_away = round % 3 == 2;
        world.run(1_000);
    }
    assert_eq!(world.lease.holder(), "b");
    assert_eq!(world.leaders(), ["b"]);
}

#[test]
fn a_leader_that_sees_another_ones_claim_has_lost() {
    let mut world = World::new();
    world.run(10_000);
    let version = world.lease.version.to_string();
    let claim = Claim {
        holder: "c".to_owned(),
        ..world.lease.claim.clone().unwrap()
    };
    world.lease.carry_out(&Request::Replace(version, claim));
    world.run(4_000);
    assert_eq!(
        world.candidates[0].news,
        [News::Elected, News::Lost("c".to_owned())]
    );
    assert!(world.leaders().is_empty());
    world.run(60_000);
    assert_eq!(world.leaders(), ["b"], "nobody renews what c has");
}

#[test]
fn a_write_of_which_nobody_knows_whether_it_was_done_is_looked_at() {
    let mut world = World::new();
    world.candidates[1].is_dead = true;
    world.candidates[0].run(world.at, &mut world.lease);
    assert_eq!(world.leaders(), ["a"]);
    // Renewals that take effect, and are answered by nothing.
    world.candidates[0].is_deaf = true;
    world.run(5_000);
    world.candidates[0].is_deaf = false;
    world.run(2_000);
    assert_eq!(world.leaders(), ["a"]);
    assert_eq!(world.candidates[0].news, [News::Elected]);
    // And a claim.
    let mut world = World::new();
    world.candidates[1].is_dead = true;
    let request = world.candidates[0]
        .election
        .next_request(first_clock(world.at));
    assert_eq!(request, Some(Request::Read));
    let now = first_clock(world.at);
    let (request, _) = world.candidates[0]
        .election
        .answered(now, LeaseResponse::NotFound);
    world.lease.carry_out(&request.unwrap());
    let failed = LeaseResponse::Failed("timed out".to_owned());
    assert_eq!(
        world.candidates[0].election.answered(now, failed),
        (None, None)
    );
    world.run(1_200);
    assert_eq!(world.leaders(), ["a"]);
}

#[test]
fn of_two_that_claim_at_the_same_time_one_leads() {
    let now = Time(5);
    let mut lease = Lease::default();
    let mut elections: Vec<Election> = ["a", "b"]
        .map(|name| Election::new(name.to_owned(), Timing::default(), now))
        .into();
    let answers: Vec<LeaseResponse> = elections
        .iter_mut()
        .map(|one| lease.carry_out(&one.next_request(now).unwrap()))
        .collect();
    let claims: Vec<Request> = elections
        .iter_mut()
        .zip(answers)
        .map(|(one, answer)| one.answered(now, answer).0.unwrap())
        .collect();
    for (one, claim) in elections.iter_mut().zip(claims) {
        let answer = lease.carry_out(&claim);
        one.answered(now, answer);
    }
    assert!(elections[0].is_leader() && !elections[1].is_leader());
    assert_eq!(elections[1].next_wake(), now + Timing::default().look);
}

#[test]
fn a_claim_for_a_century_is_not_waited_for() {
    let mut world = World::new();
    world.candidates[0].is_dead = true;
    world.lease.carry_out(&Request::Create(Claim {
        holder: "x".to_owned(),
        duration: Duration::MAX,
        transitions: u32::MAX,
    }));
    world.run(70_000);
    assert_eq!(world.leaders(), ["b"]);
}
