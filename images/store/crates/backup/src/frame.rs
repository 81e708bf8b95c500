//! One frame: what it holds. `changes.rs` changes that.

use core::ops::{Index, IndexMut};

use crate::config::Durability;
use crate::copies::Copies;
use crate::reader::{Compared, Snapshot};
use crate::record::{Content, Damage};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) number: u32,
    pub(crate) copies: Copies,
    pub(crate) content: Option<Content>,
    /// How long the data was when the sync under way began.
    pub(crate) carried_bytes: u32,
    /// The newest header is there twice, and says how much is acknowledged: rot of one place changes nothing.
    pub(crate) settled: bool,
    pub(crate) compared: Compared,
    /// The ticket of its last write.
    pub(crate) written_by: u64,
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

    pub fn content(&self) -> Option<&Content> {
        self.content.as_ref()
    }

    /// Its newest header is to be written a second time. What is buffered goes to the disk when it is complete; before, that would be
    /// work for nothing.
    pub fn wants_sync(&self, durability: Durability) -> bool {
        let is_open = self.content.is_some_and(|content| !content.closed);
        !self.settled && (durability == Durability::Flushed || !is_open)
    }

    /// How many syncs must have been completed until no crash makes it other than it is now.
    pub fn safe_after(&self) -> u64 {
        if self.settled {
            0
        } else {
            self.copies.durable_after()
        }
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

    /// Something has been read that is not as it was: all is compared again.
    pub fn doubt(&mut self) {
        self.compared = Compared::default();
    }
}
