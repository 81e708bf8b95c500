//! Which messages that arrive may go on.

use base::time::Time;
use transport::datagram::Transmit;

use super::Endpoint;
use crate::packet::{Header, Kind};
use crate::role::Role;

impl Endpoint {
    /// Lets the messages go on of which the least is left.
    pub(super) fn grant(&mut self, now: Time, out: &mut dyn Transmit) {
        self.shared.is_grant_due = false;
        self.pass_over_halted(now);
        let next = self.shared.grantable.next(now);
        for (place, (index, slot)) in next.into_iter().flatten().enumerate() {
            let Some(session) = self.sessions[index as usize].as_mut() else {
                continue;
            };
            // Without memory to spare only one answer goes on: it ends, and then there is some. Requests have theirs.
            let is_asked_for = session.role == Role::Initiator;
            if place > 0 && is_asked_for && !self.shared.has_room_for_answers() {
                continue;
            }
            let window = self.shared.config.window_bytes >> place;
            let incoming = &mut session.slots[usize::from(slot)].incoming;
            let target = (incoming.received_bytes() + window).min(incoming.length());
            let more = target.saturating_sub(incoming.granted);
            if more < window / 4 && target < incoming.length() || more == 0 {
                continue;
            }
            assert!(
                incoming.granted < target && target <= incoming.length(),
                "a grant is never taken back"
            );
            incoming.granted = target;
            incoming.granted_at = now;
            let header = Header {
                offset: target as u32,
                ..session.header(Kind::Grant, slot)
            };
            self.shared.transmit(session.peer, &header, &[], out);
            session.list_grantable(slot, &mut self.shared);
        }
    }

    /// Takes those off the list that have a grant and do not use it: they are listed again when they do. Nobody else waits for them.
    fn pass_over_halted(&mut self, now: Time) {
        let patience = 4 * self.shared.config.retry_min;
        // A message that is passed over makes place for another, which is looked at in turn.
        loop {
            let next = self.shared.grantable.next(now).into_iter().flatten();
            let mut halted = next.filter(|(index, slot)| {
                let session = self.sessions[*index as usize].as_ref();
                session.is_none_or(|session| {
                    let incoming = &session.slots[usize::from(*slot)].incoming;
                    incoming.granted > incoming.received_bytes()
                        && now.since(incoming.came_at) > patience
                })
            });
            let Some((index, slot)) = halted.next() else {
                return;
            };
            let session = self.sessions[index as usize].as_mut();
            let slot_state = session.map(|session| &mut session.slots[usize::from(slot)]);
            let listed = slot_state.and_then(|state| state.grant_rank.take());
            let Some(listed) = listed else { return };
            self.shared.grantable.remove(listed, index, slot);
        }
    }
}
