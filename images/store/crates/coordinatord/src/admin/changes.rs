//! Streams that say when the status has changed. They look at the status as every other caller does, and know nothing of how it comes about.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// Streams at one time: each looks at the status for itself.
const MAX_STREAMS: usize = 8;

/// The least pause between two looks, and so between a change and its report.
const LEAST_PAUSE: Duration = Duration::from_millis(200);

/// A stream takes at most one part in so many of the coordinator's time: looks at a large store are rarer.
const TIME_SHARE: u32 = 50;

/// A stream is never silent for longer.
pub const INTERVAL: Duration = Duration::from_secs(2);

type Message = Result<admin::WatchClusterStatusResponse, Status>;

pub type Changes = ReceiverStream<Message>;

/// All streams of one coordinator.
#[derive(Clone)]
pub struct Streams(Arc<Semaphore>);

impl Default for Streams {
    fn default() -> Streams {
        Streams(Arc::new(Semaphore::new(MAX_STREAMS)))
    }
}

impl Streams {
    /// Begins a stream. `look` gives the status; its error ends the stream.
    pub async fn begin<F>(&self, look: impl Fn() -> F + Send + 'static) -> Result<Changes, Status>
    where
        F: Future<Output = Result<admin::GetClusterStatusResponse, Status>> + Send + 'static,
    {
        let permit = self.0.clone().try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "{MAX_STREAMS} others watch the status already; ask for it now and then"
            ))
        })?;
        let seen = without_figures(look().await?);
        // One message waits at most. While its reader is slow, what changes is one change.
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(follow(look, seen, sender, permit));
        Ok(ReceiverStream::new(receiver))
    }
}

