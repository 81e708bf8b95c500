//! A client whose operations are futures.

use std::collections::BTreeMap;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::task::{Context, Poll};

use base::time::Time;
use client_core::{Client, OperationId};
use futures_channel::oneshot;
use net::{CloseReason, Handler, Io, Reactor, Remote};
use wire::rpc::{Lease, PerfStats, RejectRules};

use crate::driver::{Actions, ClientDriver};
use crate::ops::{self, Operation, Page, Position};
use crate::types::{ControlOutput, Incremented, Keyed, Object, Server, Tablet};
use crate::{Cluster, Each, Error, KeyObject, Multi, Options, ServerId, TableId, WriteObject};

/// Operations that may wait to be started.
const MAX_WAITING: usize = 4096;

/// A store, for programs that wait for many things at a time.
///
/// Every call gives a future, which any executor can run; the work is done by a thread that the first handle starts and the last
/// one ends. Clones are handles of the same client: one connection to each server, one lease. A future that is dropped gives its operation
/// up, which may take effect all the same. When the last handle goes, operations under way fail with [`Error::Closed`].
///
/// ```
/// # test_store::with_store(|locator| {
/// use rcbox_client::AsyncCluster;
///
/// # let run = async {
/// let cluster = AsyncCluster::connect(locator)?;
/// let table = cluster.create_table("fruit", 1).await?;
/// cluster.write(table, b"apple", b"green").await?;
/// assert_eq!(cluster.read(table, b"apple").await?.value, b"green"[..]);
/// # Ok::<(), rcbox_client::Error>(())
/// # };
/// # futures::executor::block_on(run)
/// # })
/// ```
#[derive(Clone)]
pub struct AsyncCluster {
    shared: Arc<Shared>,
}

struct Shared {
    orders: SyncSender<Order>,
    remote: Remote,
    /// Whether a future was dropped whose operation the thread may still know.
    abandoned: Arc<AtomicBool>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.remote.stop();
    }
}

/// How an operation is started, and whoever waits for it.
type Start = Box<dyn FnOnce(&mut Client, Time, &mut Actions<'_>) -> OperationId + Send>;
type Waiter = oneshot::Sender<Result<client_core::Owned, Error>>;

struct Order {
    start: Start,
    waiter: Waiter,
}

/// An operation of an [`AsyncCluster`]; nothing is sent before it is polled for the first time.
pub struct Pending<O: Operation> {
    state: State,
    kind: PhantomData<fn() -> O>,
}

enum State {
    Waiting(Waiting),
    Over(Option<Error>),
}

struct Waiting {
    receiver: oneshot::Receiver<Result<client_core::Owned, Error>>,
    abandoned: Arc<AtomicBool>,
    remote: Remote,
}

impl<O: Operation> Future for Pending<O> {
    type Output = Result<O::Output, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.state {
            State::Over(error) => Poll::Ready(Err(error.take().unwrap_or(Error::Closed))),
            State::Waiting(waiting) => match Pin::new(&mut waiting.receiver).poll(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(answer) => {
                    self.state = State::Over(None);
                    Poll::Ready(answer.unwrap_or(Err(Error::Closed)).and_then(O::finish))
                }
            },
        }
    }
}

impl<O: Operation> Drop for Pending<O> {
    fn drop(&mut self) {
        if let State::Waiting(waiting) = &mut self.state {
            waiting.receiver.close();
            waiting.abandoned.store(true, Ordering::Release);
            waiting.remote.wake();
        }
    }
}

impl AsyncCluster {
    /// See [`Cluster::connect`].
    pub fn connect(coordinator: &str) -> Result<AsyncCluster, Error> {
        // A thread that spins takes a core from the program's own.
        let options = Options {
            spin: std::time::Duration::ZERO,
            ..Options::default()
        };
        AsyncCluster::with_options(coordinator, options)
    }

