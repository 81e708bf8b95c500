//! Death and recovery: what is asked, ordered and noted, and in which order.

mod detection;
mod orders;
mod sources;
