//! What happens in which order as time passes.

use core::time::Duration;

use base::ids::ServerId;
use base::time::Time;
use wire::peer::Request;

use super::super::backup::DELAY;
use super::World;

/// Something that arrives later.
pub(super) enum Event {
    Request {
        backup: ServerId,
        connection: u64,
        nonce: u64,
        payload: Vec<u8>,
    },
    Answer {
        backup: ServerId,
        connection: u64,
        nonce: u64,
        answer: Vec<u8>,
    },
    Connected {
        backup: ServerId,
        connection: u64,
    },
    Refused {
        backup: ServerId,
        connection: u64,
    },
    FloorAsked {
        segment_id: u64,
    },
    FloorRaised {
        segment_id: u64,
    },
}

impl World {
    pub fn pump(&mut self) {
        let log = &mut self.store.log;
        self.pump_at = self.replicator.pump(self.now, log, &mut self.out);
        let mut out = std::mem::take(&mut self.out);
        self.reports.append(&mut out.reports);
        for id in out.disconnect {
            self.connections.remove(&id);
            self.backup(id).is_connected = false;
        }
        for id in out.connect {
            self.next_connection += 1;
            let connection = self.next_connection;
            self.connections.insert(id, connection);
            let event = if self.backup(id).is_alive {
                Event::Connected {
                    backup: id,
                    connection,
                }
            } else {
                Event::Refused {
                    backup: id,
                    connection,
                }
            };
            self.schedule(id, false, event);
        }
        for (backup, nonce, payload) in out.send {
            self.check_free(backup, nonce, &payload);
            if let Ok(Request::Append(append)) = Request::decode(&payload) {
                self.sent_bytes += append.data.len();
            }
            let connection = self.connections[&backup];
            self.schedule(
                backup,
                true,
                Event::Request {
                    backup,
                    connection,
                    nonce,
                    payload,
                },
            );
        }
        for segment_id in out.floors {
            self.schedule(ServerId::INVALID, true, Event::FloorAsked { segment_id });
        }
        for id in self.store.segments() {
            self.shadow
                .insert(id, self.store.log.segment(id).unwrap().to_vec());
            if let Some(start) = self.store.log.position_in(id, 0) {
                self.starts.insert(id, start);
            }
        }
        self.check_closed();
    }

    /// In the order of sending for each direction of each connection.
    fn schedule(&mut self, peer: ServerId, is_to_peer: bool, event: Event) {
        let delay = match self.backups.iter().find(|backup| backup.info.id == peer) {
            Some(backup) => backup.delay,
            None => DELAY * 10,
        };
        let jitter = Duration::from_nanos(self.random() % 20_000);
        let earliest = self
            .last_arrival
            .get(&(peer, is_to_peer))
            .copied()
            .unwrap_or(Time::ZERO);
        let at = (self.now + delay + jitter).max(earliest);
        self.last_arrival.insert((peer, is_to_peer), at);
        self.next_event += 1;
        self.events.insert((at, self.next_event), event);
    }

    /// An answer that waits for a device: later ones pass it.
    fn schedule_late(&mut self, event: Event) {
        self.next_event += 1;
        let at = self.now + Duration::from_millis(2);
        self.events.insert((at, self.next_event), event);
    }

    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let next_event = self.events.keys().next().map_or(Time::NEVER, |key| key.0);
            let next = next_event.min(self.pump_at).max(self.now);
            if next > end {
                break;
            }
            self.now = next;
            if next_event <= next {
                let (_, event) = self.events.pop_first().unwrap();
                self.happen(event);
            }
            self.pump();
            // A recovery may begin at any moment, and reach whom it can.
            let mask = (self.random() | self.random()) as u16;
            self.check(mask);
            self.check(u16::MAX);
        }
        self.now = end;
        self.pump();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Connected { backup, connection } => {
                if self.connections.get(&backup) == Some(&connection)
                    && self.backup(backup).is_alive
                {
                    self.backup(backup).is_connected = true;
                    self.replicator.connected(backup);
                } else if self.connections.get(&backup) == Some(&connection) {
                    self.connections.remove(&backup);
                    self.replicator.disconnected(self.now, backup);
                }
            }
            Event::Refused { backup, connection } => {
                if self.connections.get(&backup) == Some(&connection) {
                    self.connections.remove(&backup);
                    self.replicator.disconnected(self.now, backup);
                }
            }
            // A message that is under way may arrive though the connection has broken meanwhile.
            Event::Request {
                backup,
                connection,
                nonce,
                payload,
            } => {
                let is_lost = self.connections.get(&backup) != Some(&connection)
                    && self.random().is_multiple_of(2);
                if self.backup(backup).is_alive && !is_lost {
                    if self.backup(backup).closes_connection(&payload) {
                        return self.break_connection_of(backup);
                    }
                    let now = self.now;
                    let was_stopped = self.backup(backup).is_stopped;
                    let answer = self.backup(backup).handle(now, &payload);
                    let has_stopped = self.backup(backup).is_stopped && !was_stopped;
                    let answer = Event::Answer {
                        backup,
                        connection,
                        nonce,
                        answer,
                    };
                    match has_stopped {
                        true => self.schedule_late(answer),
                        false => self.schedule(backup, false, answer),
                    }
                }
            }
            Event::Answer {
                backup,
                connection,
                nonce,
                answer,
            } => {
                if self.connections.get(&backup) == Some(&connection) {
                    self.freeing
                        .retain(|(id, _), freeing| (*id, *freeing) != (backup, nonce));
                    let (now, out) = (self.now, &mut self.out);
                    let answered = self.replicator.answer(now, backup, nonce, &answer, out);
                    answered.expect("an answer that can be read");
                }
            }
            Event::FloorAsked { segment_id } => {
                if !self.coordinator_is_gone {
                    self.floor = self.floor.max(Some(segment_id));
                    self.schedule(ServerId::INVALID, false, Event::FloorRaised { segment_id });
                }
            }
            Event::FloorRaised { segment_id } => {
                if !self.coordinator_is_gone {
                    self.replicator.floor_raised(segment_id);
                }
            }
        }
    }

    /// What is on its way for very long is lost.
    pub fn forget_late_arrivals(&mut self) {
        let late = self.now + Duration::from_secs(1);
        self.events.retain(|(at, _), _| *at < late);
        self.last_arrival.clear();
    }
}
