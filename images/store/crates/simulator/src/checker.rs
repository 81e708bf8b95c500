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
    /// The search was given up after this many configurations.
    GaveUp(usize),
}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Linearizable => f.write_str("linearizable"),
            Verdict::Violation(text) => write!(f, "not linearizable:\n{text}"),
            Verdict::GaveUp(count) => write!(f, "gave up after {count} configurations"),
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

    /// States after this operation, if it can take effect here.
    fn after(self, input: Input, output: Output, shown: &Shown) -> Vec<State> {
        let unseen = || self.blind(input).filter(|next| shown.allows(*next, input));
        match (input, output) {
            (Input::Loss, _) => vec![self.gone()],
            (_, Output::Unknown) => unseen().into_iter().collect(),
            (_, Output::Maybe) => unseen().into_iter().chain([self]).collect(),
            _ => self.seen(input, output).into_iter().collect(),
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
/// cannot have been given one that is known to be another's; and where nobody saw a higher version, it makes no difference.
struct Shown {
    values: Map<u64, u64>,
    highest: u64,
}

impl Shown {
    fn by(operations: &[Operation]) -> Shown {
        let mut shown = Shown {
            values: Map::default(),
            highest: 0,
        };
        for operation in operations {
            let (version, value) = match (operation.input, operation.output) {
                (Input::Write(value, _), Output::Done(version))
                | (_, Output::Found(version, value)) => (version, Some(value)),
                (_, Output::Done(version) | Output::Refused(_, version)) => (version, None),
                _ => continue,
            };
            shown.highest = shown.highest.max(version);
            if let Some(value) = value {
                shown.values.insert(version, value);
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
    let mandatory = operations
        .iter()
        .filter(|operation| operation.end != u64::MAX)
        .count();
    let shown = Shown::by(&operations);
    let nothing = Done {
        first: 0,
        bits: Vec::new(),
    };
    let mut seen: Set<(Done, State)> = Set::default();
    let mut stack = vec![(nothing, State::START, 0usize)];
    let mut best: Option<(usize, Done, State)> = None;
    while let Some((done, state, count)) = stack.pop() {
        if count == mandatory {
            return Verdict::Linearizable;
        }
        if best.as_ref().is_none_or(|(most, ..)| count > *most) {
            best = Some((count, done.clone(), state));
        }
        if seen.len() >= max_configurations {
            return Verdict::GaveUp(seen.len());
        }
        // The last one pushed is tried first: those that return soonest.
        let mut candidates = candidates(&operations, &done);
        candidates.sort_by_key(|&at| std::cmp::Reverse(operations[at].end));
        for at in candidates {
            let operation = &operations[at];
            for next in state.after(operation.input, operation.output, &shown) {
                let next_done = done.with(at);
                if seen.insert((next_done.clone(), next)) {
                    let next_count = count + usize::from(operation.end != u64::MAX);
                    stack.push((next_done, next, next_count));
                }
            }
        }
    }
    let Some((count, done, state)) = best else {
        return Verdict::Linearizable;
    };
    Verdict::Violation(explain(&operations, mandatory, count, &done, state))
}

/// Operations that can be the next to take effect: called before any other that is left has returned.
fn candidates(operations: &[Operation], done: &Done) -> Vec<usize> {
    let mut found = Vec::new();
    let mut first_end = u64::MAX;
    for (at, operation) in operations.iter().enumerate().skip(done.first as usize) {
        if operation.call > first_end {
            break;
        }
        if done.contains(at) {
            continue;
        }
        first_end = first_end.min(operation.end);
        // Of several that are alike in everything, the first goes first.
        if at == 0 || operations[at - 1] != *operation || done.contains(at - 1) {
            found.push(at);
        }
    }
    found
}

fn explain(
    operations: &[Operation],
    mandatory: usize,
    count: usize,
    done: &Done,
    state: State,
) -> String {
    let stuck = candidates(operations, done);
    let first = stuck.first().copied().unwrap_or(0);
    let mut text = format!(
        "{count} of {mandatory} operations can be explained; then the object is {}, and none of those marked * can follow\n",
        match state.object {
            None => format!("absent (its highest version was {})", state.floor),
            Some((Version::Exactly(version), value)) =>
                format!("value {value} at version {version}"),
            Some((Version::AtLeast(least), value)) =>
                format!("value {value} at version {least} or higher"),
        }
    );
    for (at, operation) in operations
        .iter()
        .enumerate()
        .skip(first.saturating_sub(12))
        .take(30)
    {
        let mark = match (stuck.contains(&at), done.contains(at)) {
            (true, _) => '*',
            (_, true) => '+',
            _ => ' ',
        };
        text.push_str(&format!("  {mark} {operation}\n"));
    }
    text
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match self.end {
            u64::MAX => "never".to_owned(),
            end => format!("{:.6}", end as f64 / 1e9),
        };
        write!(
            f,
            "{:>12.6} .. {end:>12} s  client {}  {:?} -> {:?}",
            self.call as f64 / 1e9,
            self.client,
            self.input,
            self.output
        )
    }
}

#[cfg(test)]
mod tests;
