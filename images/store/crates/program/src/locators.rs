//! From locators on a command line to addresses.

use std::io;
use std::net::{AddrParseError, Ipv4Addr, SocketAddrV4};

use net::Address;
use thiserror::Error;
use wire::locator::{Locator, LocatorError, parse_list};

/// Where a coordinator listens for members, relative to its client port.
pub const MEMBER_PORT_OFFSET: u16 = 100;
/// Where a shard listens for other servers, relative to its client port.
pub const PEER_PORT_OFFSET: u16 = 100;
/// Where it serves the admin API.
pub const ADMIN_PORT_OFFSET: u16 = 200;
/// Where any program serves health and metrics.
pub const HTTP_PORT_OFFSET: u16 = 300;

/// Why a program cannot listen, or cannot be reached, as its command line says.
#[derive(Debug, Error)]
pub enum AddressError {
    #[error(transparent)]
    Locator(#[from] LocatorError),
    #[error("locator {locator}: {option}={text} is not a port number")]
    NoPort {
        locator: String,
        option: String,
        text: String,
    },
    #[error(transparent)]
    PortBeyond(#[from] PortBeyond),
    #[error("locator {locator}: {error}")]
    PortOfLocatorBeyond { locator: String, error: PortBeyond },
    #[error("cannot listen at {locator}: {error}")]
    Unresolved { locator: String, error: io::Error },
    #[error("{text:?} is no HOST:PORT such as 0.0.0.0:11400")]
    NoHostPort {
        text: String,
        source: AddrParseError,
    },
    #[error("there is no locator")]
    NoLocator,
    #[error(
        "no tcp locator to listen at: add one, such as -L tcp:host=0.0.0.0,port=12100; clients without a faster way use it"
    )]
    NoTcp,
    #[error(
        "more than one tcp locator to listen at: give one; for all addresses of the machine host=0.0.0.0"
    )]
    SeveralTcp,
    /// Of the value of an option.
    #[error("{option}: {error}")]
    Option {
        option: &'static str,
        error: Box<AddressError>,
    },
    #[error("--advertise {0}: no -L is of this protocol; add one, or leave it out")]
    NotListenedAt(String),
    #[error(
        "{bound} is at all addresses, and clients are told the name {host}, which is none that datagrams can be sent to: add \
         --advertise '{tcp};{protocol}:host=ADDRESS,port=0'"
    )]
    NameForDatagrams {
        bound: String,
        protocol: String,
        host: String,
        tcp: String,
    },
    #[error(
        "the address to listen on is 0.0.0.0, which says nothing to others: add \
         --advertise tcp:host=ADDRESS,port=PORT with an address under which clients reach this process"
    )]
    NothingToAdvertise,
    #[error(
        "the address to listen on for other servers is 0.0.0.0, which says nothing to them: add \
         --peerAdvertise tcp:host=ADDRESS,port=PORT with an address under which they reach this process"
    )]
    NothingToAdvertiseToPeers,
}

/// A port that is counted from another one is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("port {port} + {offset} is beyond 65535; choose a lower port")]
pub struct PortBeyond {
    port: u16,
    offset: u16,
}

impl AddressError {
    /// As the value of this option has it.
    fn of(option: &'static str) -> impl Fn(AddressError) -> AddressError {
        move |error| AddressError::Option {
            option,
            error: Box::new(error),
        }
    }
}

const ADVERTISE: &str = "--advertise";
const PEER_ADVERTISE: &str = "--peerAdvertise";

/// How to reach one coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coordinator {
    pub client: Address,
    pub member: Address,
    pub admin: Address,
}

/// Parses `-C`: the locators of a coordinator, alternatives separated by `;`. Only `tcp` is spoken.
pub fn coordinators(text: &str) -> Result<Vec<Coordinator>, AddressError> {
    parse_list(text)?.iter().map(coordinator).collect()
}

fn coordinator(locator: &Locator) -> Result<Coordinator, AddressError> {
    let (host, port) = locator.tcp()?;
    let derived = |option: &str, offset: u16| match locator.option(option) {
        Some(text) => text.parse().map_err(|_| AddressError::NoPort {
            locator: locator.to_string(),
            option: option.to_owned(),
            text: text.to_owned(),
        }),
        None => offset_port(port, offset).map_err(|error| AddressError::PortOfLocatorBeyond {
            locator: locator.to_string(),
            error,
        }),
    };
    Ok(Coordinator {
        client: Address::new(host, port),
        member: Address::new(host, derived("memberPort", MEMBER_PORT_OFFSET)?),
        admin: Address::new(host, derived("adminPort", ADMIN_PORT_OFFSET)?),
    })
}

