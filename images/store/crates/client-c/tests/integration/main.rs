//! The client for C as programs meet it, and its header.

mod c;
mod header;
