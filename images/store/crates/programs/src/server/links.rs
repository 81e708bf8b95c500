//! What a shard's connections are for, beside those of clients and the one to the coordinator.

use std::collections::BTreeMap;

use master::Channel;
use wire::ids::ServerId;
use wire::map::Map;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// To the client port of another server.
    Server,
    /// To another server's backup.
    Backup(Channel, ServerId),
    /// From another server, to the backup here.
    Peer,
}

#[derive(Default)]
pub struct Links {
    /// Their numbers are this program's own, so a map without a secret will do.
    by_connection: Map<u64, Link>,
    backups: BTreeMap<(Channel, ServerId), u64>,
    /// Backups that cannot even be tried: their masters are told in the next round.
    pub unreachable: Vec<(Channel, ServerId)>,
}

impl Links {
    pub fn add(&mut self, connection: u64, link: Link) {
        self.by_connection.insert(connection, link);
        if let Link::Backup(channel, backup) = link {
            self.backups.insert((channel, backup), connection);
        }
    }

    /// `None`: a client's.
    pub fn get(&self, connection: u64) -> Option<Link> {
        self.by_connection.get(&connection).copied()
    }

    pub fn remove(&mut self, connection: u64) -> Option<Link> {
        let link = self.by_connection.remove(&connection)?;
        if let Link::Backup(channel, backup) = link
            && self.backups.get(&(channel, backup)) == Some(&connection)
        {
            self.backups.remove(&(channel, backup));
        }
        Some(link)
    }

    pub fn of_backup(&self, channel: Channel, backup: ServerId) -> Option<u64> {
        self.backups.get(&(channel, backup)).copied()
    }

    pub fn remove_backup(&mut self, channel: Channel, backup: ServerId) -> Option<u64> {
        let connection = self.of_backup(channel, backup)?;
        self.remove(connection);
        Some(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_has_one_connection_for_each_purpose() {
        let backup = ServerId::new(3, 1);
        let mut links = Links::default();
        links.add(1, Link::Backup(Channel::Replication, backup));
        links.add(2, Link::Backup(Channel::Recovery, backup));
        links.add(3, Link::Peer);
        assert_eq!(links.of_backup(Channel::Recovery, backup), Some(2));
        assert_eq!(links.get(3), Some(Link::Peer));
        assert_eq!(links.remove_backup(Channel::Replication, backup), Some(1));
        assert_eq!(links.get(1), None);
        assert_eq!(links.remove_backup(Channel::Replication, backup), None);
        // A new connection counts, whatever becomes of the old one.
        links.add(4, Link::Backup(Channel::Recovery, backup));
        assert!(links.remove(2).is_some());
        assert_eq!(links.of_backup(Channel::Recovery, backup), Some(4));
    }
}
