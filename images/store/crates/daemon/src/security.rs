//! How a program's connections with others of its store are protected.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};
use net::{Door, Secure};
use tls::{Admits, CredentialsError, Guard, Role};

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
    #[error("--tls {}: the certificate is that of {found}, and this process is {wanted}", folder.display())]
    OtherRole {
        folder: PathBuf,
        found: String,
        wanted: String,
    },
}

/// What this process is, as its other options say.
#[derive(Clone, Copy, Debug)]
pub enum Own<'a> {
    Coordinator,
    /// The member of this name, or of whichever name the certificate has.
    Member(Option<&'a str>),
}

impl fmt::Display for Own<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Own::Coordinator => f.write_str("a coordinator"),
            Own::Member(Some(name)) => write!(f, "the member {name:?} (--member)"),
            Own::Member(None) => f.write_str("a member"),
        }
    }
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
    pub fn open(options: &SecurityOptions, own: &Own<'_>) -> Result<Security, SecurityError> {
        let guard = match &options.tls {
            Some(folder) => Some(Arc::new(open_guard(folder, own)?)),
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

    /// Whom this process's certificate names, if it is a member.
    pub fn member(&self) -> Option<String> {
        match &self.0 {
            Kind::Plain => None,
            Kind::Mixed(guard) | Kind::Required(guard) => {
                match &guard.credentials().identity().role {
                    Role::Member(name) => Some(name.clone()),
                    _ => None,
                }
            }
        }
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
        let identity = credentials.identity();
        match self.allows_plain() {
            true => tracing::info!(
                %identity, security = mode,
                "connections between members are encrypted where both sides can, and whoever reaches their ports is let in (see --security)"
            ),
            false => {
                tracing::info!(%identity, security = mode, "connections between members are encrypted")
            }
        }
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

fn open_guard(folder: &Path, own: &Own<'_>) -> Result<Guard, SecurityError> {
    let guard = Guard::open(folder).map_err(|error| SecurityError::Credentials {
        folder: folder.to_owned(),
        error,
    })?;
    let found = guard.credentials().identity().clone();
    let is_own = match (&found.role, own) {
        (Role::Coordinator, Own::Coordinator) => true,
        (Role::Member(name), Own::Member(wanted)) => wanted.is_none_or(|wanted| wanted == name),
        _ => false,
    };
    match is_own {
        true => Ok(guard),
        false => Err(SecurityError::OtherRole {
            folder: folder.to_owned(),
            found: found.to_string(),
            wanted: own.to_string(),
        }),
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
        Security::open(&options, &Own::Coordinator).map_err(|error| error.to_string())
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

    #[test]
    fn a_process_has_a_certificate_of_its_own() {
        let authority = Authority::new("one");
        let open = |uri: &str, own: Own<'_>| {
            let folder = authority.folder(uri);
            let options = SecurityOptions {
                tls: Some(folder.path().to_owned()),
                security: None,
            };
            let opened = Security::open(&options, &own);
            opened.map_err(|error| error.to_string())
        };
        let coordinator = "rcbox://default/box/coordinator";
        let member = "rcbox://default/box/member/m1";
        assert_eq!(open(coordinator, Own::Coordinator).unwrap().member(), None);
        for name in [Some("m1"), None] {
            let security = open(member, Own::Member(name)).unwrap();
            assert_eq!(security.member().as_deref(), Some("m1"));
        }
        for (uri, own, reason) in [
            (member, Own::Coordinator, "this process is a coordinator"),
            (
                member,
                Own::Member(Some("m0")),
                "the member \"m0\" (--member)",
            ),
            (coordinator, Own::Member(None), "this process is a member"),
        ] {
            let text = open(uri, own).err().unwrap();
            assert!(text.contains(uri) && text.contains(reason), "{text}");
        }
    }
}
