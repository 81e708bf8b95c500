//! The credentials that count now.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ServerConfig};

use crate::channel::Channel;
use crate::credentials::{Credentials, CredentialsError, end_of};
use crate::error::ChannelError;
use crate::verifier::Admits;

/// A process's credentials, and where they come from. All threads of a process share one: connections that are opened after an exchange
/// have the new certificate, those that stand keep theirs.
#[derive(Debug)]
pub struct Guard {
    folder: PathBuf,
    current: RwLock<Arc<Credentials>>,
}

impl Guard {
    /// With `ca.crt`, `tls.crt` and `tls.key` in a folder.
    pub fn open(folder: &Path) -> Result<Guard, CredentialsError> {
        let credentials = Credentials::read(folder)?;
        Ok(Guard {
            folder: folder.to_owned(),
            current: RwLock::new(Arc::new(credentials)),
        })
    }

    pub fn credentials(&self) -> Arc<Credentials> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current)
    }

    /// Looks at the files again: whether there were new ones. After an error those from before still count.
    ///
    /// # Errors
    /// The files cannot be used, or are those of another holder: a process has one identity for as long as it runs.
    pub fn reload(&self) -> Result<bool, ReloadError> {
        let current = self.credentials();
        if !current.has_changed(&self.folder)? {
            return Ok(false);
        }
        let credentials = Credentials::read(&self.folder)?;
        if credentials.identity() != current.identity() {
            return Err(ReloadError::OtherIdentity {
                now: current.identity().to_string(),
                new: credentials.identity().to_string(),
            });
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(credentials);
        Ok(true)
    }

    /// Encryption of a connection that somebody else has opened.
    pub fn accept(&self, admits: Admits) -> Result<Channel, ChannelError> {
        let credentials = self.credentials();
        Channel::accept(credentials.for_accepting(admits)?, credentials.expires_at())
    }

    /// Encryption of a connection that this process opens.
    pub fn connect(&self, admits: Admits) -> Result<Channel, ChannelError> {
        let credentials = self.credentials();
        Channel::connect(
            credentials.for_connecting(admits)?,
            credentials.expires_at(),
        )
    }

    /// The same for a stack that does its own I/O, as that of gRPC does.
    /// Also when this side's certificate ends.
    pub fn accepting_http2(
        &self,
        admits: Admits,
    ) -> Result<(Arc<ServerConfig>, SystemTime), CredentialsError> {
        let credentials = self.credentials();
        let mut config = credentials.for_accepting(admits)?;
        config.alpn_protocols = vec![HTTP2.to_vec()];
        Ok((Arc::new(config), credentials.expires_at()))
    }

    /// The same for a stack that does its own I/O, as that of gRPC does.
    pub fn connecting_http2(&self, admits: Admits) -> Result<Arc<ClientConfig>, CredentialsError> {
        let mut config = self.credentials().for_connecting(admits)?;
        config.alpn_protocols = vec![HTTP2.to_vec()];
        Ok(Arc::new(config))
    }
}

/// How long a connection of a stack with I/O of its own may live: `own_end` is when this side's certificate ends, `shown` what the other side has shown.
pub fn time_left(
    own_end: SystemTime,
    shown: Option<&[CertificateDer<'_>]>,
) -> Result<Duration, ChannelError> {
    let peer = shown
        .and_then(<[_]>::first)
        .ok_or(ChannelError::NoCertificate)?;
    let end = end_of(peer).map_err(|error| ChannelError::Encoding(error.to_string()))?;
    let end = own_end.min(UNIX_EPOCH + end);
    Ok(end.duration_since(SystemTime::now()).unwrap_or_default())
}

/// As it is called in a handshake.
const HTTP2: &[u8] = b"h2";

/// Why new files are not taken.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error("the new certificate is that of {new}; this process is {now} until it ends")]
    OtherIdentity { now: String, new: String },
}
