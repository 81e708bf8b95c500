//! The text on the wire, of each peer.

use std::net::SocketAddr;

use client::{Cluster, RejectRules, TableId};
use wire::keys::KeysAndValue;
use wire::locator::Locator;
use wire::rpc::{self, Lease, MultiReadPart, MultiReadRequest};
use wire::status::Status;

use crate::Failure;
use crate::plan::{KEY_BYTES, Operation};

/// How to talk to a peer. `connection` tells connections apart, for what each has of its own.
pub trait Protocol {
    /// Where to connect to.
    fn address(&self) -> &str;
    /// What has to be known of each connection before it can be used.
    fn session(&self) -> Result<Session, Failure>;
    /// Appends a request.
    fn request(
        &self,
        session: &mut Session,
        operation: Operation,
        keys: &[[u8; KEY_BYTES]],
        value: &[u8],
        out: &mut Vec<u8>,
    );
    /// The length of the answer at the start of `bytes` once it is complete; an error if it is not what was expected.
    fn answer(
        &self,
        operation: Operation,
        batch: usize,
        value_bytes: usize,
        bytes: &[u8],
    ) -> Result<Option<usize>, Failure>;
    fn supports(&self, _operation: Operation) -> bool {
        true
    }
    /// The length of the answer at the start of `bytes` if it asks to come again.
    fn refusal(&self, _bytes: &[u8]) -> Option<usize> {
        None
    }
}

/// Of one connection.
#[derive(Clone, Copy, Default)]
pub struct Session {
    lease: Lease,
    rpc_id: u64,
    /// The client has all answers up to this RPC.
    pub ack_id: u64,
    nonce: u64,
}

impl Session {
    /// All requests so far have been answered.
    pub fn all_answered(&mut self) {
        self.ack_id = self.rpc_id;
    }
}

pub fn of(target: &str, address: &str) -> Result<Box<dyn Protocol>, Failure> {
    let address = address.to_owned();
    Ok(match target {
        "ping" => Box::new(Ping { address }),
        "redis" | "valkey" => Box::new(Redis { address }),
        "memcached" => Box::new(Memcached { address }),
        "rcbox" => Box::new(Rcbox::find(&address)?),
        _ => return Err(format!("unknown target {target}").into()),
    })
}

fn unexpected(bytes: &[u8]) -> Failure {
    let start = &bytes[..bytes.len().min(60)];
    format!("unexpected answer {:?}", String::from_utf8_lossy(start)).into()
}

/// As many bytes as a value has, there and back.
struct Ping {
    address: String,
}

impl Protocol for Ping {
    fn address(&self) -> &str {
        &self.address
    }
    fn session(&self) -> Result<Session, Failure> {
        Ok(Session::default())
    }
    fn request(
        &self,
        _session: &mut Session,
        _operation: Operation,
        keys: &[[u8; KEY_BYTES]],
        value: &[u8],
        out: &mut Vec<u8>,
    ) {
        keys.iter().for_each(|_| out.extend_from_slice(value));
    }
    fn answer(
        &self,
        _operation: Operation,
        batch: usize,
        value_bytes: usize,
        bytes: &[u8],
    ) -> Result<Option<usize>, Failure> {
        let length = batch * value_bytes;
        Ok((bytes.len() >= length).then_some(length))
    }
    fn supports(&self, operation: Operation) -> bool {
        operation == Operation::Get
    }
}

/// RESP, which Valkey speaks, too.
struct Redis {
    address: String,
}

