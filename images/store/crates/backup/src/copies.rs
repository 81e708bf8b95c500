//! What is written again and again, so that no crash takes more than the last writing of it.
//!
//! Two places that are written in turn are not enough: until a sync has completed, the younger may be torn *and* the older may be the
//! one that is just being made durable. With three there is always one for what is durable, one for what a sync under way carries,
//! and one for what has been written since.

/// Places of a superblock or a header.
pub(crate) const PLACES: usize = 3;

/// Counts syncs, one at a time. What was written when `begun` was n is durable once sync n + 1 has completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Syncs {
    pub begun: u64,
    /// The last one that succeeded.
    pub completed: u64,
}

impl Syncs {
    /// After the sync with which a storage is opened: what was read from it is durable.
    pub const OPENED: Syncs = Syncs {
        begun: 1,
        completed: 1,
    };

    fn is_durable(&self, written: u64) -> bool {
        written < self.completed
    }
}

/// Which place holds what.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Copies {
    places: [CopySlot; PLACES],
    newest: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct CopySlot {
    /// 0: nothing that counts. The highest is the newest.
    sequence: u64,
    /// [`Syncs::begun`] when it was written.
    written: u64,
}

/// Written before a sync that failed: nobody knows what is there, and no later sync will tell.
const DISTRUSTED: u64 = u64::MAX;

impl Copies {
    /// As found: the sequence number in each place.
    pub fn found(sequences: [u64; PLACES]) -> Copies {
        let places = sequences.map(|sequence| CopySlot {
            sequence,
            written: 0,
        });
        let newest = (0..PLACES).max_by_key(|&place| sequences[place]);
        Copies {
            places,
            newest: newest.unwrap_or(0),
        }
    }

    pub fn sequence(&self) -> u64 {
        self.places[self.newest].sequence
    }

    pub fn newest_is_durable(&self, syncs: &Syncs) -> bool {
        syncs.is_durable(self.places[self.newest].written)
    }

    /// How many syncs must have been completed until no crash takes the newest.
    pub fn durable_after(&self) -> u64 {
        self.places[self.newest].written.saturating_add(1)
    }

    /// Takes the place for the next writing, and its sequence number.
    pub fn advance(&mut self, syncs: &Syncs) -> (usize, u64) {
        assert!(
            syncs.completed <= syncs.begun,
            "a sync ends that was never begun"
        );
        let place = self.next_place(syncs);
        assert_ne!(
            Some(place),
            self.newest_durable(syncs),
            "what is durable is not overwritten"
        );
        let sequence = self.sequence() + 1;
        self.places[place] = CopySlot {
            sequence,
            written: syncs.begun,
        };
        self.newest = place;
        (place, sequence)
    }

    /// Where the newest is, and its sequence number.
    pub fn newest_place(&self) -> (usize, u64) {
        (self.newest, self.sequence())
    }

    /// The newest was written once more where it is: twice, it would count as settled.
    pub fn again(&mut self, syncs: &Syncs) {
        self.places[self.newest].written = syncs.begun;
    }

    /// Neither what is durable nor what a sync carries.
    fn next_place(&self, syncs: &Syncs) -> usize {
        if self.places[self.newest].written == syncs.begun {
            return self.newest;
        }
        let durable = self.newest_durable(syncs);
        (0..PLACES)
            .find(|&place| place != self.newest && Some(place) != durable)
            .expect("of three places one is neither of two")
    }

    fn newest_durable(&self, syncs: &Syncs) -> Option<usize> {
        (0..PLACES)
            .filter(|&place| syncs.is_durable(self.places[place].written))
            .max_by_key(|&place| self.places[place].sequence)
    }

    /// The sync that carried it has failed.
    pub fn distrust(&mut self, syncs: &Syncs) {
        for place in &mut self.places {
            if !syncs.is_durable(place.written) {
                place.written = DISTRUSTED;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_the_durable_nor_the_carried_is_overwritten() {
        let mut syncs = Syncs::OPENED;
        let mut copies = Copies::default();
        let (first, sequence) = copies.advance(&syncs);
        assert_eq!(sequence, 1);
        assert_eq!(copies.advance(&syncs), (first, 2), "no sync has seen it");
        syncs.begun += 1;
        let (second, _) = copies.advance(&syncs);
        assert_ne!(second, first, "the sync carries it");
        assert_eq!(copies.advance(&syncs).0, second);
        assert!(!copies.newest_is_durable(&syncs));
        syncs.completed = syncs.begun;
        assert_eq!(copies.advance(&syncs).0, second, "written after its start");
        syncs.begun += 1;
        let (third, sequence) = copies.advance(&syncs);
        assert!(third != first, "the durable one");
        assert!(third != second, "the carried one");
        assert_eq!(sequence, 6);
        syncs.completed = syncs.begun;
        syncs.begun += 1;
        syncs.completed = syncs.begun;
        assert!(copies.newest_is_durable(&syncs));
        assert_ne!(copies.advance(&syncs).0, third);
    }

    #[test]
    fn what_a_failed_sync_carried_never_counts_as_durable() {
        let mut syncs = Syncs::OPENED;
        let mut copies = Copies::found([4, 6, 5]);
        assert_eq!(copies.sequence(), 6);
        assert!(copies.newest_is_durable(&syncs));
        let (carried, _) = copies.advance(&syncs);
        assert_ne!(carried, 1);
        syncs.begun += 1;
        copies.distrust(&syncs);
        let (again, _) = copies.advance(&syncs);
        assert!(again != 1 && again != carried);
        syncs.begun += 1;
        syncs.completed = syncs.begun;
        assert!(copies.newest_is_durable(&syncs));
        assert_ne!(copies.advance(&syncs).0, again);
    }
}
