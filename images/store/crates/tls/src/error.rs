//! Why a connection is not encrypted, in words that say what to look at.

use std::io;

use rustls::{AlertDescription, CertificateError};

use crate::credentials::CredentialsError;
use crate::identity::IdentityError;
use crate::verifier::Refusal;

/// Why a connection cannot be encrypted, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other side is not whom it should be.
    #[error("the other side shows a certificate that does not count here: {0}")]
    Refused(Box<Refusal>),
    #[error("the other side shows a certificate that is not good: {}", flaw(.0))]
    Certificate(CertificateError),
    #[error("the other side shows no certificate")]
    NoCertificate,
    #[error("the other side refuses this process's certificate: {}", why(*.0))]
    NotAccepted(AlertDescription),
    #[error("the other side does not speak TLS")]
    NotTls,
    #[error("TLS: {0}")]
    Tls(rustls::Error),
    #[error("TLS: a message is too long")]
    TooLong,
    #[error("TLS: nothing can be sent any more")]
    Ended,
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("the certificate of the other side cannot be read: {0}")]
    Encoding(String),
}

/// Why a certificate is not good.
pub(crate) fn flaw(error: &CertificateError) -> String {
    match error {
        // An authority of the same name with another key is another authority.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its authority is not in the ca.crt of this side".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has ended (look at the clocks)".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it has not begun to count (look at the clocks)".to_owned()
        }
        other => other.to_string(),
    }
}

/// The meaning of an alert about a certificate.
fn why(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateUnknown | AlertDescription::AccessDenied => {
            "it may not be here, or is of another store".to_owned()
        }
        AlertDescription::CertificateExpired => {
            "it has ended, or has not begun (look at the clocks)".to_owned()
        }
        // The second: an authority there has the name of this one, and another key.
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "its authority is not trusted there".to_owned()
        }
        other => format!("{other:?}"),
    }
}

impl ChannelError {
    /// The error of TLS within one of a stack that does its own I/O.
    pub fn within(error: &io::Error) -> Option<ChannelError> {
        let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(error.clone().into())
    }
}

impl From<rustls::Error> for ChannelError {
    fn from(error: rustls::Error) -> ChannelError {
        match error {
            rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
                match other.0.downcast_ref::<Refusal>() {
                    Some(refusal) => ChannelError::Refused(Box::new(refusal.clone())),
                    None => ChannelError::Certificate(CertificateError::Other(other)),
                }
            }
            rustls::Error::InvalidCertificate(error) => ChannelError::Certificate(error),
            rustls::Error::NoCertificatesPresented => ChannelError::NoCertificate,
            rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType) => {
                ChannelError::NotTls
            }
            rustls::Error::AlertReceived(
                alert @ (AlertDescription::CertificateUnknown
                | AlertDescription::AccessDenied
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRequired
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::DecryptError
                | AlertDescription::UnknownCA),
            ) => ChannelError::NotAccepted(alert),
            error => ChannelError::Tls(error),
        }
    }
}
