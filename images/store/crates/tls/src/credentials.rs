//! A process's own certificate, its key, and the authorities that it trusts: three files, named as in a Secret of the type `kubernetes.io/tls`.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use x509_cert::der::Decode;

use crate::error::flaw;
use crate::identity::{Identity, IdentityError};
use crate::verifier::{Admits, Verifier, identity_of};

/// The authorities, the certificate with what leads from it to one of them, its key.
const FILES: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];
/// No such file is longer, whoever has written it.
const FILE_BYTES: u64 = 1 << 20;

/// Why certificates and key cannot be used. Each text names the file.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error("cannot read {path}: {error}")]
    Read { path: PathBuf, error: io::Error },
    #[error("{path} has {bytes} bytes; certificates and keys have at most {FILE_BYTES}")]
    TooLong { path: PathBuf, bytes: u64 },
    #[error("{file} holds no {what} in PEM (-----BEGIN ...-----)")]
    Missing {
        file: &'static str,
        what: &'static str,
    },
    #[error("{file} is damaged: {error}")]
    Damaged { file: &'static str, error: String },
    #[error("the key in tls.key is not that of the certificate in tls.crt: {0}")]
    OtherKey(rustls::Error),
    #[error("tls.crt: {0}")]
    Identity(#[from] IdentityError),
    #[error("the certificate in tls.crt is not good for those who trust ca.crt: {}", why_not(.0))]
    NotTrusted(rustls::Error),
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

/// What a process shows, and whom it trusts.
pub struct Credentials {
    identity: Identity,
    expires_at: SystemTime,
    roots: Arc<RootCertStore>,
    own: Arc<CertifiedKey>,
    /// As they were read: what is the same again is no news.
    files: [Vec<u8>; 3],
}

/// Without the key.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("identity", &self.identity)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads `ca.crt`, `tls.crt` and `tls.key` in a folder.
    pub fn read(folder: &Path) -> Result<Credentials, CredentialsError> {
        Credentials::of_files(read_files(folder)?)
    }

    /// Whether the files in a folder are not what was read any more.
    pub(crate) fn has_changed(&self, folder: &Path) -> Result<bool, CredentialsError> {
        Ok(read_files(folder)? != self.files)
    }

    fn of_files(files: [Vec<u8>; 3]) -> Result<Credentials, CredentialsError> {
        let [authorities, chain, key] = &files;
        let mut roots = RootCertStore::empty();
        for authority in certificates(FILES[0], authorities)? {
            roots
                .add(authority)
                .map_err(|error| damaged(FILES[0], error))?;
        }
        let roots = Arc::new(roots);
        let chain = certificates(FILES[1], chain)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
            rustls::pki_types::pem::Error::NoItemsFound => CredentialsError::Missing {
                file: FILES[2],
                what: "private key",
            },
            error => damaged(FILES[2], error),
        })?;
        let own =
            CertifiedKey::from_der(chain, key, provider()).map_err(CredentialsError::OtherKey)?;
        let (first, rest) = own.cert.split_first().ok_or(CredentialsError::Missing {
            file: FILES[1],
            what: "certificate",
        })?;
        let identity = identity_of(first).map_err(|error| damaged(FILES[1], error))??;
        let expires_at = expires_at(first)?;
        let parsed = ParsedCertificate::try_from(first).map_err(CredentialsError::NotTrusted)?;
        let algorithms = provider().signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &roots,
            rest,
            UnixTime::now(),
            algorithms,
        )
        .map_err(CredentialsError::NotTrusted)?;
        // It is shown by whoever opens a connection as well, and may be made for servers alone.
        let (store, trusted) = (identity.store.clone(), Arc::clone(&roots));
        Verifier::new(store, Admits::Members, trusted, Arc::clone(provider()))
            .map_err(setup)?
            .clients
            .verify_client_cert(first, rest, UnixTime::now())
            .map_err(CredentialsError::NotTrusted)?;
        Ok(Credentials {
            identity,
            expires_at,
            roots,
            own: Arc::new(own),
            files,
        })
    }

    /// Whether a process could use these: `ca.crt`, `tls.crt` and `tls.key`.
    pub fn check(files: [&str; 3]) -> Result<(), CredentialsError> {
        Credentials::of_files(files.map(|file| file.as_bytes().to_vec())).map(drop)
    }

    /// Whom the certificate names.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// When the certificate ends.
    pub fn expires_at(&self) -> SystemTime {
        self.expires_at
    }

    /// For connections that others open: they have to show who they are.
    pub(crate) fn for_accepting(&self, admits: Admits) -> Result<ServerConfig, CredentialsError> {
        let verifier = Arc::new(self.verifier(admits)?);
        let mut config = ServerConfig::builder_with_provider(Arc::clone(provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(setup)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(Arc::clone(
                &self.own,
            ))));
        // A session that is taken up again would not look at certificates, which may have ended since.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    /// For connections that this process opens.
    pub(crate) fn for_connecting(&self, admits: Admits) -> Result<ClientConfig, CredentialsError> {
        let verifier = Arc::new(self.verifier(admits)?);
        let mut config = ClientConfig::builder_with_provider(Arc::clone(provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(setup)?
            .dangerous() // Names of machines say nothing here: the verifier looks at the identity.
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(Arc::clone(
                &self.own,
            ))));
        config.enable_sni = false;
        config.resumption = rustls::client::Resumption::disabled();
        Ok(config)
    }

    fn verifier(&self, admits: Admits) -> Result<Verifier, CredentialsError> {
        let (roots, provider) = (Arc::clone(&self.roots), Arc::clone(provider()));
        Verifier::new(self.identity.store.clone(), admits, roots, provider).map_err(setup)
    }
}

