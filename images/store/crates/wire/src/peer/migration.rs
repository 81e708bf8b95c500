//! What the master that a tablet moves to says to the one that has it. docs/migration.md says what the messages are for.

use super::fields::{Fields, Malformed, Status};
use super::kinds::MIGRATE_READ;

/// Asks for the next piece of a tablet that moves away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrateRead {
    pub migration_id: u64,
    /// Number of the piece, from 0. Who asks for one has taken in all before it; the last that was asked for can be asked for again.
    pub piece: u64,
    /// Bytes of entries, at most, but for what cannot be cut.
    pub bytes: u32,
    /// Nothing changes in the tablet from now on, until the coordinator says how it ends.
    pub freezes: bool,
}

/// How far a migration has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// What was there when it began.
    Snapshot = 0,
    /// What was written since, in order.
    Changes = 1,
    /// The tablet is frozen, and this piece is the last.
    End = 2,
}

/// Answers [`MigrateRead`]. [`Status::Missing`]: there is no such migration here, not yet or not any more; [`Status::Mismatch`]: it is at
/// another piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrating<'a> {
    pub status: Status,
    pub phase: Phase,
    /// Bytes of the log behind this piece, of whatever tablets; means something after the snapshot.
    pub left_bytes: u64,
    /// All versions that were ever used in the tablet are below this; at the end.
    pub next_version: u64,
    /// Whole entries, each as it is in a segment.
    pub data: &'a [u8],
}

const MIGRATE_READ_BYTES: usize = 22;
const FIXED_BYTES: usize = 18;

impl MigrateRead {
    pub(super) fn decode(mut fields: Fields<'_>) -> Result<MigrateRead, Malformed> {
        let (migration_id, piece, bytes) = (fields.u64()?, fields.u64()?, fields.u32()?);
        let freezes = match fields.u8()? {
            0 => false,
            1 => true,
            value => return Err(Malformed::UnknownValue(value)),
        };
        fields.end(MigrateRead {
            migration_id,
            piece,
            bytes,
            freezes,
        })
    }

    pub fn to_bytes(self) -> [u8; MIGRATE_READ_BYTES] {
        let mut out = [MIGRATE_READ; MIGRATE_READ_BYTES];
        out[1..9].copy_from_slice(&self.migration_id.to_le_bytes());
        out[9..17].copy_from_slice(&self.piece.to_le_bytes());
        out[17..21].copy_from_slice(&self.bytes.to_le_bytes());
        out[21] = u8::from(self.freezes);
        out
    }
}

impl Phase {
    fn from_u8(value: u8) -> Result<Phase, Malformed> {
        let all = [Phase::Snapshot, Phase::Changes, Phase::End];
        all.get(usize::from(value))
            .copied()
            .ok_or(Malformed::UnknownValue(value))
    }
}

impl<'a> Migrating<'a> {
    /// An answer that brings nothing.
    pub fn failure(status: Status) -> Migrating<'static> {
        Migrating {
            status,
            phase: Phase::Snapshot,
            left_bytes: 0,
            next_version: 0,
            data: &[],
        }
    }

    /// The part before the data.
    pub fn fixed_bytes(&self) -> [u8; FIXED_BYTES] {
        let mut out = [0; FIXED_BYTES];
        out[0] = self.status as u8;
        out[1] = self.phase as u8;
        out[2..10].copy_from_slice(&self.left_bytes.to_le_bytes());
        out[10..].copy_from_slice(&self.next_version.to_le_bytes());
        out
    }

    pub fn decode(payload: &'a [u8]) -> Result<Migrating<'a>, Malformed> {
        let mut fields = Fields(payload);
        Ok(Migrating {
            status: Status::from_u8(fields.u8()?)?,
            phase: Phase::from_u8(fields.u8()?)?,
            left_bytes: fields.u64()?,
            next_version: fields.u64()?,
            data: fields.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Request;
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn bytes_are_what_they_were() {
        let read = MigrateRead {
            migration_id: 5,
            piece: 6,
            bytes: 0x100,
            freezes: true,
        };
        let bytes = read.to_bytes();
        assert_eq!(
            hex(&bytes),
            "07 0500000000000000 0600000000000000 00010000 01".replace(' ', "")
        );
        assert_eq!(Request::decode(&bytes), Ok(Request::MigrateRead(read)));
        let migrating = Migrating {
            status: Status::Ok,
            phase: Phase::End,
            left_bytes: 7,
            next_version: 8,
            data: b"abc",
        };
        let bytes = [&migrating.fixed_bytes()[..], migrating.data].concat();
        assert_eq!(
            hex(&bytes),
            "00 02 0700000000000000 0800000000000000 616263".replace(' ', "")
        );
        assert_eq!(Migrating::decode(&bytes), Ok(migrating));
        let missing = Migrating::failure(Status::Missing);
        assert_eq!(
            Migrating::decode(&missing.fixed_bytes()),
            Ok(missing),
            "nothing comes with it"
        );
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let mut bytes = MigrateRead {
            migration_id: 5,
            piece: 6,
            bytes: 1,
            freezes: false,
        }
        .to_bytes();
        for length in 1..bytes.len() {
            assert_eq!(Request::decode(&bytes[..length]), Err(Malformed::Short));
        }
        let long = [&bytes[..], b"x"].concat();
        assert_eq!(Request::decode(&long), Err(Malformed::Long));
        bytes[21] = 2;
        assert_eq!(Request::decode(&bytes), Err(Malformed::UnknownValue(2)));
        let mut answer = Migrating::failure(Status::Ok).fixed_bytes();
        assert_eq!(Migrating::decode(&answer[..17]), Err(Malformed::Short));
        answer[1] = 3;
        assert_eq!(Migrating::decode(&answer), Err(Malformed::UnknownValue(3)));
    }
}
