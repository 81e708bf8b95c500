//! Which version this is.

use std::ffi::c_char;

/// Version of this header. A library of another version whose ABI is the same serves, too: see rcbox_abi().
pub const RCBOX_VERSION_MAJOR: u32 = 0;
pub const RCBOX_VERSION_MINOR: u32 = 1;
pub const RCBOX_VERSION_PATCH: u32 = 0;
/// Goes up when programs have to be compiled again; the shared object's name ends with it.
pub const RCBOX_ABI: u32 = 0;

/// The version of the library that runs, such as "0.1.0". Belongs to the library.
#[unsafe(no_mangle)]
pub extern "C" fn rcbox_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The ABI of the library that runs. It fits if it equals RCBOX_ABI.
#[unsafe(no_mangle)]
pub extern "C" fn rcbox_abi() -> u32 {
    RCBOX_ABI
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_version_of_the_package() {
        let version = format!("{RCBOX_VERSION_MAJOR}.{RCBOX_VERSION_MINOR}.{RCBOX_VERSION_PATCH}");
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
    }
}
