//! The operations, and how chance makes them.

use base::ids::ServerId;
use proptest::prelude::*;
use wire::peer::ReplicaId;

use crate::Scope;
use crate::tests::replica;

#[derive(Clone, Debug)]
pub(super) enum Operation {
    Append {
        replica: ReplicaId,
        bytes: u32,
        closes: bool,
        how: How,
    },
    Free(ReplicaId),
    KeepAlive(ServerId),
    Recover(ServerId),
    Forget(ServerId),
    FinishSync {
        scope: Scope,
    },
    Wait {
        ms: u64,
    },
    ProcessCrash {
        /// Through this part in 256 of the last write, if that was of data.
        cut: Option<u8>,
    },
    PowerLoss {
        seed: u64,
    },
    CloseInOrder {
        power_loss: bool,
    },
    /// Of writes, of syncs, or the end of both.
    Fault {
        writes: bool,
        syncs: bool,
    },
}

/// How an append differs from what comes next.
#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    Next,
    /// Sends so much of what is held again.
    Again(u32),
    Gap,
    WrongChecksum,
}

pub(super) const FINISH_SYNC: Operation = Operation::FinishSync { scope: Scope::All };

fn replicas() -> impl Strategy<Value = ReplicaId> {
    (1..3_u32, 1..5_u64).prop_map(|(log, segment_id)| replica(log, segment_id))
}

pub(super) fn operations() -> impl Strategy<Value = Operation> {
    let how = prop_oneof![
        8 => Just(How::Next),
        2 => (1..600_u32).prop_map(How::Again),
        1 => Just(How::Gap),
        1 => Just(How::WrongChecksum),
    ];
    let log = (1..3_u32).prop_map(|log| ServerId::new(log, 1));
    let append = (replicas(), 0..900_u32, prop::bool::weighted(0.25), how);
    prop_oneof![
        30 => append.prop_map(|(replica, bytes, closes, how)| Operation::Append { replica, bytes, closes, how }),
        4 => replicas().prop_map(Operation::Free),
        3 => log.clone().prop_map(Operation::KeepAlive),
        2 => log.clone().prop_map(Operation::Recover),
        1 => log.prop_map(Operation::Forget),
        12 => prop_oneof![Just(Scope::All), Just(Scope::Superblock)].prop_map(|scope| Operation::FinishSync { scope }),
        5 => (0..300_u64).prop_map(|ms| Operation::Wait { ms }),
        2 => prop::option::of(any::<u8>()).prop_map(|cut| Operation::ProcessCrash { cut }),
        3 => any::<u64>().prop_map(|seed| Operation::PowerLoss { seed }),
        1 => any::<bool>().prop_map(|power_loss| Operation::CloseInOrder { power_loss }),
        1 => any::<(bool, bool)>().prop_map(|(writes, syncs)| Operation::Fault { writes, syncs }),
    ]
}
