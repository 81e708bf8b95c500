//! Listeners for HTTP and the admin API that cannot be used up: connections are bounded in number, and in how long they may
//! say nothing.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep, sleep};
use tokio_io_timeout::TimeoutStream;
use tokio_stream::Stream;
use tonic::transport::server::Connected;

/// Connections at one time; for one more, that which was silent for longest makes room.
const MAX_CONNECTIONS: usize = 256;
/// A connection on which nothing has moved for so long is closed. Clients of the admin API are pinged more often.
pub const SILENCE: Duration = Duration::from_secs(60);
/// When no connection can be accepted, such as for want of files.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections.
pub struct Guarded {
    listener: TcpListener,
    start: Instant,
    open: Vec<Weak<Open>>,
    pause: Option<Pin<Box<Sleep>>>,
}

/// What the listener knows of a connection.
struct Open {
    /// The connection's socket once more.
    socket: OwnedFd,
    /// When something last came, in ms after the listener's start.
    heard_at_ms: AtomicU64,
}

/// A connection; reads and writes fail once nothing has moved for [`SILENCE`].
pub struct Connection<S = TcpStream> {
    stream: Pin<Box<TimeoutStream<S>>>,
    start: Instant,
    open: Arc<Open>,
}

impl Guarded {
    pub fn new(listener: TcpListener) -> Guarded {
        Guarded {
            listener,
            start: Instant::now(),
            open: Vec::new(),
            pause: None,
        }
    }

    /// A connection that is not counted before it is guarded.
    pub(crate) async fn stream(&mut self) -> (TcpStream, SocketAddr) {
        std::future::poll_fn(|context| self.poll_stream(context)).await
    }

    fn poll_stream(&mut self, context: &mut Context<'_>) -> Poll<(TcpStream, SocketAddr)> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(context)) {
                Ok((stream, peer)) => match stream.set_nodelay(true) {
                    Ok(()) => return Poll::Ready((stream, peer)),
                    Err(error) => tracing::debug!(%peer, "cannot serve a connection: {error}"),
                },
                Err(error) => {
                    tracing::debug!("cannot accept a connection: {error}");
                    self.pause = Some(Box::pin(sleep(PAUSE)));
                }
            }
        }
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<(Connection, SocketAddr)> {
        loop {
            let (stream, peer) = ready!(self.poll_stream(context));
            let socket = stream.as_fd().try_clone_to_owned();
            match socket {
                Ok(socket) => return Poll::Ready((self.guard(socket, stream), peer)),
                Err(error) => tracing::debug!(%peer, "cannot serve a connection: {error}"),
            }
        }
    }

    /// Counts a connection among those that are open; `socket` is its socket once more.
    pub(crate) fn guard<S: AsyncRead + AsyncWrite>(
        &mut self,
        socket: OwnedFd,
        stream: S,
    ) -> Connection<S> {
        self.make_room();
        let open = Arc::new(Open {
            socket,
            heard_at_ms: AtomicU64::new(millis_since(self.start)),
        });
        self.open.push(Arc::downgrade(&open));
        let mut stream = TimeoutStream::new(stream);
        stream.set_read_timeout(Some(SILENCE));
        stream.set_write_timeout(Some(SILENCE));
        Connection {
            stream: Box::pin(stream),
            start: self.start,
            open,
        }
    }

    fn make_room(&mut self) {
        self.open.retain(|open| open.strong_count() > 0);
        if self.open.len() < MAX_CONNECTIONS {
            return;
        }
        let open = self.open.iter().filter_map(Weak::upgrade);
        let Some(longest) = open.min_by_key(|open| open.heard_at_ms.load(Ordering::Relaxed)) else {
            return;
        };
        // Whoever serves it sees the end of the stream. It may have ended by itself.
        let _ = shutdown(&longest.socket, Shutdown::Both);
        self.open
            .retain(|open| !std::ptr::eq(open.as_ptr(), &raw const *longest));
    }
}

fn millis_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl axum::serve::Listener for Guarded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        std::future::poll_fn(|context| self.poll_accept(context)).await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Stream for Guarded {
    type Item = io::Result<Connection>;

    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Connection>>> {
        let (connection, _) = ready!(self.get_mut().poll_accept(context));
        Poll::Ready(Some(Ok(connection)))
    }
}

impl Connected for Connection {
    type ConnectInfo = ();
    fn connect_info(&self) {}
}

impl<S: AsyncRead + AsyncWrite> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = ready!(self.stream.as_mut().poll_read(context, buffer));
        let now = millis_since(self.start);
        self.open.heard_at_ms.store(now, Ordering::Relaxed);
        Poll::Ready(result)
    }
}

impl<S: AsyncRead + AsyncWrite> AsyncWrite for Connection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn pair(listener: &mut Guarded) -> (TcpStream, Connection) {
        use axum::serve::Listener;
        let address = listener.local_addr().unwrap();
        let (client, (served, _)) = tokio::join!(TcpStream::connect(address), listener.accept());
        (client.unwrap(), served)
    }

    async fn listener() -> Guarded {
        Guarded::new(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    #[tokio::test]
    async fn for_one_too_many_the_connection_makes_room_that_was_silent_for_longest() {
        let mut listener = listener().await;
        let mut connections = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            connections.push(pair(&mut listener).await);
        }
        // All but one are heard later than they were opened.
        sleep(Duration::from_millis(2)).await;
        for (number, (client, served)) in connections.iter_mut().enumerate() {
            if number != 7 {
                client.write_all(b"x").await.unwrap();
                served.read_u8().await.unwrap();
            }
        }
        connections.push(pair(&mut listener).await);
        assert_eq!(connections[7].0.read(&mut [0]).await.unwrap(), 0);
        for (number, (client, served)) in connections.iter_mut().enumerate() {
            if number != 7 {
                served.write_all(b"y").await.unwrap();
                assert_eq!(client.read_u8().await.unwrap(), b'y');
            }
        }
        // Those that have ended take no room.
        connections.clear();
        let mut last = pair(&mut listener).await;
        assert_eq!(listener.open.len(), 1);
        last.0.write_all(b"z").await.unwrap();
        assert_eq!(last.1.read_u8().await.unwrap(), b'z');
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_for_long_is_closed() {
        let (_client, mut served) = pair(&mut listener().await).await;
        let before = Instant::now();
        let error = served.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(before.elapsed() >= SILENCE);
    }
}
