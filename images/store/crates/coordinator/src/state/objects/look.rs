//! Looking whether the root is still this leadership's.

use base::time::Time;

use super::call::{Call, Outbox, unexpected};
use super::format::Root;
use super::standing::Standing;
use super::takeover::{deposed, gone, rolled_back};
use super::{Ending, Name, ObjectResponse, Position, Request, RequestId};

/// One look.
#[derive(Debug)]
pub struct Look {
    call: Call,
    /// This leadership's newest root when the look began: an older one must not be seen.
    known: Option<Position>,
}

/// What was seen.
#[derive(Debug)]
pub enum Seen {
    /// Nothing yet.
    Open,
    Mine,
    Ended(Ending, String),
}

impl Look {
    pub fn new(due: Time) -> Look {
        Look {
            call: Call::new("read the root", due),
            known: None,
        }
    }

    pub fn call(&self) -> &Call {
        &self.call
    }

    pub fn poll(&mut self, now: Time, own: Position, out: &mut Outbox) {
        if self.call.is_due(now) {
            self.known = Some(own);
            self.call.send(out, Request::Get(Name::Root));
        }
    }

    /// `None`: the answer is to something else.
    pub fn answered(&mut self, now: Time, id: RequestId, answer: &ObjectResponse) -> Option<Seen> {
        let known = self.known.filter(|_| self.call.takes(id))?;
        let bytes = match answer {
            ObjectResponse::Found(_, bytes) => bytes,
            ObjectResponse::NotFound => return Some(Seen::Ended(Ending::Incomplete, gone())),
            answer => {
                self.call.fail(now, unexpected(answer));
                return Some(Seen::Open);
            }
        };
        let root = match Root::decode(bytes) {
            Ok(root) => root,
            Err(text) => return Some(Seen::Ended(Ending::Unreadable, text)),
        };
        Some(match root.standing(&known) {
            Standing::Same => Seen::Mine,
            Standing::Later => Seen::Ended(Ending::Deposed, deposed(&root)),
            Standing::Lost => Seen::Ended(Ending::RolledBack, rolled_back(&root, &known)),
        })
    }
}