    /// See [`Cluster::with_options`].
    pub fn with_options(coordinator: &str, options: Options) -> Result<AsyncCluster, Error> {
        AsyncCluster::of(Cluster::with_options(coordinator, options)?)
    }

    /// Makes one of a client that nothing was asked of yet.
    pub fn of(cluster: Cluster) -> Result<AsyncCluster, Error> {
        let Cluster {
            mut reactor,
            link,
            options,
        } = cluster;
        let (orders, inbox) = sync_channel(MAX_WAITING);
        let remote = reactor.remote();
        let abandoned = Arc::new(AtomicBool::new(false));
        let mut driver = Driver {
            link,
            inbox,
            waiters: BTreeMap::new(),
            abandoned: Arc::clone(&abandoned),
            options,
        };
        let turn = move || {
            if let Err(error) = Reactor::run(&mut reactor, &mut driver) {
                driver.fail(&error.to_string());
            }
        };
        std::thread::Builder::new()
            .name("rcbox-client".to_owned())
            .spawn(turn)?;
        Ok(AsyncCluster {
            shared: Arc::new(Shared {
                orders,
                remote,
                abandoned,
            }),
        })
    }

    /// Starts an operation. The methods below do this for each kind.
    pub fn start<O>(&self, operation: O) -> Pending<O>
    where
        O: Operation + Send + 'static,
    {
        let (waiter, receiver) = oneshot::channel();
        let start = Box::new(move |core: &mut Client, now: Time, out: &mut Actions<'_>| {
            operation.start(core, now, out)
        });
        let state = match self.shared.orders.try_send(Order { start, waiter }) {
            Ok(()) => {
                self.shared.remote.wake();
                State::Waiting(Waiting {
                    receiver,
                    abandoned: Arc::clone(&self.shared.abandoned),
                    remote: self.shared.remote.clone(),
                })
            }
            Err(TrySendError::Full(_)) => State::Over(Some(Error::TooManyOperations)),
            Err(TrySendError::Disconnected(_)) => State::Over(Some(Error::Closed)),
        };
        let kind = PhantomData;
        Pending { state, kind }
    }

    async fn multi<O>(
        &self,
        multi: Result<Multi, client_core::Error>,
        operation: impl FnOnce(Multi) -> O,
    ) -> Result<O::Output, Error>
    where
        O: Operation + Send + 'static,
    {
        self.start(operation(multi?)).await
    }
}

/// What the thread turns.
struct Driver {
    link: ClientDriver,
    inbox: Receiver<Order>,
    waiters: BTreeMap<OperationId, Waiter>,
    abandoned: Arc<AtomicBool>,
    options: Options,
}

impl Driver {
    /// Gives up what nobody waits for any more.
    fn give_up(&mut self, io: &mut Io) {
        if !self.abandoned.swap(false, Ordering::Acquire) {
            return;
        }
        let link = &mut self.link;
        self.waiters.retain(|operation, waiter| {
            let is_wanted = !waiter.is_canceled();
            if !is_wanted {
                link.cancel(*operation, io);
            }
            is_wanted
        });
    }

    fn take_orders(&mut self, now: Time, io: &mut Io) {
        while let Ok(order) = self.inbox.try_recv() {
            // Nobody waits for it any more, and nothing was sent.
            if order.waiter.is_canceled() {
                continue;
            }
            let operation = self.link.start(now, io, order.start);
            self.link
                .set_deadline(operation, now + self.options.timeout);
            self.waiters.insert(operation, order.waiter);
        }
    }

    fn hand_out(&mut self) {
        if self.link.results.len() == 0 {
            return;
        }
        for (operation, result) in self.link.results.take_all() {
            if let Some(waiter) = self.waiters.remove(&operation) {
                let timeout = self.options.timeout;
                // Whoever has given up does not mind.
                let _ = waiter.send(result.map_err(|error| self.link.explain(error, timeout)));
            }
        }
    }

