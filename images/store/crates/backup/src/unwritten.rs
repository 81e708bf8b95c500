//! Answers that say that something is written, before it is.

use std::collections::VecDeque;

use base::ids::{ReplyTo, ServerId};
use wire::peer::{Answer, Status};

use crate::effects::BackupEffects;
use crate::fences::Fences;

/// An answer that leaves when writes have ended.
pub(crate) struct Waiting {
    pub after: u64,
    pub to: ReplyTo,
    pub log: ServerId,
    pub bytes: u32,
}

/// Answers that say that something is written, before it is; in the order of their writes.
#[derive(Default)]
pub(crate) struct Unwritten(pub VecDeque<Waiting>);

impl Unwritten {
    /// To answer when writes up to `after` have ended, or at once.
    pub fn answer_written(&mut self, ended: u64, out: &mut impl BackupEffects) {
        let written = self.0.iter().take_while(|waiting| waiting.after <= ended);
        let written = written.count();
        for waiting in self.0.drain(..written) {
            let (status, bytes) = (Status::Ok, waiting.bytes);
            out.answer(waiting.to, Answer { status, bytes });
        }
    }

    pub fn refuse(
        &mut self,
        status: Status,
        is_meant: impl Fn(&Waiting) -> bool,
        out: &mut impl BackupEffects,
    ) {
        self.0.retain(|waiting| {
            let is_meant = is_meant(waiting);
            if is_meant {
                out.answer(waiting.to, Answer { status, bytes: 0 });
            }
            !is_meant
        });
    }

    pub fn refuse_fenced(&mut self, fences: &Fences, out: &mut impl BackupEffects) {
        self.refuse(Status::Fenced, |waiting| fences.covers(waiting.log), out);
    }
}