/// `port + offset`; 0 (the kernel chooses) stays 0.
pub fn offset_port(port: u16, offset: u16) -> Result<u16, PortBeyond> {
    match port {
        0 => Ok(0),
        _ => port.checked_add(offset).ok_or(PortBeyond { port, offset }),
    }
}

/// The address that a `tcp` locator tells a program to listen on.
pub fn listen_address(text: &str) -> Result<SocketAddrV4, AddressError> {
    let locator = Locator::parse(text)?;
    let (host, port) = locator.tcp()?;
    Address::new(host, port)
        .resolve()
        .map_err(|error| AddressError::Unresolved {
            locator: locator.to_string(),
            error,
        })
}

/// The address of the one `tcp` locator among several lists.
pub fn tcp_listen_address(lists: &[String]) -> Result<SocketAddrV4, AddressError> {
    let mut found = Vec::new();
    for list in lists {
        let locators = parse_list(list)?;
        found.extend(locators.into_iter().filter(|one| one.protocol() == "tcp"));
    }
    match &found[..] {
        [one] => listen_address(one.original()),
        [] => Err(AddressError::NoTcp),
        _ => Err(AddressError::SeveralTcp),
    }
}

/// `tcp`, a locator that others are told, and beside it those of ports for datagrams: as `given` has them, `offset` beyond the ports that are there, or as
/// they are bound.
///
/// # Errors
/// A port is bound to all addresses, and nothing says under which others reach it.
pub fn with_fast(
    tcp: &str,
    given: Option<&str>,
    bound: &[String],
    index: u16,
    offset: u16,
) -> Result<String, AddressError> {
    let given = given.map(parse_list).transpose();
    let given = given.map_err(|error| AddressError::of(ADVERTISE)(error.into()))?;
    let mut given = given.unwrap_or_default();
    let mut all = tcp.to_owned();
    for bound in bound {
        let bound = Locator::parse(bound)?;
        let alike = given
            .iter()
            .position(|one| one.protocol() == bound.protocol());
        let told = match alike {
            Some(at) => moved(&given.remove(at), &bound, index, offset)
                .map_err(AddressError::of(ADVERTISE))?,
            None => reachable(&bound, tcp)?,
        };
        all.push(';');
        all.push_str(&told);
    }
    match given.iter().find(|one| one.protocol() != "tcp") {
        Some(other) => Err(AddressError::NotListenedAt(other.to_string())),
        None => Ok(all),
    }
}

/// A locator that was given, with the port of this shard.
fn moved(
    given: &Locator,
    bound: &Locator,
    index: u16,
    offset: u16,
) -> Result<String, AddressError> {
    let (host, port) = given.host_and_port()?;
    let (_, bound_port) = bound.host_and_port()?;
    let port = match port {
        0 => bound_port,
        port => offset_port(offset_port(port, index)?, offset)?,
    };
    let mac = given.option("mac").or(bound.option("mac"));
    let mac = mac.map(|mac| format!("mac={mac},")).unwrap_or_default();
    Ok(format!("{}:host={host},{mac}port={port}", given.protocol()))
}

/// A port as it is bound; if that is to all addresses, under the one of `tcp`.
fn reachable(bound: &Locator, tcp: &str) -> Result<String, AddressError> {
    let (host, port) = bound.host_and_port()?;
    if host != "0.0.0.0" {
        return Ok(bound.original().to_owned());
    }
    let (host, _) = tcp_of(tcp)?;
    match host.parse::<Ipv4Addr>() {
        Ok(ip) => Ok(format!("{}:host={ip},port={port}", bound.protocol())),
        Err(_) => Err(AddressError::NameForDatagrams {
            bound: bound.to_string(),
            protocol: bound.protocol().to_owned(),
            host,
            tcp: tcp.to_owned(),
        }),
    }
}

/// Parses `HOST:PORT` of a listener; the host is an IPv4 address.
pub fn host_port(text: &str) -> Result<SocketAddrV4, AddressError> {
    text.parse().map_err(|source| AddressError::NoHostPort {
        text: text.to_owned(),
        source,
    })
}

