//! What a certificate says of its holder: a URI among its alternative names.

use std::fmt;
use std::str::FromStr;

/// A store, by the names of its resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreId {
    pub namespace: String,
    pub name: String,
}

/// What somebody is to a store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Coordinator,
    /// A member, by its name.
    Member(String),
    /// Who administers the store: the operator, or somebody at a shell who has its certificate.
    Operator,
    /// A client's user, by its name.
    User(String),
}

/// A role in a store: `rcbox://NAMESPACE/STORE/coordinator`, `/member/NAME`, `/operator`, `/user/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub store: StoreId,
    pub role: Role,
}

/// Why a text, or a certificate, names nobody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("the certificate has no URI that begins with {SCHEME}")]
    None,
    #[error("the certificate has several URIs that begin with {SCHEME}; it must have one")]
    Several,
    #[error(
        "'{0}' is none of {SCHEME}NAMESPACE/STORE/coordinator, .../member/NAME, .../operator and .../user/NAME"
    )]
    Form(String),
    #[error("'{0}' is no name: lower-case letters, digits, '-' and '.', at most {NAME_BYTES}")]
    Name(String),
}

pub(crate) const SCHEME: &str = "rcbox://";

/// As long as the name of a Kubernetes object may be.
const NAME_BYTES: usize = 253;

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Coordinator => f.write_str("coordinator"),
            Role::Member(name) => write!(f, "member/{name}"),
            Role::Operator => f.write_str("operator"),
            Role::User(name) => write!(f, "user/{name}"),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.store, self.role)
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Identity, IdentityError> {
        let form = || IdentityError::Form(text.chars().take(2 * NAME_BYTES).collect());
        let mut parts = text.strip_prefix(SCHEME).ok_or_else(form)?.split('/');
        let mut next = || parts.next().ok_or_else(form);
        let store = StoreId {
            namespace: name(next()?)?,
            name: name(next()?)?,
        };
        let role = match next()? {
            "coordinator" => Role::Coordinator,
            "operator" => Role::Operator,
            "member" => Role::Member(name(next()?)?),
            "user" => Role::User(name(next()?)?),
            _ => return Err(form()),
        };
        match parts.next() {
            None => Ok(Identity { store, role }),
            Some(_) => Err(form()),
        }
    }
}

/// A part of an identity, if it is a name: nothing in it could be taken for the end of the part.
fn name(part: &str) -> Result<String, IdentityError> {
    let is_allowed = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
    };
    match part.len() {
        1..=NAME_BYTES if part.bytes().all(is_allowed) => Ok(part.to_owned()),
        _ => Err(IdentityError::Name(part.chars().take(NAME_BYTES).collect())),
    }
}

/// The identity among the URIs of a certificate; others than ours mean nothing here.
pub(crate) fn of_uris<'a>(uris: impl Iterator<Item = &'a str>) -> Result<Identity, IdentityError> {
    let mut ours = uris.filter(|uri| uri.starts_with(SCHEME));
    let one = ours.next().ok_or(IdentityError::None)?;
    match ours.next() {
        None => one.parse(),
        Some(_) => Err(IdentityError::Several),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn roles_are_told_apart() {
        for (text, role) in [
            ("rcbox://default/box/coordinator", Role::Coordinator),
            ("rcbox://default/box/operator", Role::Operator),
            (
                "rcbox://default/box/member/box-master-2",
                Role::Member("box-master-2".to_owned()),
            ),
            (
                "rcbox://default/box/user/a.b-c",
                Role::User("a.b-c".to_owned()),
            ),
        ] {
            let identity: Identity = text.parse().unwrap();
            assert_eq!(identity.role, role);
            assert_eq!(identity.store.to_string(), "default/box");
            assert_eq!(identity.to_string(), text);
        }
    }

    #[test]
    fn anything_else_names_nobody() {
        for text in [
            "",
            "rcbox:/default/box/coordinator",
            "rcbox://default/box",
            "rcbox://default/box/",
            "rcbox://default/box/master",
            "rcbox://default/box/member",
            "rcbox://default/box/member/",
            "rcbox://default/box/member/a/b",
            "rcbox://default/box/coordinator/a",
            "rcbox://default//coordinator",
            "rcbox://default/box/member/A",
            "rcbox://default/box/member/a%2fb",
            "RCBOX://default/box/coordinator",
        ] {
            assert!(text.parse::<Identity>().is_err(), "{text}");
        }
        let long = format!("rcbox://default/box/user/{}", "a".repeat(NAME_BYTES + 1));
        assert!(matches!(
            long.parse::<Identity>(),
            Err(IdentityError::Name(_))
        ));
    }

    #[test]
    fn a_certificate_names_one() {
        let one = "rcbox://a/b/operator";
        let uris = |uris: &[&'static str]| of_uris(uris.iter().copied());
        assert_eq!(uris(&["spiffe://a/b", one]).unwrap().to_string(), one);
        assert_eq!(uris(&["spiffe://a/b"]), Err(IdentityError::None));
        assert_eq!(uris(&[one, one]), Err(IdentityError::Several));
    }

    proptest! {
        /// No text is read in two ways: whatever is accepted is written as it was.
        #[test]
        fn reading_is_the_inverse_of_writing(text in "(rcbox://)?[a-z/.A-Z%-]{0,40}") {
            if let Ok(identity) = text.parse::<Identity>() {
                prop_assert_eq!(identity.to_string(), text);
            }
        }
    }
}
