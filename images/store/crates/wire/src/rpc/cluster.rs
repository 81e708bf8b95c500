//! What clients and tools ask about a store and its servers.

use super::*;
use crate::opcode::{Opcode, Service};
use base::ids::{ServerId, TableId};

/// Writes a request that has nothing but its header: GET_SERVER_ID, GET_METRICS, GET_SERVER_CONFIG, GET_SERVER_STATISTICS,
/// GET_LOG_METRICS, KILL.
pub fn encode_bare_request(opcode: Opcode, service: Service, out: &mut Vec<u8>) {
    put_header(out, opcode, service);
}

/// What such a request has, at least.
pub const BARE_REQUEST_BYTES: usize = 4;

/// A response that is one message of its own after status and length: GET_SERVER_LIST, GET_METRICS, GET_SERVER_CONFIG,
/// GET_SERVER_STATISTICS, GET_LOG_METRICS (protobuf each, see [`crate::proto`]) and GET_RUNTIME_OPTION (a text with its NUL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageResponse<'a> {
    pub status: Status,
    pub message: &'a [u8],
}

impl<'a> MessageResponse<'a> {
    pub const FIXED_BYTES: usize = 8;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let (status, fields) = response_fields(payload, Self::FIXED_BYTES)?;
        let message = match fields {
            Some(mut fields) => {
                let length = in_response(fields.u32())?;
                in_response(fields.bytes(length as usize))?
            }
            None => &[],
        };
        Ok(MessageResponse { status, message })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_status(out, self.status);
        put_u32(out, length_u32(self.message));
        out.extend_from_slice(self.message);
    }
}

/// GET_SERVER_LIST: servers that offer one of the services in the mask (bit n is service n).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetServerListRequest {
    pub service_mask: u32,
}

impl GetServerListRequest {
    pub const FIXED_BYTES: usize = 8;

    pub fn decode(payload: &[u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        Ok(GetServerListRequest {
            service_mask: fields.u32()?,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::GetServerList, Service::Coordinator);
        put_u32(out, self.service_mask);
    }
}

/// GET_LEASE_INFO: when does this client's lease end? Answered by [`RenewLeaseResponse`] with an id of 0 if it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLeaseInfoRequest {
    pub lease_id: u64,
}

impl GetLeaseInfoRequest {
    pub const FIXED_BYTES: usize = 12;

    pub fn decode(payload: &[u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        Ok(GetLeaseInfoRequest {
            lease_id: fields.u64()?,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::GetLeaseInfo, Service::Coordinator);
        put_u64(out, self.lease_id);
    }
}

/// SPLIT_TABLET in the coordinator's form: `split_key_hash` becomes the first hash of a tablet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitTabletRequest<'a> {
    /// Of the table, without the NUL that ends it on the wire.
    pub name: &'a [u8],
    pub split_key_hash: u64,
}

impl<'a> SplitTabletRequest<'a> {
    pub const FIXED_BYTES: usize = 16;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        let name_length = fields.u32()?;
        let split_key_hash = fields.u64()?;
        let name = fields.string(name_length)?;
        Ok(SplitTabletRequest {
            name,
            split_key_hash,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::SplitTablet, Service::Coordinator);
        put_u32(out, length_u32(self.name) + 1);
        put_u64(out, self.split_key_hash);
        out.extend_from_slice(self.name);
        out.push(0);
    }
}

/// MIGRATE_TABLET, to the master that has the tablet with exactly this range of hashes: it shall be another master's. Answered, with a status alone,
/// when it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrateTabletRequest {
    pub table_id: TableId,
    pub first_key_hash: u64,
    pub last_key_hash: u64,
    pub new_owner: ServerId,
}

impl MigrateTabletRequest {
    pub const FIXED_BYTES: usize = 36;

    pub fn decode(payload: &[u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        Ok(MigrateTabletRequest {
            table_id: TableId(fields.u64()?),
            first_key_hash: fields.u64()?,
            last_key_hash: fields.u64()?,
            new_owner: ServerId(fields.u64()?),
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::MigrateTablet, Service::Master);
        for field in [
            self.table_id.0,
            self.first_key_hash,
            self.last_key_hash,
            self.new_owner.0,
        ] {
            put_u64(out, field);
        }
    }
}

/// HINT_SERVER_CRASHED: somebody could not reach this server; the coordinator may want to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintServerCrashedRequest {
    pub server_id: ServerId,
}

impl HintServerCrashedRequest {
    pub const FIXED_BYTES: usize = 12;

    pub fn decode(payload: &[u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        Ok(HintServerCrashedRequest {
            server_id: ServerId(fields.u64()?),
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::HintServerCrashed, Service::Coordinator);
        put_u64(out, self.server_id.0);
    }
}

/// SET_RUNTIME_OPTION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetRuntimeOptionRequest<'a> {
    /// Both without their NULs.
    pub option: &'a [u8],
    pub value: &'a [u8],
}

impl<'a> SetRuntimeOptionRequest<'a> {
    pub const FIXED_BYTES: usize = 12;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        let option_length = fields.u32()?;
        let value_length = fields.u32()?;
        let option = fields.string(option_length)?;
        let value = fields.string(value_length)?;
        Ok(SetRuntimeOptionRequest { option, value })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::SetRuntimeOption, Service::Coordinator);
        put_u32(out, length_u32(self.option) + 1);
        put_u32(out, length_u32(self.value) + 1);
        for text in [self.option, self.value] {
            out.extend_from_slice(text);
            out.push(0);
        }
    }
}

/// GET_RUNTIME_OPTION; answered by [`MessageResponse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetRuntimeOptionRequest<'a> {
    /// Without its NUL.
    pub option: &'a [u8],
}

