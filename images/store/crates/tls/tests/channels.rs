//! Two channels, one at each end of a wire that is only memory.

use std::io::IoSlice;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use rcbox_tls::{Admits, Channel, ChannelError, Guard, RECORD_BYTES, is_hello};
use tempfile::TempDir;
use test_certificates::{Authority, Issued, Span, USUAL, write};

const COORDINATOR: &str = "rcbox://default/box/coordinator";
const MEMBER: &str = "rcbox://default/box/member/box-master-0";
const OPERATOR: &str = "rcbox://default/box/operator";

/// A process's files and what it makes of them.
struct Party {
    folder: TempDir,
    guard: Guard,
}

impl Party {
    fn new(authority: &Authority, uri: &str) -> Party {
        let folder = authority.folder(uri);
        let guard = Guard::open(folder.path()).unwrap();
        Party { folder, guard }
    }

    /// With a certificate that is no good for its own process either.
    fn of(folder: TempDir) -> Party {
        let guard = Guard::open(folder.path()).unwrap();
        Party { folder, guard }
    }
}

/// Carries what one has sealed to the other; gives the plain text, in as many pieces as `step` says.
fn carry(from: &mut Channel, to: &mut Channel, step: usize) -> Result<Vec<u8>, ChannelError> {
    let mut scratch = vec![0; 200 << 10];
    let mut space = vec![0; 1000];
    let mut plain = Vec::new();
    while !from.sealed().is_empty() {
        let begun = to.begin(&mut scratch);
        let count = from.sealed().len().min(step);
        scratch[begun..begun + count].copy_from_slice(&from.sealed()[..count]);
        from.sent(count);
        let opened = to.open(&mut scratch[..begun + count], &mut space)?;
        plain.extend_from_slice(&space[..opened.bytes]);
        while to.has_plain() {
            let taken = to.take_plain(&mut space);
            plain.extend_from_slice(&space[..taken]);
        }
    }
    Ok(plain)
}

/// Has both speak until neither has anything to say.
fn shake(client: &mut Channel, server: &mut Channel, step: usize) -> Result<(), ChannelError> {
    while !client.sealed().is_empty() || !server.sealed().is_empty() {
        carry(client, server, step)?;
        carry(server, client, step)?;
    }
    assert!(client.is_established() && server.is_established());
    Ok(())
}

fn pair(
    admits_client: Admits,
    admits_server: Admits,
    client: &Party,
    server: &Party,
) -> (Channel, Channel) {
    (
        client.guard.connect(admits_server).unwrap(),
        server.guard.accept(admits_client).unwrap(),
    )
}

fn open_pair() -> (Channel, Channel) {
    let authority = Authority::new("one");
    let client = Party::new(&authority, MEMBER);
    let server = Party::new(&authority, COORDINATOR);
    let (mut client, mut server) = pair(Admits::Members, Admits::Coordinator, &client, &server);
    shake(&mut client, &mut server, 1 << 20).unwrap();
    (client, server)
}

#[test]
fn each_side_knows_the_other() {
    let (mut client, mut server) = open_pair();
    assert_eq!(client.peer().unwrap().to_string(), COORDINATOR);
    assert_eq!(server.peer().unwrap().to_string(), MEMBER);
    let until = server.expires_at().unwrap();
    let left = until.duration_since(SystemTime::now()).unwrap();
    assert!(left > Duration::from_secs(23 * 3600) && left < Duration::from_secs(25 * 3600));
    client.seal(&[IoSlice::new(b"hello")], 1 << 20).unwrap();
    assert!(!client.sealed().windows(5).any(|part| part == b"hello"));
    assert_eq!(carry(&mut client, &mut server, 7).unwrap(), b"hello");
    server.seal_end().unwrap();
    let mut scratch = server.sealed().to_vec();
    let opened = client.open(&mut scratch, &mut []).unwrap();
    assert!(opened.is_end);
}

