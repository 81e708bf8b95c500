//! Certificates for a store of plain processes: an authority in a folder, and what it issues.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use serde_json::json;
use time::{Duration, OffsetDateTime};
use tls::{Credentials, CredentialsError, Identity, IdentityError};

use crate::Failure;
use crate::out::Out;

/// Of an authority, which is trusted by name of a file, and outlives all that it issues.
const AUTHORITY_DAYS: i64 = 3650;
/// Clocks that are late by less take a new certificate at once.
const EARLIER: Duration = Duration::hours(1);

pub const HELP: &str = "\
Each role has ca.crt, tls.crt and tls.key in its own folder then, which its process is given with --tls. Called again, the
authority stays, and new certificates replace the former ones; processes that run take them within seconds.

Examples:
  rcbox certificates /etc/rcbox coordinator member/m0 member/m1
  server --member m0 --tls /etc/rcbox/member/m0 ...
  rcbox certificates /etc/rcbox --store team/box --days 30 member/m2";

#[derive(Args, Debug)]
pub struct Certificates {
    /// Folder of the authority (ca.crt and ca.key), which is made if there is none. Each role gets a folder in it
    folder: PathBuf,
    /// Roles that get a certificate: coordinator, member/NAME, operator, user/NAME
    #[arg(required = true, value_name = "ROLE")]
    roles: Vec<String>,
    /// The store that they belong to
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "default/local")]
    store: String,
    /// For how many days the certificates count
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: u16,
}

#[derive(Debug, thiserror::Error)]
pub enum CertificatesError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("{path}: {error}")]
    File { path: PathBuf, error: io::Error },
    #[error(
        "{present} is there and {missing} is not: an authority has both; restore it, or name another folder"
    )]
    HalfAnAuthority { present: PathBuf, missing: PathBuf },
    #[error("{path} holds no private key of an authority: {error}")]
    Key { path: PathBuf, error: rcgen::Error },
    #[error(
        "ca.crt and ca.key are none of an authority that this program has made, so nothing was issued: {0}"
    )]
    OtherAuthority(Box<CredentialsError>),
    #[error("a certificate cannot be made: {0}")]
    Making(#[from] rcgen::Error),
}

impl From<CertificatesError> for Failure {
    fn from(error: CertificatesError) -> Failure {
        match error {
            CertificatesError::Identity(error) => Failure::Usage(error.to_string()),
            error => Failure::Because(error.to_string()),
        }
    }
}

pub fn run(wanted: &Certificates, out: &mut Out) -> Result<(), Failure> {
    // All of them are looked at before anything is written.
    let identities = wanted.roles.iter().map(|role| {
        let text = format!("rcbox://{}/{role}", wanted.store);
        text.parse().map_err(CertificatesError::Identity)
    });
    let identities = identities.collect::<Result<Vec<Identity>, _>>()?;
    let authority = Authority::open(&wanted.folder)?;
    if authority.is_new {
        let key = wanted.folder.join("ca.key").display().to_string();
        match out.json {
            true => out.json_line(&json!({ "authority": key }))?,
            false => out.text(&format!(
                "{key}: a new authority; whoever has this file can let anybody in, so keep it away from the store's machines"
            ))?,
        }
    }
    for identity in identities {
        let folder = wanted.folder.join(identity.role.to_string());
        let until = authority.issue(&identity, wanted.days, &folder)?;
        let (folder, until) = (folder.display().to_string(), until.date().to_string());
        match out.json {
            true => out.json_line(&json!({
                "identity": identity.to_string(), "folder": folder, "until": until,
            }))?,
            false => out.text(&format!("{folder}: {identity}, until {until}"))?,
        }
    }
    out.flush()
}

struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
    is_new: bool,
}

impl Authority {
    /// The one in this folder, or a new one.
    fn open(folder: &Path) -> Result<Authority, CertificatesError> {
        let (certificate, key) = (folder.join("ca.crt"), folder.join("ca.key"));
        match (certificate.exists(), key.exists()) {
            (true, true) => {
                let pem = read(&key)?;
                let pair = KeyPair::from_pem(&pem)
                    .map_err(|error| CertificatesError::Key { path: key, error })?;
                Ok(Authority {
                    certificate: read(&certificate)?,
                    issuer: Issuer::new(of_authority(), pair),
                    is_new: false,
                })
            }
            (false, false) => {
                let (params, pair) = (of_authority(), KeyPair::generate()?);
                let pem = params.self_signed(&pair)?.pem();
                // The certificate last: with it the authority is there.
                write(&key, &pair.serialize_pem(), 0o600)?;
                write(&certificate, &pem, 0o644)?;
                Ok(Authority {
                    certificate: pem,
                    issuer: Issuer::new(params, pair),
                    is_new: true,
                })
            }
            (true, false) => Err(CertificatesError::HalfAnAuthority {
                present: certificate,
                missing: key,
            }),
            (false, true) => Err(CertificatesError::HalfAnAuthority {
                present: key,
                missing: certificate,
            }),
        }
    }

