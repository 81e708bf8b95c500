//! Memory that requests use one after the other.

use log::Reference;

use crate::data::{Outcome, Shown};

/// What is kept from one multi-op for the next, so that none of it is allocated anew.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Hashes of the keys.
    pub hashes: Vec<u64>,
    /// Fixed parts of answers, one behind the other; all of one request have the same length.
    pub answers: Vec<u8>,
    /// For each answer, the object whose content follows.
    pub objects: Vec<Option<Reference>>,
    /// Room for the pieces of an answer; always empty here.
    pub pieces: Vec<&'static [u8]>,
}

impl Scratch {
    pub fn forget_answers(&mut self) {
        self.answers.clear();
        self.objects.clear();
    }

    pub fn answer(&mut self, fixed: &[u8], outcome: &Outcome) {
        self.answers.extend_from_slice(fixed);
        self.objects.push(match outcome.shown {
            Shown::Object(object) => object,
            Shown::Nothing | Shown::Number(_) => None,
        });
    }
}