/// `preferred`, or the listener next to `base` at the usual offset.
pub fn beside(
    preferred: Option<SocketAddrV4>,
    base: SocketAddrV4,
    offset: u16,
) -> Result<SocketAddrV4, PortBeyond> {
    match preferred {
        Some(address) => Ok(address),
        None => Ok(SocketAddrV4::new(
            *base.ip(),
            offset_port(base.port(), offset)?,
        )),
    }
}

/// The locator that others are told, for a listener at `bound` that is the `index`th of its process.
///
/// # Errors
/// Nothing was given to advertise and `bound` stands for all addresses of the machine, so that nobody could use it.
pub fn advertised(
    given: Option<&str>,
    bound: SocketAddrV4,
    index: u16,
) -> Result<String, AddressError> {
    let Some(given) = given else {
        return match *bound.ip() {
            Ipv4Addr::UNSPECIFIED => Err(AddressError::NothingToAdvertise),
            ip => Ok(format!("tcp:host={ip},port={}", bound.port())),
        };
    };
    let locator = tcp_of(given).and_then(|found| with_port(found, bound, index));
    locator.map_err(AddressError::of(ADVERTISE))
}

/// The locator that other servers are told of a backup that listens at `bound`: what was given for that, or where clients are told that the
/// process is, with the port that is listened on.
pub fn peer_advertised(
    given: Option<&str>,
    of_clients: Option<&str>,
    bound: SocketAddrV4,
    index: u16,
) -> Result<String, AddressError> {
    if let Some(given) = given {
        let locator = tcp_of(given).and_then(|found| with_port(found, bound, index));
        return locator.map_err(AddressError::of(PEER_ADVERTISE));
    }
    match of_clients {
        Some(of_clients) => {
            let (host, _) = tcp_of(of_clients).map_err(AddressError::of(ADVERTISE))?;
            Ok(format!("tcp:host={host},port={}", bound.port()))
        }
        None if bound.ip().is_unspecified() => Err(AddressError::NothingToAdvertiseToPeers),
        None => Ok(format!("tcp:host={},port={}", bound.ip(), bound.port())),
    }
}

/// Of the first `tcp` locator in a list.
fn tcp_of(list: &str) -> Result<(String, u16), AddressError> {
    let locators = parse_list(list)?;
    let tcp = locators.iter().find(|one| one.protocol() == "tcp");
    let locator = tcp.or(locators.first());
    let (host, port) = locator.ok_or(AddressError::NoLocator)?.tcp()?;
    Ok((host.to_owned(), port))
}

