//! Hash maps whose order is the same in every run, for crates that the simulator replays.

use foldhash::fast::FixedState;

/// A hash map with a fixed seed. Keys that a peer chooses freely belong into a `BTreeMap` instead: nothing here
/// defends against chosen collisions.
pub type Map<K, V> = hashbrown::HashMap<K, V, FixedState>;
/// A hash set with a fixed seed; see [`Map`].
pub type Set<K> = hashbrown::HashSet<K, FixedState>;
