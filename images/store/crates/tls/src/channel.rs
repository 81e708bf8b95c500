//! One connection's encryption, without a socket: records in and out, and what is to be kept between two calls.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus,
};
use rustls::{ClientConfig, CommonState, ServerConfig};

use crate::credentials::end_of;
use crate::error::ChannelError;
use crate::identity::Identity;
use crate::verifier::identity_of;

/// The most that a record may carry.
pub const RECORD_BYTES: usize = 16 << 10;
/// A record's header, the type of its content, and its sum.
const OVERHEAD_BYTES: usize = 5 + 1 + 16;
/// As long as most messages of the protocol itself; longer ones are tried again.
const SHORT_BYTES: usize = 256;
/// The memory that a connection keeps for its next records, while nothing waits.
const IDLE_BYTES: usize = 4 << 10;
/// The same of whoever has not shown yet who it is: a certificate with what leads to its authority has a few thousand bytes.
const STRANGER_BYTES: usize = 20 << 10;
/// The same of whoever has said nothing yet that was worth an answer: a ClientHello has some hundred bytes.
const HELLO_BYTES: usize = 4 << 10;
/// Bytes that may be kept of those that have come: one record, or a handshake's message in several.
const KEPT_BYTES: usize = 80 << 10;

enum Side {
    Opened(UnbufferedClientConnection),
    Accepted(UnbufferedServerConnection),
}

/// The outcome for bytes that came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// So many bytes of plain text are in the space that was given.
    pub bytes: usize,
    /// The other side has said that it sends no more.
    pub is_end: bool,
}

/// A connection's encryption. First comes the handshake ([`Channel::is_established`]); then each call of [`Channel::open`] and [`Channel::seal`]
/// moves data. What is to go out is in [`Channel::sealed`].
pub struct Channel {
    side: Side,
    is_established: bool,
    is_ended: bool,
    /// A part of a record, until the rest comes.
    partial: Vec<u8>,
    /// Plain text for which there was no space.
    plain: Vec<u8>,
    plain_start: usize,
    /// Records that have yet to go out.
    sealed: Vec<u8>,
    sealed_start: usize,
    /// When this side's certificate ends.
    own_end: SystemTime,
    failed: bool,
    /// Something that has come was answered.
    has_answered: bool,
}

impl Channel {
    pub(crate) fn connect(
        config: ClientConfig,
        own_end: SystemTime,
    ) -> Result<Channel, ChannelError> {
        // It is not sent: identities are URIs.
        let name = ServerName::try_from("rcbox")
            .map_err(|error| ChannelError::Encoding(error.to_string()))?;
        let connection = UnbufferedClientConnection::new(Arc::new(config), name)?;
        Channel::new(Side::Opened(connection), own_end)
    }

    pub(crate) fn accept(
        config: ServerConfig,
        own_end: SystemTime,
    ) -> Result<Channel, ChannelError> {
        let connection = UnbufferedServerConnection::new(Arc::new(config))?;
        Channel::new(Side::Accepted(connection), own_end)
    }

    /// The side that opens a connection speaks first.
    fn new(side: Side, own_end: SystemTime) -> Result<Channel, ChannelError> {
        let mut channel = Channel {
            side,
            is_established: false,
            is_ended: false,
            partial: Vec::new(),
            plain: Vec::new(),
            plain_start: 0,
            sealed: Vec::new(),
            sealed_start: 0,
            own_end,
            failed: false,
            has_answered: false,
        };
        channel.process(&mut [], &mut Space::of(&mut []))?;
        channel.has_answered = matches!(channel.side, Side::Opened(_));
        Ok(channel)
    }

    /// Whether each side knows who the other is, as far as this side can tell: the side that has opened the connection is told only later
    /// that it was refused.
    pub fn is_established(&self) -> bool {
        self.is_established
    }

    /// Whom the other side's certificate names.
    pub fn peer(&self) -> Result<Identity, ChannelError> {
        let certificate = self.common().peer_certificates().and_then(<[_]>::first);
        let certificate = certificate.ok_or(ChannelError::NoCertificate)?;
        Ok(identity_of(certificate)??)
    }

