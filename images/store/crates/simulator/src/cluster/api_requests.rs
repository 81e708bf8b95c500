//! What becomes of requests of coordinators to the API server.

use coordinator::state::objects::testing::Change;
use coordinator::state::objects::{ObjectResponse, Request, RequestId};

use crate::cluster::{COORDINATOR, Cluster};
use crate::event::Event;
use crate::scenario::{MILLI, SECOND};

impl Cluster {
    /// Whether a request of this process gets there and back in time.
    pub(super) fn reaches_api(&mut self, process: usize) -> bool {
        let Some(api) = &self.api else {
            return false;
        };
        let is_cut = self.now < self.coordinators[process].election.cut_until;
        let failures = if self.now < api.fails_until {
            api.failures
        } else {
            0
        };
        !is_cut
            && !self
                .streams
                .of("failures of the API server")
                .chance(failures)
    }

    /// Decides what becomes of a request.
    pub(super) fn api_request(&mut self, process: usize, id: RequestId, request: Request) {
        let incarnation = self.coordinators[process].incarnation;
        let way = self
            .streams
            .of("ways to the API server")
            .between(MILLI / 2, 20 * MILLI);
        let execute = |is_waited_for| Event::ApiExecute {
            process,
            incarnation,
            id,
            request: Box::new(request),
            is_waited_for,
        };
        if self.reaches_api(process) {
            return self.schedule_in(way, execute(true));
        }
        self.coverage.hit("requests to the API server that failed");
        let random = self.streams.of("failed requests to the API server");
        let timeout = random.between(MILLI, 3 * SECOND);
        let delay = match random.below(3) {
            0 => None,
            1 => Some(random.between(0, timeout)),
            _ => Some(timeout + random.between(0, 20 * SECOND)),
        };
        let answer = Box::new(ObjectResponse::Failed("no answer in time".to_owned()));
        let event = Event::ApiAnswer {
            process,
            incarnation,
            id,
            answer,
        };
        self.schedule_in(timeout, event);
        if let Some(delay) = delay {
            self.schedule_in(delay, execute(false));
        }
    }

    pub fn api_execute(
        &mut self,
        process: usize,
        incarnation: u64,
        id: RequestId,
        request: &Request,
        is_waited_for: bool,
    ) {
        let is_alive = self.coordinators[process].incarnation == incarnation;
        if !is_alive && self.streams.of("requests of the dead").chance(500) {
            // It died with its sender.
            return;
        }
        let staleness = self.streams.of("staleness of the API server").below(8);
        let Some(api) = &mut self.api else {
            return;
        };
        if api
            .served_from
            .get(process)
            .is_some_and(|first| incarnation < *first)
        {
            return;
        }
        let (answer, change) = api.server.execute(request, staleness);
        match (&answer, change) {
            (ObjectResponse::Conflict, _) => self.coverage.hit("conflicts at the API server"),
            (_, Change::Root) if !is_alive => {
                self.coverage
                    .hit("roots written after their leader was gone");
            }
            (_, Change::Root) if !is_waited_for => {
                self.coverage
                    .hit("roots written by requests that had failed");
            }
            (_, Change::Created(_)) => self.coverage.hit("chunks written"),
            (_, Change::Deleted(_)) => self.coverage.hit("chunks deleted"),
            _ => {}
        }
        if is_waited_for {
            let answer = Box::new(answer);
            let event = Event::ApiAnswer {
                process,
                incarnation,
                id,
                answer,
            };
            let way = self
                .streams
                .of("ways to the API server")
                .between(MILLI / 2, 20 * MILLI);
            self.schedule_in(way, event);
        }
    }

    pub fn api_answer(
        &mut self,
        process: usize,
        incarnation: u64,
        id: RequestId,
        answer: ObjectResponse,
    ) {
        if self.coordinators[process].incarnation == incarnation {
            self.with_leader(process, |leader, now| leader.answered(now, id, answer));
        }
    }

    pub fn api_is_away_for(&mut self, after: u64) {
        self.api_fails_for(1000, after);
    }

    pub fn api_fails_for(&mut self, failures: u64, after: u64) {
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
}
