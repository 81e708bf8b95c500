//! Appends: what they may do, and what they did.

use base::bugs::{Bug, is_planted};
use base::ids::ReplyTo;
use base::time::Time;
use trace::Event;
use wire::peer::{Answer, Append, ReplicaId, Role, Status};

use crate::backup::Backup;
use crate::changes::Addition;
use crate::commit::Waiting;
use crate::config::Durability;
use crate::effects::BackupEffects;
use crate::storage::Storage;

/// Whose data it is. A master has other backups; what this server keeps for the coordinator is bounded, and has nowhere else to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    Master,
    Itself,
}

/// Why an append was not taken: what is answered, and how much is held.
struct Refusal(Status, u32);

impl<S: Storage> Backup<S> {
    /// Puts data into a replica; see [`Append`]. The answer comes when it is written, or in `Flushed` mode with the end of a sync
    /// that begins after that. Until then some 40 bytes are held, so the driver bounds the requests that a peer may have under way.
    ///
    /// What the replica holds already is passed over, and what follows it is behind the checksum, which is over all. An append that
    /// ends before what is held cannot be compared without reading, and is taken for one that came before.
    pub fn append(
        &mut self,
        now: Time,
        append: &Append<'_>,
        to: ReplyTo,
        out: &mut impl BackupEffects,
    ) {
        let log = append.replica.log;
        self.device.now = now;
        let taken = self
            .may_write(log)
            .map_err(|status| Refusal(status, 0))
            .and_then(|()| self.take(append, For::Master));
        match taken {
            Ok(bytes) => {
                self.promise(now, log);
                self.appends += 1;
                trace::record(Event::AppendTaken, append.data.len() as u64);
                match self.config.durability.is_flushed() {
                    true => self.commit.waiting.push(Waiting { to, log, bytes }),
                    false => self.answer_written((to, log, bytes), out),
                }
            }
            Err(Refusal(status, bytes)) => out.answer(to, Answer { status, bytes }),
        }
    }

    /// Puts a whole replica into a frame of its own, for this server itself.
    pub(crate) fn put_closed(&mut self, replica: ReplicaId, data: &[u8]) -> Result<(), Status> {
        let append = Append {
            replica,
            role: Role::Side,
            offset: 0,
            closes: true,
            crc: crc32c::crc32c(data),
            data,
        };
        self.may_write(replica.log)?;
        let taken = self.take(&append, For::Itself);
        taken.map(|_| ()).map_err(|Refusal(status, _)| status)
    }

    /// The length of the replica afterwards.
    fn take(&mut self, append: &Append<'_>, whose: For) -> Result<u32, Refusal> {
        let is_too_long = u64::from(append.offset) + append.data.len() as u64
            > u64::from(self.config.segment_bytes);
        if is_too_long {
            return Err(Refusal(Status::Mismatch, 0));
        }
        match self.replicas.get(&append.replica) {
            Some(_) if is_planted(Bug::ForgetOpenReplica) && self.device.flight.takes_no_new() => {
                Err(Refusal(Status::Full, 0))
            }
            Some(&number) => self.go_on(number, append),
            None => self.open_replica(append, whose),
        }
    }

    /// Whether there is memory for an append to a replica that is here. If not, the connection is to be closed: its master sends the rest again when it has
    /// made it anew. A refusal would not do: `Full` makes a master forget the replica, and an open head that its master has forgotten would be taken for
    /// the end of the log.
    pub fn has_room_for(&self, append: &Append<'_>) -> bool {
        !self.device.flight.is_full() || !self.replicas.contains_key(&append.replica)
    }

    fn open_replica(&mut self, append: &Append<'_>, whose: For) -> Result<u32, Refusal> {
        if append.offset != 0 {
            return Err(Refusal(Status::Missing, 0));
        }
        // A frame is not taken for nothing: every segment begins with a digest.
        if append.data.is_empty() {
            return Err(Refusal(Status::Mismatch, 0));
        }
        if crc32c::crc32c(append.data) != append.crc {
            return Err(Refusal(Status::Mismatch, 0));
        }
        // A master has its head elsewhere sooner if it is told at once, and not by silence.
        let takes_new = !self.is_late() && !self.device.flight.takes_no_new();
        let is_taken = whose == For::Itself || takes_new;
        let place = self.free.first().filter(|_| is_taken);
        let Some(&number) = place else {
            return Err(Refusal(Status::Full, 0));
        };
        let addition = self.addition(append, append.data);
        self.frames[number].open(append.replica, append.role, addition, &mut self.device);
        let was_free = self.free.remove(&number);
        let other = self.replicas.insert(append.replica, number);
        assert!(was_free && other.is_none(), "a replica has one frame");
        self.was_written(number, append.data.len());
        Ok(append.end())
    }

    fn go_on(&mut self, number: u32, append: &Append<'_>) -> Result<u32, Refusal> {
        let content = *self.frames[number].content().expect("a frame in use");
        let (held, end) = (content.bytes, append.end());
        if content.role != append.role || content.damage.is_some() {
            return Err(Refusal(Status::Mismatch, 0));
        }
        if append.offset > held {
            return Err(Refusal(Status::Missing, held));
        }
        if end < held {
            // A segment does not get shorter.
            let status = if append.closes {
                Err(Refusal(Status::Mismatch, held))
            } else {
                Ok(held)
            };
            return status;
        }
        let fresh = &append.data[(held - append.offset) as usize..];
        let is_change = !fresh.is_empty() || append.closes;
        if crc32c::crc32c_append(content.crc, fresh) != append.crc
            || content.closed && !fresh.is_empty()
        {
            return Err(Refusal(Status::Mismatch, held));
        }
        if is_change && !content.closed {
            let addition = self.addition(append, fresh);
            self.frames[number].append(addition, &mut self.device);
            self.was_written(number, fresh.len());
        }
        Ok(end)
    }

    fn addition<'a>(&self, append: &Append<'_>, data: &'a [u8]) -> Addition<'a> {
        Addition {
            data,
            crc: append.crc,
            closes: append.closes,
            safe_at_once: self.config.durability == Durability::Buffered,
        }
    }

    fn was_written(&mut self, number: u32, bytes: usize) {
        self.bytes_appended += bytes as u64;
        if self.frames[number].wants_sync(self.config.durability) {
            self.commit.unsettled.insert(number);
        }
    }
}
