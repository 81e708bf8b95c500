//! Leading: every commit is one swap of the root. Changes go into its tail, or into chunks first if they are long.

use std::collections::BTreeSet;

use base::time::Time;

use super::call::{Call, Outbox};
use super::chunks::{Namer, Pairs, Writing};
use super::format::{ChunkId, Root};
use super::look::{Look, Seen};
use super::standing::Standing;
use super::swap::{Swap, Verdict};
use super::sweep::{self, Sweep};
use super::takeover::{deposed, gone, rolled_back};
use super::{Batch, Ending, KeeperEffect, ObjectResponse, RequestId, Trouble, Tuning, Version};

/// A leadership under way.
#[derive(Debug)]
pub struct Lead {
    tuning: Tuning,
    namer: Namer,
    /// The newest root that is known to have been written, and its version.
    root: Root,
    version: Version,
    /// What it says.
    pairs: Pairs,
    /// Commits up to `last_commit` that are in no swap or delta yet.
    pending: Batch,
    last_commit: u64,
    committed: u64,
    swap: Option<Commit>,
    delta: Option<Delta>,
    base: Option<Base>,
    sweep: Sweep,
    /// At the root, when nothing was written for a while: each write looks at it as well.
    look: Look,
}

/// A swap on its way.
#[derive(Debug)]
struct Commit {
    swap: Swap,
    /// What it changes.
    batch: Batch,
    commits_to: u64,
    /// It leaves chunks out.
    drops_chunks: bool,
}

/// The tail and pending changes, as a run that the next root names instead.
#[derive(Debug)]
struct Delta {
    writing: Writing,
    batch: Batch,
    commits_to: u64,
}

/// The whole state, as a run that takes the place of the first so many. It is written while commits go on: it may hold older
/// values of what has changed since it was begun, and newer ones. All these changes stand in runs behind, or in the tail.
#[derive(Debug)]
struct Base {
    writing: Writing,
    covers: usize,
}

pub type End = (Ending, String);

impl Lead {
    pub fn new(root: Root, version: Version, pairs: Pairs, tuning: Tuning, now: Time) -> Lead {
        let namer = Namer {
            cluster_id: root.cluster_id,
            term: root.position.term,
            nonce: root.position.nonce,
            last_number: 0,
        };
        Lead {
            sweep: Sweep::new(tuning.sweep_interval, now),
            look: Look::new(now + tuning.look_interval),
            tuning,
            namer,
            root,
            version,
            pairs,
            pending: Batch::default(),
            last_commit: 0,
            committed: 0,
            swap: None,
            delta: None,
            base: None,
        }
    }

    pub fn root(&self) -> &Root {
        &self.root
    }

    pub fn commit(&mut self, changes: Batch) -> u64 {
        if !changes.is_empty() {
            self.pending.add(changes);
            self.last_commit += 1;
        }
        self.last_commit
    }

    pub fn troubles(&self) -> impl Iterator<Item = Trouble> {
        let swap = self.swap.iter().map(|commit| commit.swap.call());
        let delta = self.delta.iter().map(|delta| delta.writing.call());
        let base = self.base.iter().map(|base| base.writing.call());
        let calls = swap.chain(delta).chain(base).chain([self.look.call()]);
        calls.filter_map(Call::trouble).chain(self.sweep.trouble())
    }

    pub fn wake(&self) -> Time {
        let swap = self.swap.iter().map(|commit| commit.swap.call().wake());
        let delta = self.delta.iter().map(|delta| delta.writing.wake());
        let base = self.base.iter().map(|base| base.writing.wake());
        let look = self.swap.is_none().then(|| self.look.call().wake());
        let wakes = swap.chain(delta).chain(base).chain(look);
        let wakes = wakes.chain([self.sweep.wake()]);
        wakes.min().unwrap_or(Time::NEVER)
    }

    /// Sends whatever is due.
    pub fn poll(&mut self, now: Time, out: &mut Outbox) {
        if let Some(base) = &mut self.base {
            base.writing.poll(now, &mut self.namer, &self.pairs, out);
        }
        if self.swap.is_none() {
            self.swap = self.next_commit(now);
        }
        if let Some(delta) = &mut self.delta {
            delta.writing.poll(now, &mut self.namer, &self.pairs, out);
            if self.swap.is_none() {
                self.swap = self.next_commit(now);
            }
        }
        match &mut self.swap {
            Some(commit) => commit.swap.poll(now, out),
            None => self.look.poll(now, self.root.position, out),
        }
        self.sweep.poll(now, self.root.position, out);
    }

