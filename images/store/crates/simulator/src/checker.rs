//! Is a history of operations on one key linearizable?
//!
//! The search is Wing and Gong's, with Lowe's memory of configurations that were seen: an operation may take effect at any
//! moment between its call and its return; one whose outcome nobody knows may take effect at any moment after its call, or
//! never. The model is one object with its version: it knows the reject rules, that an overwrite raises the version by
//! exactly one, and that a version never goes back, across removal, loss and re-creation.

use std::fmt;

use wire::map::{Map, Set};
use wire::rpc::RejectRules;
use wire::status::Status;

/// What an operation does. Values are numbers, each written by one operation only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    Read(RejectRules),
    Write(u64, RejectRules),
    Remove(RejectRules),
    /// The server crashed: the object is gone, the memory of its version must not be.
    Loss,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Of a read: version and value.
    Found(u64, u64),
    /// Of a write or a remove: the version written or removed (0: there was none).
    Done(u64),
    /// Refused by the rules (or a read of nothing), at this version (0: there is none).
    Refused(Status, u64),
    /// Nobody knows whether it took effect.
    Unknown,
    /// As unknown, but if it took effect, then before its return: the attempt that a crash swallowed.
    Maybe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    pub client: u32,
    pub input: Input,
    pub output: Output,
    pub call: u64,
    /// [`u64::MAX`] if it never returned or its outcome is unknown.
    pub end: u64,
}

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

/// The version of an object, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Version {
    Exactly(u64),
    /// Written by an operation whose outcome nobody saw.
    AtLeast(u64),
}

impl Version {
    fn is(self, version: u64) -> bool {
        match self {
            Version::Exactly(known) => known == version,
            Version::AtLeast(least) => version >= least,
        }
    }
    fn least(self) -> u64 {
        match self {
            Version::Exactly(version) | Version::AtLeast(version) => version,
        }
    }
    fn next(self) -> Version {
        match self {
            Version::Exactly(version) => Version::Exactly(version + 1),
            Version::AtLeast(least) => Version::AtLeast(least + 1),
        }
    }
}

/// One object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    object: Option<(Version, u64)>,
    /// The highest version that the key ever had, as far as it is known.
    floor: u64,
}

impl State {
    const START: State = State {
        object: None,
        floor: 0,
    };

    fn with(self, version: Version, value: u64) -> State {
        State {
            object: Some((version, value)),
            floor: self.floor.max(version.least()),
        }
    }

    fn gone(self) -> State {
        State {
            object: None,
            floor: self.floor,
        }
    }

    /// The state, now that the version is known; `None` if it cannot be this one. 0: there is no object.
    fn at(self, version: u64) -> Option<State> {
        match self.object {
            None => (version == 0).then_some(self),
            Some((known, value)) => (version > 0 && known.is(version))
                .then(|| self.with(Version::Exactly(version), value)),
        }
    }

    /// The state after this operation, if it can take effect here.
    fn after(self, input: Input, output: Output, shown: &Shown) -> Option<State> {
        match (input, output) {
            (Input::Loss, _) => Some(self.gone()),
            (_, Output::Unknown | Output::Maybe) => {
                self.blind(input).filter(|next| shown.allows(*next, input))
            }
            _ => self.seen(input, output),
        }
    }

    /// After an operation whose outcome is known.
    fn seen(self, input: Input, output: Output) -> Option<State> {
        match (input, output) {
            (Input::Read(rules), Output::Found(version, value)) => {
                let state = self.at(version)?;
                let (_, held) = state.object?;
                (held == value && rules.check(version).is_ok()).then_some(state)
            }
            (Input::Read(rules), Output::Refused(status, version)) => {
                let state = self.at(version)?;
                let expected = match version {
                    0 => Status::ObjectDoesntExist,
                    _ => rules.check(version).err()?,
                };
                (status == expected).then_some(state)
            }
            (Input::Write(_, rules) | Input::Remove(rules), Output::Refused(status, version)) => {
                let state = self.at(version)?;
                (rules.check(version) == Err(status)).then_some(state)
            }
            (Input::Write(value, rules), Output::Done(version)) => {
                if self.object.is_some() {
                    let before = self.at(version.checked_sub(1)?)?;
                    rules.check(version - 1).ok()?;
                    Some(before.with(Version::Exactly(version), value))
                } else {
                    rules.check(0).ok()?;
                    (version > self.floor).then(|| self.with(Version::Exactly(version), value))
                }
            }
            (Input::Remove(rules), Output::Done(version)) => {
                let state = self.at(version)?;
                rules.check(version).ok()?;
                Some(state.gone())
            }
            _ => None,
        }
    }

    /// After an operation that took effect unseen; `None` if the rules cannot have let it.
    fn blind(self, input: Input) -> Option<State> {
        let rules = match input {
            Input::Write(_, rules) | Input::Remove(rules) => rules,
            Input::Read(_) | Input::Loss => return None,
        };
        let version = match self.object {
            None => {
                rules.check(0).ok()?;
                None
            }
            Some((Version::Exactly(version), _)) => {
                rules.check(version).ok()?;
                Some(Version::Exactly(version))
            }
            Some((Version::AtLeast(least), _)) if rules.version_ne_given => {
                if rules.given_version < least {
                    return None;
                }
                rules.check(rules.given_version).ok()?;
                Some(Version::Exactly(rules.given_version))
            }
            Some((Version::AtLeast(least), _)) => {
                let least = if rules.version_le_given {
                    least.max(rules.given_version + 1)
                } else {
                    least
                };
                rules.check(least).ok()?;
                Some(Version::AtLeast(least))
            }
        };
        match (input, version) {
            (Input::Write(value, _), Some(version)) => Some(self.with(version.next(), value)),
            (Input::Write(value, _), None) => {
                Some(self.with(Version::AtLeast(self.floor + 1), value))
            }
            (_, Some(version)) => Some(self.with(version, 0).gone()),
            (_, None) => None,
        }
    }
}

