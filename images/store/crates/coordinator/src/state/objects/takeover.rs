//! Becoming the leader: reading the root, and writing one of the next term in its place. From then on nobody before can write.

use base::time::Time;

use super::call::{Call, Outbox, unexpected};
use super::format::Root;
use super::standing::Standing;
use super::swap::{Swap, Verdict};
use super::{
    Batch, ChunkId, Ending, Leadership, Name, ObjectResponse, Position, Request, RequestId,
    SEED_MARK, Settings, Version,
};

/// A leadership that has not begun yet.
#[derive(Debug)]
pub struct Takeover {
    step: Step,
    call: Call,
    /// The newest root seen of whoever is to be taken over from.
    former: Option<Position>,
    /// What had been heard of, and seemed to be lost, when the root was read again because of that.
    doubted: Option<Position>,
    /// What is wrong if there is no root: chunks were listed.
    orphans: Option<String>,
}

#[derive(Debug)]
enum Step {
    Read,
    /// There is no root: are there chunks?
    List,
    /// There is nothing: what is to be there?
    Seed,
    Write(Box<Swap>),
}

/// What an answer means.
#[derive(Debug)]
pub enum Progress {
    Open,
    /// This root is written: the leadership has begun.
    Leads(Box<Root>, Version),
    /// There are neither root nor chunks, and somebody else says what is to be there.
    Empty,
    Ended(Ending, String),
}

impl Takeover {
    pub fn new(now: Time) -> Takeover {
        Takeover {
            step: Step::Read,
            call: Call::new("read the root", now),
            former: None,
            doubted: None,
            orphans: None,
        }
    }

    pub fn call(&self) -> &Call {
        match &self.step {
            Step::Write(swap) => swap.call(),
            _ => &self.call,
        }
    }

    pub fn wake(&self) -> Time {
        match self.step {
            Step::Seed => Time::NEVER,
            _ => self.call().wake(),
        }
    }

    pub fn poll(&mut self, now: Time, out: &mut Outbox) {
        let request = match &mut self.step {
            Step::Write(swap) => return swap.poll(now, out),
            Step::Read => Request::Get(Name::Root),
            Step::List => Request::List { fresh: true },
            Step::Seed => return,
        };
        if self.call.is_due(now) {
            self.call.send(out, request);
        }
    }

    /// `heard`: the highest position that anybody was told. `None`: the answer is to something else.
    pub fn answered(
        &mut self,
        now: Time,
        id: RequestId,
        answer: &ObjectResponse,
        settings: &Settings,
        heard: Option<&Position>,
    ) -> Option<Progress> {
        if let Step::Write(swap) = &mut self.step {
            let verdict = swap.answered(now, id, answer)?;
            return Some(self.written(now, verdict, settings, heard));
        }
        if !self.call.takes(id) {
            return None;
        }
        let progress = match (&self.step, answer) {
            (Step::Read, ObjectResponse::Found(version, bytes)) => match Root::decode(bytes) {
                Ok(root) => self.found(now, version.clone(), root, settings, heard),
                Err(text) => Progress::Ended(Ending::Unreadable, text),
            },
            (Step::Read, ObjectResponse::NotFound) => self.missing(now, heard),
            (Step::List, ObjectResponse::Listed(chunks)) => self.listed(now, chunks, settings),
            (_, answer) => {
                self.call.fail(now, unexpected(answer));
                Progress::Open
            }
        };
        Some(progress)
    }

    /// There is no root.
    fn missing(&mut self, now: Time, heard: Option<&Position>) -> Progress {
        if self.former.is_some() {
            return Progress::Ended(Ending::Incomplete, gone());
        }
        if let Some(text) = self.orphans.take() {
            return Progress::Ended(Ending::Incomplete, text);
        }
        if let Some(heard) = heard {
            return self.doubt(now, heard, || {
                format!(
                    "members know of {}, and there is no root: put the objects back",
                    described(heard)
                )
            });
        }
        self.step = Step::List;
        self.call.succeed(now);
        Progress::Open
    }

