//! One leadership, from the first look at the root to its end.

use base::time::Time;

use super::call::{Call, Outbox};
use super::format::Root;
use super::lead::{End, Lead};
use super::load::{self, Load};
use super::look::{Look, Seen};
use super::takeover::{self, Takeover, rolled_back};
use super::{
    Batch, Ending, KeeperEffect, Leadership, ObjectResponse, Position, RequestId, Settings,
    Trouble, Version,
};
use crate::state::{Changes, Pair};

/// The state machine: after each event, take all effects. At most one write of the root is under way at any time; commits that
/// come meanwhile are in the next one together. It holds all pairs, beside whoever works with them.
#[derive(Debug)]
pub struct Keeper {
    settings: Settings,
    out: Outbox,
    phase: Phase,
    /// The highest position that others were told of.
    heard: Option<Position>,
    doubt: Option<Doubt>,
}

#[derive(Debug)]
enum Phase {
    New,
    Takeover(Takeover),
    Load(Load, Box<Root>, Version),
    Lead(Box<Lead>),
    Ended,
}

/// Something that cannot be if this process leads; so is it still the leader?
#[derive(Debug)]
struct Doubt {
    look: Look,
    /// How it ends if it is.
    ending: Ending,
    text: String,
}

impl Keeper {
    pub fn new(settings: Settings) -> Keeper {
        Keeper {
            settings,
            out: Outbox::default(),
            phase: Phase::New,
            heard: None,
            doubt: None,
        }
    }

    /// This process was elected: it takes over from whoever leads. Once.
    pub fn start(&mut self, now: Time) {
        if let Phase::New = self.phase {
            self.phase = Phase::Takeover(Takeover::new(now));
            self.poll(now);
        }
    }

    /// After [`KeeperEffect::Empty`]: begins this store, at a position of this leadership that came of `past`.
    pub fn seed(&mut self, now: Time, cluster_id: u64, position: Position, past: Vec<Leadership>) {
        if let Phase::Takeover(takeover) = &mut self.phase {
            takeover.seed(now, cluster_id, position, past, &self.settings);
        }
        self.poll(now);
    }

    /// Of this leadership.
    pub fn nonce(&self) -> u64 {
        self.settings.nonce
    }

    /// What came of a request. An answer that was not asked for is ignored.
    pub fn answered(&mut self, now: Time, id: RequestId, answer: ObjectResponse) {
        let result = match self.answer_doubt(now, id, &answer) {
            Some(result) => result,
            None => self.answer_phase(now, id, &answer),
        };
        if let Err((ending, text)) = result {
            self.end(ending, text);
        }
        self.poll(now);
    }

    /// Changes that are to be durable together, after those of all calls before. Its number comes as [`KeeperEffect::Committed`], or a
    /// higher one; of no changes, it is the number of the commit before. Once the leadership is over it never comes.
    ///
    /// # Panics
    /// [`KeeperEffect::Loaded`] has not come out yet.
    pub fn commit(&mut self, now: Time, changes: Changes) -> u64 {
        let number = match &mut self.phase {
            Phase::Lead(lead) => lead.commit(Batch::from(changes)),
            Phase::Ended => return u64::MAX,
            _ => panic!("nothing is committed before the state is loaded"),
        };
        self.poll(now);
        number
    }

    /// Somebody was told, by whoever led then, that the root at this position was written. If the objects do not go back to it,
    /// this ends with [`Ending::RolledBack`].
    pub fn heard_of(&mut self, now: Time, position: Position) {
        let order = |position: &Position| (position.term, position.sequence);
        if self
            .heard
            .is_none_or(|heard| order(&position) > order(&heard))
        {
            self.heard = Some(position);
        }
        self.check(now, position);
        self.poll(now);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Time) {
        self.poll(now);
    }

    /// When [`Keeper::tick`] is needed if nothing happens before: [`Time::NEVER`] if not at all.
    pub fn next_wake(&self) -> Time {
        let phase = match &self.phase {
            Phase::New | Phase::Ended => Time::NEVER,
            Phase::Takeover(takeover) => takeover.wake(),
            Phase::Load(load, ..) => load.wake(),
            Phase::Lead(lead) => lead.wake(),
        };
        let doubt = self.doubt.iter().map(|doubt| doubt.look.call().wake());
        doubt.fold(phase, Time::min)
    }

    /// What comes next; `None`: nothing until the next event.
    pub fn take_effect(&mut self) -> Option<KeeperEffect> {
        self.out.pop()
    }

    /// The newest root that this leadership has written: what others are told of. `None`: it does not lead.
    pub fn position(&self) -> Option<Position> {
        Some(self.root()?.position)
    }

