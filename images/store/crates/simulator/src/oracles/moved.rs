//! Watches masters whose tablets have moved: once the new owner was told to serve a tablet, the old one answers nothing that is asked about it.
//!
//! It knows only the coordinator's orders. What was asked before may still be answered: it lies before whatever the new owner does.

use std::collections::{BTreeMap, BTreeSet};

use base::ids::{ReplyTo, ServerId, TableId};
use wire::hash::key_hash;
use wire::member::{TabletRange, ToShard, coordinator::Kind};
use wire::opcode::Opcode;
use wire::rpc::{self, IncrementRequest, ReadRequest, RemoveRequest, WriteRequest};
use wire::status::Status;

use crate::oracles::history::HandOver;

#[derive(Debug, Default)]
pub struct Moved {
    /// Whose session it is, as its welcome said.
    servers: BTreeMap<u64, Welcomed>,
    /// The latest of which anybody was welcomed. What leaders before it still say counts no more, and may be overtaken.
    term: u64,
    /// Sources and tablets of migrations.
    ordered: BTreeMap<u64, (ServerId, TabletRange)>,
    /// Tablets of recoveries.
    recovering: BTreeMap<u64, Vec<TabletRange>>,
    /// What servers have had, and have not got back.
    gone: BTreeMap<ServerId, Vec<TabletRange>>,
    /// What was asked about that, and is not answered.
    asked: BTreeSet<ReplyTo>,
}

#[derive(Clone, Debug)]
struct Welcomed {
    cluster_id: u64,
    server: ServerId,
    /// Of the leader that said so.
    term: u64,
    member: String,
}

impl Moved {
    /// The coordinator sends something to a process of this member. Answers with a tablet that is another server's by this.
    pub fn ordered(&mut self, session: u64, member: &str, message: &ToShard) -> Option<HandOver> {
        let known = self.servers.get(&session);
        let known = known.filter(|known| known.term >= self.term).cloned();
        let server = known.as_ref().map(|known| known.server);
        match (&message.kind, server) {
            (Some(Kind::Welcome(welcome)), _) => {
                let server = ServerId(welcome.server_id);
                let term = welcome.position.map_or(0, |position| position.term);
                self.term = self.term.max(term);
                let welcomed = Welcomed {
                    cluster_id: welcome.cluster_id,
                    server,
                    term,
                    member: member.to_owned(),
                };
                self.servers.insert(session, welcomed);
                self.has_again(server, &welcome.tablets);
            }
            (Some(Kind::MigrateOut(order)), Some(source)) => {
                self.ordered
                    .insert(order.migration_id, (source, order.tablet));
            }
            (Some(Kind::CommitMigration(migration)), Some(target)) => {
                if let Some((source, tablet)) = self.ordered.remove(&migration.migration_id) {
                    self.gone.entry(source).or_default().push(tablet);
                    self.has_again(target, &[tablet]);
                    return known.map(|known| HandOver {
                        tablet,
                        source: (known.cluster_id, source),
                        target: (known.cluster_id, target),
                        member: known.member,
                    });
                }
            }
            (Some(Kind::Recover(order)), _) => {
                self.recovering
                    .insert(order.recovery_id, order.tablets.clone());
            }
            (Some(Kind::CommitRecovery(recovery)), Some(master)) => {
                if let Some(tablets) = self.recovering.remove(&recovery.recovery_id) {
                    self.has_again(master, &tablets);
                }
            }
            _ => {}
        }
        None
    }

    fn has_again(&mut self, server: ServerId, tablets: &[TabletRange]) {
        if let Some(gone) = self.gone.get_mut(&server) {
            gone.retain(|one| !tablets.iter().any(|tablet| overlap(one, tablet)));
        }
    }

    /// A master is asked for something. Whether it must not answer, as the tablet is another's.
    pub fn requested(&mut self, master: ServerId, to: ReplyTo, payload: &[u8]) -> bool {
        let Some(gone) = self.gone.get(&master).filter(|gone| !gone.is_empty()) else {
            return false;
        };
        let Some((table, key)) = key_of(payload) else {
            return false;
        };
        let hash = key_hash(table, &key);
        let is_watched = gone.iter().any(|tablet| {
            tablet.table_id == table.0
                && (tablet.start_key_hash..=tablet.end_key_hash).contains(&hash)
        });
        if is_watched {
            self.asked.insert(to);
        }
        is_watched
    }

    /// A reply leaves. Says what is wrong with it.
    pub fn replied(&mut self, to: ReplyTo, payload: &[u8]) -> Result<(), String> {
        let was_gone = self.asked.remove(&to);
        match rpc::status(payload) {
            Ok(Status::Retry | Status::UnknownTablet) => Ok(()),
            Ok(status) if was_gone => Err(format!(
                "a master answered for a tablet that has moved: {status} to request {}/{}, which came when the tablet was another's",
                to.connection, to.nonce
            )),
            _ => Ok(()),
        }
    }
}

fn overlap(a: &TabletRange, b: &TabletRange) -> bool {
    a.table_id == b.table_id
        && a.start_key_hash <= b.end_key_hash
        && b.start_key_hash <= a.end_key_hash
}

/// Of a request about one object.
fn key_of(payload: &[u8]) -> Option<(TableId, Vec<u8>)> {
    let opcode = Opcode::from_u16(rpc::header(payload).ok()?.opcode)?;
    let (table, key) = match opcode {
        Opcode::Read | Opcode::ReadKeysAndValue => {
            let request = ReadRequest::decode(payload).ok()?;
            (request.table_id, request.key)
        }
        Opcode::Write => {
            let request = WriteRequest::decode(payload).ok()?;
            (request.table_id, request.object.primary_key())
        }
        Opcode::Remove => {
            let request = RemoveRequest::decode(payload).ok()?;
            (request.table_id, request.key)
        }
        Opcode::Increment => {
            let request = IncrementRequest::decode(payload).ok()?;
            (request.table_id, request.key)
        }
        _ => return None,
    };
    Some((table, key.to_vec()))
}
