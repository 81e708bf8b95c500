//! A shard as its driver and its coordinator meet it.

mod admin;
mod captured;
mod durability;
mod harness;
mod membership;
mod memory;
mod once;
mod proxy;
