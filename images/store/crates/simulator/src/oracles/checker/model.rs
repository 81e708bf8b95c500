//! One object: what each operation makes of it, and what it shows.

use base::map::Map;
use wire::rpc::RejectRules;
use wire::status::Status;

use super::types::{Addend, Content, Input, Keys, Operation, Output, Sight, Value};

/// The version of an object, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Version {
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
    fn next(self, least_next: u64) -> Version {
        match self {
            Version::Exactly(version) => Version::Exactly(least_next.max(version + 1)),
            Version::AtLeast(least) => Version::AtLeast(least_next.max(least + 1)),
        }
    }
}

impl Value {
    /// Whether this is what somebody saw.
    fn looks_like(self, sight: Sight) -> bool {
        sight.content.is_none_or(|content| content == self.content)
            && sight.keys.is_none_or(|keys| keys == self.keys)
    }

    /// What an increment makes of it; `None` if it is not a number.
    fn plus(self, addend: Addend) -> Option<Value> {
        match self.content {
            Content::Number(number) => Some(Value::number(addend.applied_to(number))),
            Content::Text(_) => None,
        }
    }
}

/// One object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub object: Option<(Version, Value)>,
    /// The highest version that the key ever had, as far as it is known.
    pub floor: u64,
    /// What is written from now on gets this version at least.
    pub least_next: u64,
}

impl State {
    pub const START: State = State {
        object: None,
        floor: 0,
        least_next: 0,
    };

    fn with(self, version: Version, value: Value) -> State {
        State {
            object: Some((version, value)),
            floor: self.floor.max(version.least()),
            ..self
        }
    }

