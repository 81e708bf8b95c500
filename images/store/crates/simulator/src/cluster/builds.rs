//! Builds that read different formats.

use wire::format::Formats;

/// Which formats the store has, as far as anybody was told.
#[derive(Debug)]
pub struct Builds {
    /// There are several builds at all.
    pub happen: bool,
    /// The format in force, as far as anybody was told.
    pub in_force: u32,
}

/// Somebody who runs a build.
#[derive(Clone, Copy, Debug)]
pub enum BuildHost {
    Server(usize),
    Coordinator(usize),
}

impl Builds {
    pub fn new(happen: bool) -> Builds {
        Builds {
            happen,
            in_force: Formats::CURRENT.newest,
        }
    }
}
