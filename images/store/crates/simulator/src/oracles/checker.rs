//! Is a history of operations on one key linearizable?
//!
//! The search is Wing and Gong's, with Lowe's memory of configurations that were seen: an operation may take effect at any
//! moment between its call and its return; one whose outcome nobody knows may take effect at any moment after its call, or
//! never. The model is one object with its version: it knows the reject rules, that an overwrite raises the version by
//! exactly one (to the floor of versions, if the store was made again since the last), that a version never goes back, across
//! removal, loss and re-creation, and how to add.

mod model;
mod text;
mod types;

use std::fmt;

use base::map::Set;

use model::{Shown, State};
pub use types::{Addend, Content, Input, Keys, Operation, Output, Sight, Value};

#[derive(Clone, PartialEq, Eq)]
pub enum Verdict {
    Linearizable,
    /// The longest linearization that was found, and what none can explain.
    Violation(String),
    /// The search was given up after many configurations; how far it had come.
    GaveUp(String),
}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Linearizable => f.write_str("linearizable"),
            Verdict::Violation(text) => write!(f, "not linearizable:\n{text}"),
            Verdict::GaveUp(text) => write!(f, "the search was given up:\n{text}"),
        }
    }
}

/// Which operations have taken effect. Those before `first` all have.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Done {
    first: u32,
    /// Of the operations from `first` on.
    bits: Vec<u64>,
}

impl Done {
    fn contains(&self, at: usize) -> bool {
        let Some(offset) = at.checked_sub(self.first as usize) else {
            return true;
        };
        self.bits
            .get(offset / 64)
            .is_some_and(|word| word & (1 << (offset % 64)) != 0)
    }

    fn with(&self, at: usize) -> Done {
        let mut done = self.clone();
        let offset = at - self.first as usize;
        if done.bits.len() <= offset / 64 {
            done.bits.resize(offset / 64 + 1, 0);
        }
        done.bits[offset / 64] |= 1 << (offset % 64);
        while done.bits.first() == Some(&u64::MAX) {
            done.bits.remove(0);
            done.first += 64;
        }
        done
    }
}

/// Searches a linearization, looking at `max_configurations` at most.
pub fn check(history: &[Operation], max_configurations: usize) -> Verdict {
    let mut operations: Vec<Operation> = history.to_vec();
    operations.sort_by_key(|operation| (operation.call, operation.end));
    let search = Search::new(&operations);
    let nothing = Node {
        done: Done {
            first: 0,
            bits: Vec::new(),
        },
        state: State::START,
        count: 0,
        latest_call: 0,
    };
    let mut seen: Set<(Done, State)> = Set::default();
    let mut best = nothing.clone();
    let mut stack = vec![nothing];
    while let Some(node) = stack.pop() {
        if node.count == search.mandatory {
            return Verdict::Linearizable;
        }
        if node.count > best.count {
            best = node.clone();
        }
        if seen.len() >= max_configurations {
            break;
        }
        // The last one pushed is tried first: that of the lowest version, or else the one that returns soonest.
        let mut candidates = search.candidates(&node);
        if let Some(harmless) = search.harmless(&node, &candidates) {
            candidates = vec![harmless];
        }
        candidates.sort_by_key(|&at| {
            let operation = &operations[at];
            let version = operation.version().unwrap_or(u64::MAX);
            std::cmp::Reverse((version, operation.end))
        });
        for at in candidates {
            if let Some(next) = search.step(&node, at)
                && seen.insert((next.done.clone(), next.state))
            {
                stack.push(next);
            }
        }
    }
    let text = search.explain(&best);
    if seen.len() >= max_configurations {
        Verdict::GaveUp(text)
    } else {
        Verdict::Violation(text)
    }
}

/// How far a linearization has come.
#[derive(Clone)]
struct Node {
    done: Done,
    state: State,
    /// Of those that must take effect, how many have.
    count: usize,
    /// The latest call of those that have taken effect.
    latest_call: u64,
}

struct Search<'a> {
    operations: &'a [Operation],
    shown: Shown,
    /// Operations that must take effect.
    mandatory: usize,
    /// Those whose version is known, in order of it. Versions never go back, so they take effect in this order.
    by_version: Vec<(u64, usize)>,
}

impl<'a> Search<'a> {
    fn new(operations: &'a [Operation]) -> Search<'a> {
        let mut by_version: Vec<(u64, usize)> = operations
            .iter()
            .enumerate()
            .filter_map(|(at, operation)| Some((operation.version()?, at)))
            .collect();
        by_version.sort_unstable();
        Search {
            operations,
            shown: Shown::by(operations),
            mandatory: operations
                .iter()
                .filter(|operation| operation.is_mandatory())
                .count(),
            by_version,
        }
    }

    /// Operations that can be the next to take effect: called before any other that is left has returned.
    fn candidates(&self, node: &Node) -> Vec<usize> {
        let mut found = Vec::new();
        let mut first_end = u64::MAX;
        let from = node.done.first as usize;
        for (at, operation) in self.operations.iter().enumerate().skip(from) {
            if operation.call > first_end {
                break;
            }
            if node.done.contains(at) {
                continue;
            }
            if operation.is_mandatory() {
                first_end = first_end.min(operation.end);
            } else if operation.end < node.latest_call {
                continue;
            }
            // Of several that are alike in everything, the first goes first.
            let is_first =
                at == 0 || self.operations[at - 1] != *operation || node.done.contains(at - 1);
            if is_first {
                found.push(at);
            }
        }
        found
    }

    /// A candidate that changes nothing, and fits: whatever linearization there is, it can as well come now, for its output
    /// says that the object is as it is. (A crash says nothing: it may have to come later, to take an object.) Only not if an
    /// unseen attempt that ended before its call might still have to come first.
    fn harmless(&self, node: &Node, candidates: &[usize]) -> Option<usize> {
        candidates.iter().copied().find(|&at| {
            let operation = &self.operations[at];
            let is_in_time = || {
                candidates.iter().all(|&other| {
                    let other = &self.operations[other];
                    other.is_mandatory() || other.end >= operation.call
                })
            };
            operation.is_mandatory()
                && !operation.input.is_event()
                && self
                    .step(node, at)
                    .is_some_and(|next| next.state == node.state)
                && is_in_time()
        })
    }

    /// Where an operation leads, unless it leads nowhere.
    fn step(&self, node: &Node, at: usize) -> Option<Node> {
        let operation = &self.operations[at];
        let state = node
            .state
            .after(operation.input, operation.output, &self.shown)?;
        let next = Node {
            done: node.done.with(at),
            state,
            count: node.count + usize::from(operation.is_mandatory()),
            latest_call: node.latest_call.max(operation.call),
        };
        (state.floor <= self.lowest_version_left(&next.done)).then_some(next)
    }

    fn lowest_version_left(&self, done: &Done) -> u64 {
        self.by_version
            .iter()
            .find(|(_, at)| !done.contains(*at))
            .map_or(u64::MAX, |(version, _)| *version)
    }
}

#[cfg(test)]
mod tests;
