//! Which parts of which tables a shard owns.

use std::cell::Cell;

use base::ids::TableId;
use wire::member::TabletRange;
use wire::status::Status;

/// The tablets of one shard; none overlaps another.
#[derive(Default)]
pub(crate) struct Tablets {
    /// Sorted by table and start.
    ranges: Vec<TabletRange>,
    /// How often each was found to hold a key that was asked for; in the same order.
    uses: Vec<Cell<u64>>,
    /// One that is about to be somebody else's.
    leaving: Option<Leaving>,
}

/// A tablet of which not everything is served.
struct Leaving {
    tablet: TabletRange,
    refuses: Use,
}

/// What a request does with a key. In the order in which a leaving tablet stops to allow it, from the last on: first it is not written any more,
/// then it is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Asks where the key is. Not counted as a use of the tablet.
    Locate,
    /// Reads what is there. Not counted as a use of the tablet.
    Scan,
    Read,
    Write,
}

impl Leaving {
    fn refuses(&self, table_id: TableId, hash: u64, what: Use) -> bool {
        let is_refused = match what {
            Use::Locate => false,
            Use::Scan | Use::Read => self.refuses == Use::Read,
            Use::Write => true,
        };
        is_refused && holds(core::slice::from_ref(&self.tablet), table_id, hash)
    }
}

impl Tablets {
    /// Whether the key with this hash is in an owned tablet.
    #[inline]
    pub fn owns(&self, table_id: TableId, hash: u64) -> bool {
        self.place_of(table_id, hash).is_some()
    }

    /// Whether a key may be read or written, which counts as a use of its tablet. [`Status::UnknownTablet`]: not here; [`Status::Retry`]: not
    /// now.
    #[inline]
    pub fn admit(&self, table_id: TableId, hash: u64, what: Use) -> Result<(), Status> {
        let Some(at) = self.place_of(table_id, hash) else {
            return Err(Status::UnknownTablet);
        };
        if let Some(leaving) = &self.leaving
            && leaving.refuses(table_id, hash, what)
        {
            return Err(Status::Retry);
        }
        if matches!(what, Use::Read | Use::Write) {
            self.uses[at].set(self.uses[at].get() + 1);
        }
        Ok(())
    }

    /// From now on writes of this tablet are refused, or reads too.
    pub fn refuse(&mut self, tablet: TabletRange, refuses: Use) {
        self.leaving = Some(Leaving { tablet, refuses });
    }

    /// Nothing is refused any more.
    pub fn refuse_nothing(&mut self) {
        self.leaving = None;
    }

    #[inline]
    fn place_of(&self, table_id: TableId, hash: u64) -> Option<usize> {
        place_in(&self.ranges, table_id, hash)
    }

    /// Every tablet, and how often keys in it were asked for since it was taken.
    pub fn uses(&self) -> impl Iterator<Item = (TabletRange, u64)> {
        let uses = self.uses.iter().map(Cell::get);
        self.ranges.iter().copied().zip(uses)
    }

    /// The same for those behind `last` in order, or for all.
    pub fn uses_after(
        &self,
        last: Option<TabletRange>,
    ) -> impl Iterator<Item = (TabletRange, u64)> {
        let from = last.map_or(0, |last| {
            self.ranges.partition_point(|range| *range <= last)
        });
        self.uses().skip(from)
    }

    /// The tablet that holds this hash, whether it is served or not.
    pub fn range_of(&self, table_id: TableId, hash: u64) -> Option<TabletRange> {
        Some(self.ranges[self.place_of(table_id, hash)?])
    }

    /// Makes two tablets of the one that holds `hash`, which becomes the first of the second. Answers no if none does; where a
    /// tablet starts there already, nothing changes.
    pub fn split(&mut self, table_id: TableId, hash: u64) -> bool {
        let Some(at) = self.place_of(table_id, hash) else {
            return false;
        };
        let whole = self.ranges[at];
        if whole.start_key_hash < hash {
            self.ranges[at].end_key_hash = hash - 1;
            let second = TabletRange {
                start_key_hash: hash,
                ..whole
            };
            self.ranges.insert(at + 1, second);
            // Which half was used more, nobody counted.
            let half = self.uses[at].get() / 2;
            self.uses[at].set(self.uses[at].get() - half);
            self.uses.insert(at + 1, Cell::new(half));
        }
        true
    }

