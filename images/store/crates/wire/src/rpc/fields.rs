//! Taking messages apart.

use crate::status::Status;

/// Reads fields one after the other; past the end it answers [`Status::MessageTooShort`].
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub fn of(bytes: &'a [u8]) -> Fields<'a> {
        Fields(bytes)
    }

    /// The fields behind a request's header, given that the whole fixed part is there.
    pub fn of_request(payload: &'a [u8], fixed_bytes: usize) -> Result<Fields<'a>, Status> {
        if payload.len() < fixed_bytes {
            return Err(Status::MessageTooShort);
        }
        Ok(Fields(&payload[4..]))
    }

    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub fn bytes(&mut self, length: usize) -> Result<&'a [u8], Status> {
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(Status::MessageTooShort)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Status> {
        let (taken, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(Status::MessageTooShort)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub fn bool(&mut self) -> Result<bool, Status> {
        Ok(self.array::<1>()?[0] != 0)
    }

    pub fn u8(&mut self) -> Result<u8, Status> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, Status> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, Status> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, Status> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A primary key on its own: 1..=65535 bytes.
    pub fn key(&mut self, length: u16) -> Result<&'a [u8], Status> {
        if length == 0 {
            return Err(Status::RequestFormatError);
        }
        self.bytes(usize::from(length))
    }

    /// A string that ends with a NUL, which `length` counts; answered without it. A NUL inside would make it two different
    /// names for C programs and for us, so it is refused.
    pub fn string(&mut self, length: u32) -> Result<&'a [u8], Status> {
        if length == 0 {
            return Err(Status::RequestFormatError);
        }
        match self.bytes(length as usize)?.split_last() {
            Some((0, name)) if !name.contains(&0) => Ok(name),
            _ => Err(Status::RequestFormatError),
        }
    }

    /// One that this build knows.
    pub fn status(&mut self) -> Result<Status, Status> {
        Status::try_from(self.u32()?).map_err(|_| Status::ResponseFormatError)
    }
}