    /// Whether something was heard that cannot be while this process leads: until the root was looked at, nobody is to be let in.
    pub fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// What does not get on, since when, and why; most of all it is the API server that is away.
    pub fn troubles(&self) -> Vec<Trouble> {
        let doubt = self.doubt.iter().map(|doubt| doubt.look.call());
        let doubt = doubt.filter_map(Call::trouble);
        let phase: Vec<Trouble> = match &self.phase {
            Phase::New | Phase::Ended => Vec::new(),
            Phase::Takeover(takeover) => takeover.call().trouble().into_iter().collect(),
            Phase::Load(load, ..) => load.call().trouble().into_iter().collect(),
            Phase::Lead(lead) => lead.troubles().collect(),
        };
        doubt.chain(phase).collect()
    }

    fn root(&self) -> Option<&Root> {
        match &self.phase {
            Phase::Load(_, root, _) => Some(root),
            Phase::Lead(lead) => Some(lead.root()),
            Phase::New | Phase::Takeover(_) | Phase::Ended => None,
        }
    }

    fn poll(&mut self, now: Time) {
        let own = self.position();
        if let (Some(doubt), Some(own)) = (&mut self.doubt, own) {
            doubt.look.poll(now, own, &mut self.out);
        }
        match &mut self.phase {
            Phase::New | Phase::Ended => {}
            Phase::Takeover(takeover) => takeover.poll(now, &mut self.out),
            Phase::Load(load, ..) => load.poll(now, &mut self.out),
            Phase::Lead(lead) => lead.poll(now, &mut self.out),
        }
    }

    /// Looks at the root again if it should not be what it seems to be.
    fn check(&mut self, now: Time, heard: Position) {
        let Some(root) = self.root().filter(|root| !root.covers(&heard)) else {
            return;
        };
        let text = rolled_back(root, &heard);
        self.doubt_root(now, Ending::RolledBack, text);
    }

    fn doubt_root(&mut self, now: Time, ending: Ending, text: String) {
        self.doubt.get_or_insert_with(|| Doubt {
            look: Look::new(now),
            ending,
            text,
        });
    }

    /// `None`: the answer is to something else.
    fn answer_doubt(
        &mut self,
        now: Time,
        id: RequestId,
        answer: &ObjectResponse,
    ) -> Option<Result<(), End>> {
        let doubt = self.doubt.as_mut()?;
        Some(match doubt.look.answered(now, id, answer)? {
            Seen::Open => Ok(()),
            Seen::Mine => Err((doubt.ending, doubt.text.clone())),
            Seen::Ended(ending, text) => Err((ending, text)),
        })
    }

    fn answer_phase(
        &mut self,
        now: Time,
        id: RequestId,
        answer: &ObjectResponse,
    ) -> Result<(), End> {
        match &mut self.phase {
            Phase::New | Phase::Ended => Ok(()),
            Phase::Takeover(takeover) => {
                let heard = self.heard.as_ref();
                match takeover.answered(now, id, answer, &self.settings, heard) {
                    None | Some(takeover::Progress::Open) => Ok(()),
                    Some(takeover::Progress::Leads(root, version)) => {
                        let load = Load::new(&root, self.settings.tuning.max_reads, now);
                        self.phase = Phase::Load(load, root, version);
                        if let Some(heard) = self.heard {
                            self.check(now, heard);
                        }
                        self.lead_if_loaded(now)
                    }
                    Some(takeover::Progress::Empty) => {
                        self.out.push(KeeperEffect::Empty);
                        Ok(())
                    }
                    Some(takeover::Progress::Ended(ending, text)) => Err((ending, text)),
                }
            }
            Phase::Load(load, ..) => match load.answered(now, id, answer) {
                None | Some(load::Progress::Open) => self.lead_if_loaded(now),
                Some(load::Progress::Missing(ending, text)) => {
                    self.doubt_root(now, ending, text);
                    Ok(())
                }
            },
            Phase::Lead(lead) => lead.answered(now, id, answer, &mut self.out),
        }
    }

    fn lead_if_loaded(&mut self, now: Time) -> Result<(), End> {
        if !matches!(&self.phase, Phase::Load(load, ..) if load.is_finished())
            || self.doubt.is_some()
        {
            return Ok(());
        }
        let Phase::Load(load, root, version) = core::mem::replace(&mut self.phase, Phase::Ended)
        else {
            return Ok(());
        };
        let pairs = load
            .pairs(&root)
            .map_err(|text| (Ending::Unreadable, text))?;
        self.out.push(KeeperEffect::Loaded {
            cluster_id: root.cluster_id,
            pairs: pairs
                .iter()
                .map(|(key, value)| Pair {
                    key: key.clone(),
                    value: value.clone(),
                })
                .collect(),
        });
        let tuning = self.settings.tuning.clone();
        self.phase = Phase::Lead(Box::new(Lead::new(*root, version, pairs, tuning, now)));
        Ok(())
    }

    fn end(&mut self, ending: Ending, text: String) {
        self.phase = Phase::Ended;
        self.doubt = None;
        self.out.push(KeeperEffect::Ended(ending, text));
    }
}
