//! A frame on its device: the writes that change it, and what is known of them.
//!
//! Data is written first, the header that vouches for it afterwards.

use wire::peer::{ReplicaId, Role};

use crate::device::Device;
use crate::disk::Disk;
use crate::frame::Frame;
use crate::job::Again;
use crate::reader::Compared;
use crate::record::{Content, Damage, Header};
use crate::storage::Storage;

/// The news in an append: data that is not here yet, and the checksum of all data then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addition<'a> {
    pub data: &'a [u8],
    pub crc: u32,
    pub closes: bool,
    /// It counts as safe once it is written.
    pub safe_at_once: bool,
}

impl Frame {
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

    /// The present content, to be written once more, so that the next sync carries it, whatever has become of the one before.
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

    /// The present content is needed no more.
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

    /// Reads all data and compares its checksum, for whoever may wait.
    pub fn verify<S: Disk>(&mut self, device: &mut Device<S>) -> Result<(), Damage> {
        let Some(mut snapshot) = self.snapshot() else {
            return Ok(());
        };
        snapshot.verify(&mut device.reader())?;
        self.learn(&snapshot);
        Ok(())
    }
}