/// Port 0 stands for the one that is listened on.
fn with_port(
    (host, port): (String, u16),
    bound: SocketAddrV4,
    index: u16,
) -> Result<String, AddressError> {
    let port = match port {
        0 => bound.port(),
        port => offset_port(port, index)?,
    };
    Ok(format!("tcp:host={host},port={port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_derive_from_the_client_port_unless_given() {
        let found = coordinators(
            "tcp:host=box.default.svc,port=11100;tcp:host=10.0.0.1,port=5,memberPort=7,adminPort=8",
        );
        let expected = vec![
            Coordinator {
                client: Address::new("box.default.svc", 11100),
                member: Address::new("box.default.svc", 11200),
                admin: Address::new("box.default.svc", 11300),
            },
            Coordinator {
                client: Address::new("10.0.0.1", 5),
                member: Address::new("10.0.0.1", 7),
                admin: Address::new("10.0.0.1", 8),
            },
        ];
        assert_eq!(found.unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_a_reason() {
        let error = |text| coordinators(text).unwrap_err().to_string();
        assert!(
            error("infrc:host=a,port=1").contains("use tcp"),
            "{}",
            error("infrc:host=a,port=1")
        );
        assert!(error("tcp:host=a,port=65500").contains("beyond 65535"));
        assert!(error("tcp:host=a,port=1,memberPort=x").contains("memberPort=x"));
        assert!(error("nonsense").contains("nonsense"));
    }

    #[test]
    fn an_address_that_says_nothing_is_not_advertised() {
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 12100);
        assert!(
            advertised(None, any, 0)
                .unwrap_err()
                .to_string()
                .contains("--advertise")
        );
        assert_eq!(
            advertised(Some("tcp:host=10.1.2.3,port=12100"), any, 2).unwrap(),
            "tcp:host=10.1.2.3,port=12102"
        );
        assert_eq!(
            advertised(Some("tcp:host=10.1.2.3,port=0"), any, 2).unwrap(),
            "tcp:host=10.1.2.3,port=12100"
        );
        let local = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9);
        assert_eq!(
            advertised(None, local, 3).unwrap(),
            "tcp:host=127.0.0.1,port=9"
        );
    }

    #[test]
    fn datagrams_are_advertised_beside_tcp() {
        let bound = [
            "fast+udp:host=0.0.0.0,port=12101".to_owned(),
            "fast+dpdk:host=10.0.1.2,mac=02:00:00:00:00:01,port=12248".to_owned(),
        ];
        let tcp = "tcp:host=10.0.0.2,port=12101";
        assert_eq!(
            with_fast(tcp, None, &bound, 1, 0).unwrap(),
            "tcp:host=10.0.0.2,port=12101;fast+udp:host=10.0.0.2,port=12101;\
             fast+dpdk:host=10.0.1.2,mac=02:00:00:00:00:01,port=12248"
        );
        let given = "tcp:host=10.9.0.2,port=12100;fast+udp:host=10.9.0.2,port=500;fast+dpdk:host=10.9.1.2,port=0";
        assert_eq!(
            with_fast(tcp, Some(given), &bound, 1, 0).unwrap(),
            "tcp:host=10.0.0.2,port=12101;fast+udp:host=10.9.0.2,port=501;\
             fast+dpdk:host=10.9.1.2,mac=02:00:00:00:00:01,port=12248"
        );
        let peers = bound
            .clone()
            .map(|locator| locator.replace("port=12", "port=13"));
        assert_eq!(
            with_fast("tcp:host=10.0.0.2,port=12201", Some(given), &peers, 1, 100).unwrap(),
            "tcp:host=10.0.0.2,port=12201;fast+udp:host=10.9.0.2,port=601;\
             fast+dpdk:host=10.9.1.2,mac=02:00:00:00:00:01,port=13248"
        );
        let error = with_fast("tcp:host=name,port=1", None, &bound, 0, 0);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("--advertise"), "{error}");
        let error = with_fast(tcp, Some(given), &[], 0, 0);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("no -L is of this protocol"), "{error}");
        assert_eq!(with_fast(tcp, None, &[], 0, 0).unwrap(), tcp);
    }

    #[test]
    fn there_is_one_tcp_locator_to_listen_at() {
        let listen = |lists: &[&str]| {
            let lists: Vec<String> = lists.iter().map(ToString::to_string).collect();
            tcp_listen_address(&lists)
        };
        let expected = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7);
        let fast = "fast+udp:host=127.0.0.1,port=8";
        assert_eq!(
            listen(&[fast, "tcp:host=127.0.0.1,port=7"]).unwrap(),
            expected
        );
        assert_eq!(
            listen(&["tcp:host=127.0.0.1,port=7;fast+udp:host=127.0.0.1,port=8"]).unwrap(),
            expected
        );
        assert!(matches!(listen(&[fast]), Err(AddressError::NoTcp)));
        let two = listen(&["tcp:host=127.0.0.1,port=7", "tcp:host=127.0.0.1,port=9"]);
        assert!(matches!(two, Err(AddressError::SeveralTcp)));
    }

    #[test]
    fn a_backup_is_where_its_process_is_unless_said_otherwise() {
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 12201);
        let local = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 12201);
        let clients = Some("tcp:host=10.1.2.3,port=12100");
        let locator = |given, clients, bound| peer_advertised(given, clients, bound, 1);
        assert_eq!(
            locator(None, clients, any).unwrap(),
            "tcp:host=10.1.2.3,port=12201"
        );
        assert_eq!(
            locator(None, None, local).unwrap(),
            "tcp:host=127.0.0.1,port=12201"
        );
        let given = Some("tcp:host=10.9.9.9,port=700");
        assert_eq!(
            locator(given, clients, any).unwrap(),
            "tcp:host=10.9.9.9,port=701"
        );
        assert!(
            locator(None, None, any)
                .unwrap_err()
                .to_string()
                .contains("--peerAdvertise")
        );
        assert!(
            locator(Some("x"), None, any)
                .unwrap_err()
                .to_string()
                .contains("--peerAdvertise")
        );
    }
}
