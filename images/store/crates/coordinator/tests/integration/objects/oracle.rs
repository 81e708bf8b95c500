//! What must hold, whatever happens: checked whenever an object changes, and whenever a leader says something.

use std::collections::BTreeMap;

use coordinator::state::Changes;
use coordinator::state::objects::{Ending, Position};

use coordinator::state::objects::testing::{ApiServer, Change, Pairs, apply};

/// The pair that every commit changes: its value is the leadership's nonce and the commit's number.
pub const MARKER: &[u8] = b"last commit";

pub fn marker(nonce: u64, number: u64) -> Vec<u8> {
    [nonce.to_le_bytes(), number.to_le_bytes()].concat()
}

/// What is known of a leadership that has begun.
#[derive(Clone, Debug)]
struct Leadership {
    /// The state that it found.
    found: Pairs,
    /// Commits that are durable, and the state with them.
    durable: u64,
    state: Pairs,
}

/// The store's history as its root tells it.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    newest: Option<Position>,
    /// By nonce.
    leaderships: BTreeMap<u64, Leadership>,
    /// All roots since the beginning, without those that were rolled back.
    chain: Vec<Position>,
    was_rolled_back: bool,
}

impl Oracle {
    pub fn newest(&self) -> Option<Position> {
        self.newest
    }

    /// Whether the present root goes back to this one.
    pub fn has(&self, position: &Position) -> bool {
        let at = usize::try_from(position.sequence).unwrap() - 1;
        self.chain.get(at) == Some(position)
    }

    pub fn roll_back_to(&mut self, snapshot: Oracle) {
        *self = snapshot;
        self.was_rolled_back = true;
    }

    /// `asked`: all commits that a leadership was asked for, by nonce.
    pub fn changed(
        &mut self,
        server: &ApiServer,
        change: &Change,
        asked: &BTreeMap<u64, Vec<Changes>>,
    ) -> Result<(), String> {
        match change {
            Change::Nothing | Change::Created(_) => Ok(()),
            Change::Root => self.root_written(server, asked),
            Change::Deleted(id) => {
                let root = server.root().ok_or("the root is gone")?;
                match root.chunks().any(|chunk| chunk.id == *id) {
                    true => Err(format!("{id} was deleted, and the root names it")),
                    false => Ok(()),
                }
            }
        }
    }

    fn root_written(
        &mut self,
        server: &ApiServer,
        asked: &BTreeMap<u64, Vec<Changes>>,
    ) -> Result<(), String> {
        let at = server.root().ok_or("the root is gone")?.position;
        let former = self.newest.unwrap_or(Position {
            term: 0,
            nonce: 0,
            sequence: 0,
        });
        if at.sequence != former.sequence + 1 {
            return Err(format!("{at:?} was written over {former:?}"));
        }
        let state = server.state()?;
        if (at.term, at.nonce) == (former.term, former.nonce) {
            let leadership = self.leaderships.get_mut(&at.nonce).ok_or("unknown")?;
            leadership.advance(at.nonce, state, &asked[&at.nonce])?;
        } else {
            let found = self.leaderships.get(&former.nonce);
            let expected = found.map(|leadership| leadership.state.clone());
            if at.term != former.term + 1 {
                return Err(format!("{at:?} was written over {former:?}"));
            }
            if expected.unwrap_or_default() != state {
                return Err(format!(
                    "the state is another with the first root of {at:?}"
                ));
            }
            let leadership = Leadership {
                found: state.clone(),
                durable: 0,
                state,
            };
            self.leaderships.insert(at.nonce, leadership);
        }
        self.newest = Some(at);
        self.chain.push(at);
        Ok(())
    }

    pub fn loaded(&self, nonce: u64, pairs: &Pairs) -> Result<(), String> {
        let leadership = self.leaderships.get(&nonce);
        // If its root was rolled back since, it will find out.
        let Some(leadership) = leadership else {
            return match self.was_rolled_back {
                true => Ok(()),
                false => Err("loaded before its first root was written".to_owned()),
            };
        };
        match leadership.found == *pairs {
            true => Ok(()),
            false => Err(format!(
                "leader {nonce} loaded {} pairs that are not the {} that were there",
                pairs.len(),
                leadership.found.len()
            )),
        }
    }

    pub fn committed(&self, nonce: u64, number: u64) -> Result<(), String> {
        let leadership = self.leaderships.get(&nonce);
        let durable = leadership.map_or(0, |leadership| leadership.durable);
        match number <= durable {
            true => Ok(()),
            false => Err(format!(
                "leader {nonce} reported commit {number}, and durable is {durable}"
            )),
        }
    }

    pub fn ended(&self, nonce: u64, ending: Ending, text: &str) -> Result<(), String> {
        let is_newest = self.newest.is_some_and(|newest| newest.nonce == nonce);
        let is_right = match ending {
            Ending::Deposed => !is_newest,
            Ending::RolledBack => self.was_rolled_back,
            // Nobody deletes or damages anything here.
            Ending::Incomplete | Ending::Unreadable | Ending::NewerFormat => false,
        };
        match is_right {
            true => Ok(()),
            false => Err(format!("leader {nonce} ended with {ending:?}: {text}")),
        }
    }
}

impl Leadership {
    /// The root holds this state now: it is what was found with so many commits, all of each.
    fn advance(&mut self, nonce: u64, state: Pairs, asked: &[Changes]) -> Result<(), String> {
        let marked = state
            .get(MARKER)
            .filter(|value| value[..8] == nonce.to_le_bytes());
        let number = match marked {
            Some(value) => u64::from_le_bytes(value[8..].try_into().unwrap()),
            None => 0,
        };
        if number < self.durable || number > asked.len() as u64 {
            return Err(format!(
                "commit {number} of leader {nonce} is the last one now, and was {}",
                self.durable
            ));
        }
        for changes in &asked[self.durable as usize..number as usize] {
            apply(changes, &mut self.state);
        }
        self.durable = number;
        match self.state == state {
            true => Ok(()),
            false => Err(format!(
                "the state is not what leader {nonce}'s commits up to {number} make"
            )),
        }
    }
}
