//! Which parts of multi-ops went out in which request, and which of these requests may have taken effect.
//!
//! Parts have no numbers: one that is sent again may take effect again. How often at most is what the network shows: each
//! request counts, unless its answer says that the part was not carried out.

use std::collections::BTreeMap;

use base::ids::TableId;
use wire::rpc::{
    self, IncrementResponse, MultiIncrementPart, MultiKind, MultiReadPart, MultiReadPartResponse,
    MultiRemovePart, MultiRequest, MultiResponse, MultiWritePart, RemoveResponse, RequestPart,
    ResponsePart, WriteResponse,
};
use wire::status::Status;

use crate::oracles::history::History;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::checker::{Addend, Input};
    use crate::oracles::history::Record;
    use wire::rpc::{Increment, RejectRules, RetryResponse};

    const TABLE: TableId = TableId(1);
    const KEYS: [&[u8]; 3] = [b"a", b"b", b"c"];

    fn request(keys: &[&[u8]]) -> Vec<u8> {
        let part = |key| MultiIncrementPart {
            table_id: TABLE,
            by: Increment::default(),
            rules: RejectRules::default(),
            key,
        };
        let parts: Vec<_> = keys.iter().copied().map(part).collect();
        let mut bytes = Vec::new();
        MultiRequest::encode_parts(&parts, &mut bytes);
        bytes
    }

    fn response(statuses: &[Status]) -> Vec<u8> {
        let part = |&status| IncrementResponse {
            status,
            version: 1,
            new_value: [0; 8],
        };
        let parts: Vec<_> = statuses.iter().map(part).collect();
        let mut bytes = Vec::new();
        MultiResponse::encode_parts(Status::Ok, &parts, &mut bytes);
        bytes
    }

    /// Three increments under way, sent once.
    fn sent() -> (Attempts, History) {
        let (mut attempts, mut history) = (Attempts::default(), History::default());
        for key in KEYS {
            let addend = Addend {
                int64: 1,
                double: 0,
            };
            let record = history.call(Record {
                client: 0,
                table: TABLE,
                key: key.to_vec(),
                input: Input::Increment(addend, RejectRules::default()),
                output: None,
                call: 0,
                end: u64::MAX,
                is_whole: false,
                is_multi: true,
                attempts: 0,
            });
            attempts.start((MultiKind::Increment, TABLE, key.to_vec()), record);
        }
        let again = attempts.sent(1, 1, &request(&KEYS), &mut history);
        assert_eq!(again, Ok(0));
        (attempts, history)
    }

    fn counts(history: &History) -> Vec<u32> {
        let records = history.records.iter();
        records.map(|record| record.attempts).collect()
    }

    #[test]
    fn parts_that_were_not_carried_out_do_not_count() {
        let (mut attempts, mut history) = sent();
        // The third part is missing.
        let answer = response(&[Status::Ok, Status::Retry]);
        attempts.answered(1, 1, &answer, &mut history);
        assert_eq!(counts(&history), [1, 0, 0]);
        let again = attempts.sent(1, 2, &request(&KEYS[1..]), &mut history);
        assert_eq!(again, Ok(0));
        let answer = response(&[Status::UnknownTablet, Status::InvalidObject]);
        attempts.answered(1, 2, &answer, &mut history);
        assert_eq!(counts(&history), [1, 0, 1]);
    }

    #[test]
    fn a_request_that_was_put_off_as_a_whole_does_not_count() {
        let (mut attempts, mut history) = sent();
        let put_off = RetryResponse::to_bytes(1, 2);
        attempts.answered(1, 1, &put_off, &mut history);
        assert_eq!(counts(&history), [0, 0, 0]);
    }

    #[test]
    fn what_is_not_answered_counts() {
        let (mut attempts, mut history) = sent();
        attempts.session_over(1);
        let again = attempts.sent(2, 1, &request(&KEYS), &mut history);
        assert_eq!(again, Ok(3));
        // Too late.
        attempts.answered(1, 1, &response(&[Status::Retry; 3]), &mut history);
        assert_eq!(counts(&history), [2, 2, 2]);
        attempts.answered(2, 1, &response(&[Status::Ok; 3]), &mut history);
        assert_eq!(counts(&history), [2, 2, 2]);
    }

    #[test]
    fn nothing_is_sent_that_is_over() {
        let (mut attempts, mut history) = sent();
        attempts.end(0);
        let result = attempts.sent(1, 2, &request(&KEYS), &mut history);
        assert!(result.is_err());
    }
}
