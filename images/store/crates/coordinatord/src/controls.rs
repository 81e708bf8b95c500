//! Control operations that other threads of this process have asked for.

use std::collections::BTreeMap;

use base::ids::ReplyTo;
use coordinator::orders::{Asked, ControlError};
use tokio::sync::oneshot;

/// A connection that is none: replies on it are for other threads of this process, which their nonces tell apart.
const OWN: u64 = u64::MAX;

/// What came of a control operation.
pub struct Controlled {
    pub asked: Vec<Asked>,
    /// As a client would get it, with SERVER_CONTROL_ALL.
    pub response: Vec<u8>,
}

pub type ControlReply = oneshot::Sender<Result<Controlled, ControlError>>;

/// Those who wait; each has an answer after the coordinator's `control_timeout` at the latest.
#[derive(Default)]
pub struct Controls {
    waiting: BTreeMap<u64, (Vec<Asked>, ControlReply)>,
    last: u64,
}

impl Controls {
    /// Where the reply to the next operation is to go.
    pub fn next(&mut self) -> ReplyTo {
        self.last += 1;
        ReplyTo {
            connection: OWN,
            nonce: self.last,
        }
    }

    /// The operation has begun, or not.
    pub fn begun(
        &mut self,
        to: ReplyTo,
        asked: Result<Vec<Asked>, ControlError>,
        answer: ControlReply,
    ) {
        match asked {
            Ok(asked) => drop(self.waiting.insert(to.nonce, (asked, answer))),
            // Whoever asked may have given up.
            Err(error) => drop(answer.send(Err(error))),
        }
    }

    /// Takes a reply that is for nobody outside; false for all others.
    pub fn replied(&mut self, to: ReplyTo, payload: &[u8]) -> bool {
        if to.connection != OWN {
            return false;
        }
        if let Some((asked, answer)) = self.waiting.remove(&to.nonce) {
            let response = payload.to_vec();
            // Whoever asked may have given up.
            drop(answer.send(Ok(Controlled { asked, response })));
        }
        true
    }
}
