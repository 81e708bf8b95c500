//! Random numbers for names that must not collide.

use rustix::rand::{GetRandomFlags, getrandom};

/// 64 bits from the kernel.
///
/// # Errors
/// The kernel has no random source.
pub fn random_u64() -> Result<u64, String> {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())
            .map_err(|error| format!("no random numbers from the kernel: {error}"))?;
    }
    Ok(u64::from_le_bytes(bytes))
}