    fn fail(&mut self, why: &str) {
        for waiter in std::mem::take(&mut self.waiters).into_values() {
            let _ = waiter.send(Err(Error::Io(std::io::Error::other(why))));
        }
    }
}

impl Handler for Driver {
    fn opened(&mut self, now: Time, connection: u64, listener: Option<usize>, io: &mut Io) {
        self.link.opened(now, connection, listener, io);
        self.hand_out();
    }

    fn frame(&mut self, now: Time, connection: u64, nonce: u64, payload: &[u8], io: &mut Io) {
        self.link.frame(now, connection, nonce, payload, io);
        self.hand_out();
    }

    fn message(
        &mut self,
        now: Time,
        connection: u64,
        nonce: u64,
        payload: Vec<u8>,
        io: &mut Io,
    ) -> Option<Vec<u8>> {
        let read = self.link.message(now, connection, nonce, payload, io);
        self.hand_out();
        read
    }

    fn closed(&mut self, now: Time, connection: u64, reason: CloseReason, io: &mut Io) {
        self.link.closed(now, connection, reason, io);
        self.hand_out();
    }

    fn woken(&mut self, now: Time, io: &mut Io) {
        self.give_up(io);
        self.take_orders(now, io);
        self.hand_out();
    }

    fn tick(&mut self, now: Time, io: &mut Io) -> Time {
        let next = self.link.tick(now, io);
        self.hand_out();
        next
    }
}

/// The calls of [`Cluster`], as futures.
impl AsyncCluster {
    pub async fn create_table(&self, name: &str, span: u32) -> Result<TableId, Error> {
        let name = name.to_owned();
        self.start(ops::CreateTable { name, span }).await
    }

    pub async fn table_id(&self, name: &str) -> Result<TableId, Error> {
        let name = name.to_owned();
        self.start(ops::GetTableId { name }).await
    }

    pub async fn drop_table(&self, name: &str) -> Result<(), Error> {
        let name = name.to_owned();
        self.start(ops::DropTable { name }).await
    }

    pub async fn split_tablet(&self, name: &str, key_hash: u64) -> Result<(), Error> {
        let name = name.to_owned();
        self.start(ops::SplitTablet { name, key_hash }).await
    }

    pub async fn table_config(&self, table: TableId) -> Result<Vec<Tablet>, Error> {
        self.start(ops::TableConfig { table }).await
    }

    pub async fn read(&self, table: TableId, key: &[u8]) -> Result<Object, Error> {
        self.read_if(table, key, &RejectRules::default()).await
    }

    pub async fn read_if(
        &self,
        table: TableId,
        key: &[u8],
        rules: &RejectRules,
    ) -> Result<Object, Error> {
        let (key, rules) = (key.to_vec(), *rules);
        self.start(ops::Read { table, key, rules }).await
    }

    pub async fn read_keys_and_value(&self, table: TableId, key: &[u8]) -> Result<Keyed, Error> {
        let (key, rules) = (key.to_vec(), RejectRules::default());
        self.start(ops::ReadKeysAndValue { table, key, rules })
            .await
    }

    pub async fn write(&self, table: TableId, key: &[u8], value: &[u8]) -> Result<u64, Error> {
        self.write_if(table, key, value, &RejectRules::default())
            .await
    }

    pub async fn write_if(
        &self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        rules: &RejectRules,
    ) -> Result<u64, Error> {
        let (key, value, rules) = (key.to_vec(), value.to_vec(), *rules);
        self.start(ops::Write {
            table,
            key,
            value,
            rules,
        })
        .await
    }

