//! Certificates for tests: an authority, and folders with what it issues.

#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};

/// From when to when a certificate counts, counted from now.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub from: Duration,
    pub until: Duration,
}

/// From an hour ago for a day.
pub const USUAL: Span = Span {
    from: Duration::hours(-1),
    until: Duration::hours(24),
};

/// Who issues certificates.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, as files have them.
pub struct Issued {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = params(USUAL);
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        Authority { issuer }
    }

    /// What those who trust it have in `ca.crt`.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate with these URIs.
    pub fn issue(&self, uris: &[&str], span: Span) -> Issued {
        let mut params = params(span);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        for uri in uris {
            let uri = (*uri).try_into().expect("ASCII");
            params.subject_alt_names.push(SanType::URI(uri));
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// A folder with `ca.crt`, `tls.crt` and `tls.key` of a new certificate with one URI.
    pub fn folder(&self, uri: &str) -> TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), &self.pem(), &self.issue(&[uri], USUAL));
        folder
    }
}

/// Writes the three files.
pub fn write(folder: &Path, authorities: &str, issued: &Issued) {
    for (name, content) in [
        ("ca.crt", authorities),
        ("tls.crt", &issued.certificate),
        ("tls.key", &issued.key),
    ] {
        fs::write(folder.join(name), content).expect("a file");
    }
}

fn params(span: Span) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = OffsetDateTime::now_utc() + span.from;
    params.not_after = OffsetDateTime::now_utc() + span.until;
    params
}
