//! Connections of the admin API: as they are, or encrypted by who shows a certificate.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use net::{Door, Secure};
use tls::{ChannelError, CredentialsError, is_hello};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::server::Connected;

use crate::guarded::{Connection, Guarded};

/// A connection that takes longer to say who it is ends.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Handshakes under way at one time, a quarter of them with one address. They take the place of no connection that is let in already.
const MOST: usize = 64;
/// Until the rest of a beginning is looked for that came in part.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Connections whose handshakes are over, and which nobody has taken yet.
const READY: usize = 16;
/// Between two log lines about connections that are not let in.
const QUIET: Duration = Duration::from_secs(10);
/// Behind the thread that serves, which also keeps a coordinator's lease.
const NICE: i32 = 10;

/// Why a connection is not served.
#[derive(Debug, thiserror::Error)]
enum RefusedError {
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error("not done within {TIMEOUT:?}")]
    TimedOut,
    #[error("{MOST} handshakes are under way, or a quarter of them with that address")]
    TooMany,
    #[error(transparent)]
    Broken(io::Error),
}

impl From<io::Error> for RefusedError {
    fn from(error: io::Error) -> RefusedError {
        match ChannelError::within(&error) {
            Some(error) => RefusedError::Channel(error),
            None => RefusedError::Broken(error),
        }
    }
}

/// The connections of a listener.
pub type Connections = Pin<Box<dyn Stream<Item = io::Result<Secured>> + Send>>;

/// The connections that a door lets in, each when its handshake is over.
///
/// # Errors
/// There is no thread for handshakes.
pub fn secured(listener: Guarded, door: Door) -> io::Result<Connections> {
    if let Door::Plain = door {
        let as_it_is = |connection: io::Result<Connection>| connection.map(Secured::plain);
        return Ok(Box::pin(listener.map(as_it_is)));
    }
    let (ready, connections) = channel(READY);
    let (finished_out, finished) = channel(MOST);
    let (helper, stop) = helper()?;
    let acceptor = Acceptor {
        listener,
        door,
        helper,
        _stop: stop,
        under_way: Vec::new(),
        finished_out,
        finished,
        ready,
        complaint: None,
    };
    tokio::spawn(acceptor.run());
    Ok(Box::pin(ReceiverStream::new(connections)))
}

/// A thread that makes handshakes, until what is given with it is dropped.
fn helper() -> io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new().name("handshakes".to_owned());
    thread.spawn(move || {
        // Without the right to it, the thread does its work all the same.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
        // It ends when nobody can send any more.
        let _ = runtime.block_on(stopped);
    })?;
    Ok((handle, stop))
}

type Finished = (SocketAddr, Result<LetIn, RefusedError>);

struct Acceptor {
    listener: Guarded,
    door: Door,
    helper: Handle,
    _stop: oneshot::Sender<()>,
    /// From where those come that are under way.
    under_way: Vec<IpAddr>,
    finished_out: Sender<Finished>,
    finished: Receiver<Finished>,
    ready: Sender<io::Result<Secured>>,
    /// When somebody who was not let in was last told of.
    complaint: Option<Instant>,
}

impl Acceptor {
    async fn run(mut self) {
        loop {
            tokio::select! {
                () = self.ready.closed() => return,
                Some((peer, result)) = self.finished.recv() => self.finish(peer, result).await,
                (stream, peer) = self.listener.stream() => self.begin(stream, peer),
            }
        }
    }

    fn begin(&mut self, stream: TcpStream, peer: SocketAddr) {
        let of_address = self.under_way.iter().filter(|ip| **ip == peer.ip());
        if self.under_way.len() >= MOST || of_address.count() >= MOST / 4 {
            return self.complain(peer, &RefusedError::TooMany);
        }
        self.under_way.push(peer.ip());
        let (door, finished) = (self.door.clone(), self.finished_out.clone());
        self.helper.spawn(async move {
            let let_in = match timeout(TIMEOUT, let_in(stream, &door)).await {
                Ok(let_in) => let_in,
                Err(_) => Err(RefusedError::TimedOut),
            };
            // The listener may have ended.
            let _ = finished.send((peer, let_in)).await;
        });
    }