    /// Writes what a process of this identity has in its folder: gives until when that counts.
    fn issue(
        &self,
        identity: &Identity,
        days: u16,
        folder: &Path,
    ) -> Result<OffsetDateTime, CertificatesError> {
        let mut params = params(days.into());
        let uri = identity.to_string();
        params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into()?)];
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let (until, pair) = (params.not_after, KeyPair::generate()?);
        let certificate = params.signed_by(&pair, &self.issuer)?.pem();
        let key = pair.serialize_pem();
        Credentials::check([&self.certificate, &certificate, &key])
            .map_err(|error| CertificatesError::OtherAuthority(Box::new(error)))?;
        write(&folder.join("ca.crt"), &self.certificate, 0o644)?;
        write(&folder.join("tls.key"), &key, 0o600)?;
        write(&folder.join("tls.crt"), &certificate, 0o644)?;
        Ok(until)
    }
}

/// The same each time: what is issued names its issuer by this.
fn of_authority() -> CertificateParams {
    let mut params = params(AUTHORITY_DAYS);
    params
        .distinguished_name
        .push(DnType::CommonName, "rcbox authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn params(days: i64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.not_before = OffsetDateTime::now_utc() - EARLIER;
    params.not_after = OffsetDateTime::now_utc() + Duration::days(days);
    params
}

fn read(path: &Path) -> Result<String, CertificatesError> {
    fs::read_to_string(path).map_err(|error| CertificatesError::File {
        path: path.to_owned(),
        error,
    })
}

/// A reader finds the former file or the new one meanwhile, whole.
fn write(path: &Path, content: &str, mode: u32) -> Result<(), CertificatesError> {
    let place = path.with_extension("new");
    let written = path
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| match fs::remove_file(&place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
        .and_then(|()| {
            let mut options = fs::OpenOptions::new();
            let mut file = options
                .write(true)
                .create_new(true)
                .mode(mode)
                .open(&place)?;
            file.write_all(content.as_bytes())?;
            file.sync_all()?;
            fs::rename(&place, path)
        });
    written.map_err(|error| CertificatesError::File {
        path: path.to_owned(),
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    use tls::Guard;

    use crate::out::Stop;

    fn make(folder: &Path, roles: &[&str]) -> Result<(), Failure> {
        let wanted = Certificates {
            folder: folder.to_owned(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            store: "default/local".to_owned(),
            days: 30,
        };
        run(&wanted, &mut Out::new(true, Stop::default()))
    }

    #[test]
    fn what_is_issued_is_what_a_process_takes() {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path(), &["coordinator", "member/m0"]).unwrap();
        let authority = fs::read(folder.path().join("ca.crt")).unwrap();
        // The authority stays, and a later certificate replaces an earlier one.
        let guard = Guard::open(&folder.path().join("member/m0")).unwrap();
        make(folder.path(), &["member/m0", "member/m1"]).unwrap();
        assert_eq!(fs::read(folder.path().join("ca.crt")).unwrap(), authority);
        assert!(guard.reload().unwrap());
        for role in ["coordinator", "member/m0", "member/m1"] {
            let guard = Guard::open(&folder.path().join(role)).unwrap();
            let identity = guard.credentials().identity().to_string();
            assert_eq!(identity, format!("rcbox://default/local/{role}"));
            for key in ["ca.key", &format!("{role}/tls.key")] {
                let metadata = fs::metadata(folder.path().join(key)).unwrap();
                assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{key}");
            }
        }
    }

    #[test]
    fn nothing_is_written_for_a_role_that_does_not_exist() {
        let folder = tempfile::tempdir().unwrap();
        for role in ["master", "member", "member/../x", "user/A"] {
            let failure = make(folder.path(), &["coordinator", role]).unwrap_err();
            assert!(matches!(failure, Failure::Usage(_)), "{role}: {failure:?}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_certificates_of_another_authority_stay_as_they_are() {
        let (ours, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        make(ours.path(), &["coordinator"]).unwrap();
        make(other.path(), &["coordinator"]).unwrap();
        let before = fs::read(ours.path().join("coordinator/tls.crt")).unwrap();
        fs::copy(other.path().join("ca.crt"), ours.path().join("ca.crt")).unwrap();
        let failure = make(ours.path(), &["coordinator"]).unwrap_err();
        assert!(matches!(failure, Failure::Because(_)), "{failure:?}");
        let after = fs::read(ours.path().join("coordinator/tls.crt")).unwrap();
        assert_eq!(before, after);
    }

    #[test]
    fn half_an_authority_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path(), &["coordinator"]).unwrap();
        fs::remove_file(folder.path().join("ca.key")).unwrap();
        let failure = make(folder.path(), &["coordinator"]).unwrap_err();
        let Failure::Because(text) = failure else {
            panic!("{failure:?}");
        };
        assert!(
            text.contains("ca.key") && text.contains("restore"),
            "{text}"
        );
    }
}
