//! Those who want to see the status while the state may take long to be noted.

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use super::driver::Shown;

/// Somebody who wants to see the status. It is shown once all that it shows is noted, or once it is known that this takes long:
/// whichever comes first takes it.
#[derive(Clone)]
struct Onlooker(Arc<Mutex<Option<oneshot::Sender<Shown>>>>);

impl Onlooker {
    fn show(&self, shown: Shown) {
        let sender = self.0.lock().ok().and_then(|mut sender| sender.take());
        if let Some(sender) = sender {
            // Whoever asked may have given up.
            drop(sender.send(shown));
        }
    }

    fn waits(&self) -> bool {
        self.0.lock().is_ok_and(|sender| sender.is_some())
    }
}

#[derive(Default)]
pub struct Onlookers(Vec<Onlooker>);

impl Onlookers {
    /// Somebody waits. What is returned shows them the status, once all of it is noted.
    pub fn add(
        &mut self,
        answer: oneshot::Sender<Shown>,
        shown: Shown,
    ) -> impl FnOnce() + Send + use<> {
        let onlooker = Onlooker(Arc::new(Mutex::new(Some(answer))));
        self.0.push(onlooker.clone());
        move || onlooker.show(shown)
    }

    /// Shows those who still wait the status as it is now, if `is_stuck`: what cannot be noted for long is shown all the same, with the reason.
    pub fn show(&mut self, is_stuck: bool, shown: impl Fn() -> Option<Shown>) {
        self.0.retain(Onlooker::waits);
        if !is_stuck {
            return;
        }
        for onlooker in std::mem::take(&mut self.0) {
            if let Some(shown) = shown() {
                onlooker.show(shown);
            }
        }
    }
}
