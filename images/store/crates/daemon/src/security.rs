//! How a program's connections with others of its store are protected.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};
use net::{Door, Secure};
use tls::{Admits, CredentialsError, Guard};

/// How often the files are looked at. A certificate is renewed days before it ends.
const LOOK: Duration = Duration::from_secs(10);
/// A certificate that ends so soon should have been renewed.
const SOON: Duration = Duration::from_secs(24 * 3600);

/// How members of a store speak with each other and with their coordinator, and how its administrators do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// As they are: whoever reaches a port is let in
    Plain,
    /// Encrypted with whoever can, for as long as a store changes from the one to the other
    Mixed,
    /// Encrypted, with those alone whose certificates are of this store
    Required,
}

#[derive(Args, Clone, Debug)]
pub struct SecurityOptions {
    /// Folder with `tls.crt` and `tls.key` (this process's certificate, with rcbox://NAMESPACE/STORE/coordinator or /member/NAME among its URIs)
    /// and `ca.crt` (the authorities that are trusted), as `rcbox certificates` makes them. New files count for new connections
    #[arg(long, env = "RCBOX_TLS", value_name = "FOLDER")]
    tls: Option<PathBuf>,
    /// Connections between members, with their coordinator, and of the admin API; those of clients are not meant
    /// [default: required with --tls, plain without]
    #[arg(
        long,
        env = "RCBOX_SECURITY",
        value_enum,
        ignore_case = true,
        value_name = "MODE"
    )]
    security: Option<Mode>,
}

#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    #[error("--security {0} needs a certificate: name its folder with --tls")]
    NoFolder(&'static str),
    #[error("--tls {}: {error}", folder.display())]
    Credentials {
        folder: PathBuf,
        error: CredentialsError,
    },
}

/// What the options say, with the certificates that were found.
#[derive(Clone)]
pub struct Security(Kind);

#[derive(Clone)]
enum Kind {
    Plain,
    Mixed(Arc<Guard>),
    Required(Arc<Guard>),
}

impl Security {
    pub fn open(options: &SecurityOptions) -> Result<Security, SecurityError> {
        let guard = match &options.tls {
            Some(folder) => Some(Arc::new(Guard::open(folder).map_err(|error| {
                let folder = folder.clone();
                SecurityError::Credentials { folder, error }
            })?)),
            None => None,
        };
        Ok(Security(match (options.security, guard) {
            (None | Some(Mode::Plain), None) | (Some(Mode::Plain), Some(_)) => Kind::Plain,
            (Some(Mode::Mixed), Some(guard)) => Kind::Mixed(guard),
            (None | Some(Mode::Required), Some(guard)) => Kind::Required(guard),
            (Some(Mode::Mixed), None) => return Err(SecurityError::NoFolder("mixed")),
            (Some(Mode::Required), None) => return Err(SecurityError::NoFolder("required")),
        }))
    }

    /// For a listener.
    pub fn door(&self, admits: Admits) -> Door {
        match &self.0 {
            Kind::Plain => Door::Plain,
            Kind::Mixed(guard) => Door::Mixed(secure(guard, admits)),
            Kind::Required(guard) => Door::Required(secure(guard, admits)),
        }
    }

    /// For a connection to somebody who `offers` TLS, or is not known to; `None`: it is as it is.
    pub fn dial(&self, admits: Admits, offers: bool) -> Option<Secure> {
        match &self.0 {
            Kind::Required(guard) => Some(secure(guard, admits)),
            Kind::Mixed(guard) if offers => Some(secure(guard, admits)),
            Kind::Mixed(_) | Kind::Plain => None,
        }
    }

    /// Whether connections as they are may be opened.
    pub fn allows_plain(&self) -> bool {
        !matches!(self.0, Kind::Required(_))
    }

    /// Whether others are to be told that this process offers TLS.
    pub fn offers(&self) -> bool {
        !matches!(self.0, Kind::Plain)
    }

    /// Says in the log what is protected.
    pub fn announce(&self) {
        let (guard, mode) = match &self.0 {
            Kind::Plain => {
                return tracing::info!(
                    "connections between members are not encrypted, and whoever reaches their ports is let in (see --tls)"
                );
            }
            Kind::Mixed(guard) => (guard, "mixed"),
            Kind::Required(guard) => (guard, "required"),
        };
        let credentials = guard.credentials();
        tracing::info!(identity = %credentials.identity(), security = mode, "connections between members are encrypted");
    }

    /// Takes new files when there are any. Never ends.
    pub async fn stay_fresh(self) {
        let (Kind::Mixed(guard) | Kind::Required(guard)) = &self.0 else {
            return std::future::pending().await;
        };
        let mut complaint = String::new();
        loop {
            tokio::time::sleep(LOOK).await;
            let trouble = match guard.reload() {
                Ok(true) => {
                    tracing::info!("new certificates are in use for new connections");
                    String::new()
                }
                Ok(false) => ends_soon(guard).unwrap_or_default(),
                Err(error) => format!("new certificates are not taken: {error}"),
            };
            if trouble != complaint && !trouble.is_empty() {
                tracing::warn!("{trouble}");
            }
            complaint = trouble;
        }
    }
}

fn ends_soon(guard: &Guard) -> Option<String> {
    let left = guard
        .credentials()
        .expires_at()
        .duration_since(SystemTime::now());
    let text = match left {
        Ok(left) if left > SOON => return None,
        Ok(_) => "this process's certificate ends within a day; then nobody lets it in any more",
        Err(_) => "this process's certificate has ended; nobody lets it in any more",
    };
    Some(text.to_owned())
}

fn secure(guard: &Arc<Guard>, admits: Admits) -> Secure {
    Secure {
        guard: Arc::clone(guard),
        admits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_certificates::Authority;

    fn open(tls: Option<PathBuf>, security: Option<Mode>) -> Result<Security, String> {
        let options = SecurityOptions { tls, security };
        Security::open(&options).map_err(|error| error.to_string())
    }

    #[test]
    fn options_say_how_connections_are_protected() {
        let folder = Authority::new("one").folder("rcbox://default/box/coordinator");
        let tls = || Some(folder.path().to_owned());
        for (tls, mode, accepts_plain, dials_plain) in [
            (None, None, true, true),
            (None, Some(Mode::Plain), true, true),
            (tls(), Some(Mode::Plain), true, true),
            (tls(), Some(Mode::Mixed), true, true),
            (tls(), Some(Mode::Required), false, false),
            (tls(), None, false, false),
        ] {
            let security = open(tls, mode).unwrap();
            let door = security.door(Admits::Members);
            assert_eq!(
                !matches!(door, Door::Required(_)),
                accepts_plain,
                "{mode:?}"
            );
            let dial = security.dial(Admits::Members, false);
            assert_eq!(dial.is_none(), dials_plain, "{mode:?}");
            let offered = security.dial(Admits::Members, true);
            assert_eq!(offered.is_some(), security.offers(), "{mode:?}");
        }
    }

    #[test]
    fn options_that_do_not_fit_are_explained() {
        let text = open(None, Some(Mode::Required)).err().unwrap();
        assert!(text.contains("--tls"), "{text}");
        let text = open(Some("/nowhere".into()), None).err().unwrap();
        assert!(text.contains("/nowhere/ca.crt"), "{text}");
    }
}
