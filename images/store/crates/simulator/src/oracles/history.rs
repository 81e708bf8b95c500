//! What clients asked for and what they were told, and which keys each crash took with it.

use std::collections::{BTreeMap, BTreeSet};

use base::ids::{ServerId, TableId};
use wire::hash::key_hash;
use wire::member::TabletRange;
use wire::rpc::RejectRules;
use wire::status::Status;

use crate::oracles::checker::{Input, Operation, Output};

/// One operation on one key, as its client saw it.
#[derive(Clone, Debug)]
pub struct Record {
    pub client: u32,
    pub table: TableId,
    pub key: Vec<u8>,
    pub input: Input,
    /// `None`: it has not ended.
    pub output: Option<Ending>,
    pub call: u64,
    pub end: u64,
    /// The answer has the keys, too.
    pub is_whole: bool,
    /// Part of a multi-op, which is not recognized when it comes again.
    pub is_multi: bool,
    /// Of a part of a multi-op: requests with it that may take effect or have done so. An answer that says that it had none takes
    /// one off.
    pub attempts: u32,
}

/// A scan that came to its end.
#[derive(Clone, Debug)]
pub struct ScanRecord {
    pub client: u32,
    pub table: TableId,
    pub call: u64,
    pub end: u64,
    /// Keys of the objects that it gave.
    pub keys: BTreeSet<Vec<u8>>,
}

/// An object that a scan gave: not an operation that anybody asked for, but a read all the same.
#[derive(Clone, Debug)]
pub struct Sighting {
    pub table: TableId,
    pub key: Vec<u8>,
    pub operation: Operation,
}

/// Kinds of numbered operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    Write,
    Increment,
    Remove,
}

