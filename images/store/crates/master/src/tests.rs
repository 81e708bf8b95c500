//! A shard as its driver and its coordinator meet it.

mod captured;
mod durability;
mod harness;
mod membership;
mod memory;
mod once;
