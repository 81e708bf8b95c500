//! Finds operations in the trace of a client, and the same in that of a server.

use std::collections::BTreeMap;

use client::trace::{self, Clock, Event, Record, Trace};

use super::Clocks;

const DATAGRAMS: u16 = trace::DATAGRAMS as u16;

/// Moments of one operation at the client, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtClient {
    pub key: u32,
    pub started: u64,
    pub flushed: u64,
    pub received: u64,
    pub completed: u64,
}

/// Moments of one request at the server, in ticks. Which of those in the middle there are depends on what it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtServer {
    pub place: u16,
    pub key: u32,
    pub received: u64,
    pub handed: u64,
    pub looked_up: Option<u64>,
    pub appended: Option<u64>,
    pub held: Option<u64>,
    /// The last backup was asked before the last answered of whom the answer depended.
    pub asked: Option<u64>,
    pub answered: Option<u64>,
    pub released: Option<u64>,
    pub put: u64,
    pub flushed: u64,
}

/// One operation on both sides; differences in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    pub client_out_ns: f64,
    pub client_in_ns: f64,
    /// From the client's last action until its next.
    pub away_ns: f64,
    /// If both sides have one clock.
    pub wire_out_ns: f64,
    pub server: AtServer,
    pub server_clock: Clock,
}

impl Operation {
    pub fn server_ns(&self) -> f64 {
        let AtServer {
            received, flushed, ..
        } = self.server;
        self.server_clock
            .nanos(flushed.wrapping_sub(received) as i64)
    }
}

/// All that was found.
pub struct Matched {
    pub operations: Vec<Operation>,
    pub left_out: usize,
    pub clocks: Clocks,
}

#[derive(Default)]
pub struct Matcher {
    operations: Vec<Operation>,
    left_out: usize,
    is_elsewhere: bool,
    disagrees: bool,
}

impl Matcher {
    /// Adds what the two traces say of the same time.
    pub fn take(&mut self, client: &Trace, server: &Trace) {
        let (mine, left_out) = client_operations(&client.events);
        self.left_out += left_out;
        let one_machine =
            client.clock.boot_id == server.clock.boot_id && client.clock.boot_id != [0; 16];
        self.is_elsewhere |= !one_machine;
        let theirs = server_requests(&server.events);
        let theirs = of_one_connection(&mine, theirs, one_machine);
        for at_client in mine {
            let Some(at_server) = theirs.get(&at_client.key) else {
                self.left_out += 1;
                continue;
            };
            let operation = operation(client.clock, at_client, server.clock, *at_server);
            // What the server took is a part of the time that the client waited, whatever their clocks say.
            if operation.server_ns() > operation.away_ns {
                self.left_out += 1;
                continue;
            }
            let comes_back_ns = operation.away_ns - operation.wire_out_ns - operation.server_ns();
            self.disagrees |= operation.wire_out_ns < 0.0 || comes_back_ns < 0.0;
            self.operations.push(operation);
        }
    }

    pub fn finish(self) -> Matched {
        let clocks = match (self.is_elsewhere, self.disagrees) {
            (true, _) => Clocks::TwoMachines,
            (false, true) => Clocks::Disagree,
            (false, false) => Clocks::One,
        };
        Matched {
            operations: self.operations,
            left_out: self.left_out,
            clocks,
        }
    }
}

fn operation(client: Clock, mine: AtClient, server_clock: Clock, server: AtServer) -> Operation {
    let ns = |from: u64, to: u64| client.nanos(to.wrapping_sub(from) as i64);
    Operation {
        client_out_ns: ns(mine.started, mine.flushed),
        client_in_ns: ns(mine.received, mine.completed),
        away_ns: ns(mine.flushed, mine.received),
        wire_out_ns: ns(mine.flushed, server.received),
        server,
        server_clock,
    }
}

/// What one operation has shown so far.
#[derive(Default)]
struct Begun {
    started: u64,
    requests: usize,
    place: u16,
    key: u32,
    flushed: Option<u64>,
    received: Option<u64>,
    is_answered: bool,
}

impl Begun {
    /// `None` if it took several requests, or some of it was forgotten.
    fn completed(self, completed: u64) -> Option<AtClient> {
        let is_plain = self.requests == 1 && self.is_answered;
        Some(AtClient {
            key: self.key,
            started: self.started,
            flushed: self.flushed.filter(|_| is_plain)?,
            received: self.received?,
            completed,
        })
    }
}

/// Operations of a client that does one after the other, and how many of them took more than one request.
pub fn client_operations(events: &[Record]) -> (Vec<AtClient>, usize) {
    let (mut found, mut left_out) = (Vec::new(), 0);
    let mut begun: Option<Begun> = None;
    for record in events {
        let event = Event::from_u16(record.event);
        if event == Some(Event::OperationStarted) {
            left_out += usize::from(begun.is_some());
            begun = Some(Begun {
                started: record.ticks,
                ..Begun::default()
            });
            continue;
        }
        let Some(mut now) = begun.take() else {
            continue;
        };
        let is_there = now.requests > 0 && [now.place, DATAGRAMS].contains(&record.place);
        match event {
            Some(Event::FrameOut) => {
                now.requests += 1;
                (now.place, now.key) = (record.place, record.arg);
            }
            Some(Event::Flushed) if is_there => now.flushed = now.flushed.or(Some(record.ticks)),
            Some(Event::Received) if is_there && !now.is_answered => {
                now.received = Some(record.ticks);
            }
            Some(Event::FrameIn) if (record.place, record.arg) == (now.place, now.key) => {
                now.is_answered = true
            }
            Some(Event::OperationCompleted) => {
                match now.completed(record.ticks) {
                    Some(operation) => found.push(operation),
                    None => left_out += 1,
                }
                continue;
            }
            _ => {}
        }
        begun = Some(now);
    }
    (found, left_out)
}

