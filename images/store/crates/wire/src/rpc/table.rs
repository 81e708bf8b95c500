//! The coordinator's RPCs for tables and client leases.

use super::*;
use base::ids::TableId;

/// CREATE_TABLE: an existing name gives its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateTableRequest<'a> {
    /// Without the NUL that ends it on the wire.
    pub name: &'a [u8],
    /// Over how many masters the table is spread; 0 stands for 1.
    pub server_span: u32,
}

impl<'a> CreateTableRequest<'a> {
    pub const FIXED_BYTES: usize = 12;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        let name_length = fields.u32()?;
        let server_span = fields.u32()?;
        let name = fields.string(name_length)?;
        Ok(CreateTableRequest { name, server_span })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::CreateTable, Service::Coordinator);
        put_u32(out, length_u32(self.name) + 1);
        put_u32(out, self.server_span);
        out.extend_from_slice(self.name);
        out.push(0);
    }
}

/// Answers CREATE_TABLE and GET_TABLE_ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableIdResponse {
    pub status: Status,
    /// 0 when the status is not OK.
    pub table_id: TableId,
}

pub type CreateTableResponse = TableIdResponse;
pub type GetTableIdResponse = TableIdResponse;

impl TableIdResponse {
    pub const FIXED_BYTES: usize = 12;

    pub fn decode(payload: &[u8]) -> Result<Self, Status> {
        let (status, fields) = response_fields(payload, Self::FIXED_BYTES)?;
        let table_id = match fields {
            Some(mut fields) => in_response(fields.u64())?,
            None => 0,
        };
        Ok(TableIdResponse {
            status,
            table_id: TableId(table_id),
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_status(out, self.status);
        put_u64(out, self.table_id.0);
    }
}

macro_rules! request_by_name {
    ($(#[$doc:meta])* $request:ident, $opcode:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $request<'a> {
            /// Without the NUL that ends it on the wire.
            pub name: &'a [u8],
        }

        impl<'a> $request<'a> {
            pub const FIXED_BYTES: usize = 8;

            pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
                let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
                let name_length = fields.u32()?;
                let name = fields.string(name_length)?;
                Ok($request { name })
            }

            pub fn encode(&self, out: &mut Vec<u8>) {
                put_header(out, $opcode, Service::Coordinator);
                put_u32(out, length_u32(self.name) + 1);
                out.extend_from_slice(self.name);
                out.push(0);
            }
        }
    };
}

request_by_name! {
    /// GET_TABLE_ID: unknown names are TABLE_DOESNT_EXIST.
    GetTableIdRequest, Opcode::GetTableId
}

request_by_name! {
    /// DROP_TABLE: dropping an unknown name is OK.
    DropTableRequest, Opcode::DropTable
}

/// Answers a request that has nothing to tell but its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusResponse {
    pub status: Status,
}

pub type DropTableResponse = StatusResponse;

impl StatusResponse {
    pub const FIXED_BYTES: usize = 4;

    pub fn decode(payload: &[u8]) -> Result<Self, Status> {
        Ok(StatusResponse {
            status: status(payload)?,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_status(out, self.status);
    }
}

/// GET_TABLE_CONFIG: where the tablets of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetTableConfigRequest {
    pub table_id: TableId,
}

impl GetTableConfigRequest {
    pub const FIXED_BYTES: usize = 12;

    pub fn decode(payload: &[u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        Ok(GetTableConfigRequest {
            table_id: TableId(fields.u64()?),
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::GetTableConfig, Service::Coordinator);
        put_u64(out, self.table_id.0);
    }
}

/// Answers GET_TABLE_CONFIG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetTableConfigResponse<'a> {
    pub status: Status,
    /// An encoded [`crate::proto::TableConfig`]; empty when there is no such table.
    pub table_config: &'a [u8],
}

impl<'a> GetTableConfigResponse<'a> {
    pub const FIXED_BYTES: usize = 8;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let (status, fields) = response_fields(payload, Self::FIXED_BYTES)?;
        let table_config = match fields {
            Some(mut fields) => {
                let length = in_response(fields.u32())?;
                in_response(fields.bytes(length as usize))?
            }
            None => &[],
        };
        Ok(GetTableConfigResponse {
            status,
            table_config,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_status(out, self.status);
        put_u32(out, length_u32(self.table_config));
        out.extend_from_slice(self.table_config);
    }
}

/// RENEW_LEASE: a client's lease, new if the given one is unknown or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewLeaseRequest {
    /// 0: none yet.
    pub lease_id: u64,
}

impl RenewLeaseRequest {
    pub const FIXED_BYTES: usize = 12;

    pub fn decode(payload: &[u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        Ok(RenewLeaseRequest {
            lease_id: fields.u64()?,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::RenewLease, Service::Coordinator);
        put_u64(out, self.lease_id);
    }
}

/// Answers RENEW_LEASE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewLeaseResponse {
    pub status: Status,
    pub lease: Lease,
}

impl RenewLeaseResponse {
    pub const FIXED_BYTES: usize = 28;

    pub fn decode(payload: &[u8]) -> Result<Self, Status> {
        let (status, fields) = response_fields(payload, Self::FIXED_BYTES)?;
        let lease = match fields {
            Some(mut fields) => in_response(Lease::decode(&mut fields))?,
            None => Lease::default(),
        };
        Ok(RenewLeaseResponse { status, lease })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_status(out, self.status);
        self.lease.encode(out);
    }
}
