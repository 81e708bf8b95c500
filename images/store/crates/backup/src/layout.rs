//! Where things lie on a backup's storage.
//!
//! | part | bytes |
//! |---|---|
//! | superblock, in three places | 3 x 4096 |
//! | frames, each: header in three places, data | 3 x 4096 + segment size |

use crate::copies::PLACES;

/// Everything that is not data starts at a multiple of this and fits into it, so that a torn write harms nothing beside it.
pub const BLOCK_BYTES: u32 = 4096;
/// The places of a superblock or header, together.
pub(crate) const HEAD_BYTES: usize = PLACES * BLOCK_BYTES as usize;
/// Of a superblock, without its fences.
pub(crate) const SUPERBLOCK_FIXED_BYTES: usize = 64;
/// Fences in a superblock: one for each server index that was ever recovered.
pub const MAX_FENCES: usize = (BLOCK_BYTES as usize - SUPERBLOCK_FIXED_BYTES) / 8;

/// Sizes of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What a frame holds of a segment, at most: the store's segment size.
    pub segment_bytes: u32,
    pub frame_count: u32,
}

impl Layout {
    /// As many frames as fit into `bytes`.
    pub fn of_size(bytes: u64, segment_bytes: u32) -> Layout {
        let frame_bytes = HEAD_BYTES as u64 + u64::from(segment_bytes);
        let count = bytes.saturating_sub(HEAD_BYTES as u64) / frame_bytes;
        Layout {
            segment_bytes,
            frame_count: u32::try_from(count).unwrap_or(u32::MAX),
        }
    }

    /// What the storage must have.
    pub fn total_bytes(&self) -> u64 {
        HEAD_BYTES as u64 + u64::from(self.frame_count) * self.frame_bytes()
    }

    fn frame_bytes(&self) -> u64 {
        HEAD_BYTES as u64 + u64::from(self.segment_bytes)
    }

    pub(crate) fn superblock(place: usize) -> u64 {
        assert!(place < PLACES, "a place beyond the others");
        place as u64 * u64::from(BLOCK_BYTES)
    }

    /// Of the first place of a frame's header; the others follow.
    pub(crate) fn head(&self, frame: u32) -> u64 {
        assert!(frame < self.frame_count, "a frame beyond the storage");
        HEAD_BYTES as u64 + u64::from(frame) * self.frame_bytes()
    }

    pub(crate) fn header(&self, frame: u32, place: usize) -> u64 {
        self.head(frame) + Self::superblock(place)
    }

    pub(crate) fn data(&self, frame: u32) -> u64 {
        self.head(frame) + HEAD_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_side_by_side() {
        let layout = Layout {
            segment_bytes: 8 << 20,
            frame_count: 3,
        };
        let total = layout.total_bytes();
        assert_eq!(Layout::of_size(total, 8 << 20), layout);
        assert_eq!(Layout::of_size(total - 1, 8 << 20).frame_count, 2);
        assert_eq!(Layout::of_size(0, 8 << 20).frame_count, 0);
        assert_eq!(Layout::superblock(2), 8192);
        assert_eq!(layout.header(0, 0), 12288);
        assert_eq!(layout.header(0, 2), 20480);
        assert_eq!(layout.data(0), 24576);
        assert_eq!(layout.header(1, 0), layout.data(0) + (8 << 20));
        assert_eq!(layout.data(2) + (8 << 20), total);
    }
}
