//! Replies that wait for shards: created tables, dropped tables, control operations. All bounded in number and in time.

use std::collections::{BTreeMap, BTreeSet};

use base::ids::{ReplyTo, ServerId};
use base::time::Time;
use wire::rpc;

/// What an operation waits for, and what it will answer.
#[derive(Debug)]
pub enum Goal {
    /// The owners have taken the tablets of a new table.
    Create { name: Vec<u8>, table_id: u64 },
    /// The owners have dropped the tablets of a table.
    Drop { name: Vec<u8> },
    /// The owner has split a tablet.
    Split,
    /// A shard has answered a ping that was sent at `sent`.
    ProxyPing { sent: Time, reply_ns: u64 },
    /// Shards have carried out a control operation; complete SERVER_CONTROL responses by server.
    Control {
        server_count: u32,
        /// Of all copies of its input, one for each shard.
        input_bytes: usize,
        responses: BTreeMap<ServerId, Vec<u8>>,
        response_bytes: usize,
    },
}

#[derive(Debug)]
pub struct Operation {
    pub goal: Goal,
    pub replies: Vec<ReplyTo>,
    /// Shards that have not answered.
    unanswered: usize,
    deadline: Time,
}

/// Operations that wait, by number.
#[derive(Debug, Default)]
pub struct Pending {
    operations: BTreeMap<u64, Operation>,
    deadlines: BTreeSet<(Time, u64)>,
    /// Creations and drops by (is it a drop, table name): a request sent again joins the first.
    by_name: BTreeMap<(bool, Vec<u8>), u64>,
    reply_count: usize,
    control_count: usize,
}

fn name_of(goal: &Goal) -> Option<(bool, Vec<u8>)> {
    match goal {
        Goal::Create { name, .. } => Some((false, name.clone())),
        Goal::Drop { name } => Some((true, name.clone())),
        Goal::Split | Goal::ProxyPing { .. } | Goal::Control { .. } => None,
    }
}

impl Pending {
    /// How much waits: operations, and replies beyond one for each.
    pub fn load(&self) -> usize {
        self.operations.len().max(self.reply_count)
    }

    /// Control operations that wait.
    pub fn control_count(&self) -> usize {
        self.control_count
    }

    /// Memory of control operations that wait: inputs that were copied for every shard, and responses.
    pub fn control_bytes(&self) -> usize {
        let bytes = self
            .operations
            .values()
            .map(|operation| match &operation.goal {
                Goal::Control {
                    input_bytes,
                    response_bytes,
                    ..
                } => input_bytes + response_bytes,
                _ => 0,
            });
        bytes.sum()
    }

    /// Waits for `unanswered` shards, until `deadline` at the latest.
    pub fn start(
        &mut self,
        number: u64,
        goal: Goal,
        reply: ReplyTo,
        unanswered: usize,
        deadline: Time,
    ) {
        if let Some(name) = name_of(&goal) {
            self.by_name.insert(name, number);
        }
        self.control_count += usize::from(matches!(goal, Goal::Control { .. }));
        self.deadlines.insert((deadline, number));
        self.reply_count += 1;
        let operation = Operation {
            goal,
            replies: vec![reply],
            unanswered,
            deadline,
        };
        self.operations.insert(number, operation);
    }

    /// Adds a reply to the creation (or the drop) of this table that is under way. False if none is.
    pub fn join(&mut self, is_drop: bool, name: &[u8], reply: ReplyTo) -> bool {
        let Some(number) = self.by_name.get(&(is_drop, name.to_vec())) else {
            return false;
        };
        let Some(operation) = self.operations.get_mut(number) else {
            return false;
        };
        operation.replies.push(reply);
        self.reply_count += 1;
        true
    }

    /// One shard has answered, or never will. `note` may record its answer. Returns the operation when that was the last.
    pub fn answered(&mut self, number: u64, note: impl FnOnce(&mut Goal)) -> Option<Operation> {
        let operation = self.operations.get_mut(&number)?;
        note(&mut operation.goal);
        operation.unanswered = operation.unanswered.saturating_sub(1);
        if operation.unanswered > 0 {
            return None;
        }
        self.finish(number)
    }

    /// An operation whose time is up.
    pub fn overdue(&mut self, now: Time) -> Option<Operation> {
        let &(deadline, number) = self.deadlines.first()?;
        if deadline > now {
            return None;
        }
        self.finish(number)
    }

    pub fn next_deadline(&self) -> Time {
        self.deadlines
            .first()
            .map_or(Time::NEVER, |&(deadline, _)| deadline)
    }

    /// Nobody waits for replies on this connection any more.
    pub fn forget_connection(&mut self, connection: u64) {
        for operation in self.operations.values_mut() {
            let before = operation.replies.len();
            operation
                .replies
                .retain(|reply| reply.connection != connection);
            self.reply_count -= before - operation.replies.len();
        }
    }

    fn finish(&mut self, number: u64) -> Option<Operation> {
        let operation = self.operations.remove(&number)?;
        self.deadlines.remove(&(operation.deadline, number));
        self.reply_count -= operation.replies.len();
        self.control_count -= usize::from(matches!(operation.goal, Goal::Control { .. }));
        if let Some(name) = name_of(&operation.goal)
            && self.by_name.get(&name) == Some(&number)
        {
            self.by_name.remove(&name);
        }
        Some(operation)
    }
}

/// Adds a shard's answer to a control operation, if it is one and if it fits.
/// `room`: so many bytes of responses may still be kept, of all operations together.
pub(crate) fn note_control_response(
    goal: &mut Goal,
    server: ServerId,
    response: Vec<u8>,
    room: usize,
) {
    let Goal::Control {
        responses,
        response_bytes,
        ..
    } = goal
    else {
        return;
    };
    let in_answer =
        rpc::MAX_RPC_BYTES - rpc::ServerControlAllResponse::FIXED_BYTES - *response_bytes;
    let room = room.min(in_answer);
    let is_whole = rpc::ServerControlResponse::decode(&response).is_ok_and(|decoded| {
        response.len() == rpc::ServerControlResponse::FIXED_BYTES + decoded.output.len()
    });
    if is_whole && response.len() <= room {
        *response_bytes += response.len();
        responses.insert(server, response);
    }
}