impl Change {
    fn of(input: Input) -> Option<Change> {
        match input {
            Input::Write(..) => Some(Change::Write),
            Input::Increment(..) => Some(Change::Increment),
            Input::Remove(_) => Some(Change::Remove),
            Input::Read(_) | Input::Loss | Input::Rebuild(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Known(Output),
    /// It may have taken effect or not.
    Unknown,
    /// It certainly had no effect, and showed nothing.
    Nothing,
}

/// A server of one store, whose id another store may give out again.
pub type Who = (u64, ServerId);

/// What becomes of what is in no more than one server's memory.
#[derive(Debug)]
enum Fate {
    /// The process of this member ends, with these servers.
    Lost {
        member: String,
        servers: Vec<Who>,
    },
    Moved(HandOver),
}

/// A tablet is another server's from now on.
#[derive(Clone, Debug)]
pub struct HandOver {
    pub tablet: TabletRange,
    pub source: Who,
    pub target: Who,
    /// Of the target.
    pub member: String,
}

impl HandOver {
    fn holds(&self, table: TableId, hash: u64) -> bool {
        let tablet = &self.tablet;
        tablet.table_id == table.0 && (tablet.start_key_hash..=tablet.end_key_hash).contains(&hash)
    }
}

/// Where a table's keys lived at first.
#[derive(Clone, Debug)]
struct Placement {
    /// Last hash of each range, and the member that has it.
    ranges: Vec<(u64, String)>,
}

#[derive(Debug, Default)]
pub struct History {
    pub records: Vec<Record>,
    pub scans: Vec<ScanRecord>,
    pub sightings: Vec<Sighting>,
    /// Tables of which a tablet was split, and when that was last ordered.
    splits: BTreeMap<TableId, u64>,
    /// When a server may have carried out something of this kind that this client wants with this key.
    arrivals: BTreeMap<(u32, TableId, Vec<u8>, Change), Vec<u64>>,
    placements: BTreeMap<TableId, Placement>,
    /// When tablets may have begun to move, in parts, from a server to others.
    moves: Vec<u64>,
    /// In stores without copies: what happened to whose memory, and when, in order.
    fates: Vec<(u64, Fate)>,
    /// When the store was made again, and the least version of what was written afterwards.
    rebuilds: Vec<(u64, u64)>,
}

impl History {
    pub fn call(&mut self, record: Record) -> usize {
        self.records.push(record);
        self.records.len() - 1
    }

    /// Notes where a table was placed: last hashes and members, in order.
    pub fn place(&mut self, table: TableId, ranges: Vec<(u64, String)>) {
        self.placements.entry(table).or_insert(Placement { ranges });
    }

    /// The process of a member ends, and with it what these servers of its hold.
    pub fn lose(&mut self, now: u64, member: &str, servers: Vec<Who>) {
        let member = member.to_owned();
        self.fates.push((now, Fate::Lost { member, servers }));
    }

    /// The coordinator has noted that a tablet is another server's.
    pub fn hand_over(&mut self, now: u64, moved: HandOver) {
        self.fates.push((now, Fate::Moved(moved)));
    }

    /// Whether a tablet has ever come to this member.
    pub fn has_come_to(&self, member: &str) -> bool {
        let mut fates = self.fates.iter();
        fates.any(|(_, fate)| matches!(fate, Fate::Moved(moved) if moved.member == member))
    }

    pub fn rebuild(&mut self, now: u64, least_version: u64) {
        self.rebuilds.push((now, least_version));
    }

    pub fn move_tablets(&mut self, now: u64) {
        self.moves.push(now);
    }

    /// A numbered request reached a server, which did not put it off.
    pub fn arrive(&mut self, now: u64, client: u32, table: TableId, key: &[u8], change: Change) {
        let name = (client, table, key.to_vec(), change);
        self.arrivals.entry(name).or_default().push(now);
    }

    fn arrivals_of(&self, record: &Record) -> &[u64] {
        if record.is_multi {
            return &[];
        }
        let arrivals = Change::of(record.input).and_then(|change| {
            let name = (record.client, record.table, record.key.clone(), change);
            self.arrivals.get(&name)
        });
        arrivals.map_or(&[], Vec::as_slice)
    }

    pub fn split(&mut self, now: u64, table: TableId) {
        self.splits.insert(table, now);
    }

    /// Whether a tablet of the table was ever split, or a server has lost its tablets since then: a scan may see an object twice.
    pub fn may_repeat(&self, table: TableId, since: u64) -> bool {
        self.splits.contains_key(&table)
            || self.fates.iter().any(|&(at, _)| at >= since)
            || !self.moves.is_empty()
    }

    /// Whether a tablet of the table was split since then.
    pub fn was_split(&self, table: TableId, since: u64) -> bool {
        self.splits.get(&table).is_some_and(|&at| at >= since)
    }

    fn member_of(&self, table: TableId, key: &[u8]) -> Option<&str> {
        let hash = key_hash(table, key);
        let ranges = &self.placements.get(&table)?.ranges;
        let at = ranges.partition_point(|(end, _)| *end < hash);
        ranges.get(at).map(|(_, member)| member.as_str())
    }

    /// Every key with its history, crashes of its server included, ready to be checked.
    pub fn by_key(&self) -> BTreeMap<(TableId, Vec<u8>), Vec<Operation>> {
        let mut found: BTreeMap<(TableId, Vec<u8>), Vec<Operation>> = BTreeMap::new();
        let mut losses: BTreeMap<(TableId, &[u8]), Vec<u64>> = BTreeMap::new();
        for record in &self.records {
            let crashes = losses
                .entry((record.table, &record.key))
                .or_insert_with(|| self.crashes_of(record.table, &record.key));
            let operations = found
                .entry((record.table, record.key.clone()))
                .or_insert_with(|| crashes.iter().map(|&at| event(at, Input::Loss)).collect());
            add_operations(record, self.arrivals_of(record), crashes, operations);
        }
        for sighting in &self.sightings {
            // A key that nobody asked for was never written: one that is seen all the same cannot be explained.
            let name = (sighting.table, sighting.key.clone());
            let operations = found.entry(name).or_default();
            operations.push(sighting.operation);
        }
        for ((table, key), operations) in &mut found {
            let scans = self.scans.iter().filter(|scan| scan.table == *table);
            operations.extend(scans.filter_map(|scan| scan.absence_of(key)));
            let rebuilds = self.rebuilds.iter();
            operations.extend(rebuilds.map(|&(at, least)| event(at, Input::Rebuild(least))));
        }
        found
    }

    /// When this key was lost with the process that had it.
    fn crashes_of(&self, table: TableId, key: &[u8]) -> Vec<u64> {
        let Some(mut owner) = self.member_of(table, key) else {
            return Vec::new();
        };
        let hash = key_hash(table, key);
        let mut crashes = Vec::new();
        for (position, (at, fate)) in self.fates.iter().enumerate() {
            let (before, after) = self.fates.split_at(position);
            match fate {
                Fate::Lost { member, servers } if member == owner => {
                    // Its last word may be on its way: that it has stopped, and the target has everything.
                    let saved = after.iter().find_map(|(_, later)| match later {
                        Fate::Moved(moved)
                            if servers.contains(&moved.source) && moved.holds(table, hash) =>
                        {
                            Some(moved)
                        }
                        _ => None,
                    });
                    match saved {
                        Some(moved) => owner = &moved.member,
                        None => crashes.push(*at),
                    }
                }
                Fate::Moved(moved) if moved.holds(table, hash) => {
                    owner = &moved.member;
                    // The coordinator does not know yet that the target is dead.
                    let is_target = |servers: &[Who]| servers.contains(&moved.target);
                    let mut before = before.iter();
                    if before.any(|(_, fate)| matches!(fate, Fate::Lost { servers, .. } if is_target(servers)))
                    {
                        crashes.push(*at);
                    }
                }
                Fate::Lost { .. } | Fate::Moved(_) => {}
            }
        }
        crashes
    }
}

impl ScanRecord {
    /// A scan without this key saw at some moment that there was no object.
    fn absence_of(&self, key: &[u8]) -> Option<Operation> {
        (!self.keys.contains(key)).then_some(Operation {
            client: self.client,
            input: Input::Read(RejectRules::default()),
            output: Output::Refused(Status::ObjectDoesntExist, 0),
            call: self.call,
            end: self.end,
        })
    }
}

fn event(at: u64, input: Input) -> Operation {
    Operation {
        client: u32::MAX,
        input,
        output: Output::Unknown,
        call: at,
        end: at,
    }
}

/// `arrivals`: moments at which a server may have carried it out, for one that has a number.
fn add_operations(
    record: &Record,
    arrivals: &[u64],
    crashes: &[u64],
    operations: &mut Vec<Operation>,
) {
    let is_read = matches!(record.input, Input::Read(_));
    let with = |output, end| Operation {
        client: record.client,
        input: record.input,
        output,
        call: record.call,
        end,
    };
    let mut attempts = record.attempts;
    let last = match record.output {
        Some(Ending::Known(output)) => {
            operations.push(with(output, record.end));
            attempts = attempts.saturating_sub(1);
            record.end
        }
        Some(Ending::Nothing) => record.end,
        Some(Ending::Unknown) | None => {
            if arrivals.iter().any(|&at| at >= record.call) {
                operations.push(with(Output::Unknown, u64::MAX));
            }
            u64::MAX
        }
    };
    if is_read {
        return;
    }
    // A part of a multi-op that was sent again is not recognized: it may take effect each time, and late.
    if record.is_multi {
        let again = with(Output::Unknown, u64::MAX);
        operations.extend((0..attempts).map(|_| again));
        return;
    }
    // An attempt that a crash swallowed, together with the memory that it was made.
    let mut since = record.call;
    for &crash in crashes {
        let is_possible = arrivals.iter().any(|&at| since <= at && at <= crash);
        if is_possible && record.call < crash && crash < last {
            operations.push(with(Output::Maybe, crash - 1));
        }
        since = since.max(crash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::checker::Addend;

    const TABLE: TableId = TableId(1);

    fn record(is_multi: bool, attempts: u32, output: Ending) -> Record {
        Record {
            client: 1,
            table: TABLE,
            key: b"k".to_vec(),
            input: Input::Increment(
                Addend {
                    int64: 1,
                    double: 0,
                },
                RejectRules::default(),
            ),
            output: Some(output),
            call: 10,
            end: 30,
            is_whole: false,
            is_multi,
            attempts,
        }
    }

    /// How many operations with these outputs the history of one record has, crashes at 20 and 40 left out.
    fn counts<const N: usize>(
        record: Record,
        arrivals: &[u64],
        outputs: [Output; N],
    ) -> [usize; N] {
        let mut history = History::default();
        history.place(TABLE, vec![(u64::MAX, "a".to_owned())]);
        for &at in arrivals {
            history.arrive(at, 1, TABLE, b"k", Change::Increment);
        }
        history.arrive(15, 1, TABLE, b"k", Change::Write);
        history.arrive(15, 2, TABLE, b"k", Change::Increment);
        history.call(record);
        history.lose(20, "a", Vec::new());
        history.lose(40, "a", Vec::new());
        history.lose(25, "b", Vec::new());
        let operations = &history.by_key()[&(TABLE, b"k".to_vec())];
        let (losses, others): (Vec<_>, Vec<_>) = operations
            .iter()
            .partition(|operation| operation.input == Input::Loss);
        assert_eq!(losses.len(), 2);
        outputs.map(|output| {
            let with = others
                .iter()
                .filter(|other: &&&Operation| other.output == output);
            with.count()
        })
    }

    const DONE: Output = Output::Incremented(1, 1);

    #[test]
    fn an_operation_that_takes_effect_once_may_do_so_before_each_crash_that_it_reached() {
        let outputs = [DONE, Output::Maybe, Output::Unknown];
        let known = || record(false, 0, Ending::Known(DONE));
        assert_eq!(counts(known(), &[15, 25], outputs), [1, 1, 0]);
        assert_eq!(counts(known(), &[25], outputs), [1, 0, 0]);
        let unknown = || record(false, 0, Ending::Unknown);
        assert_eq!(counts(unknown(), &[15, 25], outputs), [0, 2, 1]);
        assert_eq!(counts(unknown(), &[15, 50], outputs), [0, 1, 1]);
        // What came before it was another one, and what never arrives does nothing.
        assert_eq!(counts(unknown(), &[5], outputs), [0, 0, 0]);
        let nothing = record(false, 0, Ending::Nothing);
        assert_eq!(counts(nothing, &[15], outputs), [0, 1, 0]);
    }

    #[test]
    fn a_part_of_a_multi_op_may_take_effect_once_for_each_attempt() {
        let outputs = [DONE, Output::Maybe, Output::Unknown];
        let once = record(true, 1, Ending::Known(DONE));
        assert_eq!(counts(once, &[], outputs), [1, 0, 0]);
        let again = record(true, 3, Ending::Known(DONE));
        assert_eq!(counts(again, &[], outputs), [1, 0, 2]);
        let unknown = record(true, 2, Ending::Unknown);
        assert_eq!(counts(unknown, &[], outputs), [0, 0, 2]);
        let never_sent = record(true, 0, Ending::Unknown);
        assert_eq!(counts(never_sent, &[], outputs), [0, 0, 0]);
    }

    #[test]
    fn a_scan_saw_that_there_is_nothing_where_it_gave_nothing() {
        let mut history = History::default();
        history.call(record(false, 0, Ending::Known(DONE)));
        let absent = Output::Refused(Status::ObjectDoesntExist, 0);
        for (table, key) in [(TABLE, "k"), (TABLE, "j"), (TableId(2), "j")] {
            history.scans.push(ScanRecord {
                client: 2,
                table,
                call: 40,
                end: 50,
                keys: BTreeSet::from([key.into()]),
            });
        }
        let operations = &history.by_key()[&(TABLE, b"k".to_vec())];
        let absences = operations
            .iter()
            .filter(|operation| operation.output == absent);
        assert_eq!(absences.count(), 1);
    }

    #[test]
    fn an_object_that_nobody_wrote_cannot_be_explained() {
        let mut history = History::default();
        let key = b"x".to_vec();
        let operation = Operation {
            client: 1,
            input: Input::Read(RejectRules::default()),
            output: Output::Found(1, crate::oracles::checker::Sight::default()),
            call: 1,
            end: 2,
        };
        history.sightings.push(Sighting {
            table: TABLE,
            key,
            operation,
        });
        let verdict =
            crate::oracles::checker::check(&history.by_key()[&(TABLE, b"x".to_vec())], 100);
        assert_ne!(verdict, crate::oracles::checker::Verdict::Linearizable);
    }
}