    /// When the first of the two certificates ends: no connection lives longer.
    pub fn expires_at(&self) -> Result<SystemTime, ChannelError> {
        let certificate = self.common().peer_certificates().and_then(<[_]>::first);
        let certificate = certificate.ok_or(ChannelError::NoCertificate)?;
        let end: Duration =
            end_of(certificate).map_err(|error| ChannelError::Encoding(error.to_string()))?;
        Ok(self.own_end.min(UNIX_EPOCH + end))
    }

    fn common(&self) -> &CommonState {
        match &self.side {
            Side::Opened(connection) => connection,
            Side::Accepted(connection) => connection,
        }
    }

    /// Whether plain text waits for space.
    pub fn has_plain(&self) -> bool {
        self.plain_start < self.plain.len()
    }

    /// Whether the other side has said that it sends no more.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Memory that this connection holds between two calls.
    pub fn held_bytes(&self) -> usize {
        self.partial.capacity() + self.plain.capacity() + self.sealed.capacity()
    }

    /// Records that are to go out.
    pub fn sealed(&self) -> &[u8] {
        &self.sealed[self.sealed_start..]
    }

    /// The first `count` bytes of [`Channel::sealed`] have gone out.
    pub fn sent(&mut self, count: usize) {
        assert!(count <= self.sealed().len(), "sent more than there was");
        self.sealed_start += count;
        if self.sealed_start == self.sealed.len() {
            self.sealed_start = 0;
            match self.sealed.capacity() > IDLE_BYTES {
                true => self.sealed = Vec::new(),
                false => self.sealed.clear(),
            }
        }
    }

    /// Puts plain text that waits into `space`.
    pub fn take_plain(&mut self, space: &mut [u8]) -> usize {
        let waiting = &self.plain[self.plain_start..];
        let count = waiting.len().min(space.len());
        space[..count].copy_from_slice(&waiting[..count]);
        self.plain_start += count;
        if self.plain_start == self.plain.len() {
            self.plain = Vec::new();
            self.plain_start = 0;
        }
        count
    }

    /// Puts what has come in part into `scratch`, whose rest is to be filled with what comes next: gives its length. [`Channel::open`] follows,
    /// even if nothing came.
    pub fn begin(&mut self, scratch: &mut [u8]) -> usize {
        let count = self.partial.len();
        scratch[..count].copy_from_slice(&self.partial);
        count
    }

    /// Takes `arrived`, which begins with what [`Channel::begin`] gave: plain text goes into `space` as far as there is room, and waits else.
    ///
    /// # Errors
    /// The other side may not send this. An alert that tells it so is in [`Channel::sealed`].
    pub fn open(&mut self, arrived: &mut [u8], space: &mut [u8]) -> Result<Opened, ChannelError> {
        assert!(!self.failed, "nothing comes after an error");
        let mut space = Space::of(space);
        let done = self.process(arrived, &mut space)?;
        let rest = &arrived[done..];
        self.has_answered |= !self.sealed().is_empty();
        let most = match (self.is_established, self.has_answered) {
            (true, _) => KEPT_BYTES,
            (false, true) => STRANGER_BYTES,
            (false, false) => HELLO_BYTES,
        };
        if rest.len() > most {
            self.failed = true;
            return Err(ChannelError::TooLong);
        }
        match rest.is_empty() {
            true => self.partial = Vec::new(),
            false => {
                self.partial.clear();
                // Not twice as much as is needed, of many who come at once.
                self.partial.reserve_exact(rest.len());
                self.partial.extend_from_slice(rest);
            }
        }
        Ok(Opened {
            bytes: space.used,
            is_end: self.is_ended,
        })
    }