    /// The next root, if there is anything new to say and all chunks that it names are there.
    fn next_commit(&mut self, now: Time) -> Option<Commit> {
        let base_run = self.base.as_ref().and_then(|base| base.writing.finished());
        let delta_run = match &self.delta {
            Some(delta) => Some(delta.writing.finished()?.clone()),
            None => None,
        };
        if base_run.is_none() && delta_run.is_none() && self.pending.is_empty() {
            return None;
        }
        let former_tail = match delta_run {
            Some(_) => &Batch::default(),
            None => &self.root.tail,
        };
        let mut tail = former_tail.clone();
        tail.add(self.pending.clone());
        let fits = tail.bytes() <= self.tuning.tail_bytes;
        if !fits && base_run.is_none() && delta_run.is_none() {
            self.pending = Batch::default();
            self.delta = Some(Delta {
                writing: Writing::changes(&tail.to_changes(), self.tuning.chunk_bytes, now),
                batch: tail,
                commits_to: self.last_commit,
            });
            return None;
        }
        let (mut batch, mut commits_to) = (Batch::default(), self.committed);
        if let Some(delta) = self.delta.take() {
            (batch, commits_to) = (delta.batch, delta.commits_to);
        }
        if fits {
            batch.add(core::mem::take(&mut self.pending));
            commits_to = self.last_commit;
        } else {
            // What is pending comes next, as a run.
            tail = former_tail.clone();
        }
        let drops_chunks = base_run.is_some();
        let mut runs = self.root.runs.clone();
        if let Some(run) = base_run.cloned() {
            let covers = self.base.take().map_or(0, |base| base.covers);
            let run = (!run.chunks.is_empty()).then_some(run);
            runs.splice(..covers, run);
        }
        runs.extend(delta_run);
        let former = (self.version.clone(), self.root.position);
        Some(Commit {
            swap: Swap::new(self.root.next(runs, tail), Some(former), now),
            batch,
            commits_to,
            drops_chunks,
        })
    }

    /// An error: the leadership is over.
    pub fn answered(
        &mut self,
        now: Time,
        id: RequestId,
        answer: &ObjectResponse,
        out: &mut Outbox,
    ) -> Result<(), End> {
        let swap = self.swap.as_mut().map(|commit| &mut commit.swap);
        if let Some(verdict) = swap.and_then(|swap| swap.answered(now, id, answer)) {
            return self.swapped(now, verdict, out);
        }
        match self.look.answered(now, id, answer) {
            None => {}
            Some(Seen::Open) => return Ok(()),
            Some(Seen::Mine) => {
                self.look = Look::new(now + self.tuning.look_interval);
                return Ok(());
            }
            Some(Seen::Ended(ending, text)) => return Err((ending, text)),
        }
        let delta = self.delta.iter_mut().map(|delta| &mut delta.writing);
        let base = self.base.iter_mut().map(|base| &mut base.writing);
        for writing in delta.chain(base) {
            if let Some(result) = writing.answered(now, id, answer) {
                return result.map_err(|text| (Ending::Unreadable, text));
            }
        }
        match self.sweep.answered(now, id, answer, out) {
            None | Some(sweep::Progress::Open) => Ok(()),
            Some(sweep::Progress::Listed(chunks)) => {
                let garbage = self.garbage(chunks);
                self.sweep.delete(now, garbage, self.tuning.max_deletes);
                Ok(())
            }
            Some(sweep::Progress::Ended(ending, text)) => Err((ending, text)),
        }
    }

    /// Those of the chunks that no root names or ever will.
    fn garbage(&self, mut chunks: Vec<ChunkId>) -> Vec<ChunkId> {
        let named = self.named();
        let term = self.root.position.term;
        chunks.retain(|id| id.term <= term && !named.contains(id));
        chunks
    }

    /// Chunks that a root names or may come to name.
    fn named(&self) -> BTreeSet<ChunkId> {
        let swap = self
            .swap
            .iter()
            .flat_map(|commit| commit.swap.root.chunks());
        let in_roots = self.root.chunks().chain(swap).map(|chunk| chunk.id);
        let delta = self.delta.iter().flat_map(|delta| delta.writing.chunks());
        let base = self.base.iter().flat_map(|base| base.writing.chunks());
        in_roots.chain(delta).chain(base).collect()
    }

    fn swapped(&mut self, now: Time, verdict: Verdict, out: &mut Outbox) -> Result<(), End> {
        let known = self.root.position;
        match verdict {
            Verdict::Open => Ok(()),
            Verdict::Done(version) => {
                if let Some(commit) = self.swap.take() {
                    self.done(now, commit, version, out);
                }
                Ok(())
            }
            Verdict::Other(_, root) => Err(match root.standing(&known) {
                Standing::Same | Standing::Later => (Ending::Deposed, deposed(&root)),
                Standing::Lost => (Ending::RolledBack, rolled_back(&root, &known)),
            }),
            Verdict::Gone => Err((Ending::Incomplete, gone())),
            Verdict::Unreadable(text) => Err((Ending::Unreadable, text)),
        }
    }

    fn done(&mut self, now: Time, commit: Commit, version: Version, out: &mut Outbox) {
        self.root = commit.swap.root;
        self.version = version;
        self.look = Look::new(now + self.tuning.look_interval);
        commit.batch.apply_to(&mut self.pairs);
        if commit.commits_to > self.committed {
            self.committed = commit.commits_to;
            out.push(KeeperEffect::Committed(self.committed));
        }
        if commit.drops_chunks {
            self.sweep.expect_soon(now);
        }
        if self.base.is_none() && self.is_long() {
            self.base = Some(Base {
                writing: Writing::all_pairs(self.tuning.chunk_bytes, now),
                covers: self.root.runs.len(),
            });
        }
    }

    /// Whether to write the whole state anew.
    fn is_long(&self) -> bool {
        let Some((first, rest)) = self.root.runs.split_first() else {
            return false;
        };
        let rest_bytes: u64 = rest.iter().map(|run| run.bytes()).sum();
        rest_bytes > first.bytes().max(self.tuning.rewrite_bytes)
    }
}