    pub async fn write_keys(
        &self,
        table: TableId,
        keys: &[&[u8]],
        value: &[u8],
        rules: &RejectRules,
    ) -> Result<u64, Error> {
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| key.to_vec()).collect();
        let (value, rules) = (value.to_vec(), *rules);
        self.start(ops::WriteKeys {
            table,
            keys,
            value,
            rules,
        })
        .await
    }

    pub async fn remove(&self, table: TableId, key: &[u8]) -> Result<u64, Error> {
        self.remove_if(table, key, &RejectRules::default()).await
    }

    pub async fn remove_if(
        &self,
        table: TableId,
        key: &[u8],
        rules: &RejectRules,
    ) -> Result<u64, Error> {
        let (key, rules) = (key.to_vec(), *rules);
        self.start(ops::Remove { table, key, rules }).await
    }

    pub async fn increment(
        &self,
        table: TableId,
        key: &[u8],
        by: i64,
    ) -> Result<Incremented<i64>, Error> {
        self.increment_if(table, key, by, &RejectRules::default())
            .await
    }

    pub async fn increment_if(
        &self,
        table: TableId,
        key: &[u8],
        by: i64,
        rules: &RejectRules,
    ) -> Result<Incremented<i64>, Error> {
        let (key, rules) = (key.to_vec(), *rules);
        self.start(ops::IncrementI64 {
            table,
            key,
            by,
            rules,
        })
        .await
    }

    pub async fn increment_f64(
        &self,
        table: TableId,
        key: &[u8],
        by: f64,
    ) -> Result<Incremented<f64>, Error> {
        self.increment_f64_if(table, key, by, &RejectRules::default())
            .await
    }

    pub async fn increment_f64_if(
        &self,
        table: TableId,
        key: &[u8],
        by: f64,
        rules: &RejectRules,
    ) -> Result<Incremented<f64>, Error> {
        let (key, rules) = (key.to_vec(), *rules);
        self.start(ops::IncrementF64 {
            table,
            key,
            by,
            rules,
        })
        .await
    }

    pub async fn multi_read(&self, objects: &[KeyObject<'_>]) -> Result<Each<Object>, Error> {
        self.multi(Multi::reads(objects), |multi| ops::MultiRead { multi })
            .await
    }

    pub async fn multi_read_keys(&self, objects: &[KeyObject<'_>]) -> Result<Each<Keyed>, Error> {
        self.multi(Multi::reads(objects), |multi| ops::MultiReadKeys { multi })
            .await
    }

    pub async fn multi_write(&self, objects: &[WriteObject<'_>]) -> Result<Each<u64>, Error> {
        self.multi(Multi::writes(objects), |multi| ops::MultiChange { multi })
            .await
    }

    pub async fn multi_remove(&self, objects: &[KeyObject<'_>]) -> Result<Each<u64>, Error> {
        self.multi(Multi::removes(objects), |multi| ops::MultiChange { multi })
            .await
    }

    pub async fn multi_increment(
        &self,
        objects: &[crate::IncrementObject<'_>],
    ) -> Result<Each<Incremented<[u8; 8]>>, Error> {
        self.multi(Multi::increments(objects), |multi| ops::MultiIncrement {
            multi,
        })
        .await
    }

    /// Some objects of a table, beginning at `position` (the default is the start), and where to go on.
    pub async fn scan_page(
        &self,
        table: TableId,
        keys_only: bool,
        position: Position,
    ) -> Result<Page, Error> {
        self.start(ops::Enumerate {
            table,
            keys_only,
            position,
        })
        .await
    }

    pub async fn server_list(&self) -> Result<Vec<Server>, Error> {
        self.start(ops::ServerList {}).await
    }

    pub async fn acquire_lease(&self) -> Result<Lease, Error> {
        self.start(ops::AcquireLease {}).await
    }

    pub async fn server_control(
        &self,
        table: TableId,
        key: &[u8],
        operation: u32,
        input: &[u8],
    ) -> Result<ControlOutput, Error> {
        let (key, input) = (key.to_vec(), input.to_vec());
        self.start(ops::ServerControl {
            table,
            key,
            operation,
            input,
        })
        .await
    }

    pub async fn perf_stats_all(&self) -> Result<Vec<(ServerId, PerfStats)>, Error> {
        self.start(ops::GetAllPerfStats {}).await
    }
}
