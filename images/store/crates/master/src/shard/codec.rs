//! RAMCloud's words for operations on objects. Another protocol would be another file like this one.

use wire::entry::ObjectView;
use wire::opcode::Opcode;
use wire::rpc::{
    IncrementRequest, Lease, MultiIncrementPart, MultiReadPart, MultiRemovePart, MultiWritePart,
    ReadRequest, RejectRules, RemoveRequest, RequestPart, WriteRequest,
};
use wire::status::Status;

use crate::data::{Action, Claim, HashedKey, Operation};

/// A request for one operation.
pub(super) struct Request<'a> {
    pub operation: Operation<'a>,
    /// Of what takes effect once.
    pub claim: Option<Claim>,
    pub shows: Shows,
}

/// What of an object goes out to who has read it.
#[derive(Clone, Copy)]
pub(super) enum Shows {
    Value,
    KeysAndValue,
}

impl Shows {
    #[inline]
    pub fn of<'a>(self, object: &ObjectView<'a>) -> &'a [u8] {
        match self {
            Shows::Value => object.value,
            Shows::KeysAndValue => object.content,
        }
    }
}

impl<'a> Request<'a> {
    /// READ, READ_KEYS_AND_VALUE, WRITE, REMOVE or INCREMENT.
    #[inline(always)]
    pub fn decode(opcode: Opcode, payload: &'a [u8]) -> Result<Request<'a>, Status> {
        let (place, rules, action, claim) = match opcode {
            Opcode::Read | Opcode::ReadKeysAndValue => {
                let read = ReadRequest::decode(payload)?;
                let place = HashedKey::of(read.table_id, read.key);
                (place, read.rules, Action::Read, None)
            }
            Opcode::Write => {
                let write = WriteRequest::decode(payload)?;
                let place = HashedKey::of(write.table_id, write.object.primary_key());
                let claim = claim(write.lease, write.rpc_id, write.ack_id);
                (place, write.rules, Action::Write(write.object), Some(claim))
            }
            Opcode::Remove => {
                let remove = RemoveRequest::decode(payload)?;
                let place = HashedKey::of(remove.table_id, remove.key);
                let claim = claim(remove.lease, remove.rpc_id, remove.ack_id);
                (place, remove.rules, Action::Remove, Some(claim))
            }
            Opcode::Increment => {
                let request = IncrementRequest::decode(payload)?;
                let place = HashedKey::of(request.table_id, request.key);
                let claim = claim(request.lease, request.rpc_id, request.ack_id);
                let action = Action::Increment(request.by);
                (place, request.rules, action, Some(claim))
            }
            _ => return Err(Status::UnimplementedRequest),
        };
        let operation = Operation {
            place,
            rules,
            action,
        };
        let shows = match opcode {
            Opcode::ReadKeysAndValue => Shows::KeysAndValue,
            _ => Shows::Value,
        };
        Ok(Request {
            operation,
            claim,
            shows,
        })
    }
}

/// The object that a request is about, where a fetch ahead pays: READ, READ_KEYS_AND_VALUE and WRITE.
#[inline]
pub(super) fn place_of(opcode: Opcode, payload: &[u8]) -> Option<HashedKey<'_>> {
    match opcode {
        Opcode::Read | Opcode::ReadKeysAndValue => {
            let read = ReadRequest::decode(payload).ok()?;
            Some(HashedKey::of(read.table_id, read.key))
        }
        Opcode::Write => {
            let write = WriteRequest::decode(payload).ok()?;
            Some(HashedKey::of(write.table_id, write.object.primary_key()))
        }
        _ => None,
    }
}

fn claim(lease: Lease, rpc_id: u64, ack_id: u64) -> Claim {
    Claim {
        lease_id: lease.id,
        expiration_ns: lease.expiration_ns,
        rpc_id,
        ack_id,
    }
}

/// One operation of a MULTI_OP.
pub(super) trait Part<'a>: RequestPart<'a> {
    fn rules(&self) -> RejectRules;
    fn action(&self) -> Action<'a>;

    fn operation(&self, hash: u64) -> Operation<'a> {
        let (table_id, key) = self.place();
        Operation {
            place: HashedKey {
                table_id,
                key,
                hash,
            },
            rules: self.rules(),
            action: self.action(),
        }
    }
}

macro_rules! part {
    ($part:ident, $self:ident => $action:expr) => {
        impl<'a> Part<'a> for $part<'a> {
            fn rules(&self) -> RejectRules {
                self.rules
            }
            fn action(&$self) -> Action<'a> {
                $action
            }
        }
    };
}

part!(MultiReadPart, self => Action::Read);
part!(MultiWritePart, self => Action::Write(self.object));
part!(MultiRemovePart, self => Action::Remove);
part!(MultiIncrementPart, self => Action::Increment(self.by));
