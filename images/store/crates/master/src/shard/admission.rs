//! Admission: whether a request may go on, before anything is planned. Tablets, leases and exactly-once are looked at here and nowhere else.

use log::Reference;
use wire::ids::TableId;
use wire::status::Status;
use wire::time::Time;

use crate::data::leases::Validity;
use crate::data::results::{Known, MAX_RPC_ID};
use crate::data::tablets::Use;
use crate::data::{Once, Operation};
use crate::membership::ask_about_lease;
use crate::output::Output;
use crate::shard::Shard;
use crate::shard::codec::Claim;

/// What a request does with which tablet.
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub table_id: TableId,
    pub hash: u64,
    pub what: Use,
}

/// How a request is to go on.
pub(super) enum Admission {
    /// A numbered one is recorded under this.
    Execute(Option<Once>),
    /// It was executed before; its record is here.
    Answered(Reference),
    Refused(Status),
    ComeAgain,
}

impl Access {
    pub fn of(operation: &Operation<'_>) -> Access {
        Access {
            table_id: operation.place.table_id,
            hash: operation.place.hash,
            what: operation.action.use_of_tablet(),
        }
    }
}

impl Shard {
    /// `claim`: of a request that takes effect once.
    #[inline]
    pub(super) fn admit(
        &mut self,
        now: Time,
        access: Access,
        claim: Option<&Claim>,
        out: &mut impl Output,
    ) -> Admission {
        // First of all: answers to RPCs that came with a tablet which is not this shard's yet, or was not to be, are nobody's.
        let tablets = &self.store.tablets;
        if let Err(status) = tablets.admit(access.table_id, access.hash, access.what) {
            return Admission::Refused(status);
        }
        match claim {
            Some(claim) => self.admit_once(now, claim, out),
            None => Admission::Execute(None),
        }
    }

    /// Holds a numbered RPC against what is known of its client.
    fn admit_once(&mut self, now: Time, claim: &Claim, out: &mut impl Output) -> Admission {
        let (lease_id, rpc_id, ack_id) = (claim.lease.id, claim.rpc_id, claim.ack_id);
        if rpc_id > MAX_RPC_ID {
            return Admission::Refused(Status::RequestFormatError);
        }
        let (results, log) = (&mut self.store.keeper.results, &mut self.store.log);
        let found = results.look_up(lease_id, rpc_id, ack_id);
        let known = results.expiration_ns(lease_id).unwrap_or(0);
        let expiration_ns = claim.lease.expiration_ns.max(known);
        let validity = self.leases.validity(now, lease_id, expiration_ns);
        // Nobody is done with an RPC before it is begun, nor after the lease has ended: whoever says so is not the client.
        if validity == Validity::Valid && ack_id < rpc_id {
            results.acknowledge(lease_id, ack_id, |record| log.kill(record));
        }
        match found {
            Known::Nothing => {}
            Known::Answered(at) => return Admission::Answered(at),
            Known::Refused => return Admission::Refused(Status::NoTableSpace),
            Known::Stale => return Admission::Refused(Status::StaleRpc),
            Known::Ahead => return Admission::ComeAgain,
        }
        match validity {
            Validity::Valid => Admission::Execute(Some(Once {
                lease_id,
                rpc_id,
                ack_id,
                ask_at_ns: self.leases.ask_at_ns(now, expiration_ns),
            })),
            Validity::Ended => Admission::Refused(Status::ExpiredLease),
            Validity::Unknown => {
                ask_about_lease(&self.membership, &mut self.leases, lease_id, out);
                Admission::ComeAgain
            }
        }
    }
}