/// What the whole history shows of versions. A version is given to one write only, so that whoever took effect unseen
/// cannot have been given one that is known to be another's; and where nobody saw a higher version or asked for one, it makes
/// no difference.
struct Shown {
    /// Which value each version has.
    values: Map<u64, u64>,
    highest: u64,
    /// Which versions each value was seen to have, and how often at most it was written.
    versions: Map<u64, (Vec<u64>, usize)>,
}

impl Shown {
    fn by(operations: &[Operation]) -> Shown {
        let mut shown = Shown {
            values: Map::default(),
            highest: 0,
            versions: Map::default(),
        };
        for operation in operations {
            if let Input::Write(value, _) = operation.input {
                shown.versions.entry(value).or_default().1 += 1;
            }
            if let Input::Write(_, rules) | Input::Remove(rules) = operation.input {
                // An unseen version can decide whether another unseen operation was let.
                shown.highest = shown.highest.max(rules.given_version + 1);
            }
            let (version, value) = match (operation.input, operation.output) {
                (Input::Write(value, _), Output::Done(version))
                | (_, Output::Found(version, value)) => (version, Some(value)),
                (_, Output::Done(version) | Output::Refused(_, version)) => (version, None),
                _ => continue,
            };
            shown.highest = shown.highest.max(version);
            if let Some(value) = value {
                shown.values.insert(version, value);
                let (seen, _) = shown.versions.entry(value).or_default();
                if !seen.contains(&version) {
                    seen.push(version);
                }
            }
        }
        shown
    }

    /// Whether an unseen operation can have led to this state.
    fn allows(&self, next: State, input: Input) -> bool {
        match (input, next.object) {
            (Input::Write(..), Some((Version::Exactly(version), value))) => {
                version <= self.highest
                    && self
                        .values
                        .get(&version)
                        .is_none_or(|shown| *shown == value)
            }
            _ => true,
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

impl Operation {
    /// The object's version that it showed; `None` if it showed none, or that there is no object.
    fn version(&self) -> Option<u64> {
        match self.output {
            Output::Found(version, _) | Output::Done(version) | Output::Refused(_, version) => {
                (version > 0).then_some(version)
            }
            Output::Unknown | Output::Maybe => None,
        }
    }

    /// Whether it surely took effect.
    fn is_mandatory(&self) -> bool {
        !matches!(self.output, Output::Unknown | Output::Maybe) || self.input == Input::Loss
    }
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

    /// A candidate that changes nothing, and fits: whatever linearization there is, it can as well come now. Only not if an
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

    fn explain(&self, node: &Node) -> String {
        let Node {
            done, state, count, ..
        } = node;
        let (operations, mandatory) = (self.operations, self.mandatory);
        let stuck = self.candidates(node);
        let mut text = format!(
            "{count} of {mandatory} operations can be explained; then the object is {}, and neither those marked * can follow nor any marked ?, which may have happened unseen\n",
            match state.object {
                None => format!("absent (its highest version was {})", state.floor),
                Some((Version::Exactly(version), value)) =>
                    format!("value {value} at version {version}"),
                Some((Version::AtLeast(least), value)) =>
                    format!("value {value} at version {least} or higher"),
            }
        );
        let is_unseen = |at: &&usize| !operations[**at].is_mandatory();
        for at in stuck.iter().filter(|at| !is_unseen(at)) {
            text.push_str(&format!("  * {}\n", operations[*at]));
        }
        for at in stuck.iter().filter(is_unseen).take(10) {
            text.push_str(&format!("  ? {}\n", operations[*at]));
        }
        text.push_str("before that, latest first:\n");
        let latest = (0..operations.len()).rev().filter(|at| done.contains(*at));
        for at in latest.take(20) {
            text.push_str(&format!("  + {}\n", operations[at]));
        }
        text
    }
}

/// Reject rules in words; nothing if there are none.
struct Rules(RejectRules);

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = &self.0;
        for (is_set, text) in [
            (rules.doesnt_exist, "absent"),
            (rules.exists, "present"),
            (rules.version_le_given, "version <="),
            (rules.version_ne_given, "version !="),
        ] {
            if is_set {
                write!(f, " unless {text}")?;
            }
        }
        if rules.version_le_given || rules.version_ne_given {
            write!(f, " {}", rules.given_version)?;
        }
        Ok(())
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match self.end {
            u64::MAX => "never".to_owned(),
            end => format!("{:.6}", end as f64 / 1e9),
        };
        write!(f, "{:>12.6} .. {end:>12} s  ", self.call as f64 / 1e9,)?;
        match self.input {
            Input::Loss => return f.write_str("the server crashes"),
            Input::Read(rules) => write!(f, "client {} reads{}", self.client, Rules(rules))?,
            Input::Write(value, rules) => {
                write!(f, "client {} writes {value}{}", self.client, Rules(rules))?;
            }
            Input::Remove(rules) => write!(f, "client {} removes{}", self.client, Rules(rules))?,
        }
        match self.output {
            Output::Found(version, value) => write!(f, ": value {value} at version {version}"),
            Output::Done(version) => write!(f, ": done, version {version}"),
            Output::Refused(status, version) => write!(f, ": {status}, version {version}"),
            Output::Unknown => f.write_str(": outcome unknown"),
            Output::Maybe => f.write_str(": an attempt before a crash"),
        }
    }
}

#[cfg(test)]
mod tests;
