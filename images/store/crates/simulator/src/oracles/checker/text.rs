//! Operations and verdicts in words.

use std::fmt;

use wire::rpc::RejectRules;

use super::model::Version;
use super::{Addend, Content, Input, Keys, Node, Operation, Output, Search, Sight, Value};

impl Search<'_> {
    /// How far a linearization came, and what stands against going on.
    pub(super) fn explain(&self, node: &Node) -> String {
        let Node {
            done, state, count, ..
        } = node;
        let (operations, mandatory) = (self.operations, self.mandatory);
        let stuck = self.candidates(node);
        let mut text = format!(
            "{count} of {mandatory} operations can be explained; then the object is {}, and neither those marked * can follow nor any marked ?, which may have happened unseen\n",
            match state.object {
                None => format!("absent (its highest version was {})", state.floor),
                Some((Version::Exactly(version), value)) => format!("{value} at version {version}"),
                Some((Version::AtLeast(least), value)) =>
                    format!("{value} at version {least} or higher"),
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

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Number(number) => write!(f, "number {number:#x}"),
            Content::Text(text) => write!(f, "value {text}"),
        }
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Keys::One => Ok(()),
            Keys::Of(number) => write!(f, " with the keys of {number}"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.content, self.keys)
    }
}

impl fmt::Display for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.content {
            Some(content) => content.fmt(f)?,
            None => f.write_str("an object")?,
        }
        self.keys.map_or(Ok(()), |keys| keys.fmt(f))
    }
}

impl fmt::Display for Addend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match f64::from_bits(self.double) {
            0.0 => write!(f, "{:#x}", self.int64),
            double => write!(f, "{:#x} and then {double:?} as a double", self.int64),
        }
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
            Input::Rebuild(least_next) => {
                return write!(
                    f,
                    "the store is made again, with versions from {least_next} on"
                );
            }
            Input::Read(rules) => write!(f, "client {} reads{}", self.client, Rules(rules))?,
            Input::Write(value, rules) => {
                write!(f, "client {} writes {value}{}", self.client, Rules(rules))?;
            }
            Input::Increment(addend, rules) => {
                write!(f, "client {} adds {addend}{}", self.client, Rules(rules))?;
            }
            Input::Remove(rules) => write!(f, "client {} removes{}", self.client, Rules(rules))?,
        }
        match self.output {
            Output::Found(version, sight) => write!(f, ": {sight} at version {version}"),
            Output::Incremented(version, sum) => {
                write!(f, ": number {sum:#x}, version {version}")
            }
            Output::Done(version) => write!(f, ": done, version {version}"),
            Output::Refused(status, version) => write!(f, ": {status}, version {version}"),
            Output::Unknown => f.write_str(": outcome unknown"),
            Output::Maybe => f.write_str(": an attempt before a crash"),
        }
    }
}