#[test]
fn a_handshake_may_come_byte_by_byte() {
    let authority = Authority::new("one");
    let client = Party::new(&authority, MEMBER);
    let server = Party::new(&authority, COORDINATOR);
    let (mut client, mut server) = pair(Admits::Members, Admits::Coordinator, &client, &server);
    shake(&mut client, &mut server, 1).unwrap();
}

/// Whoever comes with which certificate, and what becomes of it: the matrix of the threat model.
#[test]
fn whoever_should_not_be_here_is_not() {
    let (ours, foreign) = (Authority::new("ours"), Authority::new("foreign"));
    let server = Party::new(&ours, COORDINATOR);
    let refused = |client: &Party| {
        let (mut client, mut server) = pair(Admits::Members, Admits::Coordinator, client, &server);
        let error = shake(&mut client, &mut server, 1 << 20).unwrap_err();
        assert!(!server.is_established(), "{error}");
        (error, client, server)
    };
    // The right authority, another role.
    for uri in [COORDINATOR, OPERATOR, "rcbox://default/box/user/a"] {
        let (error, mut client, mut server) = refused(&Party::new(&ours, uri));
        assert!(matches!(error, ChannelError::Refused(_)), "{error}");
        assert!(error.to_string().contains(uri), "{error}");
        // The other side is told why.
        let told = carry(&mut server, &mut client, 1 << 20).unwrap_err();
        assert!(matches!(told, ChannelError::NotAccepted(_)), "{told}");
    }
    // Of another store of the same authority: each side sees that, and whoever opens the connection is the first.
    let (error, ..) = refused(&Party::new(&ours, "rcbox://other/box/member/a"));
    assert!(matches!(error, ChannelError::Refused(_)), "{error}");
    assert!(error.to_string().contains("of another store"), "{error}");
    // An authority of somebody else, which the client trusts besides the right one.
    let folder = tempfile::tempdir().unwrap();
    let both = format!("{}{}", ours.pem(), foreign.pem());
    write(folder.path(), &both, &foreign.issue(&[MEMBER], USUAL));
    let (error, ..) = refused(&Party::of(folder));
    assert!(matches!(error, ChannelError::Certificate(_)), "{error}");
    // The right certificate, at a server of somebody else.
    let (mut client, mut server) = pair(
        Admits::Members,
        Admits::Coordinator,
        &Party::new(&ours, MEMBER),
        &Party::new(&foreign, COORDINATOR),
    );
    let error = shake(&mut client, &mut server, 1 << 20).unwrap_err();
    assert!(matches!(error, ChannelError::Certificate(_)), "{error}");
}

#[test]
fn plain_bytes_are_no_tls() {
    let authority = Authority::new("one");
    let server = Party::new(&authority, COORDINATOR);
    let mut channel = server.guard.accept(Admits::Members).unwrap();
    let error = channel
        .open(&mut b"rcbmem\x01\x00 and so on".to_vec(), &mut [])
        .unwrap_err();
    assert!(matches!(error, ChannelError::NotTls), "{error}");
    let client = server.guard.connect(Admits::Members).unwrap();
    assert_eq!(is_hello(client.sealed()), Some(true));
    assert_eq!(is_hello(&client.sealed()[..3]), None);
    assert_eq!(is_hello(b"rcbmem\x01\x00"), Some(false));
    for nonce in [0u64, 1, 22, 0x0316, 0x01_0316, u64::from(u32::MAX)] {
        let beginning = [&nonce.to_le_bytes()[..], &[1, 0, 0, 0]].concat();
        assert_eq!(is_hello(&beginning), Some(false), "{nonce:#x}");
    }
}