/// A request whose answer has not gone yet.
#[derive(Default)]
struct Open {
    request: AtServer,
    /// The master has read its header. Others are for the backup, or no requests at all.
    is_request: bool,
    is_put: bool,
    /// It came as one: all that wait go with one flush.
    of_datagrams: bool,
    last_asked: Option<u64>,
}

/// Requests to a master that are in the trace from their first event to their last.
pub fn server_requests(events: &[Record]) -> Vec<AtServer> {
    let mut done = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    let mut received: BTreeMap<u16, u64> = BTreeMap::new();
    for &Record {
        ticks,
        event,
        place,
        arg,
    } in events
    {
        let Some(event) = Event::from_u16(event) else {
            continue;
        };
        match event {
            Event::Received => drop(received.insert(place, ticks)),
            Event::FrameIn => {
                open.retain(|one| one.is_request);
                let datagrams = received.get(&DATAGRAMS);
                let of_datagrams = datagrams > received.get(&place);
                if let Some(&received) = received.get(&place).max(datagrams) {
                    let request = AtServer {
                        place,
                        key: arg,
                        received,
                        handed: ticks,
                        ..AtServer::default()
                    };
                    open.push(Open {
                        request,
                        of_datagrams,
                        ..Open::default()
                    });
                }
            }
            Event::Flushed => {
                let is_gone = |one: &mut Open| one.is_put && one.is_flushed_with(place);
                let gone = open.extract_if(.., is_gone).filter(|one| one.is_request);
                done.extend(gone.map(|one| AtServer {
                    flushed: ticks,
                    ..one.request
                }));
            }
            Event::BackupAsked | Event::BackupAnswered => {
                let held = open.iter_mut().filter(|one| one.request.held.is_some());
                held.for_each(|one| one.backup(event, ticks));
            }
            // What is done now is done for the last request that was handed over.
            Event::Request | Event::LookedUp | Event::Appended => {
                if let Some(last) = open.last_mut() {
                    last.step(event, ticks);
                }
            }
            _ => {
                let is_meant =
                    |one: &&mut Open| (one.request.place, one.request.key) == (place, arg);
                if let Some(one) = open.iter_mut().find(is_meant) {
                    one.step(event, ticks);
                }
            }
        }
    }
    done
}

impl Open {
    fn is_flushed_with(&self, place: u16) -> bool {
        match self.of_datagrams {
            true => place == DATAGRAMS,
            false => place == self.request.place,
        }
    }

    fn step(&mut self, event: Event, ticks: u64) {
        let request = &mut self.request;
        match event {
            Event::Request => self.is_request = true,
            // A write looks its key up once; what a multi-op looks up is not told apart.
            Event::LookedUp => request.looked_up = request.looked_up.or(Some(ticks)),
            Event::Appended => request.appended = Some(ticks),
            Event::Held => request.held = Some(ticks),
            Event::Released => request.released = Some(ticks),
            Event::FrameOut => {
                request.put = ticks;
                self.is_put = true;
            }
            _ => {}
        }
    }

    fn backup(&mut self, event: Event, ticks: u64) {
        if self.request.released.is_some() {
            return;
        }
        match event {
            Event::BackupAsked => self.last_asked = Some(ticks),
            _ => {
                self.request.answered = Some(ticks);
                self.request.asked = self.request.asked.or(self.last_asked);
            }
        }
    }
}

/// Requests of the connection that is the client's, by key: others use the same keys. It is the one on which most requests came after they were
/// sent and were answered before the answer came; where clocks cannot be compared, the one that has most of the keys.
fn of_one_connection(
    mine: &[AtClient],
    theirs: Vec<AtServer>,
    one_machine: bool,
) -> BTreeMap<u32, AtServer> {
    let mut places: BTreeMap<u16, BTreeMap<u32, AtServer>> = BTreeMap::new();
    for request in theirs {
        let place = places.entry(request.place).or_default();
        place.insert(request.key, request);
    }
    let fitting = |requests: &BTreeMap<u32, AtServer>| {
        let both = || {
            mine.iter()
                .filter_map(|one| Some((one, requests.get(&one.key)?)))
        };
        let in_time = |(one, other): &(&AtClient, &AtServer)| {
            one.flushed <= other.received && other.flushed <= one.received
        };
        let in_time = both().filter(|both| one_machine && in_time(both)).count();
        (in_time, both().count())
    };
    let all = places.into_values();
    all.max_by_key(fitting).unwrap_or_default()
}
