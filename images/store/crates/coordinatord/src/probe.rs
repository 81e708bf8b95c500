//! Whether the coordinator is ready, and its metrics.

use std::future::Future;
use std::pin::Pin;

use coordinator::status;
use daemon::mailbox::{Mailbox, NoAnswer};
use daemon::metrics::{self, byte_gauge, counter, gauge, time_counter};

use super::driver::{Keeping, Question, Shown};
use super::kubernetes::standing::{self, Role};
use super::state_file::Stats;

/// Health and metrics of the coordinator.
pub struct Probe {
    mailbox: Mailbox<Question>,
    standing: Option<standing::Receiver>,
}

impl Probe {
    pub fn new(mailbox: Mailbox<Question>, standing: Option<standing::Receiver>) -> Probe {
        Probe { mailbox, standing }
    }
}

impl daemon::http::Probe for Probe {
    fn ready(&self) -> Result<String, String> {
        // Listeners are open before HTTP is served, or before a candidate says that it leads; and a loop that ends takes the
        // program with it.
        let Some(standing) = &self.standing else {
            return Ok("ok".to_owned());
        };
        let standing = standing.borrow();
        match standing.why_not_ready() {
            Some(why) => Err(why),
            None => Ok(standing.why_not().unwrap_or_else(|| "ok".to_owned())),
        }
    }

    fn metrics(&self) -> Pin<Box<dyn Future<Output = Result<String, NoAnswer>> + Send + '_>> {
        Box::pin(async {
            if let Some(standing) = &self.standing
                && standing.borrow().role != Role::Leading
            {
                return Ok(metrics::text(vec![leading(false)]));
            }
            let Shown {
                status,
                counters,
                keeping,
            } = self.mailbox.ask(Question::Status).await?;
            let mut samples = vec![leading(true)];
            samples.extend(of_store(&status));
            samples.extend(status.checkpoint.iter().flat_map(of_checkpoint));
            samples.extend(metrics::of_reactor(&counters));
            match &keeping {
                Keeping::Nowhere => {}
                Keeping::File { stats, file_bytes } => {
                    samples.extend(of_state(stats, *file_bytes));
                    samples.extend(of_wait(&status));
                }
                Keeping::Objects(_) => {
                    samples.extend(of_objects(&status));
                    samples.extend(of_wait(&status));
                }
            }
            Ok(metrics::text(samples))
        })
    }
}

fn leading(leads: bool) -> metrics::Sample {
    let help = "1: this coordinator leads; 0: it is a standby, or must not lead";
    gauge("leading", help, u64::from(leads))
}

fn of_checkpoint(checkpoint: &status::Checkpoint) -> Vec<metrics::Sample> {
    vec![
        gauge(
            "checkpoint_current",
            "1: the volumes of enough members have all of the state that matters; 0: the volumes alone would not bring everything back",
            u64::from(checkpoint.is_current),
        ),
        gauge(
            "checkpoint_age_milliseconds",
            "Since the newest checkpoint was made",
            checkpoint.age_ms,
        ),
        byte_gauge(
            "checkpoint",
            "Length of the newest checkpoint",
            checkpoint.bytes,
        ),
    ]
}

fn of_objects(status: &status::ClusterStatus) -> Vec<metrics::Sample> {
    vec![
        gauge(
            "term",
            "Coordinators that have led the store, this coordinator included",
            status.term,
        ),
        counter(
            "state_commits",
            "Writes of the state over the store's whole life",
            status.sequence,
        ),
    ]
}

fn of_wait(status: &status::ClusterStatus) -> Vec<metrics::Sample> {
    let wait = status.state_wait.as_ref();
    vec![
        gauge(
            "state_wait_milliseconds",
            "For how long the state could not be written; 0 while all is well",
            wait.map_or(0, |wait| wait.waited_ms),
        ),
        gauge(
            "state_held",
            "Answers and orders that wait until the state can be written",
            wait.map_or(0, |wait| wait.held),
        ),
    ]
}

fn of_state(stats: &Stats, file_bytes: u64) -> Vec<metrics::Sample> {
    vec![
        byte_gauge("state", "File that the state is noted in", file_bytes),
        counter(
            "state_commits",
            "Writes to the state's file, each waited for until it is on the disk",
            stats.commits,
        ),
        time_counter(
            "state_commit",
            "Time that writes to the state's file took",
            u64::try_from(stats.commit_time.as_nanos()).unwrap_or(u64::MAX),
        ),
        counter(
            "state_snapshots",
            "How often the whole state was written to a new file: at first, and to be short again",
            stats.snapshots,
        ),
    ]
}

fn of_store(status: &status::ClusterStatus) -> Vec<metrics::Sample> {
    let up = status
        .members
        .iter()
        .filter(|member| member.state == status::MemberState::Up)
        .count();
    let waiting = status.migrations.iter();
    let waiting = waiting.filter(|one| !one.waits_for.is_empty()).count();
    let shards = || status.members.iter().flat_map(|member| &member.shards);
    let sum = |of: fn(&status::Shard) -> u64| shards().map(of).sum();
    vec![
        gauge(
            "members",
            "Members of the store",
            status.members.len() as u64,
        ),
        gauge(
            "members_up",
            "Members whose shards are all connected",
            up as u64,
        ),
        gauge("tables", "Tables", status.table_count),
        gauge("tablets", "Tablets", sum(|shard| shard.tablet_count)),
        gauge(
            "objects",
            "Objects, as last reported by the members",
            sum(|shard| shard.object_count),
        ),
        byte_gauge(
            "log_capacity",
            "Log memory of all members",
            sum(|shard| shard.log_capacity_bytes),
        ),
        byte_gauge(
            "log_live",
            "Live data, as last reported by the members",
            sum(|shard| shard.log_live_bytes),
        ),
        gauge(
            "migrations_waiting",
            "Migrations that somebody has ordered and that have not begun",
            waiting as u64,
        ),
        counter(
            "balance_moves",
            "Migrations that this coordinator has begun by itself",
            status.balance.moves_begun,
        ),
        counter(
            "balance_merges",
            "Pairs of tablets that this coordinator had cut and has made one again",
            status.balance.merges,
        ),
        gauge(
            "balance_tablets_left_alone",
            "Tablets that are not moved for now, as migrations of them failed",
            status.balance.tablets_left_alone,
        ),
        gauge(
            "balance_servers_left_alone",
            "Servers to which nothing is moved for now, as migrations to them failed",
            status.balance.servers_left_alone,
        ),
        gauge(
            "balance_tablets_to_evacuate",
            "Tablets left on members that drain",
            status.balance.tablets_to_evacuate,
        ),
        byte_gauge(
            "balance_above_share",
            "What servers have above their shares",
            status.balance.bytes_to_even_out,
        ),
        gauge(
            "client_leases",
            "Client leases that have not expired",
            status.client_lease_count,
        ),
        counter(
            "losses",
            "Processes that died with the only copy of something",
            status.losses.len() as u64 + status.losses_dropped,
        ),
    ]
}