/// Reports changes until the reader has gone or the status is refused.
async fn follow<F>(
    look: impl Fn() -> F + Send,
    mut seen: admin::GetClusterStatusResponse,
    sender: mpsc::Sender<Message>,
    _permit: OwnedSemaphorePermit,
) where
    F: Future<Output = Result<admin::GetClusterStatusResponse, Status>> + Send,
{
    let interval_ms = u32::try_from(INTERVAL.as_millis()).unwrap_or(u32::MAX);
    let message = |change| {
        Ok(admin::WatchClusterStatusResponse {
            change,
            interval_ms,
        })
    };
    let (mut change, mut pause) = (1, LEAST_PAUSE);
    if sender.send(message(change)).await.is_err() {
        return;
    }
    let mut told = Instant::now();
    loop {
        tokio::select! {
            () = sender.closed() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let begun = Instant::now();
        let now = match look().await {
            Ok(status) => without_figures(status),
            Err(refusal) => {
                // The reader has gone, or is told why.
                drop(sender.send(Err(refusal)).await);
                return;
            }
        };
        pause = (begun.elapsed() * TIME_SHARE).clamp(LEAST_PAUSE, INTERVAL / 2);
        let has_changed = now != seen;
        if !has_changed && told.elapsed() + pause < INTERVAL {
            continue;
        }
        change += u64::from(has_changed);
        seen = now;
        if sender.send(message(change)).await.is_err() {
            return;
        }
        told = Instant::now();
    }
}

/// The status but for what changes all the time. A field that is not named here counts: a new one is reported too often rather than never.
fn without_figures(mut status: admin::GetClusterStatusResponse) -> admin::GetClusterStatusResponse {
    status.cluster_time_ns = 0;
    status.client_lease_count = 0;
    status.balance = None;
    if let Some(leader) = &mut status.leader {
        // Whether the leader still waits for members is what its times say.
        let waits = leader.leading_ms < leader.patience_ms;
        leader.leading_ms = leader.leading_ms.map(|_| u64::from(waits));
        leader.sequence = 0;
        leader.checkpoint = None;
        if let Some(wait) = &mut leader.state_wait {
            *wait = admin::StateWait::default();
        }
    }
    for recovery in &mut status.recoveries {
        recovery.bytes = 0;
    }
    for migration in &mut status.migrations {
        (migration.bytes, migration.objects) = (0, 0);
    }
    status.members.iter_mut().for_each(clear_figures);
    status
}

fn clear_figures(member: &mut admin::Member) {
    for shard in &mut member.shards {
        shard.log_live_bytes = 0;
        shard.object_count = 0;
        shard.segments = 0;
        shard.heard_ms = None;
        if let Some(room) = &mut shard.log_room {
            let full = room.full.as_ref().map(|_| admin::MemoryFull::default());
            *room = admin::LogRoom {
                full,
                ..admin::LogRoom::default()
            };
        }
        if let Some(backup) = &mut shard.backup {
            backup.frames_free = 0;
        }
    }
    for ping in member.network.iter_mut().flat_map(|port| &mut port.pings) {
        ping.age_ms = 0;
        ping.round_trip_ns = u64::from(ping.round_trip_ns > 0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio_stream::StreamExt;

    use super::*;

    /// A coordinator that answers with what a test says.
    #[derive(Clone)]
    struct Shown(Arc<Mutex<Result<admin::GetClusterStatusResponse, Status>>>);

    impl Shown {
        fn new() -> Shown {
            let shard = admin::Shard {
                serving: true,
                log_room: Some(admin::LogRoom::default()),
                backup: Some(admin::BackupStorage::default()),
                ..admin::Shard::default()
            };
            let member = admin::Member {
                name: "box-master-0".to_owned(),
                shards: vec![shard],
                ..admin::Member::default()
            };
            let leader = admin::Leader {
                leading_ms: Some(1),
                patience_ms: Some(10),
                ..admin::Leader::default()
            };
            Shown(Arc::new(Mutex::new(Ok(admin::GetClusterStatusResponse {
                members: vec![member],
                leader: Some(leader),
                ..admin::GetClusterStatusResponse::default()
            }))))
        }

        fn change(&self, change: impl FnOnce(&mut admin::GetClusterStatusResponse)) {
            change(self.0.lock().unwrap().as_mut().unwrap());
        }

        async fn watch(&self, streams: &Streams) -> Result<Changes, Status> {
            let shown = self.clone();
            streams
                .begin(move || std::future::ready(shown.0.lock().unwrap().clone()))
                .await
        }
    }

    async fn next(changes: &mut Changes) -> u64 {
        changes.next().await.unwrap().unwrap().change
    }

    /// What a member is counts, in one message for all that has changed; how much it holds does not.
    #[tokio::test(start_paused = true)]
    async fn changes_are_told_and_figures_are_not() {
        let shown = Shown::new();
        let mut changes = shown.watch(&Streams::default()).await.unwrap();
        assert_eq!(next(&mut changes).await, 1);
        shown.change(|status| {
            status.cluster_time_ns = 77;
            status.leader.as_mut().unwrap().leading_ms = Some(9);
            let shard = &mut status.members[0].shards[0];
            (shard.log_live_bytes, shard.object_count, shard.segments) = (1, 2, 3);
            shard.heard_ms = Some(4);
            shard.log_room.as_mut().unwrap().tombstone_bytes = 5;
            shard.backup.as_mut().unwrap().frames_free = 6;
        });
        assert_eq!(next(&mut changes).await, 1, "a figure was told of");
        let told: [fn(&mut admin::GetClusterStatusResponse); 5] = [
            |status| {
                status.members[0].state = 2;
                status.table_count = 8;
            },
            |status| status.members[0].shards[0].serving = false,
            |status| status.members[0].shards[0].segments_short = 1,
            |status| {
                let room = status.members[0].shards[0].log_room.as_mut().unwrap();
                room.full = Some(admin::MemoryFull::default());
            },
            // The leader has waited long enough for its members.
            |status| status.leader.as_mut().unwrap().leading_ms = Some(10),
        ];
        for (i, change) in told.into_iter().enumerate() {
            shown.change(change);
            assert_eq!(next(&mut changes).await, 2 + i as u64, "change {i}");
        }
    }

    /// A stream is never silent for longer than it says.
    #[tokio::test(start_paused = true)]
    async fn a_stream_is_not_silent() {
        let shown = Shown::new();
        let mut changes = shown.watch(&Streams::default()).await.unwrap();
        for _ in 0..5 {
            let message = tokio::time::timeout(INTERVAL, changes.next()).await;
            let message = message.expect("it was silent").unwrap().unwrap();
            assert_eq!(u128::from(message.interval_ms), INTERVAL.as_millis());
        }
    }

    /// A coordinator that leads no more says so to those who watch, and to those who begin to.
    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_with_the_refusal() {
        let (shown, streams) = (Shown::new(), Streams::default());
        let mut changes = shown.watch(&streams).await.unwrap();
        assert_eq!(next(&mut changes).await, 1);
        *shown.0.lock().unwrap() = Err(Status::unavailable("another leads"));
        let refusal = changes.next().await.unwrap().unwrap_err();
        assert_eq!(refusal.code(), tonic::Code::Unavailable);
        assert!(changes.next().await.is_none());
        let refusal = shown.watch(&streams).await.unwrap_err();
        assert_eq!(refusal.code(), tonic::Code::Unavailable);
    }

    /// Readers that have gone make room for others.
    #[tokio::test(start_paused = true)]
    async fn streams_are_bounded() {
        let (shown, streams) = (Shown::new(), Streams::default());
        let mut open = Vec::new();
        for _ in 0..MAX_STREAMS {
            open.push(shown.watch(&streams).await.unwrap());
        }
        let refusal = shown.watch(&streams).await.unwrap_err();
        assert_eq!(refusal.code(), tonic::Code::ResourceExhausted);
        open.pop();
        let freed = async {
            while shown.watch(&streams).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(INTERVAL, freed).await.unwrap();
    }
}