/// The algorithms: AES with 128 bits first, for which processors have instructions.
pub(crate) fn provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| {
        Arc::new(CryptoProvider {
            cipher_suites: vec![
                ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
                ring::cipher_suite::TLS13_AES_256_GCM_SHA384,
                ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            ],
            ..ring::default_provider()
        })
    })
}

fn read_files(folder: &Path) -> Result<[Vec<u8>; 3], CredentialsError> {
    let mut files = [const { Vec::new() }; 3];
    for (file, name) in files.iter_mut().zip(FILES) {
        let path = folder.join(name);
        let length = fs::metadata(&path).map(|metadata| metadata.len());
        let read = match length {
            Ok(bytes) if bytes > FILE_BYTES => {
                return Err(CredentialsError::TooLong { path, bytes });
            }
            Ok(_) => fs::read(&path),
            Err(error) => Err(error),
        };
        *file = read.map_err(|error| CredentialsError::Read { path, error })?;
    }
    Ok(files)
}

fn certificates(
    file: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let found = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| damaged(file, error))?;
    match found.is_empty() {
        false => Ok(found),
        true => Err(CredentialsError::Missing {
            file,
            what: "certificate",
        }),
    }
}

fn expires_at(certificate: &CertificateDer<'_>) -> Result<SystemTime, CredentialsError> {
    Ok(UNIX_EPOCH + end_of(certificate).map_err(|error| damaged(FILES[1], error))?)
}

/// When a certificate ends, since 1970.
pub(crate) fn end_of(certificate: &CertificateDer<'_>) -> Result<Duration, x509_cert::der::Error> {
    let certificate = x509_cert::Certificate::from_der(certificate)?;
    Ok(certificate
        .tbs_certificate()
        .validity()
        .not_after
        .to_unix_duration())
}

fn why_not(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(error) => flaw(error),
        error => error.to_string(),
    }
}

fn damaged(file: &'static str, error: impl ToString) -> CredentialsError {
    CredentialsError::Damaged {
        file,
        error: error.to_string(),
    }
}

fn setup(error: impl ToString) -> CredentialsError {
    CredentialsError::Setup(error.to_string())
}
