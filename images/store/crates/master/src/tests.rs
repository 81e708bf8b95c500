//! A shard as its driver and its coordinator meet it.

mod admin;
mod captured;
mod durability;
mod enumerate;
mod fill;
mod formats;
mod harness;
mod membership;
mod memory;
mod merges;
mod migration;
mod multi;
mod once;
mod proxy;
mod recovery;
mod replicas;