fn resp<'a>(parts: impl ExactSizeIterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", parts.len()).as_bytes());
    for part in parts {
        out.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

impl Protocol for Redis {
    fn address(&self) -> &str {
        &self.address
    }
    fn session(&self) -> Result<Session, Failure> {
        Ok(Session::default())
    }
    fn request(
        &self,
        _session: &mut Session,
        operation: Operation,
        keys: &[[u8; KEY_BYTES]],
        value: &[u8],
        out: &mut Vec<u8>,
    ) {
        match operation {
            Operation::Get => resp([&b"GET"[..], &keys[0]].into_iter(), out),
            Operation::Set => resp([&b"SET"[..], &keys[0], value].into_iter(), out),
            Operation::Multiget => {
                let parts: Vec<&[u8]> = std::iter::once(&b"MGET"[..])
                    .chain(keys.iter().map(|key| &key[..]))
                    .collect();
                resp(parts.into_iter(), out);
            }
        }
    }
    fn answer(
        &self,
        operation: Operation,
        batch: usize,
        value_bytes: usize,
        bytes: &[u8],
    ) -> Result<Option<usize>, Failure> {
        if operation == Operation::Set {
            return whole(bytes, b"+OK\r\n", 0);
        }
        let mut head = Vec::new();
        if operation == Operation::Multiget {
            head.extend_from_slice(format!("*{batch}\r\n").as_bytes());
        }
        let bulk = format!("${value_bytes}\r\n");
        head.extend_from_slice(bulk.as_bytes());
        let rest = value_bytes + 2 + (batch - 1) * (bulk.len() + value_bytes + 2);
        whole(bytes, &head, rest)
    }
}

/// An answer that starts with `head` and has `rest` bytes more.
fn whole(bytes: &[u8], head: &[u8], rest: usize) -> Result<Option<usize>, Failure> {
    let known = bytes.len().min(head.len());
    if bytes[..known] != head[..known] {
        return Err(unexpected(bytes));
    }
    let length = head.len() + rest;
    Ok((bytes.len() >= length).then_some(length))
}

struct Memcached {
    address: String,
}

impl Protocol for Memcached {
    fn address(&self) -> &str {
        &self.address
    }
    fn session(&self) -> Result<Session, Failure> {
        Ok(Session::default())
    }
    fn request(
        &self,
        _session: &mut Session,
        operation: Operation,
        keys: &[[u8; KEY_BYTES]],
        value: &[u8],
        out: &mut Vec<u8>,
    ) {
        if operation == Operation::Set {
            out.extend_from_slice(b"set ");
            out.extend_from_slice(&keys[0]);
            out.extend_from_slice(format!(" 0 0 {}\r\n", value.len()).as_bytes());
            out.extend_from_slice(value);
        } else {
            out.extend_from_slice(b"get");
            for key in keys {
                out.push(b' ');
                out.extend_from_slice(key);
            }
        }
        out.extend_from_slice(b"\r\n");
    }
    fn answer(
        &self,
        operation: Operation,
        batch: usize,
        value_bytes: usize,
        bytes: &[u8],
    ) -> Result<Option<usize>, Failure> {
        if operation == Operation::Set {
            return whole(bytes, b"STORED\r\n", 0);
        }
        // VALUE key flags bytes, the value; END behind the last one. The same key twice comes twice.
        let line = b"VALUE ".len() + KEY_BYTES + format!(" 0 {value_bytes}\r\n").len();
        let rest = batch * (line + value_bytes + 2) + b"END\r\n".len() - b"VALUE ".len();
        whole(bytes, b"VALUE ", rest)
    }
}

/// The store by its own wire format, without its client library.
struct Rcbox {
    coordinator: String,
    server: String,
    table: TableId,
}

/// The locator of the coordinator at `address`.
pub fn locator(address: &str) -> Result<String, Failure> {
    let address: SocketAddr = address.parse()?;
    Ok(format!("tcp:host={},port={}", address.ip(), address.port()))
}

impl Rcbox {
    fn find(address: &str) -> Result<Rcbox, Failure> {
        let coordinator = locator(address)?;
        let mut cluster = Cluster::connect(&coordinator)?;
        let table = cluster.create_table("peerbench", 1)?;
        let tablets = cluster.table_config(table)?;
        let [tablet] = &tablets[..] else {
            return Err("one server with one shard is measured".into());
        };
        let server = Locator::parse(&tablet.locator)?;
        let (host, port) = server.tcp()?;
        Ok(Rcbox {
            coordinator,
            server: format!("{host}:{port}"),
            table,
        })
    }
}

impl Protocol for Rcbox {
    fn address(&self) -> &str {
        &self.server
    }
    /// Each connection is a client of its own, with its own lease.
    fn session(&self) -> Result<Session, Failure> {
        let lease = Cluster::connect(&self.coordinator)?.acquire_lease()?;
        Ok(Session {
            lease,
            ..Session::default()
        })
    }
    fn request(
        &self,
        session: &mut Session,
        operation: Operation,
        keys: &[[u8; KEY_BYTES]],
        value: &[u8],
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        out.extend_from_slice(&transport::rpc::header(0, 0));
        let (table_id, rules) = (self.table, RejectRules::default());
        match operation {
            Operation::Get => {
                let key = &keys[0][..];
                rpc::ReadRequest {
                    table_id,
                    rules,
                    key,
                }
                .encode(out);
            }
            Operation::Set => {
                session.rpc_id += 1;
                let object = KeysAndValue::single(&keys[0], value);
                rpc::WriteRequest {
                    table_id,
                    lease: session.lease,
                    rpc_id: session.rpc_id,
                    ack_id: session.ack_id,
                    rules,
                    is_async: false,
                    object: object.expect("keys of 30 bytes"),
                }
                .encode(out);
            }
            Operation::Multiget => {
                let part = |key| MultiReadPart {
                    table_id,
                    rules,
                    key,
                };
                let parts: Vec<_> = keys.iter().map(|key| part(&key[..])).collect();
                MultiReadRequest::encode_parts(&parts, out);
            }
        }
        session.nonce += 1;
        let length = (out.len() - start - 12) as u32;
        out[start..start + 12].copy_from_slice(&transport::rpc::header(session.nonce, length));
    }
    fn refusal(&self, bytes: &[u8]) -> Option<usize> {
        let header = bytes.first_chunk::<16>()?;
        let status = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
        let length =
            12 + u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        (status == Status::Retry as u32 && bytes.len() >= length).then_some(length)
    }
    fn answer(
        &self,
        operation: Operation,
        batch: usize,
        value_bytes: usize,
        bytes: &[u8],
    ) -> Result<Option<usize>, Failure> {
        let expected = match operation {
            Operation::Get => 16 + value_bytes,
            Operation::Set => 12,
            Operation::Multiget => 8 + batch * (16 + 3 + KEY_BYTES + value_bytes),
        };
        let Some(header) = bytes.first_chunk::<16>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        if header[12..16] == (Status::Retry as u32).to_le_bytes() {
            return Ok(None); // Not whole yet.
        }
        if length != expected || header[12..16] != [0; 4] {
            return Err(unexpected(bytes));
        }
        Ok((bytes.len() >= 12 + length).then_some(12 + length))
    }
}
