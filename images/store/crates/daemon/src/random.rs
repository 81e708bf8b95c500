//! Random numbers for names that must not collide.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// The kernel has no random source.
#[derive(Debug, thiserror::Error)]
#[error("no random numbers from the kernel: {0}")]
pub struct NoRandom(Errno);

/// 64 bits from the kernel.
///
/// # Errors
/// The kernel has no random source.
pub fn random_u64() -> Result<u64, NoRandom> {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty()).map_err(NoRandom)?;
    }
    Ok(u64::from_le_bytes(bytes))
}
