//! Questions from other threads to a thread that runs a reactor.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use net::Remote;
use tokio::sync::oneshot;

/// Questions that may wait at one time.
const MAX_QUESTIONS: usize = 64;
/// How long an answer may take; the loop answers in its next round, so that only a stopped process takes long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// Too many questions wait.
    #[error("too many requests are waiting already; try again")]
    Busy,
    /// No answer came in time, or the thread has ended.
    #[error("the program is shutting down or was stopped; try again")]
    Gone,
}

/// Asks a loop. Clones ask the same one.
pub struct Mailbox<Q> {
    questions: SyncSender<Q>,
    remote: Remote,
}

impl<Q> Clone for Mailbox<Q> {
    fn clone(&self) -> Mailbox<Q> {
        Mailbox {
            questions: self.questions.clone(),
            remote: self.remote.clone(),
        }
    }
}

impl<Q> Mailbox<Q> {
    /// The asking end, and the end that the loop reads whenever it is woken.
    pub fn new(remote: Remote) -> (Mailbox<Q>, Receiver<Q>) {
        let (questions, inbox) = sync_channel(MAX_QUESTIONS);
        (Mailbox { questions, remote }, inbox)
    }

    /// Tells something that is not answered; false if too much waits, or the thread has ended.
    pub fn tell(&self, news: Q) -> bool {
        let is_told = self.questions.try_send(news).is_ok();
        if is_told {
            self.remote.wake();
        }
        is_told
    }

    /// Asks what `question` makes out of the place for the answer.
    pub async fn ask<A>(
        &self,
        question: impl FnOnce(oneshot::Sender<A>) -> Q,
    ) -> Result<A, NoAnswer> {
        let (sender, answer) = oneshot::channel();
        self.questions
            .try_send(question(sender))
            .map_err(|error| match error {
                TrySendError::Full(_) => NoAnswer::Busy,
                TrySendError::Disconnected(_) => NoAnswer::Gone,
            })?;
        self.remote.wake();
        match tokio::time::timeout(ANSWER_TIMEOUT, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(NoAnswer::Gone),
        }
    }
}