    fn gone(self) -> State {
        State {
            object: None,
            ..self
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

    /// What an increment stores here; `None` if it refuses.
    fn sum(self, addend: Addend) -> Option<Value> {
        let value = self.object.map_or(Value::number(0), |(_, value)| value);
        value.plus(addend)
    }

    /// The state after this operation, if it can take effect here.
    pub fn after(self, input: Input, output: Output, shown: &Shown) -> Option<State> {
        match (input, output) {
            (Input::Loss, _) => Some(self.gone()),
            (Input::Rebuild(least_next), _) => Some(State { least_next, ..self }),
            (_, Output::Unknown | Output::Maybe) => {
                self.blind(input).filter(|next| shown.allows(*next, input))
            }
            _ => self.seen(input, output),
        }
    }

    /// After an operation whose outcome is known.
    fn seen(self, input: Input, output: Output) -> Option<State> {
        match (input, output) {
            (Input::Read(rules), Output::Found(version, sight)) => {
                let state = self.at(version)?;
                let (_, held) = state.object?;
                (held.looks_like(sight) && rules.check(version).is_ok()).then_some(state)
            }
            (Input::Read(rules), Output::Refused(status, version)) => {
                let state = self.at(version)?;
                let expected = match version {
                    0 => Status::ObjectDoesntExist,
                    _ => rules.check(version).err()?,
                };
                (status == expected).then_some(state)
            }
            (Input::Increment(addend, rules), Output::Refused(Status::InvalidObject, version)) => {
                let state = self.at(version)?;
                (rules.check(version).is_ok() && state.sum(addend).is_none()).then_some(state)
            }
            (
                Input::Write(_, rules) | Input::Remove(rules) | Input::Increment(_, rules),
                Output::Refused(status, version),
            ) => {
                let state = self.at(version)?;
                (rules.check(version) == Err(status)).then_some(state)
            }
            (Input::Write(value, rules), Output::Done(version)) => {
                self.written(version, value, rules)
            }
            (Input::Increment(addend, rules), Output::Incremented(version, sum)) => {
                let value = self.sum(addend)?;
                let is_right = value.content == Content::Number(sum);
                is_right.then(|| self.written(version, value, rules))?
            }
            (Input::Remove(rules), Output::Done(version)) => {
                let state = self.at(version)?;
                rules.check(version).ok()?;
                Some(state.gone())
            }
            _ => None,
        }
    }

    /// After a write that got this version.
    fn written(self, version: u64, value: Value, rules: RejectRules) -> Option<State> {
        if version < self.least_next {
            return None;
        }
        if let Some((known, _)) = self.object {
            // The least that there may be is given to whatever was below it.
            let former = match known {
                Version::Exactly(former) if version == self.least_next => former,
                Version::AtLeast(_) if version == self.least_next && rules.version_ne_given => {
                    rules.given_version
                }
                _ => version.checked_sub(1)?,
            };
            let before = self.at(former)?;
            rules.check(former).ok()?;
            (former < version).then(|| before.with(Version::Exactly(version), value))
        } else {
            rules.check(0).ok()?;
            (version > self.floor).then(|| self.with(Version::Exactly(version), value))
        }
    }

    /// After an operation that took effect unseen; `None` if it cannot have.
    fn blind(self, input: Input) -> Option<State> {
        let rules = match input {
            Input::Write(_, rules) | Input::Remove(rules) | Input::Increment(_, rules) => rules,
            Input::Read(_) | Input::Loss | Input::Rebuild(_) => return None,
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
        let stored = match input {
            Input::Write(value, _) => value,
            Input::Increment(addend, _) => self.sum(addend)?,
            _ => {
                let (_, value) = self.object?;
                return Some(self.with(version?, value).gone());
            }
        };
        let least_next = self.least_next;
        let first = Version::AtLeast(least_next.max(self.floor + 1));
        let next = version.map_or(first, |version| version.next(least_next));
        Some(self.with(next, stored))
    }
}

/// What the whole history shows of versions. A version is given to one write only, so that whoever took effect unseen
/// cannot have been given one that is known to be another's; and where nobody saw a higher version or asked for one, it makes
/// no difference.
pub(super) struct Shown {
    /// What is known of the object at each version.
    sights: Map<u64, Sight>,
    highest: u64,
}

impl Shown {
    pub fn by(operations: &[Operation]) -> Shown {
        let mut shown = Shown {
            sights: Map::default(),
            highest: 0,
        };
        for operation in operations {
            if let Input::Write(_, rules) | Input::Remove(rules) | Input::Increment(_, rules) =
                operation.input
            {
                // An unseen version can decide whether another unseen operation was let.
                shown.highest = shown.highest.max(rules.given_version + 1);
            }
            let (version, sight) = match (operation.input, operation.output) {
                (Input::Write(value, _), Output::Done(version)) => (version, value.into()),
                (_, Output::Found(version, sight)) => (version, sight),
                (_, Output::Incremented(version, sum)) => (version, Value::number(sum).into()),
                (_, Output::Done(version) | Output::Refused(_, version)) => {
                    (version, Sight::default())
                }
                _ => continue,
            };
            shown.highest = shown.highest.max(version);
            let known = shown.sights.entry(version).or_default();
            known.content = known.content.or(sight.content);
            known.keys = known.keys.or(sight.keys);
        }
        shown
    }

    /// Whether an unseen operation can have led to this state.
    fn allows(&self, next: State, input: Input) -> bool {
        match (input, next.object) {
            (Input::Write(..) | Input::Increment(..), Some((Version::Exactly(version), value))) => {
                version <= self.highest
                    && self
                        .sights
                        .get(&version)
                        .is_none_or(|sight| value.looks_like(*sight))
            }
            _ => true,
        }
    }
}

impl From<Value> for Sight {
    fn from(value: Value) -> Sight {
        Sight {
            content: Some(value.content),
            keys: Some(value.keys),
        }
    }
}

impl Value {
    /// 8 bytes under one key.
    pub fn number(number: u64) -> Value {
        Value {
            content: Content::Number(number),
            keys: Keys::One,
        }
    }
}