    /// Encrypts what `slices` begin with, at most `most` bytes: gives how many. It is to be called only when all that was sealed has gone out.
    pub fn seal(&mut self, slices: &[IoSlice<'_>], most: usize) -> Result<usize, ChannelError> {
        assert!(
            self.is_established,
            "there are keys only after the handshake"
        );
        let mut taken = 0;
        let mut gathered = Vec::new();
        for slice in slices {
            let mut rest = &slice[..slice.len().min(most - taken)];
            taken += rest.len();
            while !rest.is_empty() {
                if gathered.is_empty() && rest.len() >= RECORD_BYTES {
                    let (record, after) = rest.split_at(RECORD_BYTES);
                    self.seal_record(record)?;
                    rest = after;
                    continue;
                }
                let (part, after) = rest.split_at(rest.len().min(RECORD_BYTES - gathered.len()));
                gathered.extend_from_slice(part);
                rest = after;
                if gathered.len() == RECORD_BYTES {
                    self.seal_record(&gathered)?;
                    gathered.clear();
                }
            }
        }
        if !gathered.is_empty() {
            self.seal_record(&gathered)?;
        }
        Ok(taken)
    }

    /// Says that this side sends no more.
    pub fn seal_end(&mut self) -> Result<(), ChannelError> {
        match self.is_established {
            true => self.write(&Writing::End),
            false => Ok(()),
        }
    }

    fn seal_record(&mut self, record: &[u8]) -> Result<(), ChannelError> {
        self.write(&Writing::Data(record))
    }

    fn write(&mut self, what: &Writing<'_>) -> Result<(), ChannelError> {
        if self.failed {
            return Err(ChannelError::Ended);
        }
        loop {
            // The protocol remembers where in what came it is: it wants to see that each time.
            let partial = &mut self.partial[..];
            let (discard, is_done) = match &mut self.side {
                Side::Opened(connection) => write(
                    connection.process_tls_records(partial),
                    what,
                    &mut self.sealed,
                ),
                Side::Accepted(connection) => write(
                    connection.process_tls_records(partial),
                    what,
                    &mut self.sealed,
                ),
            };
            self.partial.drain(..discard);
            if is_done? {
                return Ok(());
            }
        }
    }

    /// Has all complete records handled: gives how many bytes they took.
    fn process(
        &mut self,
        arrived: &mut [u8],
        space: &mut Space<'_>,
    ) -> Result<usize, ChannelError> {
        let mut done = 0;
        loop {
            let mut sink = Sink {
                space,
                plain: &mut self.plain,
                sealed: &mut self.sealed,
                is_established: &mut self.is_established,
                is_ended: &mut self.is_ended,
            };
            let rest = &mut arrived[done..];
            let (discard, next) = match &mut self.side {
                Side::Opened(connection) => step(connection.process_tls_records(rest), &mut sink),
                Side::Accepted(connection) => step(connection.process_tls_records(rest), &mut sink),
            };
            done += discard;
            match next {
                Ok(true) => {}
                Ok(false) => return Ok(done),
                Err(error) => {
                    self.fail();
                    return Err(error);
                }
            }
        }
    }

    /// An alert waits: the other side is told why. Nothing of what came is looked at again.
    fn fail(&mut self) {
        self.failed = true;
        while self.common().wants_write() {
            let mut nowhere = Space::of(&mut []);
            let mut sink = Sink {
                space: &mut nowhere,
                plain: &mut self.plain,
                sealed: &mut self.sealed,
                is_established: &mut self.is_established,
                is_ended: &mut self.is_ended,
            };
            let (_, next) = match &mut self.side {
                Side::Opened(connection) => {
                    step(connection.process_tls_records(&mut []), &mut sink)
                }
                Side::Accepted(connection) => {
                    step(connection.process_tls_records(&mut []), &mut sink)
                }
            };
            if !matches!(next, Ok(true)) {
                return;
            }
        }
    }
}

/// Where plain text goes.
struct Space<'a> {
    bytes: &'a mut [u8],
    used: usize,
}

