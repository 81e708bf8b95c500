//! One frame: what it holds, and the writes that change that.
//!
//! Data is written first, the header that vouches for it afterwards.

use core::ops::{Index, IndexMut};

use wire::peer::{ReplicaId, Role};

use crate::config::Durability;
use crate::copies::Copies;
use crate::device::Device;
use crate::job::Again;
use crate::reader::{Compared, Snapshot};
use crate::record::{Content, Damage, Header};
use crate::storage::{Disk, Storage};

/// How far a replica has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Takes appends.
    Open,
    /// Complete.
    Closed,
}

impl State {
    pub(crate) fn of(closed: bool) -> State {
        if closed { State::Closed } else { State::Open }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    number: u32,
    copies: Copies,
    content: Option<Content>,
    /// How long the data was when the sync under way began.
    carried_bytes: u32,
    /// The newest header is there twice, and says how much is acknowledged: rot of one place changes nothing.
    settled: bool,
    compared: Compared,
    /// The ticket of its last write.
    written_by: u64,
}

/// All frames by number; those whose header cannot be read are there in name only.
#[derive(Default)]
pub(crate) struct Frames(Vec<Option<Frame>>);

impl Frames {
    pub fn push(&mut self, frame: Option<Frame>) {
        self.0.push(frame);
    }

    pub fn usable(&mut self) -> impl Iterator<Item = (u32, &mut Frame)> {
        (0..)
            .zip(&mut self.0)
            .filter_map(|(number, frame)| Some((number, frame.as_mut()?)))
    }

    pub fn iter(&self) -> impl Iterator<Item = Option<&Frame>> {
        self.0.iter().map(Option::as_ref)
    }
}

/// Only frames that can be used are ever free or in use.
impl Index<u32> for Frames {
    type Output = Frame;
    fn index(&self, number: u32) -> &Frame {
        self.0[number as usize].as_ref().expect("a usable frame")
    }
}

impl IndexMut<u32> for Frames {
    fn index_mut(&mut self, number: u32) -> &mut Frame {
        self.0[number as usize].as_mut().expect("a usable frame")
    }
}

/// What an append brings: data that is not here yet, and the checksum of all data then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addition<'a> {
    pub data: &'a [u8],
    pub crc: u32,
    pub closes: bool,
    /// It counts as safe once it is written.
    pub safe_at_once: bool,
}

impl Frame {
    /// As found on a storage; `settled` if the header is there twice, or holds nothing.
    pub fn found(number: u32, copies: Copies, content: Option<Content>, settled: bool) -> Frame {
        Frame {
            number,
            copies,
            content,
            carried_bytes: 0,
            settled,
            compared: Compared::default(),
            written_by: 0,
        }
    }

    pub fn number(&self) -> u32 {
        self.number
    }

    /// The ticket of its last write.
    pub fn written_by(&self) -> u64 {
        self.written_by
    }

    /// Of a frame in use.
    pub fn snapshot(&self) -> Option<Snapshot> {
        Some(Snapshot {
            number: self.number,
            content: self.content?,
            compared: self.compared,
        })
    }

    /// Whether it holds the replica of that time, be it that more has come.
    pub fn has_use_of(&self, snapshot: &Snapshot) -> bool {
        let then = &snapshot.content;
        self.content
            .is_some_and(|now| now.opened == then.opened && now.replica == then.replica)
    }

    /// Data was compared, in the use that the frame has.
    pub fn learn(&mut self, snapshot: &Snapshot) {
        if snapshot.compared.bytes > self.compared.bytes {
            self.compared = snapshot.compared;
        }
    }

    /// As it was before changes that were not written. Whatever a sync has carried of it meanwhile is not known to be durable.
    pub fn undone_from<S>(&self, now: &Frame, device: &Device<S>) -> Frame {
        let mut undone = *self;
        undone.copies.distrust(&device.syncs);
        if let (Some(content), Some(now)) = (&mut undone.content, &now.content)
            && (content.opened, content.replica) == (now.opened, now.replica)
        {
            content.damage = content.damage.or(now.damage);
            let acknowledged = now.acknowledged_bytes.min(content.bytes);
            content.acknowledged_bytes = acknowledged.max(content.acknowledged_bytes);
        }
        undone
    }

    pub fn content(&self) -> Option<&Content> {
        self.content.as_ref()
    }

    /// Its newest header is to be written a second time. What is buffered goes to the disk when it is complete; before, that would be
    /// work for nothing.
    pub fn wants_sync(&self, durability: Durability) -> bool {
        let is_open = self.content.is_some_and(|content| !content.closed);
        !self.settled && (durability == Durability::Flushed || !is_open)
    }

    /// No crash takes the newest header any more.
    pub fn is_durable<S>(&self, device: &Device<S>) -> bool {
        self.copies.newest_is_durable(&device.syncs)
    }

    /// No crash makes the replica less than it is now.
    pub fn newest_is_safe<S>(&self, device: &Device<S>) -> bool {
        self.settled || self.is_durable(device)
    }

    /// A sync that may have carried the newest header has failed: no later one tells whether it is on the disk.
    pub fn distrust<S>(&mut self, device: &Device<S>) {
        self.copies.distrust(&device.syncs);
    }

