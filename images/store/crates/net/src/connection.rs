//! One connection: its stream, what is to be sent, what was received.

use std::fmt;
use std::io::{self, IoSlice};

use base::time::Time;
use trace::Event;
use transport::{Frame, Outbound, StreamError, StreamReader, member::MemberReader, rpc::RpcReader};

use crate::accounts::Origin;
use crate::handshakes::{HandshakeError, Secure};
use crate::stream::{Received, Stream};

/// Which framing a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RAMCloud's client protocol.
    Rpc,
    /// The member protocol; the preface is sent and checked by the driver.
    Member,
}

/// Why a connection ended.
#[derive(Debug)]
pub enum CloseReason {
    /// The peer closed it.
    EndOfStream,
    /// A name lookup or a connect failed, or took too long.
    Connect(io::Error),
    /// Reading or writing failed.
    Broken(io::Error),
    /// What came makes no sense.
    Stream(StreamError),
    /// The peer does not read what it is sent.
    NotReading,
    /// All connections together, or those of one address, hold as much memory as they may, and this one the most.
    OutOfBuffers,
    /// A message that was begun did not get complete in time.
    SlowMessage,
    /// It was the one that was silent for longest when another needed its place.
    Displaced,
    /// A session of the `fast` protocol has ended.
    Session(fast::Reason),
    /// It was not encrypted, or one side is not whom the other wants.
    Handshake(HandshakeError),
    /// The certificate of one side has ended.
    Expired,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::EndOfStream => f.write_str("the peer closed the connection"),
            CloseReason::Connect(error) => write!(f, "cannot connect: {error}"),
            CloseReason::Broken(error) => write!(f, "connection broken: {error}"),
            CloseReason::Stream(error) => error.fmt(f),
            CloseReason::NotReading => f.write_str("the peer does not read what it is sent"),
            CloseReason::OutOfBuffers => f.write_str(
                "the buffers of all connections together, or those for one address, are full, and this one's are the largest of the address \
                 that has the most",
            ),
            CloseReason::SlowMessage => {
                f.write_str("a message that was begun did not get complete in time")
            }
            CloseReason::Session(reason) => reason.fmt(f),
            CloseReason::Handshake(error) => write!(f, "no handshake: {error}"),
            CloseReason::Expired => f.write_str("the certificate of one side has ended"),
            CloseReason::Displaced => {
                f.write_str("it was silent for longest when another needed its place")
            }
        }
    }
}

/// How far a connection is.
#[derive(Debug)]
pub(crate) enum Stage {
    Resolving,
    Connecting,
    /// Its handshake is under way; the number of the listener that has accepted it.
    Securing(Option<usize>),
    Open,
}

/// The sending half, and what is known of the connection as a whole.
pub(crate) struct SendHalf {
    pub(crate) id: u64,
    pub(crate) protocol: Protocol,
    pub(crate) stage: Stage,
    pub(crate) origin: Origin,
    /// Absent while the peer's name is being looked up, and during a handshake.
    pub(crate) stream: Option<Stream>,
    /// It is to be encrypted when it stands.
    pub(crate) secure: Option<Secure>,
    /// When the first of its certificates ends.
    pub(crate) expires: Time,
    pub(crate) output: Outbound,
    /// Listed among the links to be flushed at the end of the round.
    pub(crate) dirty: bool,
    /// Not read from: too much output waits.
    pub(crate) throttled: bool,
    /// When it was first seen to wait, for a connect or for the kernel to take output, without progress since.
    pub(crate) waiting_since: Option<Time>,
    /// Memory of the receiving half's buffer.
    pub(crate) input_bytes: usize,
    /// Memory of both buffers, as it was counted last.
    pub(crate) accounted: usize,
    /// When the first bytes came of a message that is not complete yet.
    pub(crate) partial_since: Option<Time>,
    /// When something came last, or it was opened.
    pub(crate) heard: Time,
    /// The length of a long message that may arrive, until it is here.
    pub(crate) admitted_bytes: usize,
    /// It was let in just now: what others of its address do not need may have to go for it.
    pub(crate) wants_room: bool,
    /// Not read from: its next message is long, and others of its address are arriving.
    pub(crate) is_waiting: bool,
    /// To be closed at the end of the round; a reason that is to be told to the handler, or none if it asked for it.
    pub(crate) doomed: Option<Option<CloseReason>>,
}

