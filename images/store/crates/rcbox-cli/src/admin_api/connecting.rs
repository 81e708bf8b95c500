//! Connections to an admin API: as they are, or with a certificate.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use net::Address;
use tls::rustls::pki_types::ServerName;
use tls::{Admits, ChannelError, CredentialsError, Guard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// How long the admin API has to be reached, and to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("{}", chain(.0))]
    Transport(#[from] tonic::transport::Error),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

pub async fn connect(
    address: &Address,
    guard: Option<&Arc<Guard>>,
) -> Result<Channel, ConnectError> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(TIMEOUT);
    let Some(guard) = guard else {
        return Ok(endpoint.connect().await?);
    };
    let connector = TlsConnector::from(guard.connecting_http2(Admits::Coordinator)?);
    let address = address.to_string();
    let connect = service_fn(move |_: Uri| {
        let (connector, address) = (connector.clone(), address.clone());
        async move { Ok::<_, io::Error>(TokioIo::new(encrypted(&connector, address).await?)) }
    });
    Ok(endpoint.connect_with_connector(connect).await?)
}

/// Why a connection with this certificate does not last, if TLS says it: whoever opens it hears only afterwards that the other side refuses.
pub async fn refusal(address: &Address, guard: &Arc<Guard>) -> Option<ChannelError> {
    let config = guard.connecting_http2(Admits::Coordinator).ok()?;
    let ask = async {
        let mut stream = encrypted(&TlsConnector::from(config), address.to_string()).await?;
        stream.read_u8().await
    };
    let answer = timeout(CONNECT_TIMEOUT, ask).await.ok()?;
    ChannelError::within(&answer.err()?)
}

async fn encrypted(connector: &TlsConnector, address: String) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    // It is not sent: identities are URIs.
    let name = ServerName::try_from("rcbox").map_err(io::Error::other)?;
    connector.connect(name, stream).await
}

/// Whether there is TLS at this address: a request that is not encrypted is answered with an alert.
pub async fn is_encrypted(address: &Address) -> bool {
    const ALERT: [u8; 2] = [21, 3];
    let ask = async {
        let mut stream = TcpStream::connect(address.to_string()).await?;
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .await?;
        let mut beginning = [0; 2];
        stream.read_exact(&mut beginning).await?;
        Ok::<_, io::Error>(beginning)
    };
    matches!(timeout(CONNECT_TIMEOUT, ask).await, Ok(Ok(ALERT)))
}

/// An error with its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