/// The protocol remembers where in what came it is; an error in the middle of a message must not make it look beyond the end.
#[test]
fn a_message_in_pieces_may_end_in_nonsense() {
    let authority = Authority::new("one");
    let server = Party::new(&authority, COORDINATOR);
    let hello = server
        .guard
        .connect(Admits::Members)
        .unwrap()
        .sealed()
        .to_vec();
    let body = &hello[5..];
    for pieces in 1..4 {
        for nonsense in [
            &[99, 3, 3, 0, 1, 0][..],
            &[22, 3, 3, 0, 4, 9, 9, 9, 9],
            &[21, 3, 3, 0, 2, 2, 40],
        ] {
            let mut channel = server.guard.accept(Admits::Members).unwrap();
            let mut arrived = Vec::new();
            for piece in body[..100].chunks(100 / pieces) {
                arrived.extend([22, 3, 1, 0, piece.len() as u8]);
                arrived.extend(piece);
            }
            arrived.extend(nonsense);
            for step in [arrived.len(), 7] {
                let mut scratch = vec![0; 200 << 10];
                for part in arrived.chunks(step) {
                    let begun = channel.begin(&mut scratch);
                    scratch[begun..begun + part.len()].copy_from_slice(part);
                    let opened = channel.open(&mut scratch[..begun + part.len()], &mut []);
                    if opened.is_err() {
                        break;
                    }
                }
                channel = server.guard.accept(Admits::Members).unwrap();
            }
        }
    }
}

#[test]
fn new_files_count_for_new_connections() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let both = format!("{}{}", old.pem(), new.pem());
    let member = Party::new(&old, MEMBER);
    let coordinator = Party::new(&old, COORDINATOR);
    let shaken = || {
        let (mut client, mut server) =
            pair(Admits::Members, Admits::Coordinator, &member, &coordinator);
        shake(&mut client, &mut server, 1 << 20).map(|()| (client, server))
    };
    let (mut client, mut server) = shaken().unwrap();
    assert!(!member.guard.reload().unwrap());
    // The new authority is trusted everywhere before it issues; the old one for as long as its certificates are there.
    for (party, authority, authorities) in [
        (&member, &old, &both),
        (&coordinator, &old, &both),
        (&member, &new, &both),
        (&coordinator, &new, &both),
        (&member, &new, &new.pem()),
        (&coordinator, &new, &new.pem()),
    ] {
        let uri = party.guard.credentials().identity().to_string();
        write(
            party.folder.path(),
            authorities,
            &authority.issue(&[&uri], USUAL),
        );
        assert!(party.guard.reload().unwrap());
        shaken().unwrap();
    }
    // What stood before stands.
    client
        .seal(&[IoSlice::new(b"still here")], 1 << 20)
        .unwrap();
    assert_eq!(
        carry(&mut client, &mut server, 1 << 20).unwrap(),
        b"still here"
    );
    // One of two that does not follow is not understood, and nothing else happens.
    write(
        member.folder.path(),
        &old.pem(),
        &old.issue(&[MEMBER], USUAL),
    );
    assert!(member.guard.reload().unwrap());
    assert!(shaken().is_err());
}

#[test]
fn files_that_cannot_be_used_are_explained() {
    let (ours, foreign) = (Authority::new("ours"), Authority::new("foreign"));
    let good = ours.issue(&[MEMBER], USUAL);
    let span = |from, until| Span {
        from: time::Duration::hours(from),
        until: time::Duration::hours(until),
    };
    let with = |certificate: &str, key: &str| Issued {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
    };
    for (authorities, issued, part) in [
        (
            "",
            with(&good.certificate, &good.key),
            "ca.crt holds no certificate",
        ),
        (
            &*ours.pem(),
            with("", &good.key),
            "tls.crt holds no certificate",
        ),
        (
            &*ours.pem(),
            with(&good.certificate, ""),
            "tls.key holds no private key",
        ),
        (
            &*ours.pem(),
            with(&good.certificate, &ours.issue(&[MEMBER], USUAL).key),
            "is not that of the certificate",
        ),
        (
            &*foreign.pem(),
            with(&good.certificate, &good.key),
            "not good for those who trust ca.crt",
        ),
        (&*ours.pem(), ours.issue(&[], USUAL), "has no URI"),
        (
            &*ours.pem(),
            ours.issue(&[MEMBER, OPERATOR], USUAL),
            "several URIs",
        ),
        (
            &*ours.pem(),
            ours.issue(&[MEMBER], span(-2, -1)),
            "not good for those who trust ca.crt",
        ),
        (
            &*ours.pem(),
            ours.issue(&[MEMBER], span(1, 2)),
            "not good for those who trust ca.crt",
        ),
        (
            "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
            with(&good.certificate, &good.key),
            "ca.crt is damaged",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), authorities, &issued);
        let error = Guard::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains(part), "'{error}' has no '{part}'");
    }
    let nowhere = tempfile::tempdir().unwrap();
    let error = Guard::open(nowhere.path()).unwrap_err().to_string();
    assert!(
        error.contains("cannot read") && error.contains("ca.crt"),
        "{error}"
    );
    // A process that runs goes on with what it has.
    let party = Party::new(&ours, MEMBER);
    for issued in [
        ours.issue(&[OPERATOR], USUAL),
        ours.issue(&[], USUAL),
        with(&good.certificate, ""),
    ] {
        write(party.folder.path(), &ours.pem(), &issued);
        party.guard.reload().unwrap_err();
        assert_eq!(party.guard.credentials().identity().to_string(), MEMBER);
    }
}

