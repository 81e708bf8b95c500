//! Requests: one at a time for each thing that is to be done, and again with growing pauses while they fail.

use core::time::Duration;
use std::collections::VecDeque;

use base::time::Time;

use super::{KeeperEffect, ObjectResponse, Request, RequestId, Trouble};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// Where everything goes that comes out.
#[derive(Debug, Default)]
pub struct Outbox {
    last_id: RequestId,
    effects: VecDeque<KeeperEffect>,
}

impl Outbox {
    pub fn request(&mut self, request: Request) -> RequestId {
        self.last_id += 1;
        self.push(KeeperEffect::Request(self.last_id, request));
        self.last_id
    }

    pub fn push(&mut self, effect: KeeperEffect) {
        self.effects.push_back(effect);
    }

    pub fn pop(&mut self) -> Option<KeeperEffect> {
        self.effects.pop_front()
    }
}

/// Something to be done with one request at a time.
#[derive(Debug)]
pub struct Call {
    doing: &'static str,
    max_pause: Duration,
    due: Time,
    sent: Option<RequestId>,
    /// Since when it has failed, how often, and why the last time.
    failing: Option<(Time, u32, String)>,
}

impl Call {
    /// `doing`: goes on "cannot ...".
    pub fn new(doing: &'static str, due: Time) -> Call {
        Call {
            doing,
            max_pause: MAX_PAUSE,
            due,
            sent: None,
            failing: None,
        }
    }

    pub fn with_max_pause(self, max_pause: Duration) -> Call {
        Call { max_pause, ..self }
    }

    pub fn is_due(&self, now: Time) -> bool {
        self.sent.is_none() && self.due <= now
    }

    pub fn send(&mut self, out: &mut Outbox, request: Request) {
        self.sent = Some(out.request(request));
    }

    /// Whether the answer is to what was sent; then nothing is under way any more.
    pub fn takes(&mut self, id: RequestId) -> bool {
        let is_mine = self.sent == Some(id);
        if is_mine {
            self.sent = None;
        }
        is_mine
    }

    /// What is to be done next waits for nothing; whatever failed before is still said.
    pub fn hurry(&mut self, now: Time) {
        self.due = now;
    }

    /// To be tried again after a pause.
    pub fn fail(&mut self, now: Time, why: impl Into<String>) {
        let (since, failures) = match &self.failing {
            Some((since, failures, _)) => (*since, failures.saturating_add(1)),
            None => (now, 1),
        };
        let pause = FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(20));
        self.due = now + pause.min(self.max_pause);
        self.failing = Some((since, failures, why.into()));
    }

    /// It got on: no trouble any more.
    pub fn succeed(&mut self, now: Time) {
        self.failing = None;
        self.due = now;
    }

    /// When it wants to send something; never while something is under way.
    pub fn wake(&self) -> Time {
        match self.sent {
            Some(_) => Time::NEVER,
            None => self.due,
        }
    }

    pub fn trouble(&self) -> Option<Trouble> {
        let (since, failures, why) = self.failing.clone()?;
        Some(Trouble {
            doing: self.doing,
            since,
            failures,
            why,
        })
    }
}

/// Why an answer that is of no use is of none.
pub fn unexpected(answer: &ObjectResponse) -> String {
    match answer {
        ObjectResponse::Failed(why) => why.clone(),
        ObjectResponse::NotFound => "it is not there".to_owned(),
        ObjectResponse::Conflict => "it is there already, or has changed".to_owned(),
        ObjectResponse::Found(..) | ObjectResponse::Done(_) | ObjectResponse::Listed(_) => {
            "the driver gave the answer to another kind of request".to_owned()
        }
    }
}
