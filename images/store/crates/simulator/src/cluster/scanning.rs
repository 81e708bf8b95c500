//! Clients scan tables, a page at a time.

use base::time::Time;
use client_core::{Error, Owned};
use wire::status::Status;

use crate::cluster::client::ClientNode;
use crate::cluster::client_actions::{ClientActions, Purpose};
use crate::cluster::scan::Scan;
use crate::coverage::Coverage;
use crate::oracles::history::{History, ScanRecord};
use crate::scenario::MILLI;

/// Pages after which a scan is taken for one that goes round in circles. A shard here has a few hundred buckets.
const MAX_PAGES: u32 = 5000;

impl ClientNode {
    pub fn start_scan(&mut self, now: u64, clock: Time, scan: Scan, out: &mut ClientActions) {
        self.scans.push(scan);
        self.next_page(now, clock, out);
    }

    /// Asks for the next page of the scan that has waited longest.
    pub fn next_page(&mut self, now: u64, clock: Time, out: &mut ClientActions) {
        if self.scans.is_empty() {
            return;
        }
        let mut scan = self.scans.remove(0);
        scan.page_began = now;
        let Scan {
            table,
            keys_only,
            hash,
            ..
        } = scan;
        let id = self
            .core
            .enumerate(clock, table, keys_only, hash, &scan.iterator, out);
        if !scan.is_last && self.random.chance(10) {
            let after = self.random.between(1, 50 * MILLI);
            self.core.set_deadline(id, Time(clock.0 + after));
        }
        self.under_way.insert(id, Purpose::Page(scan));
    }

    pub(crate) fn page_ended(
        &mut self,
        now: u64,
        mut scan: Scan,
        result: Result<Owned, Error>,
        history: &mut History,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let (hash, objects, iterator) = match result {
            Ok(Owned::Enumerated {
                tablet_first_hash,
                objects,
                iterator,
            }) => (tablet_first_hash, objects, iterator),
            Err(Error::Deadline) if !scan.is_last => return Ok(()),
            Err(Error::Refused {
                status: Status::TableDoesntExist,
                ..
            }) if !scan.is_last => {
                coverage.hit("scans of a table that was dropped");
                self.forget(scan.table);
                return Ok(());
            }
            other => return Err(format!("{scan:?} ended with {other:?}")),
        };
        coverage.hit("pages of scans");
        let count = scan.take_page(now, self.number, &objects, history)?;
        coverage.add("objects scanned", count);
        scan.pages += 1;
        if scan.pages > MAX_PAGES {
            return Err(format!("no end after {MAX_PAGES} pages: {scan:?}"));
        }
        if objects.is_empty() && hash == 0 {
            self.scan_ended(now, scan, history, coverage);
            return Ok(());
        }
        (scan.hash, scan.iterator) = (hash, iterator);
        self.scans.push(scan);
        self.new_pages += 1;
        Ok(())
    }

    fn scan_ended(&self, now: u64, scan: Scan, history: &mut History, coverage: &mut Coverage) {
        coverage.hit("scans");
        if scan.keys_only {
            coverage.hit("scans of keys only");
        }
        if history.was_split(scan.table, scan.began) {
            coverage.hit("scans while a tablet was split");
        }
        history.scans.push(ScanRecord {
            client: self.number,
            table: scan.table,
            call: scan.began,
            end: now,
            keys: scan.keys,
        });
    }
}
