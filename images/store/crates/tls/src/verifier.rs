//! Whether a certificate is good: made by an authority that is trusted, of this store, and of a role that may be where it is.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};

use crate::identity::{self, Identity, IdentityError, Role, StoreId};

/// Who may be at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admits {
    Coordinator,
    Members,
    /// Those who administer the store.
    Operators,
}

impl Admits {
    fn admits(&self, role: &Role) -> bool {
        matches!(
            (self, role),
            (Admits::Coordinator, Role::Coordinator)
                | (Admits::Members, Role::Member(_))
                | (Admits::Operators, Role::Operator)
        )
    }
}

impl fmt::Display for Admits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Admits::Coordinator => f.write_str("the coordinator"),
            Admits::Members => f.write_str("members"),
            Admits::Operators => f.write_str("operators"),
        }
    }
}

/// Why a good certificate does not count here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Nobody(#[from] IdentityError),
    #[error("{identity} is of another store than {store}")]
    OtherStore { identity: Identity, store: StoreId },
    #[error("{identity} may not be here: {admits} may")]
    OtherRole { identity: Identity, admits: Admits },
}

/// Checks what the other side shows.
#[derive(Debug)]
pub(crate) struct Verifier {
    pub(crate) store: StoreId,
    pub(crate) admits: Admits,
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) provider: Arc<CryptoProvider>,
    /// For the chains of those that connect.
    pub(crate) clients: Arc<dyn ClientCertVerifier>,
}

impl Verifier {
    pub(crate) fn new(
        store: StoreId,
        admits: Admits,
        roots: Arc<RootCertStore>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Verifier, rustls::server::VerifierBuilderError> {
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()?;
        Ok(Verifier {
            store,
            admits,
            roots,
            provider,
            clients,
        })
    }

    fn check_identity(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let identity = match identity_of(certificate)? {
            Ok(identity) => identity,
            Err(error) => return Err(refused(Refusal::Nobody(error))),
        };
        if identity.store != self.store {
            let store = self.store.clone();
            return Err(refused(Refusal::OtherStore { identity, store }));
        }
        if !self.admits.admits(&identity.role) {
            let admits = self.admits.clone();
            return Err(refused(Refusal::OtherRole { identity, admits }));
        }
        Ok(())
    }
}

/// The holder's identity in a certificate that was checked.
pub(crate) fn identity_of(
    certificate: &CertificateDer<'_>,
) -> Result<Result<Identity, IdentityError>, Error> {
    let parsed = webpki::EndEntityCert::try_from(certificate)
        .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
    Ok(identity::of_uris(parsed.valid_uri_names()))
}

fn refused(refusal: Refusal) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(refusal))))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(end_entity)?,
            &self.roots,
            intermediates,
            now,
            self.provider.signature_verification_algorithms.all,
        )?;
        self.check_identity(end_entity)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.clients.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .clients
            .verify_client_cert(end_entity, intermediates, now)?;
        self.check_identity(end_entity)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.clients
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.clients
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.clients.supported_verify_schemes()
    }
}
