//! Which parts of multi-ops went out in which request, and which of these requests may have taken effect.
//!
//! Parts have no numbers: one that is sent again may take effect again. How often at most is what the network shows: each
//! request counts, unless its answer says that the part was not carried out.

use std::collections::BTreeMap;

use wire::ids::TableId;
use wire::rpc::{
    self, IncrementResponse, MultiIncrementPart, MultiKind, MultiReadPart, MultiReadPartResponse,
    MultiRemovePart, MultiRequest, MultiResponse, MultiWritePart, RemoveResponse, RequestPart,
    ResponsePart, WriteResponse,
};
use wire::status::Status;

use crate::history::History;

/// Names a part as requests show it. A client has no two of them under way with one name.
pub type PartName = (MultiKind, TableId, Vec<u8>);

/// The parts of one client.
#[derive(Default)]
pub struct Attempts {
    /// Their records.
    under_way: BTreeMap<PartName, usize>,
    /// The records in each request without an answer, by session and nonce.
    asked: BTreeMap<(u64, u64), (MultiKind, Vec<usize>)>,
}

impl Attempts {
    pub fn is_under_way(&self, name: &PartName) -> bool {
        self.under_way.contains_key(name)
    }

    pub fn start(&mut self, name: PartName, record: usize) {
        self.under_way.insert(name, record);
    }

    pub fn end(&mut self, record: usize) {
        self.under_way.retain(|_, known| *known != record);
    }

    /// A multi-op goes out. Answers how many of its parts did before.
    pub fn sent(
        &mut self,
        session: u64,
        nonce: u64,
        payload: &[u8],
        history: &mut History,
    ) -> Result<u64, String> {
        let names =
            names(payload).map_err(|status| format!("a multi-op is malformed: {status}"))?;
        let mut records = Vec::new();
        let mut again = 0;
        for name in &names {
            let Some(&at) = self.under_way.get(name) else {
                return Err(format!("{name:?} was sent, but is not under way"));
            };
            let record = &mut history.records[at];
            again += u64::from(record.attempts > 0);
            record.attempts += 1;
            records.push(at);
        }
        if let Some((kind, ..)) = names.first() {
            self.asked.insert((session, nonce), (*kind, records));
        }
        Ok(again)
    }

    /// An answer is here: parts that were not carried out do not count as attempts.
    pub fn answered(&mut self, session: u64, nonce: u64, payload: &[u8], history: &mut History) {
        let Some((kind, records)) = self.asked.remove(&(session, nonce)) else {
            return;
        };
        let mut statuses = statuses(kind, payload).into_iter();
        for at in records {
            let was_idle = matches!(
                statuses.next(),
                None | Some(Status::Retry | Status::UnknownTablet | Status::NoTableSpace)
            );
            if was_idle {
                history.records[at].attempts -= 1;
            }
        }
    }

    /// What was asked in this session will not be answered.
    pub fn session_over(&mut self, session: u64) {
        self.asked.retain(|(asked, _), _| *asked != session);
    }
}

/// The parts of a multi-op.
pub fn names(payload: &[u8]) -> Result<Vec<PartName>, Status> {
    fn of<'a, P: RequestPart<'a>>(payload: &'a [u8]) -> Result<Vec<PartName>, Status> {
        let request = MultiRequest::<P>::decode(payload)?;
        let places = request.parts().map(|part| part.place());
        Ok(places
            .map(|(table, key)| (P::KIND, table, key.to_vec()))
            .collect())
    }
    match MultiKind::of_request(payload)? {
        MultiKind::Write => of::<MultiWritePart<'_>>(payload),
        MultiKind::Read => of::<MultiReadPart<'_>>(payload),
        MultiKind::Remove => of::<MultiRemovePart<'_>>(payload),
        MultiKind::Increment => of::<MultiIncrementPart<'_>>(payload),
    }
}

/// The statuses of the parts that an answer has; none if it was refused as a whole, before any part took effect.
pub fn statuses(kind: MultiKind, payload: &[u8]) -> Vec<Status> {
    fn of<'a, P: ResponsePart<'a>>(payload: &'a [u8]) -> Vec<Status> {
        let response = MultiResponse::<P>::decode(payload);
        let parts = response.into_iter().flat_map(|response| response.parts());
        parts.map(|part| part.status()).collect()
    }
    if rpc::status(payload) != Ok(Status::Ok) {
        return Vec::new();
    }
    match kind {
        MultiKind::Write => of::<WriteResponse>(payload),
        MultiKind::Read => of::<MultiReadPartResponse<'_>>(payload),
        MultiKind::Remove => of::<RemoveResponse>(payload),
        MultiKind::Increment => of::<IncrementResponse>(payload),
    }
}
