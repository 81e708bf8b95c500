//! What goes wrong with coordinators and with the API server that has their state. Each fault has streams of chance of its own.

use crate::leaders::coordinator_host;
use crate::scenario::{MILLI, SECOND};
use crate::world::{COORDINATOR, Party, World};

impl World {
    /// Something happens to the coordinators, or to the API server.
    pub fn coordinator_fault(&mut self) {
        self.excuse_coordinators();
        match self
            .streams
            .of("kinds of faults of coordinators")
            .between(0, 99)
        {
            0..20 => {
                let process = self.mostly_who_leads("killed coordinators");
                self.crash_coordinator(process);
            }
            20..40 => self.dies_before_an_effect(),
            40..58 => self.pause_coordinator(),
            58..73 => self.cut_off_from_api(),
            73..83 => self.second_leader(),
            83..88 => self.address_wavers(3 * SECOND),
            _ => self.api_trouble(),
        }
    }

    /// Faults are of the leader, as a rule.
    fn mostly_who_leads(&mut self, of: &'static str) -> usize {
        let leading = self.leading().map(|(process, _)| process);
        let random = self.streams.of(of);
        let (is_usual, any) = (random.chance(800), random.below(self.coordinators.len()));
        leading.filter(|_| is_usual).unwrap_or(any)
    }

    /// It dies when it has done so many things more; sometimes the API server fails meanwhile.
    fn dies_before_an_effect(&mut self) {
        const PURPOSE: &str = "ends of coordinators within what they do";
        let process = self.mostly_who_leads(PURPOSE);
        let random = self.streams.of(PURPOSE);
        let (left, fails) = (random.between(0, 30), random.chance(500));
        let fails_for = random.between(MILLI, 5 * SECOND);
        self.coordinators[process].election.dies_after = Some(left);
        if fails {
            self.api_fails_for(500, fails_for);
        }
    }

    fn pause_coordinator(&mut self) {
        const PURPOSE: &str = "pauses of coordinators";
        let host = coordinator_host(self.mostly_who_leads(PURPOSE));
        let random = self.streams.of(PURPOSE);
        let most = *random.pick(&[500 * MILLI, 4 * SECOND, 15 * SECOND]);
        let pause = random.between(MILLI, most);
        self.coverage.hit("coordinators paused");
        self.note_fault(host, "is paused for ns", pause);
        self.pause_until(host, self.now + pause);
    }

    fn cut_off_from_api(&mut self) {
        const PURPOSE: &str = "coordinators cut off from the API server";
        let process = self.mostly_who_leads(PURPOSE);
        let random = self.streams.of(PURPOSE);
        let most = *random.pick(&[SECOND, 8 * SECOND, 30 * SECOND]);
        let after = random.between(MILLI, most);
        self.coverage.hit(PURPOSE);
        let host = coordinator_host(process);
        self.note_fault(host, "is cut off from the API server for ns", after);
        self.coordinators[process].election.cut_until = self.now + after;
    }

    /// Another one takes the lock. Who leads does not hear of it for a while, and some of the servers only later.
    fn second_leader(&mut self) {
        const PURPOSE: &str = "second leaders";
        let process = self.mostly_who_leads(PURPOSE);
        let count = self.coordinators.len();
        let random = self.streams.of(PURPOSE);
        let (after, other) = (random.between(MILLI, 10 * SECOND), random.below(count));
        let election = &mut self.coordinators[process].election;
        (election.cut_until, election.goes_on) = (self.now + after, true);
        if other != process {
            self.coverage.hit("locks taken while another held them");
            self.take_lock(other);
        }
        self.address_wavers(after);
    }

    /// For a while connections to the store's address end up anywhere; those that there are end.
    fn address_wavers(&mut self, most: u64) {
        self.coverage.hit("times at which the address led anywhere");
        let until = self.now + self.streams.of("wavering addresses").between(MILLI, most);
        if let Some(api) = &mut self.api {
            api.wavers_until = until;
        }
        let sides = self.sides_of(|party| {
            matches!(
                party,
                Party::CoordinatorClient { .. } | Party::CoordinatorMember { .. }
            )
        });
        for (connection, _) in sides {
            if self.streams.of("wavering addresses").chance(700) {
                self.network.reset(self.now, connection);
            }
        }
    }

    /// Some requests fail for a while, or all of them.
    fn api_trouble(&mut self) {
        let (failures, most) = *self.streams.of("trouble of the API server").pick(&[
            (300, 10 * SECOND),
            (300, 10 * SECOND),
            (1000, 3 * SECOND),
            (1000, 20 * SECOND),
            (1000, 180 * SECOND),
        ]);
        let after = self
            .streams
            .of("trouble of the API server")
            .between(MILLI, most);
        self.api_fails_for(failures, after);
    }

    pub fn api_is_away_for(&mut self, after: u64) {
        self.api_fails_for(1000, after);
    }

    fn api_fails_for(&mut self, failures: u64, after: u64) {
        if failures == 1000 {
            self.coverage.hit("absences of the API server");
            if after > 60 * SECOND {
                self.coverage.hit("absences of the API server for minutes");
            }
        }
        self.note_fault(COORDINATOR, "API server fails for ns", after);
        if let Some(api) = &mut self.api {
            (api.failures, api.fails_until) = (failures, self.now + after);
        }
    }

    /// All is well again with whoever leads, and with the API server.
    pub fn end_coordinator_faults(&mut self) {
        self.end_put_back();
        if let Some(api) = &mut self.api {
            api.fails_until = 0;
            api.wavers_until = 0;
        }
        for process in &mut self.coordinators {
            process.election.cut_until = 0;
            process.election.dies_after = None;
        }
    }
}
