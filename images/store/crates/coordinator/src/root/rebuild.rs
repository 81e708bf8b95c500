//! A coordinator without state makes its store again from volumes; until then it serves nobody.

use base::time::Time;
use wire::member::{ToCoordinator, shard};

use crate::config::Config;
use crate::effects::CoordinatorEffects;
use crate::orders::{Surrender, SurrenderError};
use crate::records::Rebuilt;
use crate::reports::{RestoreError, StateEvent};
use crate::root::Coordinator;
use crate::state::Pair;
use crate::state::keeping::keepers_wanted;
use crate::state::rebuild::{ASK_AGAIN, Begins, FromVolumes, Rebuild, Verdict};

impl FromVolumes for Coordinator {
    fn restored(config: Config, pairs: Vec<Pair>, now: Time) -> Result<Coordinator, RestoreError> {
        Coordinator::restore(config, pairs, now)
    }

    fn places_of_backups(&self) -> Vec<(String, u32)> {
        self.store.members.places_of_backups()
    }

    fn keepers_wanted(&self) -> usize {
        keepers_wanted(&self.store.members)
    }
}

impl Coordinator {
    /// A coordinator that makes its store again from volumes; until then it serves nobody. `nonce` is random; `notes_term` as
    /// [`Coordinator::begin_term`] does.
    pub fn rebuilding(config: Config, nonce: u64, notes_term: bool, now: Time) -> Coordinator {
        let begins = Begins { nonce, notes_term };
        let rebuild = Rebuild::new(config.clone(), begins, now);
        let mut coordinator = Coordinator::new(config, now);
        let why = "Rebuilding: no volume has been heard of yet".to_owned();
        coordinator.leading.refuse(why);
        coordinator.rebuild = Some(Box::new(rebuild));
        coordinator
    }

    pub fn is_rebuilding(&self) -> bool {
        self.rebuild.is_some()
    }

    /// Somebody says that volumes that are waited for are gone for good. Holds for this coordinator alone: another one that makes the store again has
    /// to be told again.
    ///
    /// # Errors
    /// They are not waited for.
    pub fn give_up_volumes(&mut self, surrender: &Surrender) -> Result<(), SurrenderError> {
        let why = self.refusal().unwrap_or_default().to_owned();
        match &mut self.rebuild {
            Some(rebuild) => rebuild.give_up(surrender, why),
            None if why.is_empty() => Err(SurrenderError::NotRebuilding),
            None => Err(SurrenderError::DoesNotLead(why)),
        }
    }

    /// Writes to tablets that are brought back get this version at least; 0 while nothing was given up and the store was not made again.
    pub fn version_floor(&self) -> u64 {
        self.store.ledger.version_floor
    }

    /// A message while the store is being made again; false if it is not.
    pub(crate) fn rebuild_hears(
        &mut self,
        now: Time,
        connection: u64,
        message: &ToCoordinator,
        out: &mut impl CoordinatorEffects,
    ) -> bool {
        let Some(rebuild) = &mut self.rebuild else {
            return false;
        };
        match &message.kind {
            Some(shard::Kind::Hello(hello)) => rebuild.hello(now, connection, hello, out),
            Some(shard::Kind::CheckpointPart(part)) => rebuild.part(now, connection, part, out),
            // Messages from before this coordinator was there.
            _ => {}
        }
        true
    }

    /// Makes the store when that can be done; when to come again. `None`: nothing is being made again.
    pub(crate) fn tend_rebuild(
        &mut self,
        now: Time,
        out: &mut impl CoordinatorEffects,
    ) -> Option<Time> {
        let rebuild = self.rebuild.as_mut()?;
        rebuild.ask(now, out);
        match rebuild.judge(now, out) {
            Verdict::Wait(why) => {
                let event = StateEvent::Rebuilding { why };
                if self.leading.refuse(event.to_string()) {
                    out.report(event.into());
                }
            }
            Verdict::Enough(missing) => self.finish_rebuild(now, &missing, out),
        }
        Some(now + ASK_AGAIN)
    }

    fn finish_rebuild(&mut self, now: Time, missing: &[String], out: &mut impl CoordinatorEffects) {
        let rebuild = self.rebuild.take();
        let Some(finished) = rebuild.and_then(|rebuild| rebuild.finish(out)) else {
            return;
        };
        let (mut store, header) = (finished.store, finished.header);
        store.begin_again(now, &header, finished.begins, out);
        let given_up = finished.given_up;
        let given_up = missing.iter().filter(|name| given_up.contains(*name));
        store.leading.note_rebuilt(Rebuilt {
            cluster_time_ns: store.store.cluster_time_ns(now),
            checkpoint_term: header.position.term,
            checkpoint_number: header.number,
            without: missing.to_vec(),
            given_up: given_up.cloned().collect(),
        });
        let event = StateEvent::MadeAgain {
            checkpoint: header.id(),
            without: missing.to_vec(),
        };
        out.report(event.into());
        *self = *store;
    }
}
