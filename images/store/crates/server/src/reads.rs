//! Requests of recovery masters for entries of replicas, until they are answered.

use std::collections::VecDeque;

use base::ids::ReplyTo;

/// Bytes of requests for entries that wait, at most: enough for hundreds of recovery masters with many tablets each.
const MAX_READS_BYTES: usize = 16 << 20;

/// Requests for entries of replicas that are not answered yet, in the order in which they came.
#[derive(Default)]
pub(crate) struct Reads {
    waiting: VecDeque<(ReplyTo, Vec<u8>)>,
    bytes: usize,
}

impl Reads {
    /// False if there is no room.
    pub fn push(&mut self, to: ReplyTo, payload: &[u8]) -> bool {
        if self.bytes + payload.len() > MAX_READS_BYTES {
            return false;
        }
        self.bytes += payload.len();
        self.waiting.push_back((to, payload.to_vec()));
        true
    }

    pub fn pop(&mut self) -> Option<(ReplyTo, Vec<u8>)> {
        let (to, payload) = self.waiting.pop_front()?;
        self.bytes -= payload.len();
        Some((to, payload))
    }

    /// It cannot be begun yet.
    pub fn put_back(&mut self, to: ReplyTo, payload: Vec<u8>) {
        self.bytes += payload.len();
        self.waiting.push_back((to, payload));
    }

    pub fn forget(&mut self, connection: u64) {
        self.waiting.retain(|(to, _)| to.connection != connection);
        self.bytes = self.waiting.iter().map(|(_, payload)| payload.len()).sum();
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }
}
