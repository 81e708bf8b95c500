//! Kinds of messages that a shard sends.

use prost::Oneof;

use super::{
    BackupReport, CheckpointKept, CheckpointPart, ControlDone, Hello, LeaseQuery, LocateServer,
    LogInventory, Migrated, MigrationId, MigrationWanted, OpenFloor, Pong, Probed, Recovered,
    RecoveryId, SuspectServer, TabletDone,
};

#[derive(Clone, PartialEq, Oneof)]
pub enum Kind {
    #[prost(message, tag = "1")]
    Hello(Hello),
    #[prost(message, tag = "2")]
    Pong(Pong),
    #[prost(message, tag = "3")]
    TabletDone(TabletDone),
    #[prost(message, tag = "4")]
    LeaseQuery(LeaseQuery),
    #[prost(message, tag = "5")]
    ControlDone(ControlDone),
    #[prost(message, tag = "6")]
    LocateServer(LocateServer),
    #[prost(message, tag = "7")]
    RaiseOpenFloor(OpenFloor),
    #[prost(message, tag = "8")]
    BackupReport(BackupReport),
    #[prost(message, tag = "9")]
    LogInventory(LogInventory),
    #[prost(message, tag = "10")]
    Recovered(Recovered),
    #[prost(message, tag = "11")]
    RecoveryDurable(RecoveryId),
    #[prost(message, tag = "12")]
    Probed(Probed),
    #[prost(message, tag = "13")]
    SuspectServer(SuspectServer),
    #[prost(message, tag = "14")]
    Migrated(Migrated),
    /// Answers [`super::coordinator::Kind::StopTablet`].
    #[prost(message, tag = "15")]
    Stopped(MigrationId),
    /// Answered by [`super::coordinator::Kind::MigrationEnded`].
    #[prost(message, tag = "16")]
    MigrationWanted(MigrationWanted),
    /// Answers [`super::coordinator::Kind::KeepCheckpoint`].
    #[prost(message, tag = "17")]
    CheckpointKept(CheckpointKept),
    /// Answers [`super::coordinator::Kind::ReadCheckpoint`].
    #[prost(message, tag = "19")]
    CheckpointPart(CheckpointPart),
}
