//! What of recoveries is durable: logs of dead servers, and losses.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::ids::ServerId;

use super::Recoveries;
use super::dead::{Dead, Head, Left};
use super::losses::Losses;
use crate::journaled::Journaled;
use crate::records::{self, Key, Meta, Record};
use crate::resource::Resource;
use crate::status::Loss;

fn log_record((id, dead): (&ServerId, &Dead)) -> Record {
    Record::Log(records::Log {
        id: id.0,
        member: dead.member.clone(),
        open_floor: dead.floor,
        head_segment_id: dead.head.map_or(0, |head| head.segment_id),
        head_bytes: dead.head.map_or(0, |head| head.bytes),
        left: dead.left.as_ref().map(left_record),
    })
}

fn left_record(left: &Left) -> records::Left {
    let segments = left.segments.iter();
    let segments = segments.map(|(&id, &bytes)| records::Segment { id, bytes });
    records::Left {
        after_recovery: left.after_recovery,
        segments: segments.collect(),
    }
}

fn loss_record(number: u64, loss: &Loss) -> Record {
    Record::Loss(records::Loss {
        number,
        cluster_time_ns: loss.cluster_time_ns,
        member: loss.member.clone(),
        server_ids: loss.server_ids.clone(),
        tables: loss.tables.clone(),
        tables_dropped: loss.tables_dropped,
        tablet_count: loss.tablet_count,
        object_count: loss.object_count,
        live_bytes: loss.live_bytes,
        missing: loss.missing.clone(),
        uncounted: loss.uncounted,
        instance: loss.instance.clone(),
    })
}

fn dead_of(log: records::Log) -> (ServerId, Dead) {
    let head = Head {
        segment_id: log.head_segment_id,
        bytes: log.head_bytes,
    };
    let dead = Dead {
        member: log.member,
        floor: log.open_floor,
        head: (head.segment_id != 0).then_some(head),
        left: log.left.map(left_of),
    };
    (ServerId(log.id), dead)
}

fn left_of(left: records::Left) -> Left {
    let segments = left.segments.into_iter();
    Left {
        segments: segments
            .map(|segment| (segment.id, segment.bytes))
            .collect(),
        after_recovery: left.after_recovery,
    }
}

fn losses_of(meta: &Meta, mut records: Vec<records::Loss>) -> Result<VecDeque<Loss>, String> {
    records.sort_by_key(|loss| loss.number);
    let mut losses = VecDeque::new();
    for (record, number) in records.into_iter().zip(meta.losses_dropped..) {
        if record.number != number {
            return Err(format!(
                "loss {number} is missing, and {} is there",
                record.number
            ));
        }
        losses.push_back(Loss {
            cluster_time_ns: record.cluster_time_ns,
            member: record.member,
            server_ids: record.server_ids,
            tables: record.tables,
            tables_dropped: record.tables_dropped,
            tablet_count: record.tablet_count,
            object_count: record.object_count,
            live_bytes: record.live_bytes,
            missing: record.missing,
            uncounted: record.uncounted,
            instance: record.instance,
        });
    }
    Ok(losses)
}

impl Resource for Recoveries {
    fn is_worth_a_checkpoint(&self) -> bool {
        self.dead.is_changed() || self.losses.is_changed()
    }

    fn take_changed(&mut self) -> BTreeSet<Key> {
        let losses = self.losses.take_changed().into_iter().map(Key::Loss);
        let logs = self.dead.take_changed().into_iter();
        losses.chain(logs.map(|log| Key::Log(log.0))).collect()
    }

    fn record(&self, key: &Key) -> Option<Record> {
        match key {
            Key::Loss(number) => {
                let loss = self.losses.get(*number)?;
                Some(loss_record(*number, loss))
            }
            Key::Log(id) => {
                let id = ServerId(*id);
                self.dead.get(&id).map(|dead| log_record((&id, dead)))
            }
            _ => None,
        }
    }

    fn records(&self) -> Box<dyn Iterator<Item = Record> + '_> {
        let losses = self.losses.numbered();
        let losses = losses.map(|(number, loss)| loss_record(number, loss));
        Box::new(losses.chain(self.dead.iter().map(log_record)))
    }

    /// What it is about is other machines' as well: see [`Recoveries::audit_orders`].
    fn audit(&self) -> Result<(), String> {
        Ok(())
    }
}

impl Recoveries {
    /// As they were noted, with none under way.
    ///
    /// # Errors
    /// A loss is not there.
    pub fn restore(
        meta: &Meta,
        losses: Vec<records::Loss>,
        logs: Vec<records::Log>,
    ) -> Result<Recoveries, String> {
        let dead: BTreeMap<ServerId, Dead> = logs.into_iter().map(dead_of).collect();
        Ok(Recoveries {
            losses: Losses::noted(losses_of(meta, losses)?, meta.losses_dropped),
            dead: Journaled::noted(dead),
            ..Recoveries::default()
        })
    }
}
