//! All objects of a table, one after the other.

use std::vec::IntoIter;

use base::ids::TableId;

use crate::ops::{Enumerate, Page, Position};
use crate::types::Keyed;
use crate::{Cluster, Error};

/// Gives every object that was in the table from the beginning of the scan to its end, at least once. Those that are written or
/// removed meanwhile may come or not. An error ends it.
pub struct Scan<'a> {
    cluster: &'a mut Cluster,
    table: TableId,
    keys_only: bool,
    ready: IntoIter<Keyed>,
    next: Option<Position>,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(cluster: &'a mut Cluster, table: TableId) -> Scan<'a> {
        Scan {
            cluster,
            table,
            keys_only: false,
            ready: Vec::new().into_iter(),
            next: Some(Position::default()),
        }
    }

    /// Leaves the values out: they stay at the servers.
    pub fn keys_only(mut self) -> Scan<'a> {
        self.keys_only = true;
        self
    }

    /// Gets the next objects.
    fn fetch(&mut self, position: Position) -> Result<(), Error> {
        let Page { objects, next } = self.cluster.run(Enumerate {
            table: self.table,
            keys_only: self.keys_only,
            position,
        })?;
        (self.ready, self.next) = (objects.into_iter(), next);
        Ok(())
    }
}

impl Iterator for Scan<'_> {
    type Item = Result<Keyed, Error>;

    fn next(&mut self) -> Option<Result<Keyed, Error>> {
        loop {
            if let Some(object) = self.ready.next() {
                return Some(Ok(object));
            }
            let position = self.next.take()?;
            if let Err(error) = self.fetch(position) {
                return Some(Err(error));
            }
        }
    }
}
