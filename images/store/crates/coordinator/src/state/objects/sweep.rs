//! Deleting chunks that no root names: of leaders that died between chunk and root, and of runs that were written anew.
//!
//! No chunk is ever named again once a root has left it out, and of other leaderships up to this term nothing that is not named
//! now ever will be: so what a list says may be old. The root is looked at just before chunks are deleted: if it was put back to an older one, that
//! one names other chunks.

use core::time::Duration;
use std::collections::BTreeSet;

use base::time::Time;

use super::call::{Call, Outbox, unexpected};
use super::look::{Look, Seen};
use super::{ChunkId, Ending, ObjectResponse, Position, Request, RequestId, Trouble};

/// When there is known to be something.
const SOON: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Sweeps, one after the other.
#[derive(Debug)]
pub struct Sweep {
    step: Step,
    interval: Duration,
    call: Call,
    /// When the next one begins.
    next: Time,
}

#[derive(Debug)]
enum Step {
    List,
    Look(Look, Vec<ChunkId>),
    Delete {
        under_way: BTreeSet<RequestId>,
        failed: Option<String>,
    },
}

/// What an answer means.
#[derive(Debug)]
pub enum Progress {
    Open,
    /// These chunks are there, or were: which are to be deleted?
    Listed(Vec<ChunkId>),
    Ended(Ending, String),
}

impl Sweep {
    pub fn new(interval: Duration, now: Time) -> Sweep {
        Sweep {
            step: Step::List,
            interval,
            call: Call::new("delete old chunks", now).with_max_pause(MAX_PAUSE),
            next: now,
        }
    }

    pub fn trouble(&self) -> Option<Trouble> {
        let look = match &self.step {
            Step::Look(look, _) => look.call().trouble(),
            Step::List | Step::Delete { .. } => None,
        };
        look.or_else(|| self.call.trouble())
    }

    pub fn wake(&self) -> Time {
        match &self.step {
            Step::List => self.next.max(self.call.wake()),
            Step::Look(look, _) => look.call().wake(),
            Step::Delete { .. } => Time::NEVER,
        }
    }

    /// There is something to be deleted now.
    pub fn expect_soon(&mut self, now: Time) {
        self.next = self.next.min(now + SOON);
    }

    /// `own`: the position of the newest root.
    pub fn poll(&mut self, now: Time, own: Position, out: &mut Outbox) {
        match &mut self.step {
            Step::List if self.next <= now && self.call.is_due(now) => {
                self.next = now + self.interval;
                self.call.send(out, Request::List { fresh: false });
            }
            Step::Look(look, _) => look.poll(now, own, out),
            Step::List | Step::Delete { .. } => {}
        }
    }

    /// `None`: the answer is to something else.
    pub fn answered(
        &mut self,
        now: Time,
        id: RequestId,
        answer: &ObjectResponse,
        out: &mut Outbox,
    ) -> Option<Progress> {
        match &mut self.step {
            Step::List => {
                if !self.call.takes(id) {
                    return None;
                }
                if let ObjectResponse::Listed(chunks) = answer {
                    return Some(Progress::Listed(chunks.clone()));
                }
                self.fail(now, unexpected(answer));
            }
            Step::Look(look, garbage) => match look.answered(now, id, answer)? {
                Seen::Open => {}
                Seen::Mine => {
                    let deletes = garbage.iter().map(|id| out.request(Request::Delete(*id)));
                    self.step = Step::Delete {
                        under_way: deletes.collect(),
                        failed: None,
                    };
                }
                Seen::Ended(ending, text) => return Some(Progress::Ended(ending, text)),
            },
            Step::Delete { under_way, failed } => {
                if !under_way.remove(&id) {
                    return None;
                }
                if !matches!(answer, ObjectResponse::Done(_) | ObjectResponse::NotFound) {
                    *failed = Some(unexpected(answer));
                }
                if under_way.is_empty() {
                    match failed.take() {
                        Some(why) => self.fail(now, why),
                        None => self.call.succeed(now),
                    }
                    self.step = Step::List;
                }
            }
        }
        Some(Progress::Open)
    }

    fn fail(&mut self, now: Time, why: String) {
        self.next = now;
        self.call.fail(now, why);
    }

    /// Of what was listed: chunks that no root names or ever will.
    pub fn delete(&mut self, now: Time, mut garbage: Vec<ChunkId>, max_deletes: usize) {
        if garbage.len() > max_deletes {
            garbage.truncate(max_deletes);
            self.expect_soon(now);
        }
        match garbage.is_empty() {
            true => self.call.succeed(now),
            false => self.step = Step::Look(Look::new(now), garbage),
        }
    }
}
