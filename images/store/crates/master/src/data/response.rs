//! An outcome in the words of RAMCloud's responses. The log records outcomes in these words, too: a repeated RPC is answered with its record.

use wire::rpc::{IncrementResponse, ReadResponse, WriteResponse};

use super::operation::{Outcome, Shown};

const MAX_BYTES: usize = IncrementResponse::FIXED_BYTES;
const _: () = assert!(WriteResponse::FIXED_BYTES <= MAX_BYTES);
const _: () = assert!(ReadResponse::FIXED_BYTES <= MAX_BYTES);

/// The part of a response that has a fixed length.
pub(crate) struct Response {
    bytes: [u8; MAX_BYTES],
    length: usize,
}

impl Response {
    #[inline]
    fn of(bytes: &[u8]) -> Response {
        let mut response = Response {
            bytes: [0; MAX_BYTES],
            length: bytes.len(),
        };
        response.bytes[..bytes.len()].copy_from_slice(bytes);
        response
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Outcome {
    /// `following_bytes`: what of a read object is sent behind the response.
    #[inline]
    pub fn response(&self, following_bytes: usize) -> Response {
        let (status, version) = (self.status, self.version);
        match self.shown {
            Shown::Nothing => Response::of(&WriteResponse { status, version }.to_bytes()),
            Shown::Number(new_value) => {
                let response = IncrementResponse {
                    status,
                    version,
                    new_value,
                };
                Response::of(&response.to_bytes())
            }
            Shown::Object(_) => {
                let length = following_bytes as u32;
                Response::of(&ReadResponse::fixed_bytes(status, version, length))
            }
        }
    }
}