    /// Makes this one tablet of those that are owned, if they are all of it and nothing else. Answers whether there were several.
    pub fn merge(&mut self, whole: &TabletRange) -> bool {
        let Some(first) = self.place_of(TableId(whole.table_id), whole.start_key_hash) else {
            return false;
        };
        let mut next = Some(whole.start_key_hash);
        let parts = self.ranges[first..].iter().take_while(|part| {
            let continues = part.table_id == whole.table_id
                && Some(part.start_key_hash) == next
                && part.end_key_hash <= whole.end_key_hash;
            next = part.end_key_hash.checked_add(1);
            continues
        });
        let end = first + parts.count();
        let is_whole = end - first > 1 && self.ranges[end - 1].end_key_hash == whole.end_key_hash;
        if is_whole {
            self.ranges.splice(first..end, [*whole]);
            let uses = self.uses.drain(first..end).map(Cell::into_inner).sum();
            self.uses.insert(first, Cell::new(uses));
        }
        is_whole
    }

    /// Cuts and joins tablets so that they have the bounds of these, which are in order, wherever that is the same data. Gives those that were made
    /// of several. The effort is in proportion to the tablets: a welcome may show thousands of splits at once.
    pub fn reshape(&mut self, wanted: &[TabletRange]) -> Vec<TabletRange> {
        let uses = self.uses.drain(..).map(Cell::into_inner);
        let owned: Vec<_> = self.ranges.drain(..).zip(uses).collect();
        let bounds = bounds(wanted);
        let mut parts = cut(&owned, &bounds).peekable();
        let mut joined = Vec::new();
        let mut run = Vec::new();
        while let Some((first, uses)) = parts.next() {
            run.clear();
            run.push((first, uses));
            let start = (first.table_id, first.start_key_hash);
            let whole =
                wanted.binary_search_by_key(&start, |range| (range.table_id, range.start_key_hash));
            if let Ok(at) = whole {
                let whole = wanted[at];
                let mut end = first.end_key_hash;
                while let Some((part, uses)) = parts.next_if(|(part, _)| {
                    end < whole.end_key_hash
                        && part.table_id == whole.table_id
                        && part.start_key_hash == end + 1
                        && part.end_key_hash <= whole.end_key_hash
                }) {
                    end = part.end_key_hash;
                    run.push((part, uses));
                }
                if run.len() > 1 && end == whole.end_key_hash {
                    let uses = run.iter().map(|(_, uses)| uses).sum();
                    run.clear();
                    run.push((whole, uses));
                    joined.push(whole);
                }
            }
            for (range, uses) in &run {
                self.ranges.push(*range);
                self.uses.push(Cell::new(*uses));
            }
        }
        joined
    }

    /// Whether exactly this tablet is owned.
    pub fn has(&self, range: &TabletRange) -> bool {
        self.ranges.binary_search(range).is_ok()
    }

    /// Takes a tablet; answers no if it overlaps one that is owned already (having exactly this one is fine).
    pub fn take(&mut self, range: TabletRange) -> bool {
        if self.has(&range) {
            return true;
        }
        let free = range.start_key_hash <= range.end_key_hash && !overlaps(&self.ranges, &range);
        if free {
            let at = self.ranges.partition_point(|owned| *owned < range);
            self.ranges.insert(at, range);
            self.uses.insert(at, Cell::new(0));
        }
        free
    }

    /// Takes tablets, or none if one of them overlaps another. The effort is in proportion to how many there are: a welcome
    /// has all tablets of a shard.
    pub fn take_all(&mut self, fresh: &[TabletRange]) -> bool {
        let owned = self.ranges.iter().copied().zip(self.uses.iter().cloned());
        let new = fresh.iter().filter(|range| !self.has(range));
        let new = new.map(|range| (*range, Cell::new(0)));
        let mut all: Vec<_> = owned.chain(new).collect();
        all.sort_by_key(|(range, _)| *range);
        let are_apart = all.windows(2).all(|pair| !overlap(&pair[0].0, &pair[1].0));
        let are_sound = fresh
            .iter()
            .all(|range| range.start_key_hash <= range.end_key_hash);
        if are_apart && are_sound {
            (self.ranges, self.uses) = all.into_iter().unzip();
        }
        are_apart && are_sound
    }

    /// Gives up the tablets that lie within one of these ranges, which are in order and do not overlap.
    pub fn drop_within(&mut self, ranges: &[TabletRange]) {
        let within = |owned: &TabletRange| {
            let hash = owned.start_key_hash;
            let at = place_in(ranges, TableId(owned.table_id), hash);
            at.is_some_and(|at| owned.end_key_hash <= ranges[at].end_key_hash)
        };
        let mut owned = self.ranges.iter();
        self.uses.retain(|_| !owned.next().is_some_and(within));
        self.ranges.retain(|owned| !within(owned));
    }

