//! Log entries.
