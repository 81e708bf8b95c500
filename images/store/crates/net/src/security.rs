//! Connections that are encrypted: from the moment they stand until they carry messages, and for no longer than their certificates.

use base::time::Time;

use crate::connection::{CloseReason, Stage};
use crate::handshakes::{HandshakeError, Job, Ready, Secure};
use crate::io::Io;
use crate::stream::Stream;

impl Io {
    /// Hands a connection over to the thread that makes handshakes; until that is done, nothing else is known of it.
    pub(crate) fn secure(
        &mut self,
        slot: usize,
        stream: Stream,
        secure: &Secure,
        (listener, may_be_plain): (Option<usize>, bool),
    ) -> Result<(), HandshakeError> {
        let Some(link) = &mut self.links[slot] else {
            return Ok(());
        };
        link.stage = Stage::Securing(listener);
        let address = stream.peer().address;
        self.handshakes.begin(Job {
            connection: link.id,
            address,
            socket: stream.into_socket(),
            secure: secure.clone(),
            is_own: listener.is_none(),
            may_be_plain,
        })
    }

    /// Puts a connection back whose handshake is over. Gives under which listener it is open; nothing, if it has ended meanwhile.
    pub(crate) fn secured(
        &mut self,
        now: Time,
        slot: usize,
        ready: Result<Ready, HandshakeError>,
    ) -> Result<Option<Option<usize>>, HandshakeError> {
        let Some(link) = &mut self.links[slot] else {
            return Ok(None);
        };
        let Stage::Securing(listener) = link.stage else {
            return Ok(None);
        };
        if link.doomed.is_some() {
            return Ok(None);
        }
        let stream = Stream::ready(ready?).map_err(HandshakeError::Channel)?;
        let left = stream.time_left().map_err(HandshakeError::Channel)?;
        link.expires = left.map_or(Time::NEVER, |left| now + left);
        self.next_expiry = self.next_expiry.min(link.expires);
        link.stream = Some(stream);
        self.register(slot).map_err(HandshakeError::Broken)?;
        Ok(Some(listener))
    }

    /// Ends connections that have lived as long as their certificates.
    pub(crate) fn expire(&mut self, now: Time) {
        self.next_expiry = Time::NEVER;
        for slot in 0..self.links.len() {
            let Some(link) = &self.links[slot] else {
                continue;
            };
            match link.expires <= now {
                true => self.doom(slot, CloseReason::Expired),
                false => self.next_expiry = self.next_expiry.min(link.expires),
            }
        }
    }
}
