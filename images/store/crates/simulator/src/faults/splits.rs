//! Somebody who splits tables into even parts, whatever else goes on.

use base::bugs::{Bug, is_any_planted, is_planted};
use base::ids::TableId;
use coordinator::{SplitOrder, SplitTableError, TableSplit, TabletTable};

use crate::cluster::Cluster;
use crate::cluster::hosts::coordinator_host;
use crate::faults::independent::Fault;
use crate::oracles::boundaries::Answered;
use crate::random::{Random, Streams};
use crate::scenario::profile::Profile;
use crate::scenario::{MICRO, MILLI, SECOND, Scenario};

/// Parts into which tables are split: some of these boundaries are the same, and others lie between them.
const PARTS: &[u32] = &[2, 3, 4, 8];

/// How often a table is split.
#[derive(Debug)]
pub struct Splits {
    random: Random,
    /// Between two orders, on average; 0: there are none.
    interval: u64,
}

impl Splits {
    /// In half of the seeds in which tablets move or coordinators take over from each other, and in one of eight others; in none where a bug is
    /// planted that has nothing to do with splits, which is seen sooner without them.
    pub fn draw(streams: &mut Streams, profile: Profile, scenario: &Scenario) -> Splits {
        let mut random = streams.of("splits by order").fork();
        let happen = match profile {
            _ if scenario.is_quiet || is_about_another_bug() => false,
            Profile::Migrating | Profile::FailOver => random.chance(500),
            Profile::Any | Profile::Draining | Profile::Upgrade => random.chance(125),
            Profile::Replicated
            | Profile::Unreplicated
            | Profile::Rebuilding
            | Profile::Overwriting
            | Profile::Quiet => false,
        };
        let interval = *random.pick(&[50 * MILLI, 300 * MILLI, SECOND]);
        Splits {
            interval: if happen { interval } else { 0 },
            random,
        }
    }
}

/// Whether a bug is planted that splits by order have no part in.
fn is_about_another_bug() -> bool {
    let is_about_splits = is_planted(Bug::SplitHalfway) || is_planted(Bug::ForgetOrderedBoundary);
    is_any_planted() && !is_about_splits
}

impl Fault for Splits {
    fn next(&mut self) -> Option<u64> {
        let most = 2 * self.interval;
        (most > 0).then(|| self.random.between(MICRO, most))
    }

    /// Any coordinator that believes that it leads gets the order; one that does not lead any more never answers it.
    fn strike(&mut self, cluster: &mut Cluster) {
        let leading: Vec<usize> = cluster.leaders().map(|(process, _)| process).collect();
        if leading.is_empty() {
            return;
        }
        let random = &mut self.random;
        let process = *random.pick(&leading);
        let node = cluster.coordinators[process].node.as_ref();
        let Some(state) = node.and_then(|node| node.state()) else {
            return;
        };
        let tables = state.tables(0, u32::MAX).tables;
        if tables.is_empty() {
            return;
        }
        let table_id = random.pick(&tables).table_id;
        let order = SplitOrder {
            table: TabletTable::Id(table_id),
            parts: *random.pick(PARTS),
            expected_cluster_id: 0,
        };
        // A scan may see an object on both sides.
        cluster.history.split(cluster.now, TableId(table_id));
        let split = split_table(cluster, process, &order);
        match split {
            Some(Ok(TableSplit {
                made: 0, kept: 0, ..
            })) => {
                cluster
                    .coverage
                    .hit("splits by order of tables that were split so");
            }
            Some(Ok(_)) => cluster.note_fault(
                coordinator_host(process),
                "splits a table, parts",
                u64::from(order.parts),
            ),
            // Tablets that are being recovered or moved are not split.
            Some(Err(_)) | None => {}
        }
    }
}

/// As whoever asks the admin API does: the answer comes once all is noted that it tells of.
fn split_table(
    cluster: &mut Cluster,
    process: usize,
    order: &SplitOrder,
) -> Option<Result<TableSplit, SplitTableError>> {
    let mut split = None;
    let answered = |split: &TableSplit| Answered {
        table_id: split.table_id,
        parts: order.parts,
    };
    match cluster.scenario.fail_over {
        None => {
            cluster.with_coordinator(|core, now, out| {
                split = Some(core.split_table(now, order, out));
            });
            if let Some(Ok(split)) = &split {
                cluster.boundaries.answered(answered(split));
            }
        }
        Some(_) => cluster.with_leader(process, |leader, now| {
            let result = leader.split_table(now, order);
            if let Ok(split) = &result {
                leader.defer(answered(split));
            }
            split = Some(result);
        }),
    }
    split
}