    pub fn all(&self) -> &[TabletRange] {
        &self.ranges
    }

    pub fn clear(&mut self) {
        *self = Tablets::default();
    }
}

/// Where these tablets begin, and what comes behind them begins: in order.
fn bounds(tablets: &[TabletRange]) -> Vec<(u64, u64)> {
    let starts = tablets
        .iter()
        .map(|range| (range.table_id, range.start_key_hash));
    let behind = tablets
        .iter()
        .filter_map(|range| Some((range.table_id, range.end_key_hash.checked_add(1)?)));
    let mut bounds: Vec<_> = starts.chain(behind).collect();
    bounds.sort_unstable();
    bounds.dedup();
    bounds
}

/// The same data in tablets that end at these bounds. Which part was used more, nobody counted: of each cut, half of the uses goes with either side.
fn cut(
    owned: &[(TabletRange, u64)],
    bounds: &[(u64, u64)],
) -> impl Iterator<Item = (TabletRange, u64)> {
    owned.iter().flat_map(move |&(whole, uses)| {
        let from = bounds.partition_point(|bound| *bound <= (whole.table_id, whole.start_key_hash));
        let within = bounds[from..].iter().take_while(move |(table_id, hash)| {
            *table_id == whole.table_id && *hash <= whole.end_key_hash
        });
        let mut left = Some((whole, uses));
        let ends = within.map(|(_, hash)| Some(*hash)).chain([None]);
        ends.filter_map(move |next| {
            let (rest, uses) = left?;
            let Some(next) = next else {
                return left.take();
            };
            let half = uses / 2;
            let second = TabletRange {
                start_key_hash: next,
                ..rest
            };
            left = Some((second, half));
            Some((
                TabletRange {
                    end_key_hash: next - 1,
                    ..rest
                },
                uses - half,
            ))
        })
    })
}

/// Whether one of these tablets, which are in order, holds the hash.
pub(crate) fn holds(tablets: &[TabletRange], table_id: TableId, hash: u64) -> bool {
    place_in(tablets, table_id, hash).is_some()
}

/// Whether one of these tablets, which are in order and do not overlap, overlaps `range`.
pub(crate) fn overlaps(tablets: &[TabletRange], range: &TabletRange) -> bool {
    let first = (range.table_id, range.start_key_hash);
    let before = tablets.partition_point(|tablet| (tablet.table_id, tablet.end_key_hash) < first);
    tablets
        .get(before)
        .is_some_and(|tablet| overlap(tablet, range))
}

/// The same ranges in order, and those that overlap made one.
pub(crate) fn joined(mut ranges: Vec<TabletRange>) -> Vec<TabletRange> {
    ranges.sort_unstable();
    ranges.dedup_by(|next, before| {
        let is_one = overlap(next, before);
        if is_one {
            before.end_key_hash = before.end_key_hash.max(next.end_key_hash);
        }
        is_one
    });
    ranges
}

/// Which of these tablets, which are in order, holds the hash.
#[inline]
fn place_in(tablets: &[TabletRange], table_id: TableId, hash: u64) -> Option<usize> {
    let after = tablets
        .partition_point(|range| (range.table_id, range.start_key_hash) <= (table_id.0, hash));
    let at = after.checked_sub(1)?;
    let range = &tablets[at];
    (range.table_id == table_id.0 && hash <= range.end_key_hash).then_some(at)
}

/// Makes two of the one that holds `hash`, which becomes the first of the second. No if none does.
pub(crate) fn split(tablets: &mut Vec<TabletRange>, table_id: TableId, hash: u64) -> bool {
    let Some(at) = place_in(tablets, table_id, hash) else {
        return false;
    };
    let whole = tablets[at];
    if whole.start_key_hash < hash {
        tablets[at].end_key_hash = hash - 1;
        let start_key_hash = hash;
        tablets.insert(
            at + 1,
            TabletRange {
                start_key_hash,
                ..whole
            },
        );
    }
    true
}