    /// What is here, to be written once more, so that the next sync carries it, whatever has become of the one before.
    pub fn again<S>(&self, device: &Device<S>) -> Again {
        let (place, sequence) = self.copies.newest_place();
        let header = Header {
            cluster_id: device.cluster_id,
            sequence,
            content: self.content,
        };
        Again {
            number: self.number,
            frame: self.snapshot(),
            header_at: device.layout.header(self.number, place),
            header: header.encode().to_vec(),
        }
    }

    /// That has been done.
    pub fn was_written_again<S>(&mut self, device: &Device<S>) {
        self.copies.again(&device.syncs);
    }

    /// How many syncs must have been completed until no crash makes it other than it is now.
    pub fn safe_after(&self) -> u64 {
        if self.settled {
            0
        } else {
            self.copies.durable_after()
        }
    }

    /// Starts a replica in this frame, which is free.
    pub fn open<S: Storage>(
        &mut self,
        replica: ReplicaId,
        role: Role,
        addition: Addition<'_>,
        device: &mut Device<S>,
    ) {
        assert!(self.content.is_none(), "a frame is taken twice");
        let empty = Content {
            replica,
            role,
            closed: false,
            opened: self.copies.sequence() + 1,
            bytes: 0,
            crc: 0,
            acknowledged_bytes: 0,
            damage: None,
        };
        self.write_data(empty, addition, device);
    }

    /// Puts data behind what is here.
    pub fn append<S: Storage>(&mut self, addition: Addition<'_>, device: &mut Device<S>) {
        let content = self.content.expect("a frame in use");
        assert!(!content.closed, "a complete replica takes nothing");
        assert!(content.damage.is_none(), "a damaged replica takes nothing");
        self.write_data(content, addition, device);
    }

    fn write_data<S: Storage>(
        &mut self,
        mut content: Content,
        addition: Addition<'_>,
        device: &mut Device<S>,
    ) {
        let before = *self;
        let room = device.layout.segment_bytes - content.bytes;
        assert!(
            addition.data.len() <= room as usize,
            "data beyond its frame"
        );
        let end = content.bytes + addition.data.len() as u32;
        if !addition.data.is_empty() {
            let at = device.layout.data(self.number) + u64::from(content.bytes);
            device.write(at, addition.data);
        }
        content.bytes = end;
        content.crc = addition.crc;
        content.closed = addition.closes;
        if addition.safe_at_once {
            content.acknowledged_bytes = end;
        }
        assert!(
            content.acknowledged_bytes <= content.bytes,
            "what is acknowledged is here"
        );
        self.write_header(before, Some(content), device);
        self.settled = false;
        self.compared = Compared::default();
    }

    /// What is here is needed no more.
    pub fn free<S: Storage>(&mut self, device: &mut Device<S>) {
        assert!(self.content.is_some(), "a frame is freed once");
        self.write_header(*self, None, device);
        self.settled = false;
        self.carried_bytes = 0;
    }

    /// The last write of a change to this frame, which was like that before.
    fn write_header<S: Storage>(
        &mut self,
        before: Frame,
        content: Option<Content>,
        device: &mut Device<S>,
    ) {
        let (place, sequence) = self.copies.advance(&device.syncs);
        self.content = content;
        let header = Header {
            cluster_id: device.cluster_id,
            sequence,
            content,
        };
        let at = device.layout.header(self.number, place);
        device.write(at, &header.encode());
        if device.submits() {
            device.flight.remember(before);
            self.written_by = device.flight.submitted();
        }
    }

    /// A sync is about to begin. A header that the last one has made durable is written a second time.
    pub fn before_sync<S: Storage>(&mut self, device: &mut Device<S>) {
        if !self.settled && self.is_durable(device) {
            self.write_header(*self, self.content, device);
            self.settled = true;
        }
        self.carried_bytes = self.content.map_or(0, |content| content.bytes);
    }

    /// All that was found is synced.
    pub fn after_opening(&mut self) {
        let said = self.content;
        self.carried_bytes = said.map_or(0, |content| content.bytes);
        self.after_sync();
        self.settled &= self.content == said;
    }

    /// The sync has succeeded. What it carried was of this use of the frame, or counts as nothing.
    pub fn after_sync(&mut self) {
        if let Some(content) = &mut self.content
            && content.damage.is_none()
        {
            content.acknowledged_bytes = content.acknowledged_bytes.max(self.carried_bytes);
            assert!(content.acknowledged_bytes <= content.bytes);
        }
    }

    /// Names damage, for good if nothing was named before. Whether it is news.
    pub fn damage(&mut self, damage: Damage) -> bool {
        let Some(content) = &mut self.content else {
            return false;
        };
        let is_news = content.damage.is_none();
        content.damage.get_or_insert(damage);
        is_news
    }

    /// Reads all data and compares its checksum, for whoever may wait.
    pub fn verify<S: Disk>(&mut self, device: &mut Device<S>) -> Result<(), Damage> {
        let Some(mut snapshot) = self.snapshot() else {
            return Ok(());
        };
        snapshot.verify(&mut device.reader())?;
        self.learn(&snapshot);
        Ok(())
    }

    /// Something has been read that is not as it was: all is compared again.
    pub fn doubt(&mut self) {
        self.compared = Compared::default();
    }
}
