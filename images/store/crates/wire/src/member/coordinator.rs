//! Kinds of messages that the coordinator sends.

use prost::Oneof;

use super::{
    Backups, Control, Format, KeepCheckpoint, LeaseAnswer, Log, Logs, Migrate, MigrateOut,
    MigrationEnded, MigrationId, OpenFloor, Ping, Probe, ReadCheckpoint, Recover, RecoveryId,
    Refused, ServerLocation, Settings, TabletMerge, TabletOrder, TabletSplit, Welcome,
};

#[derive(Clone, PartialEq, Oneof)]
pub enum Kind {
    #[prost(message, tag = "1")]
    Welcome(Welcome),
    #[prost(message, tag = "2")]
    Refused(Refused),
    #[prost(message, tag = "3")]
    Ping(Ping),
    #[prost(message, tag = "4")]
    TakeTablet(TabletOrder),
    #[prost(message, tag = "5")]
    DropTablet(TabletOrder),
    #[prost(message, tag = "6")]
    LeaseAnswer(LeaseAnswer),
    #[prost(message, tag = "7")]
    Control(Control),
    #[prost(message, tag = "8")]
    SplitTablet(TabletSplit),
    #[prost(message, tag = "9")]
    ServerLocation(ServerLocation),
    #[prost(message, tag = "10")]
    Backups(Backups),
    #[prost(message, tag = "11")]
    OpenFloorRaised(OpenFloor),
    /// To a backup.
    #[prost(message, tag = "12")]
    FenceLog(Log),
    /// To a backup: logs that nobody needs any more.
    #[prost(message, tag = "13")]
    ForgetLogs(Logs),
    #[prost(message, tag = "14")]
    Recover(Recover),
    /// The shard owns the tablets that it has replayed, and serves them.
    #[prost(message, tag = "15")]
    CommitRecovery(RecoveryId),
    /// Others bring the tablets back, or it is tried again: what was replayed goes. Not answered.
    #[prost(message, tag = "16")]
    GiveUpRecovery(RecoveryId),
    /// No recovery will ever read the logs again from which this one was made.
    #[prost(message, tag = "17")]
    SourcesReleased(RecoveryId),
    #[prost(message, tag = "18")]
    Probe(Probe),
    /// To who shall have a tablet.
    #[prost(message, tag = "19")]
    Migrate(Migrate),
    /// To who has it.
    #[prost(message, tag = "20")]
    MigrateOut(MigrateOut),
    /// To either: all is as if the migration had never begun. Not answered.
    #[prost(message, tag = "21")]
    GiveUpMigration(MigrationId),
    /// To who has the tablet: it answers nothing of it any more. Answered by [`super::shard::Kind::Stopped`].
    #[prost(message, tag = "22")]
    StopTablet(MigrationId),
    /// The shard owns the tablet that it has migrated, and serves it.
    #[prost(message, tag = "23")]
    CommitMigration(MigrationId),
    #[prost(message, tag = "24")]
    MigrationEnded(MigrationEnded),
    /// To who takes settings, after every change; with a welcome they come in it.
    #[prost(message, tag = "25")]
    Settings(Settings),
    /// To a shard whose Hello said that its build merges tablets. The state has the one tablet already.
    #[prost(message, tag = "26")]
    MergeTablets(TabletMerge),
    /// Everybody reads it: it is in force from now on. Not answered; whoever is away learns it from its welcome.
    #[prost(message, tag = "30")]
    Activate(Format),
    /// To a backup.
    #[prost(message, tag = "31")]
    KeepCheckpoint(KeepCheckpoint),
    /// To a shard with a volume, before it is let in: the store is being made again from volumes.
    #[prost(message, tag = "32")]
    ReadCheckpoint(ReadCheckpoint),
}
