//! What clients are answered.

use base::ids::{ReplyTo, TableId};
use wire::rpc::{self, MessageResponse};
use wire::status::Status;

use crate::effects::CoordinatorEffects;

/// A refusal that comes from a handler.
pub(crate) enum Refused {
    /// Goes out with the response's whole fixed part, zero but for the status.
    Status(Status),
    Retry {
        min_delay_us: u32,
        max_delay_us: u32,
        message: &'static str,
    },
}

impl From<Status> for Refused {
    fn from(status: Status) -> Refused {
        Refused::Status(status)
    }
}

pub(super) const NO_MASTERS: Refused = Refused::Retry {
    min_delay_us: 5_000_000,
    max_delay_us: 10_000_000,
    message: "no masters in cluster",
};
pub(super) const BUSY: Refused = Refused::Retry {
    min_delay_us: 10_000,
    max_delay_us: 20_000,
    message: "the coordinator has too many requests that wait for servers",
};
pub(super) const RECOVERING: Refused = Refused::Retry {
    min_delay_us: 10_000,
    max_delay_us: 20_000,
    message: "the tablet's server is dead, and others are bringing it back",
};
pub(super) const TOO_MANY_LEASES: Refused = Refused::Retry {
    min_delay_us: 1_000_000,
    max_delay_us: 2_000_000,
    message: "too many client leases; the oldest ones expire within 30 minutes",
};

pub(super) fn send(
    to: ReplyTo,
    out: &mut impl CoordinatorEffects,
    encode: impl FnOnce(&mut Vec<u8>),
) {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    out.reply(to, &bytes);
}

pub(super) fn reply_status(to: ReplyTo, status: Status, out: &mut impl CoordinatorEffects) {
    out.reply(to, &rpc::status_bytes(status));
}

pub(super) fn reply_table_id(to: ReplyTo, id: u64, out: &mut impl CoordinatorEffects) {
    let response = rpc::TableIdResponse {
        status: Status::Ok,
        table_id: TableId(id),
    };
    send(to, out, |bytes| response.encode(bytes));
}

pub(super) fn reply_message(to: ReplyTo, message: &[u8], out: &mut impl CoordinatorEffects) {
    let response = MessageResponse {
        status: Status::Ok,
        message,
    };
    send(to, out, |bytes| response.encode(bytes));
}

pub(super) fn reply_ping(to: ReplyTo, reply_ns: u64, out: &mut impl CoordinatorEffects) {
    let response = rpc::ProxyPingResponse {
        status: Status::Ok,
        reply_ns,
    };
    send(to, out, |bytes| response.encode(bytes));
}
