//! A bounded table of what waits for its next step, each with a deadline.

use base::bugs::{Bug, is_planted};
use base::time::Time;

/// What waits, in no particular order.
pub(crate) struct Continuations<S> {
    waiting: Vec<Continuation<S>>,
    most: usize,
}

pub(crate) struct Continuation<S> {
    pub deadline: Time,
    pub state: S,
}

impl<S> Continuations<S> {
    pub fn at_most(most: usize) -> Continuations<S> {
        Continuations {
            waiting: Vec::new(),
            most,
        }
    }

    /// Begins to wait; answers the place. At its deadline it comes out of [`Self::take_expired`]. `None`: too many wait.
    pub fn push(&mut self, deadline: Time, state: S) -> Option<usize> {
        if self.waiting.len() >= self.most {
            return None;
        }
        self.waiting.push(Continuation { deadline, state });
        Some(self.waiting.len() - 1)
    }

    pub fn iter(&self) -> impl Iterator<Item = &S> {
        self.waiting.iter().map(|one| &one.state)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Continuation<S>> {
        self.waiting.iter_mut()
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
        &mut self.waiting[place].state
    }

    /// It waits no more. Another may wait at this place after that.
    ///
    /// # Panics
    /// If nothing waits at this place.
    pub fn end(&mut self, place: usize) -> S {
        self.waiting.swap_remove(place).state
    }

    /// Nothing waits any more: hands everything out.
    pub fn end_all(&mut self) -> impl Iterator<Item = S> + use<S> {
        std::mem::take(&mut self.waiting)
            .into_iter()
            .map(|one| one.state)
    }

    /// One of them, to take its next step; [`Self::put_back`] if there are more.
    pub fn take_one(&mut self) -> Option<Continuation<S>> {
        self.waiting.pop()
    }

    pub fn put_back(&mut self, one: Continuation<S>) {
        assert!(self.waiting.len() < self.most, "nobody else may have begun");
        self.waiting.push(one);
    }

    /// One that has waited for too long; it waits no more.
    pub fn take_expired(&mut self, now: Time) -> Option<S> {
        if self.waiting.is_empty() || is_planted(Bug::WaitForEver) {
            return None;
        }
        let place = self.waiting.iter().position(|one| one.deadline <= now)?;
        Some(self.end(place))
    }

    pub fn next_deadline(&self) -> Time {
        let deadlines = self.waiting.iter().map(|one| one.deadline);
        deadlines.min().unwrap_or(Time::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_out_once_at_its_deadline() {
        let mut table = Continuations::at_most(3);
        assert_eq!(table.next_deadline(), Time::NEVER);
        for (seconds, name) in [(3, "c"), (1, "a"), (2, "b")] {
            assert!(table.push(Time(seconds), name).is_some());
        }
        assert_eq!(table.push(Time(9), "too many"), None);
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
