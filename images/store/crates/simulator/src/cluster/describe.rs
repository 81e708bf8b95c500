//! Requests in words, for the trace.

use wire::opcode::Opcode;
use wire::rpc::{
    self, EnumerateRequest, IncrementRequest, MultiIncrementPart, MultiKind, MultiReadPart,
    MultiRemovePart, MultiRequest, MultiWritePart, RemoveRequest, RequestPart, WriteRequest,
};
use wire::status::Status;

use crate::oracles::values::content;

/// A request in words.
pub fn describe(payload: &[u8]) -> String {
    let Ok(header) = rpc::header(payload) else {
        return "malformed".to_owned();
    };
    let opcode = Opcode::from_u16(header.opcode);
    let name = opcode.map_or("?", Opcode::name);
    let more = details(opcode, payload).unwrap_or_else(|status| status.to_string());
    format!("{name} {more}")
}

fn details(opcode: Option<Opcode>, payload: &[u8]) -> Result<String, Status> {
    Ok(match opcode {
        Some(Opcode::Read | Opcode::ReadKeysAndValue) => {
            let request = rpc::ReadRequest::decode(payload)?;
            format!("{} {}", request.table_id, text(request.key))
        }
        Some(Opcode::Write) => {
            let request = WriteRequest::decode(payload)?;
            let more_keys = match request.object.key_count() {
                1 => String::new(),
                count => format!(" and {} keys more", count - 1),
            };
            format!(
                "{} {}{more_keys} = {}, lease {} rpc {} ack {}",
                request.table_id,
                text(request.object.primary_key()),
                content(request.object.value()).map_or("?".to_owned(), |value| value.to_string()),
                request.lease.id,
                request.rpc_id,
                request.ack_id
            )
        }
        Some(Opcode::Increment) => {
            let request = IncrementRequest::decode(payload)?;
            format!(
                "{} {} + {:#x} + {:?}, lease {} rpc {} ack {}",
                request.table_id,
                text(request.key),
                request.by.int64,
                request.by.double,
                request.lease.id,
                request.rpc_id,
                request.ack_id
            )
        }
        Some(Opcode::Remove) => {
            let request = RemoveRequest::decode(payload)?;
            format!(
                "{} {}, lease {} rpc {} ack {}",
                request.table_id,
                text(request.key),
                request.lease.id,
                request.rpc_id,
                request.ack_id
            )
        }
        Some(Opcode::Enumerate) => {
            let request = EnumerateRequest::decode(payload)?;
            format!(
                "{} from {:#018x}, {} bytes of state",
                request.table_id,
                request.tablet_first_hash,
                request.iterator.len()
            )
        }
        Some(Opcode::MultiOp) => match MultiKind::of_request(payload)? {
            MultiKind::Write => parts::<MultiWritePart<'_>>("writes", payload)?,
            MultiKind::Read => parts::<MultiReadPart<'_>>("reads", payload)?,
            MultiKind::Remove => parts::<MultiRemovePart<'_>>("removes", payload)?,
            MultiKind::Increment => parts::<MultiIncrementPart<'_>>("increments", payload)?,
        },
        _ => format!("{} bytes", payload.len()),
    })
}

fn parts<'a, P: RequestPart<'a>>(what: &str, payload: &'a [u8]) -> Result<String, Status> {
    let request = MultiRequest::<P>::decode(payload)?;
    let mut line = format!("{} {what}:", request.count());
    for part in request.parts() {
        let (table, key) = part.place();
        line.push_str(&format!(" {table} {}", text(key)));
    }
    Ok(line)
}

fn text(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}
