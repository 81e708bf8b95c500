//! Opcodes and services: the first four bytes of every request.

use core::fmt;

macro_rules! opcodes {
    ($($variant:ident = $number:literal, $name:literal;)*) => {
        /// What a request asks for. Numbers and names are RAMCloud's; docs/protocol.md lists those that are served.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Opcode {
            $($variant = $number,)*
        }

        impl Opcode {
            pub const ALL: &[Opcode] = &[$(Opcode::$variant,)*];

            pub const fn from_u16(number: u16) -> Option<Opcode> {
                match number {
                    $($number => Some(Opcode::$variant),)*
                    _ => None,
                }
            }

            /// The name on paper, such as `CREATE_TABLE`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Opcode::$variant => $name,)*
                }
            }
        }
    };
}

opcodes! {
    Ping = 7, "PING";
    ProxyPing = 8, "PROXY_PING";
    Kill = 9, "KILL";
    CreateTable = 10, "CREATE_TABLE";
    GetTableId = 11, "GET_TABLE_ID";
    DropTable = 12, "DROP_TABLE";
    Read = 13, "READ";
    Write = 14, "WRITE";
    Remove = 15, "REMOVE";
    EnlistServer = 16, "ENLIST_SERVER";
    GetServerList = 17, "GET_SERVER_LIST";
    GetTableConfig = 18, "GET_TABLE_CONFIG";
    Recover = 19, "RECOVER";
    HintServerCrashed = 20, "HINT_SERVER_CRASHED";
    RecoveryMasterFinished = 21, "RECOVERY_MASTER_FINISHED";
    Enumerate = 22, "ENUMERATE";
    SetMasterRecoveryInfo = 23, "SET_MASTER_RECOVERY_INFO";
    FillWithTestData = 24, "FILL_WITH_TEST_DATA";
    MultiOp = 25, "MULTI_OP";
    GetMetrics = 26, "GET_METRICS";
    BackupFree = 28, "BACKUP_FREE";
    BackupGetrecoverydata = 29, "BACKUP_GETRECOVERYDATA";
    BackupStartreadingdata = 31, "BACKUP_STARTREADINGDATA";
    BackupWrite = 32, "BACKUP_WRITE";
    BackupRecoverycomplete = 33, "BACKUP_RECOVERYCOMPLETE";
    UpdateServerList = 35, "UPDATE_SERVER_LIST";
    BackupStartpartition = 36, "BACKUP_STARTPARTITION";
    DropTabletOwnership = 39, "DROP_TABLET_OWNERSHIP";
    TakeTabletOwnership = 40, "TAKE_TABLET_OWNERSHIP";
    GetHeadOfLog = 42, "GET_HEAD_OF_LOG";
    Increment = 43, "INCREMENT";
    PrepForMigration = 44, "PREP_FOR_MIGRATION";
    ReceiveMigrationData = 45, "RECEIVE_MIGRATION_DATA";
    ReassignTabletOwnership = 46, "REASSIGN_TABLET_OWNERSHIP";
    MigrateTablet = 47, "MIGRATE_TABLET";
    IsReplicaNeeded = 48, "IS_REPLICA_NEEDED";
    SplitTablet = 49, "SPLIT_TABLET";
    GetServerStatistics = 50, "GET_SERVER_STATISTICS";
    SetRuntimeOption = 51, "SET_RUNTIME_OPTION";
    GetServerConfig = 52, "GET_SERVER_CONFIG";
    GetBackupConfig = 53, "GET_BACKUP_CONFIG";
    GetMasterConfig = 55, "GET_MASTER_CONFIG";
    GetLogMetrics = 56, "GET_LOG_METRICS";
    VerifyMembership = 57, "VERIFY_MEMBERSHIP";
    GetRuntimeOption = 58, "GET_RUNTIME_OPTION";
    GetLeaseInfo = 59, "GET_LEASE_INFO";
    RenewLease = 60, "RENEW_LEASE";
    ServerControl = 61, "SERVER_CONTROL";
    ServerControlAll = 62, "SERVER_CONTROL_ALL";
    GetServerId = 63, "GET_SERVER_ID";
    ReadKeysAndValue = 64, "READ_KEYS_AND_VALUE";
    LookupIndexKeys = 65, "LOOKUP_INDEX_KEYS";
    ReadHashes = 66, "READ_HASHES";
    InsertIndexEntry = 67, "INSERT_INDEX_ENTRY";
    RemoveIndexEntry = 68, "REMOVE_INDEX_ENTRY";
    CreateIndex = 69, "CREATE_INDEX";
    DropIndex = 70, "DROP_INDEX";
    DropIndexletOwnership = 71, "DROP_INDEXLET_OWNERSHIP";
    TakeIndexletOwnership = 72, "TAKE_INDEXLET_OWNERSHIP";
    PrepForIndexletMigration = 73, "PREP_FOR_INDEXLET_MIGRATION";
    SplitAndMigrateIndexlet = 74, "SPLIT_AND_MIGRATE_INDEXLET";
    CoordSplitAndMigrateIndexlet = 75, "COORD_SPLIT_AND_MIGRATE_INDEXLET";
    TxDecision = 76, "TX_DECISION";
    TxPrepare = 77, "TX_PREPARE";
    TxRequestAbort = 78, "TX_REQUEST_ABORT";
    TxHintFailed = 79, "TX_HINT_FAILED";
    Echo = 80, "ECHO";
}

/// Numbers from here on are no opcodes at all and are refused before the service is looked at.
pub const FIRST_ILLEGAL: u16 = 81;

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which part of a process a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Service {
    Master = 0,
    Backup = 1,
    Coordinator = 2,
    Admin = 3,
}

impl Service {
    pub const fn from_u16(number: u16) -> Option<Service> {
        match number {
            0 => Some(Service::Master),
            1 => Some(Service::Backup),
            2 => Some(Service::Coordinator),
            3 => Some(Service::Admin),
            _ => None,
        }
    }

    /// This service's bit in a service mask.
    pub const fn bit(self) -> u32 {
        1 << self as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_round_trip_and_stay_below_the_first_illegal_one() {
        for &opcode in Opcode::ALL {
            assert_eq!(Opcode::from_u16(opcode as u16), Some(opcode));
            assert!((opcode as u16) < FIRST_ILLEGAL);
        }
        for unused in [0, 6, 27, 30, 34, 37, 38, 41, 54, FIRST_ILLEGAL, u16::MAX] {
            assert_eq!(Opcode::from_u16(unused), None);
        }
        assert_eq!(Opcode::ServerControlAll.to_string(), "SERVER_CONTROL_ALL");
        assert_eq!(Opcode::ServerControlAll as u16, 62);
    }

    #[test]
    fn a_master_without_backup_has_mask_nine() {
        assert_eq!(Service::Master.bit() | Service::Admin.bit(), 9);
        assert_eq!(Service::from_u16(4), None);
    }
}