impl<'a> GetRuntimeOptionRequest<'a> {
    pub const FIXED_BYTES: usize = 8;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        let option_length = fields.u32()?;
        let option = fields.string(option_length)?;
        Ok(GetRuntimeOptionRequest { option })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::GetRuntimeOption, Service::Coordinator);
        put_u32(out, length_u32(self.option) + 1);
        out.extend_from_slice(self.option);
        out.push(0);
    }
}

/// PROXY_PING: have one server ping another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyPingRequest {
    pub server_id: ServerId,
    pub timeout_ns: u64,
}

impl ProxyPingRequest {
    pub const FIXED_BYTES: usize = 20;

    pub fn decode(payload: &[u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        Ok(ProxyPingRequest {
            server_id: ServerId(fields.u64()?),
            timeout_ns: fields.u64()?,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::ProxyPing, Service::Admin);
        put_u64(out, self.server_id.0);
        put_u64(out, self.timeout_ns);
    }
}

/// Answers PROXY_PING.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyPingResponse {
    pub status: Status,
    /// All ones: it did not answer in time.
    pub reply_ns: u64,
}

impl ProxyPingResponse {
    pub const FIXED_BYTES: usize = 12;
    pub const TIMED_OUT: u64 = u64::MAX;

    pub fn decode(payload: &[u8]) -> Result<Self, Status> {
        let (status, reply_ns) = status_and_u64(payload, Self::FIXED_BYTES)?;
        Ok(ProxyPingResponse { status, reply_ns })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_status(out, self.status);
        put_u64(out, self.reply_ns);
    }
}

/// Answers GET_SERVER_ID: [`ServerId::INVALID`] while the server is in no cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetServerIdResponse {
    pub status: Status,
    pub server_id: ServerId,
}

impl GetServerIdResponse {
    pub const FIXED_BYTES: usize = 12;

    pub fn decode(payload: &[u8]) -> Result<Self, Status> {
        let (status, id) = status_and_u64(payload, Self::FIXED_BYTES)?;
        Ok(GetServerIdResponse {
            status,
            server_id: ServerId(id),
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_status(out, self.status);
        put_u64(out, self.server_id.0);
    }
}

fn status_and_u64(payload: &[u8], fixed_bytes: usize) -> Result<(Status, u64), Status> {
    let (status, fields) = response_fields(payload, fixed_bytes)?;
    let value = match fields {
        Some(mut fields) => in_response(fields.u64())?,
        None => 0,
    };
    Ok((status, value))
}

/// How SERVER_CONTROL finds its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ControlTarget {
    /// The owner of a key; it checks that it is.
    Object = 0,
    /// The owner of an index's key.
    Index = 1,
    /// Whoever was asked.
    ServerId = 2,
}

/// SERVER_CONTROL: a control operation for one server; see [`control_op`]. Answered by [`ServerControlResponse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerControlRequest<'a> {
    pub target: ControlTarget,
    pub control_op: u32,
    pub table_id: TableId,
    pub index_id: u8,
    pub key: &'a [u8],
    pub input: &'a [u8],
}

impl<'a> ServerControlRequest<'a> {
    pub const FIXED_BYTES: usize = 27;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        let target = match fields.u32()? {
            0 => ControlTarget::Object,
            1 => ControlTarget::Index,
            2 => ControlTarget::ServerId,
            _ => return Err(Status::RequestFormatError),
        };
        let control_op = fields.u32()?;
        let table_id = TableId(fields.u64()?);
        let index_id = fields.u8()?;
        let key_length = fields.u16()?;
        let input_length = fields.u32()?;
        let key = fields.bytes(usize::from(key_length))?;
        let input = fields.bytes(input_length as usize)?;
        Ok(ServerControlRequest {
            target,
            control_op,
            table_id,
            index_id,
            key,
            input,
        })
    }

    /// # Panics
    /// If the key is longer than [`MAX_KEY_BYTES`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::ServerControl, Service::Admin);
        put_u32(out, self.target as u32);
        put_u32(out, self.control_op);
        put_u64(out, self.table_id.0);
        out.push(self.index_id);
        put_u16(out, key_length_u16(self.key));
        put_u32(out, length_u32(self.input));
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.input);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_is_asked_for_in_these_bytes() {
        let request = MigrateTabletRequest {
            table_id: TableId(0x0102),
            first_key_hash: 3,
            last_key_hash: u64::MAX,
            new_owner: ServerId::new(5, 1),
        };
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        let expected = [
            &[47, 0, 0, 0][..],
            &[2, 1, 0, 0, 0, 0, 0, 0],
            &[3, 0, 0, 0, 0, 0, 0, 0],
            &[0xff; 8],
            &[5, 0, 0, 0, 1, 0, 0, 0],
        ];
        assert_eq!(bytes, expected.concat());
        assert_eq!(MigrateTabletRequest::decode(&bytes), Ok(request));
        let short = MigrateTabletRequest::decode(&bytes[..35]);
        assert_eq!(short, Err(Status::MessageTooShort));
    }
}
