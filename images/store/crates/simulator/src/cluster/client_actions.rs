//! What clients have their drivers do, and what their operations are for.

use client_core::{ClientEffects, Error, OperationId, Outcome, Owned};

use crate::cluster::scan::Scan;

/// What the client told its driver to do.
#[derive(Default)]
pub struct ClientActions {
    pub network: Vec<NetworkAction>,
    pub completed: Vec<(OperationId, Result<Owned, Error>)>,
}

pub enum NetworkAction {
    Connect(u64, String),
    Send(u64, u64, Vec<u8>),
    Close(u64),
}

impl ClientEffects for ClientActions {
    fn connect(&mut self, session: u64, locator: &str) {
        self.network
            .push(NetworkAction::Connect(session, locator.to_owned()));
    }
    fn send(&mut self, session: u64, nonce: u64, payload: &[u8]) {
        self.network
            .push(NetworkAction::Send(session, nonce, payload.to_vec()));
    }
    fn close(&mut self, session: u64) {
        self.network.push(NetworkAction::Close(session));
    }
    fn complete(&mut self, operation: OperationId, result: Result<Outcome<'_>, Error>) {
        let result = result.map(Owned::from);
        self.completed.push((operation, result));
    }
}

/// What an operation under way is for.
#[derive(Clone, Debug)]
pub enum Purpose {
    /// Records in the history; one, unless it is a multi-op.
    Keys(Vec<usize>),
    CreateTable(usize),
    DropTable(usize),
    SplitTablet,
    /// A page of a scan.
    Page(Scan),
    Other,
}
