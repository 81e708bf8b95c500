//! ECHO: an answer of any length, for measurements.

use wire::rpc::{EchoRequest, EchoResponse};
use wire::status::Status;

use crate::output::Output;
use crate::requests::Call;
use crate::shard::Shard;

/// What answers are made of.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
const MAX_PARTS: usize = 1 + (EchoResponse::MAX_BYTES as usize).div_ceil(ZEROS.len());

impl Shard {
    pub(crate) fn echo(&mut self, call: Call<'_>, out: &mut impl Output) -> Result<(), Status> {
        let EchoRequest { answer_bytes, .. } = EchoRequest::decode(call.payload)?;
        let fixed = EchoResponse::fixed_bytes(Status::Ok, answer_bytes);
        let mut parts: [&[u8]; MAX_PARTS] = [&ZEROS; MAX_PARTS];
        parts[0] = &fixed;
        let whole = answer_bytes as usize / ZEROS.len();
        parts[1 + whole] = &ZEROS[..answer_bytes as usize % ZEROS.len()];
        out.reply(call.to, &parts[..2 + whole]);
        Ok(())
    }
}
