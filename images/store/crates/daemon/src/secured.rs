//! Connections of the admin API: as they are, or encrypted by who shows a certificate.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use net::{Door, Secure};
use tls::{ChannelError, CredentialsError, is_hello};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::{Sender, channel};
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use crate::guarded::{Connection, Guarded};

/// Whoever takes longer to say who it is is not there.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Until the rest of a beginning is looked for that came in part.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Connections whose handshakes are over, and which nobody has taken yet.
const READY: usize = 16;

/// Why a connection is not served.
#[derive(Debug, thiserror::Error)]
enum RefusedError {
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error("not done within {TIMEOUT:?}")]
    TimedOut,
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

/// The connections that a door lets in, each when its handshake is over. Those that are under way count among the listener's.
pub fn secured(
    listener: Guarded,
    door: Door,
) -> impl Stream<Item = io::Result<Secured>> + Send + 'static {
    let (ready, connections) = channel(READY);
    tokio::spawn(accept(listener, door, ready));
    ReceiverStream::new(connections)
}

async fn accept(mut listener: Guarded, door: Door, ready: Sender<io::Result<Secured>>) {
    loop {
        let (connection, peer) = tokio::select! {
            () = ready.closed() => return,
            accepted = listener.accept() => accepted,
        };
        let (door, ready) = (door.clone(), ready.clone());
        tokio::spawn(async move {
            let secured = match timeout(TIMEOUT, let_in(connection, &door)).await {
                Ok(secured) => secured,
                Err(_) => Err(RefusedError::TimedOut),
            };
            match secured {
                // Whoever would serve it may have stopped.
                Ok(secured) => drop(ready.send(Ok(secured)).await),
                Err(error) => {
                    tracing::info!(%peer, "a connection to the admin API is not let in: {error}")
                }
            }
        });
    }
}

async fn let_in(connection: Connection, door: &Door) -> Result<Secured, RefusedError> {
    let secure = match door {
        Door::Plain => return Ok(Secured::plain(connection)),
        Door::Mixed(secure) => match begins_with_hello(&connection).await? {
            true => secure,
            false => return Ok(Secured::plain(connection)),
        },
        Door::Required(secure) => secure,
    };
    let Secure { guard, admits } = secure;
    let acceptor = TlsAcceptor::from(guard.accepting_http2(admits.clone())?);
    let stream = acceptor.accept(connection).await?;
    let left = guard.time_left(stream.get_ref().1.peer_certificates())?;
    Ok(Secured {
        link: Link::Encrypted(Box::new(stream)),
        end: Some(Box::pin(sleep(left))),
    })
}

async fn begins_with_hello(connection: &Connection) -> io::Result<bool> {
    let mut beginning = [0; 16];
    loop {
        let peeked = connection.peek(&mut beginning).await?;
        match is_hello(&beginning[..peeked]) {
            Some(is_hello) => return Ok(is_hello),
            None if peeked == 0 => return Ok(false),
            None => sleep(LOOK_AGAIN).await,
        }
    }
}

enum Link {
    Plain(Connection),
    Encrypted(Box<TlsStream<Connection>>),
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
        match &mut self.link {
            Link::Plain(connection) => Pin::new(connection).poll_write(context, bytes),
            Link::Encrypted(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
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
