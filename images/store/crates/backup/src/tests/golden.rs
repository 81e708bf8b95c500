//! Bytes on a storage are what they were.

use super::*;
use crate::record::{Content, Header, Superblock};

const CLUSTER: u64 = 0x1122_3344_5566_7788;

fn header(sequence: u64, content: Option<Content>) -> Header {
    Header {
        cluster_id: CLUSTER,
        sequence,
        content,
    }
}

#[test]
fn format_1_is_as_it_was() {
    let open = Content {
        replica: ReplicaId {
            log: ServerId::new(9, 2),
            segment_id: 7,
        },
        role: Role::Head,
        closed: false,
        opened: 5,
        bytes: 0x1234,
        crc: 0xa1b2_c3d4,
        acknowledged_bytes: 0x1200,
        damage: None,
    };
    let closed = Content {
        replica: ReplicaId {
            segment_id: 8,
            ..open.replica
        },
        role: Role::Side,
        closed: true,
        bytes: 0x5678,
        crc: 0xd4c3_b2a1,
        acknowledged_bytes: 0x5678,
        ..open
    };
    let damaged = Content {
        damage: Some(Damage::Unsynced),
        ..open
    };
    let superblock = Superblock {
        format: 1,
        sequence: 6,
        cluster_id: CLUSTER,
        segment_bytes: 8 << 20,
        frame_count: 1000,
        boot_id: std::array::from_fn(|at| at as u8),
        clean: true,
        flushed: true,
        failed: false,
        fences: [(3, 5), (9, 2)].into_iter().collect(),
    };
    let headers = [
        ("header-free", header(4, None)),
        ("header-open", header(5, Some(open))),
        ("header-closed", header(6, Some(closed))),
        ("header-damaged", header(7, Some(damaged))),
    ];
    let golden = include_str!("../../../../testdata/formats/1/backup-frames.txt");
    let mut lines = golden.lines().filter(|line| !line.starts_with('#'));
    let mut compare = |name: &str, bytes: &[u8]| {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(lines.next(), Some(format!("{name} {hex}").as_str()));
    };
    compare("superblock", &superblock.encode());
    for (name, header) in &headers {
        compare(name, &header.encode());
        assert_eq!(Header::decode(&header.encode()).as_ref(), Some(header));
    }
    assert_eq!(lines.next(), None);
    assert_eq!(Superblock::decode(&superblock.encode()), Some(superblock));
}

#[test]
fn a_full_superblock_fits_its_block() {
    let superblock = Superblock {
        format: 1,
        sequence: 1,
        cluster_id: CLUSTER,
        segment_bytes: 1,
        frame_count: 1,
        boot_id: [0; 16],
        clean: false,
        flushed: false,
        failed: true,
        fences: (0..MAX_FENCES as u32).map(|index| (index, 1)).collect(),
    };
    let bytes = superblock.encode();
    assert_eq!(bytes.len(), BLOCK_BYTES as usize);
    assert_eq!(Superblock::decode(&bytes), Some(superblock));
    for at in (0..bytes.len()).step_by(7) {
        let mut broken = bytes.clone();
        broken[at] ^= 1;
        assert_eq!(Superblock::decode(&broken), None, "byte {at}");
    }
}