    fn listed(&mut self, now: Time, chunks: &[ChunkId], settings: &Settings) -> Progress {
        if let Some(first) = chunks.first() {
            self.orphans = Some(format!(
                "the root is missing, but there are {} chunks of a state, such as {first}: put the root back from a backup; \
                 or, if what the store held is to be forgotten, delete the chunks",
                chunks.len()
            ));
            // Somebody else may have made the store since the root was looked for.
            self.step = Step::Read;
            self.call.succeed(now);
            return Progress::Open;
        }
        if settings.awaits_seed {
            self.step = Step::Seed;
            self.call.succeed(now);
            return Progress::Empty;
        }
        let position = Position {
            term: 1,
            nonce: settings.nonce,
            sequence: 1,
        };
        self.begin(
            now,
            Root {
                cluster_id: settings.new_cluster_id,
                position,
                past: Vec::new(),
                leader: settings.leader.clone(),
                runs: Vec::new(),
                tail: Batch::default(),
            },
        );
        Progress::Open
    }

    /// Makes the root of a store that somebody else knows of.
    pub fn seed(
        &mut self,
        now: Time,
        cluster_id: u64,
        position: Position,
        past: Vec<Leadership>,
        settings: &Settings,
    ) {
        let mut tail = Batch::default();
        tail.put(SEED_MARK.to_vec(), Some(Vec::new()));
        let root = Root {
            cluster_id,
            position,
            past,
            leader: settings.leader.clone(),
            runs: Vec::new(),
            tail,
        };
        self.begin(now, root);
    }

    fn begin(&mut self, now: Time, root: Root) {
        self.step = Step::Write(Box::new(Swap::new(root, None, now)));
    }

    /// Reads the root again: it may have been read before the members were told.
    fn doubt(&mut self, now: Time, heard: &Position, text: impl FnOnce() -> String) -> Progress {
        if self.doubted.replace(*heard) == Some(*heard) {
            return Progress::Ended(Ending::RolledBack, text());
        }
        self.step = Step::Read;
        self.call.succeed(now);
        Progress::Open
    }

    fn found(
        &mut self,
        now: Time,
        version: Version,
        root: Root,
        settings: &Settings,
        heard: Option<&Position>,
    ) -> Progress {
        if let Some(heard) = heard.filter(|heard| !root.covers(heard)) {
            return self.doubt(now, heard, || rolled_back(&root, heard));
        }
        if let Some(former) = self.former {
            match root.standing(&former) {
                Standing::Same => {}
                Standing::Later => return Progress::Ended(Ending::Deposed, deposed(&root)),
                Standing::Lost => {
                    return Progress::Ended(Ending::RolledBack, rolled_back(&root, &former));
                }
            }
        }
        self.former = Some(root.position);
        let next = root.succeed(settings.nonce, &settings.leader);
        let swap = Swap::new(next, Some((version, root.position)), now);
        self.step = Step::Write(Box::new(swap));
        Progress::Open
    }

    fn written(
        &mut self,
        now: Time,
        verdict: Verdict,
        settings: &Settings,
        heard: Option<&Position>,
    ) -> Progress {
        match verdict {
            Verdict::Open => Progress::Open,
            Verdict::Done(version) => match core::mem::replace(&mut self.step, Step::Read) {
                Step::Write(swap) => Progress::Leads(Box::new(swap.root), version),
                _ => Progress::Open,
            },
            // Somebody was faster with a new store.
            Verdict::Other(_, root) if self.former.is_none() => {
                Progress::Ended(Ending::Deposed, deposed(&root))
            }
            Verdict::Other(version, root) => self.found(now, version, *root, settings, heard),
            Verdict::Gone => Progress::Ended(Ending::Incomplete, gone()),
            Verdict::Unreadable(text) => Progress::Ended(Ending::Unreadable, text),
        }
    }
}

pub(crate) fn described(position: &Position) -> String {
    format!(
        "term {} ({:016x}), sequence {}",
        position.term, position.nonce, position.sequence
    )
}

pub(super) fn deposed(root: &Root) -> String {
    format!(
        "{:?} leads now, with {}: this process is to start anew, as a standby",
        root.leader,
        described(&root.position)
    )
}

pub(super) fn rolled_back(root: &Root, known: &Position) -> String {
    format!(
        "the root is of {}, which does not come of {}, of which others were told: the objects were put back to an older state. \
         Put the newer ones back; or stop all servers and start a new store",
        described(&root.position),
        described(known)
    )
}

pub(super) fn gone() -> String {
    "the root was deleted while it was in use: put it back from a backup".to_owned()
}
