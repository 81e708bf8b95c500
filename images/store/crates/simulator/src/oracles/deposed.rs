//! Watches deposed masters: once a log was given out to be recovered, its master answers nothing that is asked of it.
//!
//! It knows nothing of promises and serving leases, only when the coordinator sends out orders to replay a log. What was asked before that may
//! still be answered: it lies before whatever the new owners do. Multi-ops and pages of scans, whose parts have answers of their own, are not watched.

use std::collections::BTreeSet;

use base::ids::{ReplyTo, ServerId};
use wire::member::{ToShard, coordinator::Kind};
use wire::opcode::Opcode;
use wire::rpc;
use wire::status::Status;

#[derive(Debug, Default)]
pub struct Deposed {
    /// Masters whose logs were given out.
    masters: BTreeSet<ServerId>,
    /// What was asked of one of them since, and is not answered.
    asked: BTreeSet<ReplyTo>,
}

impl Deposed {
    /// The coordinator sends an order.
    pub fn ordered(&mut self, order: &ToShard) {
        if let Some(Kind::Recover(recover)) = &order.kind {
            let logs = recover.segments.iter().map(|segment| segment.log);
            self.masters.extend(logs.map(ServerId));
        }
    }

    /// A master is asked for something. Whether it is deposed, and must not answer.
    pub fn requested(&mut self, master: ServerId, to: ReplyTo, payload: &[u8]) -> bool {
        let is_watched = self.masters.contains(&master) && is_of_one_object(payload);
        if is_watched {
            self.asked.insert(to);
        }
        is_watched
    }

    /// A reply leaves. Says what is wrong with it.
    pub fn replied(&mut self, to: ReplyTo, payload: &[u8]) -> Result<(), String> {
        let was_deposed = self.asked.remove(&to);
        match rpc::status(payload) {
            Ok(Status::Retry | Status::UnknownTablet | Status::ExpiredLease) => Ok(()),
            Ok(status) if was_deposed => Err(format!(
                "a deposed master answered {status} to request {}/{}, which came when its log was being recovered",
                to.connection, to.nonce
            )),
            _ => Ok(()),
        }
    }
}

fn is_of_one_object(payload: &[u8]) -> bool {
    let opcode = rpc::header(payload).ok().map(|header| header.opcode);
    matches!(
        opcode.and_then(Opcode::from_u16),
        Some(
            Opcode::Read
                | Opcode::ReadKeysAndValue
                | Opcode::Write
                | Opcode::Remove
                | Opcode::Increment
        )
    )
}
