//! The coordinator as its members, clients and operator meet it, driven by hand: one program for all tests, so that what they
//! share is compiled and linked once.

mod backups;
mod balancing;
mod checks;
mod common;
mod contact;
mod control;
mod drain;
mod enlisting;
mod events;
mod golden;
mod leader;
mod loss;
mod members;
mod merges;
mod migration;
mod objects;
mod ports;
mod properties;
mod questions;
mod rebuild;
mod recovery;
mod rules;
mod settings;
mod sole;
mod splits;
mod state;
mod unreplicated;
mod upgrade;