/// A record that was changed on its way is no message.
#[test]
fn a_flipped_bit_ends_a_connection() {
    for place in [3, 5, 20, 30] {
        let (mut client, mut server) = open_pair();
        client.seal(&[IoSlice::new(b"something")], 1 << 20).unwrap();
        let mut bytes = client.sealed().to_vec();
        bytes[place] ^= 1;
        let mut space = [0; 100];
        let opened = server.open(&mut bytes, &mut space);
        // A length that has grown makes the other side wait for more, which is not there.
        let waits = place == 3 && opened.as_ref().is_ok_and(|opened| opened.bytes == 0);
        assert!(opened.is_err() || waits, "byte {place}: {opened:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Whatever is sent, in whatever pieces, arrives as it was; what is kept meanwhile is bounded.
    #[test]
    fn bytes_arrive_in_order(
        messages in prop::collection::vec((0usize..70_000, 0usize..40_000), 1..6),
        step in 1usize..60_000,
        most in 1usize..100_000,
    ) {
        let (mut client, mut server) = open_pair();
        let mut counter = 0u8;
        let mut next = |length: usize| -> Vec<u8> {
            std::iter::repeat_with(|| { counter = counter.wrapping_add(1); counter }).take(length).collect()
        };
        for (one, other) in messages {
            let whole = [next(one), next(other)].concat();
            let mut gone = 0;
            let mut arrived = Vec::new();
            while gone < whole.len() {
                let (head, tail) = whole[gone..].split_at((whole.len() - gone) / 3);
                gone += client.seal(&[IoSlice::new(head), IoSlice::new(tail)], most).unwrap();
                prop_assert!(client.sealed().len() <= most + (most / RECORD_BYTES + 3) * 22);
                arrived.extend(carry(&mut client, &mut server, step).unwrap());
            }
            prop_assert_eq!(&arrived, &whole);
            prop_assert!(server.held_bytes() <= 2 * RECORD_BYTES);
        }
    }

    /// Whatever a stranger sends, it is refused or waited for, and little is kept of it.
    #[test]
    fn a_stranger_costs_little(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40_000), 0..8),
        begins_well in any::<bool>(),
    ) {
        let authority = Authority::new("one");
        let server = Party::new(&authority, COORDINATOR);
        let mut channel = server.guard.accept(Admits::Members).unwrap();
        let hello = server.guard.connect(Admits::Members).unwrap().sealed().to_vec();
        let first = if begins_well { vec![hello] } else { Vec::new() };
        let mut scratch = vec![0; 200 << 10];
        for piece in first.into_iter().chain(pieces) {
            let begun = channel.begin(&mut scratch);
            scratch[begun..begun + piece.len()].copy_from_slice(&piece);
            let opened = channel.open(&mut scratch[..begun + piece.len()], &mut []);
            prop_assert!(!channel.is_established() && channel.held_bytes() < 32 << 10);
            if opened.is_err() {
                break;
            }
        }
    }
}