impl<'a> Space<'a> {
    fn of(bytes: &'a mut [u8]) -> Space<'a> {
        Space { bytes, used: 0 }
    }
}

/// The results of a step of the protocol.
struct Sink<'a, 'b> {
    space: &'a mut Space<'b>,
    plain: &'a mut Vec<u8>,
    sealed: &'a mut Vec<u8>,
    is_established: &'a mut bool,
    is_ended: &'a mut bool,
}

impl Sink<'_, '_> {
    fn put(&mut self, payload: &[u8]) {
        let free = &mut self.space.bytes[self.space.used..];
        // In order: nothing overtakes what waits.
        let fitting = match self.plain.is_empty() {
            true => payload.len().min(free.len()),
            false => 0,
        };
        free[..fitting].copy_from_slice(&payload[..fitting]);
        self.space.used += fitting;
        self.plain.extend_from_slice(&payload[fitting..]);
    }
}

/// Handles one state: gives how many bytes to forget, and whether there is more to do.
fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    sink: &mut Sink<'_, '_>,
) -> (usize, Result<bool, ChannelError>) {
    let UnbufferedStatus { mut discard, state } = status;
    let next = match state {
        Err(error) => Err(error.into()),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                None => break Ok(true),
                Some(Err(error)) => break Err(error.into()),
                Some(Ok(record)) => {
                    discard += record.discard;
                    sink.put(record.payload);
                }
            }
        },
        Ok(ConnectionState::EncodeTlsData(data)) => encode_own(data, sink.sealed).map(|()| true),
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done(); // It is among what is sealed, which the driver sends in order.
            Ok(true)
        }
        Ok(ConnectionState::WriteTraffic(_)) => {
            *sink.is_established = true;
            Ok(false)
        }
        Ok(ConnectionState::PeerClosed) => {
            *sink.is_ended = true;
            Ok(true)
        }
        // Nothing is taken before the handshake is over; and a state that does not exist yet has no meaning here.
        Ok(_) => Ok(false),
    };
    (discard, next)
}

enum Writing<'a> {
    Data(&'a [u8]),
    End,
}

/// Seals, if the connection is ready: gives how many bytes to forget, and whether it is done.
fn write<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    what: &Writing<'_>,
    sealed: &mut Vec<u8>,
) -> (usize, Result<bool, ChannelError>) {
    let UnbufferedStatus { discard, state } = status;
    let is_done = match state {
        Err(error) => Err(error.into()),
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            let room = match what {
                Writing::Data(data) => data.len() + OVERHEAD_BYTES,
                Writing::End => SHORT_BYTES,
            };
            let encoded = encode(sealed, room, |space| {
                let encrypted = match what {
                    Writing::Data(data) => traffic.encrypt(data, space),
                    Writing::End => traffic.queue_close_notify(space),
                };
                match encrypted {
                    Ok(bytes) => Ok(bytes),
                    Err(EncryptError::InsufficientSize(needs)) => Err(Some(needs.required_size)),
                    Err(EncryptError::EncryptExhausted) => Err(None),
                }
            });
            encoded.map(|()| true)
        }
        Ok(ConnectionState::EncodeTlsData(data)) => encode_own(data, sealed).map(|()| false),
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(false)
        }
        // The other side has ended, or the handshake is not over.
        Ok(_) => Err(ChannelError::Ended),
    };
    (discard, is_done)
}

/// Records of the protocol itself.
fn encode_own<Data>(
    mut data: EncodeTlsData<'_, Data>,
    sealed: &mut Vec<u8>,
) -> Result<(), ChannelError> {
    encode(sealed, SHORT_BYTES, |space| match data.encode(space) {
        Ok(bytes) => Ok(bytes),
        Err(EncodeError::InsufficientSize(needs)) => Err(Some(needs.required_size)),
        Err(EncodeError::AlreadyEncoded) => Err(None),
    })
}

/// Appends to `sealed` what `encoder` writes, which says how much space it needs if there is too little.
fn encode(
    sealed: &mut Vec<u8>,
    room: usize,
    mut encoder: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> Result<(), ChannelError> {
    let before = sealed.len();
    let mut room = room;
    loop {
        sealed.resize(before + room, 0);
        match encoder(&mut sealed[before..]) {
            Ok(bytes) => {
                sealed.truncate(before + bytes);
                return Ok(());
            }
            Err(Some(needs)) if needs > room => room = needs,
            Err(_) => {
                sealed.truncate(before);
                return Err(ChannelError::Ended);
            }
        }
    }
}

/// Whether a stream that begins so is TLS: `None` if more must come before that can be told. Of our own protocols, none begins so: a member
/// stream has its preface, and a client's number of its first request is small.
pub fn is_hello(beginning: &[u8]) -> Option<bool> {
    // The record's type, its version's first byte; then, after the length, a ClientHello.
    const HELLO: [(usize, u8); 3] = [(0, 22), (1, 3), (5, 1)];
    for (place, byte) in HELLO {
        match beginning.get(place) {
            None => return None,
            Some(found) if *found != byte => return Some(false),
            Some(_) => {}
        }
    }
    Some(true)
}
