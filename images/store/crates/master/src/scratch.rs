//! Memory that requests use one after the other.

use log::Reference;

/// What is kept from one multi-op for the next, so that none of it is allocated anew.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Hashes of the keys.
    pub hashes: Vec<u64>,
    /// Fixed parts of answers, one behind the other.
    pub answers: Vec<u8>,
    /// For each read, where its object lies.
    pub found: Vec<Option<Reference>>,
    /// Room for the pieces of an answer; always empty here.
    pub pieces: Vec<&'static [u8]>,
}
