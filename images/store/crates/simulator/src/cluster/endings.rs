//! What the ends of operations on keys mean for the history.

use client_core::{Error, Owned};
use wire::status::Status;

use crate::cluster::client::ClientNode;
use crate::oracles::checker::{Input, Output, Sight};
use crate::oracles::history::{Ending, History, Record};
use crate::oracles::values;

impl ClientNode {
    /// An operation on one key is over, or a multi-op. Says what is wrong with how it ended.
    pub(crate) fn end_records(
        &mut self,
        now: u64,
        records: &[usize],
        result: Result<Owned, Error>,
        history: &mut History,
    ) -> Result<(), String> {
        let results: Vec<Result<Owned, Error>> = match result {
            Ok(Owned::Versions(all)) => of_each(all, Owned::Version),
            Ok(Owned::IncrementedAll(all)) => {
                of_each(all, |(version, sum)| Owned::Incremented(version, sum))
            }
            Ok(Owned::Objects(all)) => of_each(all.iter(), |(version, object)| {
                Owned::Object(version, object.to_vec().into())
            }),
            result => vec![result; records.len()],
        };
        if results.len() != records.len() {
            return Err(format!(
                "a multi-op on {} objects has {} results",
                records.len(),
                results.len()
            ));
        }
        for (&at, result) in records.iter().zip(results) {
            self.end_record(now, at, result, history)?;
        }
        Ok(())
    }

    fn end_record(
        &mut self,
        now: u64,
        at: usize,
        result: Result<Owned, Error>,
        history: &mut History,
    ) -> Result<(), String> {
        self.attempts.end(at);
        let record = &mut history.records[at];
        let ending = match &result {
            Ok(outcome) => Ending::Known(output(record, outcome)?),
            Err(Error::Refused { status, version }) => {
                if *status == Status::TableDoesntExist {
                    self.forget(record.table);
                }
                refusal(record, *status, *version)?
            }
            Err(Error::Deadline) => Ending::Unknown,
            Err(_) => return Err(format!("{record:?} ended with {result:?}")),
        };
        if let Ending::Known(
            Output::Found(version, _)
            | Output::Done(version)
            | Output::Incremented(version, _)
            | Output::Refused(_, version),
        ) = ending
        {
            self.versions
                .insert((record.table, record.key.clone()), version);
        }
        record.output = Some(ending);
        record.end = if ending == Ending::Unknown {
            u64::MAX
        } else {
            now
        };
        Ok(())
    }
}

fn of_each<T>(
    all: impl IntoIterator<Item = Result<T, Error>>,
    owned: impl Fn(T) -> Owned,
) -> Vec<Result<Owned, Error>> {
    let all = all.into_iter();
    all.map(|result| result.map(&owned)).collect()
}

/// What a successful operation showed.
fn output(record: &Record, outcome: &Owned) -> Result<Output, String> {
    match (record.input, outcome) {
        (Input::Read(_), Owned::Object(version, bytes)) => {
            let sight = if record.is_whole {
                values::whole(bytes, &record.key)
            } else {
                let content = values::content(bytes);
                content.map(|content| Sight {
                    content: Some(content),
                    keys: None,
                })
            };
            let sight = sight.ok_or_else(|| {
                let text = bytes.escape_ascii();
                format!("{record:?} gave an object that nobody wrote: {text}")
            })?;
            Ok(Output::Found(*version, sight))
        }
        (Input::Write(..) | Input::Remove(_), Owned::Version(version)) => {
            Ok(Output::Done(*version))
        }
        (Input::Increment(..), Owned::Incremented(version, sum)) => {
            Ok(Output::Incremented(*version, u64::from_le_bytes(*sum)))
        }
        _ => Err(format!("{record:?} ended with {outcome:?}")),
    }
}

fn refusal(record: &Record, status: Status, version: u64) -> Result<Ending, String> {
    let is_read = matches!(record.input, Input::Read(_));
    let is_increment = matches!(record.input, Input::Increment(..));
    let stores = is_increment || matches!(record.input, Input::Write(..));
    match status {
        Status::ObjectDoesntExist | Status::ObjectExists | Status::WrongVersion => {
            Ok(Ending::Known(Output::Refused(status, version)))
        }
        Status::InvalidObject if is_increment => {
            Ok(Ending::Known(Output::Refused(status, version)))
        }
        // A part of a multi-op has no number: an older copy of it may arrive later and find room.
        Status::NoTableSpace if stores && record.is_multi => Ok(Ending::Unknown),
        Status::NoTableSpace if stores => Ok(Ending::Nothing),
        Status::TableDoesntExist if is_read => Ok(Ending::Nothing),
        Status::TableDoesntExist => Ok(Ending::Unknown),
        Status::ExpiredLease if !is_read && !record.is_multi => Ok(Ending::Unknown),
        status => Err(format!("{record:?} ended with {status}")),
    }
}
