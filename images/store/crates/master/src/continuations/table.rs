//! A bounded table of what waits for its next step, each with a deadline.

use wire::bugs::{Bug, is_planted};
use wire::time::Time;

/// What waits, oldest first as long as none has ended.
pub(crate) struct Continuations<S>(Vec<Continuation<S>>);

pub(crate) struct Continuation<S> {
    pub deadline: Time,
    pub state: S,
}

impl<S> Default for Continuations<S> {
    fn default() -> Self {
        Continuations(Vec::new())
    }
}

impl<S> Continuations<S> {
    /// Begins to wait; answers the place. At its deadline it comes out of [`Self::take_expired`].
    pub fn push(&mut self, deadline: Time, state: S) -> usize {
        self.0.push(Continuation { deadline, state });
        self.0.len() - 1
    }

    pub fn iter(&self) -> impl Iterator<Item = &S> {
        self.0.iter().map(|one| &one.state)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Continuation<S>> {
        self.0.iter_mut()
    }

    pub fn count(&self, is_meant: impl Fn(&S) -> bool) -> usize {
        self.iter().filter(|state| is_meant(state)).count()
    }

    pub fn position(&self, is_meant: impl Fn(&S) -> bool) -> Option<usize> {
        self.iter().position(is_meant)
    }

    /// # Panics
    /// If nothing waits at this place.
    pub fn at(&mut self, place: usize) -> &mut S {
        &mut self.0[place].state
    }

    /// It waits no more. Another may wait at this place after that.
    ///
    /// # Panics
    /// If nothing waits at this place.
    pub fn end(&mut self, place: usize) -> S {
        self.0.swap_remove(place).state
    }

    /// Nothing waits any more: hands everything out.
    pub fn end_all(&mut self) -> impl Iterator<Item = S> + use<S> {
        std::mem::take(&mut self.0).into_iter().map(|one| one.state)
    }

    /// The first one, to take its next step; [`Self::put_back`] if there are more.
    pub fn take_first(&mut self) -> Option<Continuation<S>> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    pub fn put_back(&mut self, one: Continuation<S>) {
        self.0.push(one);
    }

    /// One that has waited for too long; it waits no more.
    pub fn take_expired(&mut self, now: Time) -> Option<S> {
        if is_planted(Bug::WaitForEver) {
            return None;
        }
        let place = self.0.iter().position(|one| one.deadline <= now)?;
        Some(self.end(place))
    }

    pub fn next_deadline(&self) -> Time {
        let deadlines = self.0.iter().map(|one| one.deadline);
        deadlines.min().unwrap_or(Time::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_out_once_at_its_deadline() {
        let mut table = Continuations::default();
        assert_eq!(table.next_deadline(), Time::NEVER);
        for (seconds, name) in [(3, "c"), (1, "a"), (2, "b")] {
            table.push(Time(seconds), name);
        }
        assert_eq!(table.next_deadline(), Time(1));
        assert_eq!(table.take_expired(Time(0)), None);
        assert_eq!(table.take_expired(Time(2)), Some("a"));
        assert_eq!(table.take_expired(Time(2)), Some("b"));
        assert_eq!(table.take_expired(Time(2)), None);
        assert_eq!(table.next_deadline(), Time(3));
        let place = table.position(|&name| name == "c").unwrap();
        assert_eq!(table.end(place), "c");
        assert_eq!(table.count(|_| true), 0);
    }
}
