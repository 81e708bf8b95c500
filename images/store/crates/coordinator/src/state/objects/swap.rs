//! One write of the root: sent until it is known what became of it.
//!
//! Always with the same content: so whenever a root of this position is read, it is this one, whichever of the tries has taken
//! effect, and however late.

use std::sync::Arc;

use base::bugs::{Bug, is_planted};
use base::time::Time;

use super::call::{Call, Outbox, unexpected};
use super::format::Root;
use super::{Name, ObjectResponse, Position, Request, RequestId, Version};

/// A root on its way.
#[derive(Debug)]
pub struct Swap {
    pub root: Root,
    bytes: Arc<[u8]>,
    /// What it takes the place of; `None`: nothing is there yet.
    former: Option<(Version, Position)>,
    step: Step,
    call: Call,
}

#[derive(Debug, PartialEq)]
enum Step {
    Write,
    /// What became of the write is unknown; or somebody has changed the root.
    Read {
        is_changed: bool,
    },
}

/// What an answer means.
#[derive(Debug)]
pub enum Verdict {
    /// Not known yet.
    Open,
    /// It is the root now, and has this version.
    Done(Version),
    /// The root is neither this one nor the former.
    Other(Version, Box<Root>),
    /// There is no root any more.
    Gone,
    /// The root cannot be read: a text that says what to do.
    Unreadable(String),
}

impl Swap {
    pub fn new(root: Root, former: Option<(Version, Position)>, now: Time) -> Swap {
        Swap {
            bytes: root.encode().into(),
            root,
            former,
            step: Step::Write,
            call: Call::new("write the root", now),
        }
    }

    pub fn call(&self) -> &Call {
        &self.call
    }

    pub fn poll(&mut self, now: Time, out: &mut Outbox) {
        if !self.call.is_due(now) {
            return;
        }
        let request = match (&self.step, &self.former) {
            (Step::Read { .. }, _) => Request::Get(Name::Root),
            (Step::Write, None) => Request::Create(Name::Root, self.bytes.clone()),
            (Step::Write, Some(_)) if is_planted(Bug::SwapWithoutVersion) => {
                Request::Replace(Version(String::new()), self.bytes.clone())
            }
            (Step::Write, Some((version, _))) => {
                Request::Replace(version.clone(), self.bytes.clone())
            }
        };
        self.call.send(out, request);
    }

    /// `None`: the answer is to something else.
    pub fn answered(
        &mut self,
        now: Time,
        id: RequestId,
        answer: &ObjectResponse,
    ) -> Option<Verdict> {
        if !self.call.takes(id) {
            return None;
        }
        let verdict = match (&self.step, answer) {
            (Step::Write, ObjectResponse::Done(version)) => Verdict::Done(version.clone()),
            (Step::Write, ObjectResponse::Conflict) => {
                self.step = Step::Read { is_changed: true };
                self.call.hurry(now);
                Verdict::Open
            }
            (Step::Read { .. }, ObjectResponse::Found(version, bytes)) => {
                self.found(now, version, bytes)
            }
            (_, ObjectResponse::NotFound) if self.former.is_some() => Verdict::Gone,
            (step, answer) => {
                self.step = match (step, answer) {
                    (_, ObjectResponse::NotFound) => Step::Write,
                    (Step::Write, _) => Step::Read { is_changed: false },
                    (Step::Read { is_changed }, _) => Step::Read {
                        is_changed: *is_changed,
                    },
                };
                self.call.fail(now, unexpected(answer));
                Verdict::Open
            }
        };
        Some(verdict)
    }

    fn found(&mut self, now: Time, version: &Version, bytes: &[u8]) -> Verdict {
        let root = match Root::decode(bytes) {
            Ok(root) => root,
            Err(text) => return Verdict::Unreadable(text),
        };
        if root.position == self.root.position {
            return Verdict::Done(version.clone());
        }
        match &mut self.former {
            Some((expected, position)) if root.position == *position => {
                *expected = version.clone();
            }
            _ => return Verdict::Other(version.clone(), Box::new(root)),
        }
        match self.step {
            // Others have changed what is not its content: its labels.
            Step::Read { is_changed: true } => self.call.fail(now, "somebody else changes it"),
            _ => self.call.hurry(now),
        }
        self.step = Step::Write;
        Verdict::Open
    }
}
