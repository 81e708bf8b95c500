//! Rules for the inside of crates that no compiler checks: no circle of modules, and no type with methods all over its crate.

pub mod modules;
mod rules;