    async fn finish(&mut self, peer: SocketAddr, result: Result<LetIn, RefusedError>) {
        if let Some(place) = self.under_way.iter().position(|ip| *ip == peer.ip()) {
            self.under_way.swap_remove(place);
        }
        match result {
            Ok(let_in) => {
                let secured = let_in.counted(&mut self.listener);
                // The server may have stopped.
                let _ = self.ready.send(Ok(secured)).await;
            }
            Err(error) => self.complain(peer, &error),
        }
    }

    fn complain(&mut self, peer: SocketAddr, error: &RefusedError) {
        if self.complaint.is_none_or(|last| last.elapsed() >= QUIET) {
            self.complaint = Some(Instant::now());
            tracing::info!(%peer, "a connection to the admin API is not let in: {error} (more within {QUIET:?} are not told of)");
        }
    }
}

/// A connection whose handshake is over, and its socket once more.
enum LetIn {
    Plain(TcpStream, OwnedFd),
    Encrypted(Box<TlsStream<TcpStream>>, OwnedFd, Duration),
}

impl LetIn {
    fn counted(self, listener: &mut Guarded) -> Secured {
        match self {
            LetIn::Plain(stream, socket) => Secured::plain(listener.guard(socket, stream)),
            LetIn::Encrypted(stream, socket, left) => Secured {
                link: Link::Encrypted(listener.guard(socket, *stream)),
                end: Some(Box::pin(sleep(left))),
            },
        }
    }
}

async fn let_in(stream: TcpStream, door: &Door) -> Result<LetIn, RefusedError> {
    let socket = stream.as_fd().try_clone_to_owned()?;
    let secure = match door {
        Door::Plain => return Ok(LetIn::Plain(stream, socket)),
        Door::Mixed(secure) => match begins_with_hello(&stream).await? {
            true => secure,
            false => return Ok(LetIn::Plain(stream, socket)),
        },
        Door::Required(secure) => secure,
    };
    let Secure { guard, admits } = secure;
    let (config, own_end) = guard.accepting_http2(admits.clone())?;
    let stream = TlsAcceptor::from(config).accept(stream).await?;
    let left = tls::time_left(own_end, stream.get_ref().1.peer_certificates())?;
    Ok(LetIn::Encrypted(Box::new(stream), socket, left))
}

async fn begins_with_hello(stream: &TcpStream) -> io::Result<bool> {
    let mut beginning = [0; 16];
    loop {
        let peeked = stream.peek(&mut beginning).await?;
        match is_hello(&beginning[..peeked]) {
            Some(is_hello) => return Ok(is_hello),
            None if peeked == 0 => return Ok(false),
            None => sleep(LOOK_AGAIN).await,
        }
    }
}

enum Link {
    Plain(Connection),
    Encrypted(Connection<TlsStream<TcpStream>>),
}

/// A connection that was let in; it ends with the first of its two certificates.
pub struct Secured {
    link: Link,
    end: Option<Pin<Box<Sleep>>>,
}

impl Secured {
    fn plain(connection: Connection) -> Secured {
        Secured {
            link: Link::Plain(connection),
            end: None,
        }
    }

    fn check_end(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let end = self.end.as_mut().map(|end| end.as_mut().poll(context));
        match end {
            Some(Poll::Ready(())) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "a certificate of the connection has ended",
            )),
            _ => Ok(()),
        }
    }
}

impl Connected for Secured {
    type ConnectInfo = ();
    fn connect_info(&self) {}
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_end(context)?;
        match &mut self.link {
            Link::Plain(connection) => Pin::new(connection).poll_read(context, buffer),
            Link::Encrypted(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Secured {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_end(context)?;
        match &mut self.link {
            Link::Plain(connection) => Pin::new(connection).poll_write(context, bytes),
            Link::Encrypted(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_end(context)?;
        match &mut self.link {
            Link::Plain(connection) => Pin::new(connection).poll_flush(context),
            Link::Encrypted(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.link {
            Link::Plain(connection) => Pin::new(connection).poll_shutdown(context),
            Link::Encrypted(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