impl SendHalf {
    /// Bytes that wait for the kernel.
    pub(crate) fn pending_bytes(&self) -> usize {
        let sealed = self.stream.as_ref().map_or(0, Stream::pending_bytes);
        self.output.pending_bytes() + sealed
    }

    /// Whether the ends of answers may be lent on it.
    pub(crate) fn takes_loans(&self) -> bool {
        self.protocol == Protocol::Rpc && matches!(self.origin, Origin::Accepted(..))
    }
}

/// Sends what can go out of `slices` now; 0 bytes if nothing can.
pub(crate) fn send_now(
    stream: &mut Option<Stream>,
    stage: &Stage,
    id: u64,
    slices: &[IoSlice<'_>],
) -> io::Result<usize> {
    let (Some(stream), Stage::Open) = (stream, stage) else {
        return Ok(0);
    };
    let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
    trace::record_at(Event::Flushed, id, bytes as u64);
    stream.send(slices)
}

enum Reader {
    Rpc(RpcReader),
    Member(MemberReader),
}

/// The receiving half.
pub(crate) struct Input {
    reader: Reader,
    /// The kernel may hold bytes of which epoll, edge-triggered, will not speak again.
    pub(crate) unread: bool,
    /// It was left alone when the kernel had news of it, which epoll tells once: the end of the stream, for one. It is read until there is
    /// nothing left.
    pub(crate) missed_news: bool,
    /// Complete frames wait here for this connection's next turn; it is not read from before.
    pub(crate) backlog: bool,
}

impl Input {
    /// `is_accepted`: the peer has opened the connection, and has yet to say who it is.
    pub(crate) fn new(protocol: Protocol, is_accepted: bool) -> Input {
        let reader = match protocol {
            Protocol::Rpc => Reader::Rpc(RpcReader::default()),
            Protocol::Member if is_accepted => Reader::Member(MemberReader::accepted()),
            Protocol::Member => Reader::Member(MemberReader::default()),
        };
        Input {
            reader,
            unread: false,
            missed_news: false,
            backlog: false,
        }
    }

    pub(crate) fn receive(&mut self, stream: &mut Stream) -> io::Result<Received> {
        let space = match &mut self.reader {
            Reader::Rpc(reader) => reader.space(),
            Reader::Member(reader) => reader.space(),
        };
        let received = stream.receive(space)?;
        if let Received::Some { bytes, .. } = received {
            match &mut self.reader {
                Reader::Rpc(reader) => reader.received(bytes),
                Reader::Member(reader) => reader.received(bytes),
            }
        }
        Ok(received)
    }

    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame<'_>>, StreamError> {
        match &mut self.reader {
            Reader::Rpc(reader) => reader.next_frame(),
            Reader::Member(reader) => reader.next_frame(),
        }
    }

    /// The length of the message whose beginning is here; 0 if nothing is known of it.
    pub(crate) fn announced_bytes(&self) -> usize {
        match &self.reader {
            Reader::Rpc(reader) => reader.announced_bytes(),
            Reader::Member(reader) => reader.announced_bytes(),
        }
    }

    pub(crate) fn give_back(&mut self) {
        match &mut self.reader {
            Reader::Rpc(reader) => reader.give_back(),
            Reader::Member(reader) => reader.give_back(),
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        match &self.reader {
            Reader::Rpc(reader) => reader.held_bytes(),
            Reader::Member(reader) => reader.held_bytes(),
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        match &self.reader {
            Reader::Rpc(reader) => reader.capacity(),
            Reader::Member(reader) => reader.capacity(),
        }
    }
}