pub(crate) fn overlap(a: &TabletRange, b: &TabletRange) -> bool {
    a.table_id == b.table_id
        && a.start_key_hash <= b.end_key_hash
        && b.start_key_hash <= a.end_key_hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(table_id: u64, start_key_hash: u64, end_key_hash: u64) -> TabletRange {
        TabletRange {
            table_id,
            start_key_hash,
            end_key_hash,
        }
    }

    #[test]
    fn ranges_are_closed() {
        let mut tablets = Tablets::default();
        assert!(tablets.take(range(1, 10, 20)));
        assert!(tablets.take(range(1, 21, u64::MAX)));
        assert!(tablets.take(range(3, 0, 5)));
        let owned = |table, hash| tablets.owns(TableId(table), hash);
        assert!(!owned(1, 9) && owned(1, 10) && owned(1, 20) && owned(1, 21));
        assert!(owned(1, u64::MAX) && !owned(2, 15) && owned(3, 0) && !owned(3, 6));
        assert!(!owned(0, 0) && !owned(4, 0));
    }

    #[test]
    fn a_split_tablet_is_two() {
        let mut tablets = Tablets::default();
        assert!(tablets.take(range(1, 10, 20)));
        assert!(!tablets.split(TableId(1), 9) && !tablets.split(TableId(2), 15));
        assert!(tablets.split(TableId(1), 10));
        assert_eq!(tablets.all(), [range(1, 10, 20)]);
        assert!(tablets.split(TableId(1), 15) && tablets.split(TableId(1), 20));
        let parts = [range(1, 10, 14), range(1, 15, 19), range(1, 20, 20)];
        assert_eq!(tablets.all(), parts);
        assert_eq!(tablets.range_of(TableId(1), 19), Some(parts[1]));
        assert_eq!(tablets.range_of(TableId(1), 21), None);
        for (hash, what) in [(16, Use::Read), (17, Use::Write)] {
            assert_eq!(tablets.admit(TableId(1), hash, what), Ok(()));
        }
        let uses: Vec<_> = tablets.uses().map(|(_, uses)| uses).collect();
        assert_eq!(uses, [0, 2, 0]);
        tablets.drop_within(&parts[..1]);
        assert_eq!(tablets.uses().next(), Some((parts[1], 2)));
    }

    #[test]
    fn parts_that_are_all_of_a_tablet_become_one() {
        let mut tablets = Tablets::default();
        for part in [range(1, 10, 14), range(1, 15, 19), range(1, 20, u64::MAX)] {
            assert!(tablets.take(part));
            let first = TableId(1);
            assert_eq!(tablets.admit(first, part.start_key_hash, Use::Read), Ok(()));
        }
        assert!(tablets.take(range(2, 15, 20)));
        let others = [
            range(1, 10, 14),
            range(1, 10, 18),
            range(1, 11, 19),
            range(1, 0, 19),
            range(3, 10, 19),
        ];
        for other in others {
            assert!(!tablets.merge(&other), "{other:?}");
        }
        assert!(tablets.merge(&range(1, 10, 19)));
        assert_eq!(tablets.uses().next(), Some((range(1, 10, 19), 2)));
        assert!(tablets.merge(&range(1, 10, u64::MAX)));
        let uses: Vec<_> = tablets.uses().collect();
        assert_eq!(uses, [(range(1, 10, u64::MAX), 3), (range(2, 15, 20), 0)]);

        // What lies between is somebody else's.
        let mut tablets = Tablets::default();
        assert!(tablets.take(range(1, 0, 4)) && tablets.take(range(1, 6, 9)));
        assert!(!tablets.merge(&range(1, 0, 9)));
    }

    #[test]
    fn a_tablet_that_leaves_is_not_written_and_then_not_read() {
        let mut tablets = Tablets::default();
        let leaving = range(1, 10, 20);
        assert!(tablets.take(leaving) && tablets.take(range(1, 21, 30)));
        let ask = |tablets: &Tablets, hash| {
            [Use::Read, Use::Write].map(|what| tablets.admit(TableId(1), hash, what))
        };
        tablets.refuse(leaving, Use::Write);
        assert_eq!(ask(&tablets, 20), [Ok(()), Err(Status::Retry)]);
        assert!(tablets.admit(TableId(1), 20, Use::Scan).is_ok());
        tablets.refuse(leaving, Use::Read);
        assert_eq!(ask(&tablets, 20), [Err(Status::Retry); 2]);
        let scanned = tablets.admit(TableId(1), 20, Use::Scan);
        assert_eq!(scanned, Err(Status::Retry));
        assert_eq!(ask(&tablets, 21), [Ok(()); 2]);
        assert_eq!(ask(&tablets, 31), [Err(Status::UnknownTablet); 2]);
        tablets.refuse_nothing();
        assert_eq!(ask(&tablets, 20), [Ok(()); 2]);
    }

    #[test]
    fn overlaps_are_refused_and_repeats_are_fine() {
        let mut tablets = Tablets::default();
        assert!(tablets.take(range(1, 10, 20)));
        assert!(tablets.take(range(1, 10, 20)));
        assert!(!tablets.take(range(1, 20, 30)));
        assert!(!tablets.take(range(1, 30, 29)));
        assert_eq!(tablets.all().len(), 1);
        tablets.drop_within(&[range(1, 11, 20)]);
        assert_eq!(tablets.all().len(), 1);
        tablets.drop_within(&[range(1, 0, u64::MAX)]);
        assert!(tablets.all().is_empty());
    }

    #[test]
    fn many_are_taken_at_once_or_none() {
        let mut tablets = Tablets::default();
        assert!(tablets.take(range(2, 10, 20)));
        assert!(tablets.admit(TableId(2), 15, Use::Read).is_ok());
        assert!(!tablets.take_all(&[range(3, 0, 1), range(2, 20, 30)]));
        assert!(!tablets.take_all(&[range(3, 0, 5), range(3, 5, 6)]));
        assert!(!tablets.take_all(&[range(3, 7, 6)]));
        assert_eq!(tablets.all(), [range(2, 10, 20)]);
        let fresh = [
            range(2, 21, 30),
            range(1, 0, 9),
            range(2, 10, 20),
            range(2, 0, 9),
        ];
        assert!(tablets.take_all(&fresh));
        let all = [
            range(1, 0, 9),
            range(2, 0, 9),
            range(2, 10, 20),
            range(2, 21, 30),
        ];
        assert_eq!(tablets.all(), all);
        let uses: Vec<u64> = tablets.uses().map(|(_, uses)| uses).collect();
        assert_eq!(uses, [0, 0, 1, 0]);
        tablets.drop_within(&[range(1, 0, 9), range(2, 5, 30)]);
        assert_eq!(tablets.all(), [range(2, 0, 9)]);
    }

    #[test]
    fn ranges_that_overlap_become_one() {
        let ranges = vec![
            range(2, 5, 9),
            range(1, 8, 20),
            range(1, 0, 10),
            range(1, 3, 4),
            range(1, 21, 22),
        ];
        assert_eq!(
            joined(ranges),
            [range(1, 0, 20), range(1, 21, 22), range(2, 5, 9)]
        );
    }

    /// Tablets of two tables between these cuts, without those that are left out.
    fn between(cuts: &[(u64, u64)], left_out: &[bool]) -> Vec<TabletRange> {
        let mut ranges = Vec::new();
        for table_id in [1, 2] {
            let mut starts: Vec<u64> = cuts
                .iter()
                .filter(|cut| cut.0 == table_id)
                .map(|cut| cut.1)
                .collect();
            starts.push(0);
            starts.sort_unstable();
            starts.dedup();
            let ends = starts[1..].iter().map(|next| next - 1).chain([u64::MAX]);
            ranges.extend(
                starts
                    .iter()
                    .zip(ends)
                    .map(|(start, end)| range(table_id, *start, end)),
            );
        }
        let mut left_out = left_out.iter();
        ranges.retain(|_| !left_out.next().is_some_and(|is_out| *is_out));
        ranges
    }

    proptest::proptest! {
        /// All at once are cut and joined as one after the other.
        #[test]
        fn tablets_are_reshaped_as_by_splits_and_merges(
            owned in proptest::collection::vec((1..=2_u64, 0..24_u64), 0..16),
            missing in proptest::collection::vec(proptest::bool::weighted(0.2), 16),
            wanted in proptest::collection::vec((1..=2_u64, 0..24_u64), 0..16),
            foreign in proptest::collection::vec(proptest::bool::weighted(0.2), 16),
            asked in proptest::collection::vec((1..=2_u64, 0..24_u64), 0..40),
        ) {
            let wanted = between(&wanted, &foreign);
            let (mut at_once, mut in_turn) = (Tablets::default(), Tablets::default());
            for tablets in [&mut at_once, &mut in_turn] {
                for range in between(&owned, &missing) {
                    assert!(tablets.take(range));
                }
                for (table_id, hash) in &asked {
                    let _ = tablets.admit(TableId(*table_id), *hash, Use::Read);
                }
            }
            let mut joined = Vec::new();
            for tablet in &wanted {
                let table_id = TableId(tablet.table_id);
                in_turn.split(table_id, tablet.start_key_hash);
                if let Some(next) = tablet.end_key_hash.checked_add(1) {
                    in_turn.split(table_id, next);
                }
                if in_turn.merge(tablet) {
                    joined.push(*tablet);
                }
            }
            assert_eq!(at_once.reshape(&wanted), joined);
            assert_eq!(at_once.all(), in_turn.all());
            let all = |tablets: &Tablets| tablets.uses().map(|(_, uses)| uses).sum::<u64>();
            assert_eq!(all(&at_once), all(&in_turn));
        }
    }
}
