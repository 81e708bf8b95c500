//! Admission: whether an operation may begin, before anything of it is planned. Tablets, leases and exactly-once are looked at here, and rights and
//! quotas will be. Whoever executes an operation needs an [`Admitted`], which is made nowhere else.

use base::ids::TableId;
use base::time::Time;
use log::Reference;
use wire::status::Status;

use super::leases::{Leases, Validity};
use super::operation::{Once, Operation};
use super::results::{Known, MAX_RPC_ID};
use super::store::Store;
use super::tablets::Use;

/// What a request does with which tablet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub table_id: TableId,
    pub hash: u64,
    pub what: Use,
}

/// How a client numbers an RPC that takes effect once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub lease_id: u64,
    /// Cluster time at which the lease ends, as the client says.
    pub expiration_ns: u64,
    pub rpc_id: u64,
    /// The client is done with RPCs up to this one.
    pub ack_id: u64,
}

/// Leave to execute one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted {
    once: Option<Once>,
}

/// Why an operation does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAdmitted {
    /// It was executed before; its record is here.
    Answered(Reference),
    Refused(Status),
    ComeAgain,
    /// The coordinator has to be asked about the client's lease.
    LeaseUnknown,
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

impl Admitted {
    /// Under which numbers the outcome is recorded.
    pub(super) fn once(self) -> Option<Once> {
        self.once
    }

    #[cfg(test)]
    pub fn in_test(once: Option<Once>) -> Admitted {
        Admitted { once }
    }
}

impl Store {
    /// Of what has no number: only the tablet counts.
    #[inline(always)]
    pub fn admit_use(&self, access: Access) -> Result<Admitted, Status> {
        self.tablets
            .admit(access.table_id, access.hash, access.what)?;
        Ok(Admitted { once: None })
    }

    /// Of an RPC that takes effect once.
    pub fn admit_once(
        &mut self,
        now: Time,
        leases: &Leases,
        access: Access,
        claim: &Claim,
    ) -> Result<Admitted, NotAdmitted> {
        // First of all: answers to RPCs that came with a tablet which is not this shard's yet, or was not to be, are nobody's.
        self.admit_use(access).map_err(NotAdmitted::Refused)?;
        let Claim {
            lease_id,
            rpc_id,
            ack_id,
            ..
        } = *claim;
        if rpc_id > MAX_RPC_ID {
            return Err(NotAdmitted::Refused(Status::RequestFormatError));
        }
        let (results, log) = (&mut self.keeper.results, &mut self.log);
        let found = results.look_up(lease_id, rpc_id, ack_id);
        let known = results.expiration_ns(lease_id).unwrap_or(0);
        let expiration_ns = claim.expiration_ns.max(known);
        let validity = leases.validity(now, lease_id, expiration_ns);
        // Nobody is done with an RPC before it is begun, nor after the lease has ended: whoever says so is not the client.
        if validity == Validity::Valid && ack_id < rpc_id {
            results.acknowledge(lease_id, ack_id, |record| log.kill(record));
        }
        match found {
            Known::Nothing => {}
            Known::Answered(at) => return Err(NotAdmitted::Answered(at)),
            Known::Refused => return Err(NotAdmitted::Refused(Status::NoTableSpace)),
            Known::Stale => return Err(NotAdmitted::Refused(Status::StaleRpc)),
            Known::Ahead => return Err(NotAdmitted::ComeAgain),
        }
        match validity {
            Validity::Valid => {
                let once = Once {
                    lease_id,
                    rpc_id,
                    ack_id,
                    ask_at_ns: leases.ask_at_ns(now, expiration_ns),
                };
                Ok(Admitted { once: Some(once) })
            }
            Validity::Ended => Err(NotAdmitted::Refused(Status::ExpiredLease)),
            Validity::Unknown => Err(NotAdmitted::LeaseUnknown),
        }
    }
}
