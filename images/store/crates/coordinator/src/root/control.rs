//! Control operations: SERVER_CONTROL for several shards at once, on the way that the coordinator has to each.

use std::collections::BTreeMap;

use base::ids::{ReplyTo, ServerId};
use base::time::Time;
use wire::member::{Control, ToShard, coordinator};

use crate::orders::{Asked, ControlError, ControlOrder};
use crate::pending::Goal;
use crate::{Coordinator, CoordinatorEffects};

impl Coordinator {
    /// One control operation for the shards of a member, or of all, that are connected: those. `to` gets what SERVER_CONTROL_ALL is answered with,
    /// later than this returns.
    pub fn control_shards(
        &mut self,
        now: Time,
        order: &ControlOrder,
        to: ReplyTo,
        out: &mut impl CoordinatorEffects,
    ) -> Result<Vec<Asked>, ControlError> {
        let name = order.member.as_str();
        if !name.is_empty() && self.store.members.get(name).is_none() {
            return Err(ControlError::NoMember(name.to_owned()));
        }
        let asked = self.connected_shards(order);
        if asked.is_empty() {
            return Err(ControlError::NotConnected);
        }
        if !self.has_room_for_control(order.input.len(), asked.len()) {
            return Err(ControlError::Busy);
        }
        let is_asked = |id: ServerId| asked.iter().any(|shard| shard.server_id == id);
        self.gated(out, |it, out| {
            it.begin_control(now, (order.op, &order.input), is_asked, to, out);
        });
        Ok(asked)
    }

    /// Whether a control operation can begin whose input is copied for so many shards.
    pub(crate) fn has_room_for_control(&self, input_bytes: usize, shards: usize) -> bool {
        let limits = &self.store.config.limits;
        let copied = input_bytes.saturating_mul(shards);
        self.pending.load() < limits.max_pending_replies
            && self.pending.control_count() < limits.max_pending_controls
            && self.pending.control_bytes().saturating_add(copied) <= limits.max_control_bytes
    }

    /// Shards that have a connection.
    pub(crate) fn linked_count(&mut self) -> usize {
        self.store.members.linked().count()
    }

    fn connected_shards(&self, order: &ControlOrder) -> Vec<Asked> {
        let is_meant = |name: &str| order.member.is_empty() || order.member == name;
        let members = self.store.members.iter().filter(|(name, _)| is_meant(name));
        let shards = members
            .flat_map(|(name, member)| (0..).zip(member.servers()).map(move |one| (name, one)));
        let shards = shards
            .filter(|(_, (shard, _))| order.shard_index.is_none_or(|wanted| wanted == *shard));
        let connected = shards.filter_map(|(name, (shard_index, index))| {
            let server = self.store.members.server(*index)?;
            server.link.as_ref()?;
            Some(Asked {
                server_id: server.id,
                member: name.clone(),
                shard_index,
            })
        });
        connected.collect()
    }

    /// Asks them; `to` gets what all have said, or those who have in time.
    pub(crate) fn begin_control(
        &mut self,
        now: Time,
        (op, input): (u32, &[u8]),
        is_asked: impl Fn(ServerId) -> bool,
        to: ReplyTo,
        out: &mut impl CoordinatorEffects,
    ) {
        let number = self.store.ledger.next_question();
        let mut asked = 0;
        for (_, _, link) in self
            .store
            .members
            .linked()
            .filter(|(_, id, _)| is_asked(**id))
        {
            let sequence = link.sequence();
            link.unanswered.insert(sequence, number);
            asked += 1;
            let control = Control {
                sequence,
                op,
                input: input.to_vec(),
            };
            let kind = coordinator::Kind::Control(control);
            out.send_member(link.connection, ToShard::from(kind));
        }
        let goal = Goal::Control {
            server_count: asked,
            input_bytes: input.len().saturating_mul(asked as usize),
            responses: BTreeMap::new(),
            response_bytes: 0,
        };
        let deadline = now + self.store.config.control_timeout;
        self.pending
            .start(number, goal, to, asked as usize, deadline);
        if asked == 0
            && let Some(operation) = self.pending.answered(number, |_| {})
        {
            self.conclude(operation, out);
        }
    }
}
