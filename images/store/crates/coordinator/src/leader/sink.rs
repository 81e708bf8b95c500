//! Where the words of a leader's coordinator go.

use std::collections::{BTreeSet, VecDeque};

use wire::ids::ReplyTo;
use wire::member::ToShard;

use super::held::{Held, needs_no_commit};
use super::output::Output;
use crate::event::Event;

/// Where the coordinator's words go.
pub(super) struct Sink<'a, A> {
    pub held: &'a mut Held<A>,
    pub ready: &'a mut VecDeque<Output<A>>,
    pub closing: &'a mut BTreeSet<u64>,
    pub is_over: bool,
    pub passes_pings: bool,
}

impl<A> Sink<'_, A> {
    fn put(&mut self, output: Output<A>) {
        match self.is_over {
            true => self.ready.push_back(output),
            false => self.held.push(output),
        }
    }
}

impl<A> crate::Output for Sink<'_, A> {
    fn reply(&mut self, to: ReplyTo, payload: &[u8]) {
        self.put(Output::Reply(to, payload.to_vec()));
    }

    fn send_member(&mut self, connection: u64, message: ToShard) {
        let output = Output::SendMember(connection, message);
        match &output {
            Output::SendMember(_, message) if self.passes_pings && needs_no_commit(message) => {
                self.ready.push_back(output);
            }
            _ => self.put(output),
        }
    }

    fn close_member(&mut self, connection: u64) {
        self.closing.insert(connection);
        self.put(Output::CloseMember(connection));
    }

    fn log_message(&mut self, level: u32, text: &str) {
        self.ready.push_back(Output::Log(level, text.to_owned()));
    }

    fn report(&mut self, event: Event) {
        self.ready.push_back(Output::Event(event));
    }

    fn end_process(&mut self) {
        self.ready.push_back(Output::EndProcess);
    }
}
