//! What a shard's connections are for, beside those of clients and the one to the coordinator, and which way to take to a backup.
//!
//! For drivers: it decides, and has a [`Dial`] open and close connections.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use base::ids::ServerId;
use base::map::Map;
use base::time::Time;
use master::Channel;
use transport::paths::Paths;

/// A faster way that is open and that nobody asks for is closed after this.
const READY_FOR: Duration = Duration::from_secs(10);

/// Opens and closes connections to backups.
pub trait Dial {
    /// Begins to connect to this one locator; requests are to be handed over there in the order in which they are sent. `None` if there is no way.
    fn dial(&mut self, locator: &str) -> Option<u64>;
    /// Closes a connection, open or not yet; nothing is reported of it any more.
    fn hang_up(&mut self, connection: u64);
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRole {
    /// To the client port of another server.
    Server,
    /// To another server's backup.
    Backup(Channel, ServerId),
    /// From another server, to the backup here.
    Peer,
    /// To another server's backup, in a faster way than the present connection's.
    Trial(Channel, ServerId),
}

/// A backup to which the log goes.
#[derive(Clone, Copy, Debug)]
pub struct Reached<'a> {
    pub backup: ServerId,
    pub connection: u64,
    /// All ways to it.
    pub list: &'a str,
}

/// In which ways a backup can be reached.
struct Ways {
    /// As its server has it.
    list: String,
    /// The first of them is being tried, or in use; the others come after it.
    alternatives: VecDeque<String>,
    is_open: bool,
}

/// A shard's connections to other servers, and theirs to its backup.
pub struct Links {
    paths: Paths,
    /// Of connections to backups.
    ways: Map<u64, Ways>,
    /// Backups to which there is a faster way than the one in use, with the time to try it.
    slow: BTreeMap<(Channel, ServerId), Time>,
    /// Faster ways that are open already, since when.
    ready: BTreeMap<(Channel, ServerId), (u64, Time)>,
    /// Connections that were open when they were asked for: their masters are told in the next round.
    pub opened: Vec<(u64, Channel, ServerId)>,
    /// Their numbers are this program's own, so a map without a secret will do.
    by_connection: Map<u64, ConnectionRole>,
    backups: BTreeMap<(Channel, ServerId), u64>,
    /// Backups that cannot even be tried: their masters are told in the next round.
    pub unreachable: Vec<(Channel, ServerId)>,
}

impl Links {
    /// For a shard whose driver speaks these protocols, the fastest first. What another one prefers has another `taste`.
    pub fn new(protocols: Vec<&'static str>, taste: u64) -> Links {
        Links {
            paths: Paths::new(protocols, taste),
            ways: Map::default(),
            slow: BTreeMap::new(),
            ready: BTreeMap::new(),
            opened: Vec::new(),
            by_connection: Map::default(),
            backups: BTreeMap::new(),
            unreachable: Vec::new(),
        }
    }

    /// Begins to connect to a backup, in the best way that there is. False if there is none.
    pub fn connect_backup(
        &mut self,
        now: Time,
        channel: Channel,
        backup: ServerId,
        list: &str,
        dial: &mut impl Dial,
    ) -> bool {
        if let Some((connection, _)) = self.ready.remove(&(channel, backup)) {
            self.by_connection.remove(&connection);
            self.add(connection, ConnectionRole::Backup(channel, backup));
            self.opened.push((connection, channel, backup));
            return true;
        }
        let Some(alternatives) = self.paths.alternatives(now, list) else {
            return false;
        };
        let ways = Ways {
            list: list.to_owned(),
            alternatives,
            is_open: false,
        };
        self.try_first(ConnectionRole::Backup(channel, backup), ways, dial)
    }

    /// Takes the first way that the driver has: some it may not use.
    fn try_first(&mut self, link: ConnectionRole, mut ways: Ways, dial: &mut impl Dial) -> bool {
        while let Some(first) = ways.alternatives.front() {
            if let Some(connection) = dial.dial(first) {
                self.add(connection, link);
                self.ways.insert(connection, ways);
                return true;
            }
            ways.alternatives.pop_front();
        }
        false
    }

    /// A connection to a backup, or a faster way to one, is open.
    pub fn backup_opened(
        &mut self,
        now: Time,
        connection: u64,
        channel: Channel,
        backup: ServerId,
    ) {
        let Some(ways) = self.ways.get_mut(&connection) else {
            return;
        };
        ways.is_open = true;
        let Some(present) = ways.alternatives.front() else {
            return;
        };
        self.paths.works(present);
        let better = self.paths.better(&ways.list, present);
        match better.filter(|_| channel == Channel::Replication) {
            Some((_, at)) => self.slow.insert((channel, backup), at.max(now)),
            None => self.slow.remove(&(channel, backup)),
        };
    }

    /// A connection to a backup has ended. True if the next way is tried: its master need not know.
    pub fn try_next(
        &mut self,
        now: Time,
        connection: u64,
        link: ConnectionRole,
        dial: &mut impl Dial,
    ) -> bool {
        let Some(mut ways) = self.ways.remove(&connection) else {
            return false;
        };
        let Some(failed) = ways.alternatives.pop_front() else {
            return false;
        };
        if ways.is_open {
            // Its master asks for another one: that is not to begin with the way that was just lost.
            if failed.starts_with("fast+") {
                self.paths.failed(now, &failed);
            }
            return false;
        }
        if matches!(link, ConnectionRole::Trial(..)) || !ways.alternatives.is_empty() {
            self.paths.failed(now, &failed);
        }
        !ways.alternatives.is_empty() && self.try_first(link, ways, dial)
    }

    /// Tries the faster ways whose time has come; closes those that nobody wants any more. When to look again.
    pub fn look_for_faster(&mut self, now: Time, dial: &mut impl Dial) -> Time {
        let unused = self
            .ready
            .iter()
            .find(|(_, (_, since))| now.since(*since) >= READY_FOR);
        if let Some((&(channel, backup), &(connection, _))) = unused {
            self.ready.remove(&(channel, backup));
            self.remove(connection);
            dial.hang_up(connection);
        }
        let due = self.slow.iter().find(|(_, at)| **at <= now);
        let Some((&(channel, backup), _)) = due else {
            let ready = self.ready.values().map(|(_, since)| *since + READY_FOR);
            return self
                .slow
                .values()
                .copied()
                .chain(ready)
                .min()
                .unwrap_or(Time::NEVER);
        };
        self.slow.remove(&(channel, backup));
        let present = self.of_backup(channel, backup);
        let ways = present.and_then(|present| self.ways.get(&present));
        let better = ways.and_then(|ways| {
            let present = ways.alternatives.front()?;
            let (better, at) = self.paths.better(&ways.list, present)?;
            Some((ways.list.clone(), better, at))
        });
        match better {
            Some((_, _, at)) if at > now => {
                self.slow.insert((channel, backup), at);
            }
            Some((list, better, _)) => {
                let ways = Ways {
                    list,
                    alternatives: VecDeque::from([better]),
                    is_open: false,
                };
                self.try_first(ConnectionRole::Trial(channel, backup), ways, dial);
            }
            None => {}
        }
        now
    }

    /// A faster way is open: the present connection is to end, so that its master asks for another. That one, if there is any.
    pub fn faster_opened(
        &mut self,
        now: Time,
        connection: u64,
        channel: Channel,
        backup: ServerId,
        dial: &mut impl Dial,
    ) -> bool {
        let Some(present) = self.remove_backup(channel, backup) else {
            self.remove(connection);
            dial.hang_up(connection);
            return false;
        };
        dial.hang_up(present);
        self.backup_opened(now, connection, channel, backup);
        self.ready.insert((channel, backup), (connection, now));
        true
    }

    /// A faster way did not open, or has ended before anybody took it: it is tried again later.
    pub fn faster_failed(&mut self, now: Time, channel: Channel, backup: ServerId) {
        self.ready.remove(&(channel, backup));
        self.slow.insert((channel, backup), now);
    }

    /// Those to which a connection is open, by their numbers.
    pub fn reached(&self) -> impl Iterator<Item = Reached<'_>> {
        let for_log =
            |((channel, _), _): &(&(Channel, ServerId), &u64)| *channel == Channel::Replication;
        let backups = self.backups.iter().filter(for_log);
        backups.filter_map(|((_, backup), connection)| {
            let ways = self.ways.get(connection).filter(|ways| ways.is_open)?;
            Some(Reached {
                backup: *backup,
                connection: *connection,
                list: &ways.list,
            })
        })
    }

    /// Connections that were open when they were asked for, and still are those to their backups.
    pub fn take_opened(&mut self) -> Vec<(Channel, ServerId)> {
        let opened = std::mem::take(&mut self.opened);
        let is_present = |(connection, channel, backup): &(u64, Channel, ServerId)| {
            self.of_backup(*channel, *backup) == Some(*connection)
        };
        let present = opened.into_iter().filter(is_present);
        present
            .map(|(_, channel, backup)| (channel, backup))
            .collect()
    }

    pub fn add(&mut self, connection: u64, link: ConnectionRole) {
        self.by_connection.insert(connection, link);
        if let ConnectionRole::Backup(channel, backup) = link {
            self.backups.insert((channel, backup), connection);
        }
    }

    /// `None`: a client's.
    pub fn get(&self, connection: u64) -> Option<ConnectionRole> {
        self.by_connection.get(&connection).copied()
    }

    pub fn remove(&mut self, connection: u64) -> Option<ConnectionRole> {
        let link = self.by_connection.remove(&connection)?;
        self.ways.remove(&connection);
        if let ConnectionRole::Backup(channel, backup) = link
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
    fn a_faster_way_that_ends_is_given_to_nobody() {
        let backup = ServerId::new(3, 1);
        let key = (Channel::Replication, backup);
        let mut links = Links::new(vec!["tcp"], 0);
        links.add(7, ConnectionRole::Trial(key.0, backup));
        links.ready.insert(key, (7, Time(1)));
        // It ends before its master asks for it.
        links.remove(7);
        links.faster_failed(Time(2), key.0, backup);
        assert!(links.ready.is_empty());
        // It ends after that, and before its master is told that it is open.
        links.add(8, ConnectionRole::Backup(key.0, backup));
        links.opened.push((8, key.0, backup));
        links.remove(8);
        links.add(9, ConnectionRole::Backup(key.0, backup));
        assert_eq!(links.take_opened(), []);
        links.opened.push((9, key.0, backup));
        assert_eq!(links.take_opened(), [key]);
    }

    #[test]
    fn those_are_reached_to_which_the_log_goes_by_a_connection_that_is_open() {
        let backup = |number| ServerId::new(number, 1);
        let mut links = Links::new(vec!["tcp"], 0);
        for (connection, channel, is_open) in [
            (1, Channel::Replication, true),
            (2, Channel::Replication, false),
            (3, Channel::Recovery, true),
        ] {
            let ways = Ways {
                list: format!("tcp:host=h,port={connection}"),
                alternatives: VecDeque::new(),
                is_open,
            };
            links.add(
                connection,
                ConnectionRole::Backup(channel, backup(connection as u32)),
            );
            links.ways.insert(connection, ways);
        }
        let mut reached = links.reached();
        let only = reached.next().unwrap();
        assert_eq!((only.backup, only.connection), (backup(1), 1));
        assert_eq!(only.list, "tcp:host=h,port=1");
        assert!(reached.next().is_none());
    }

    #[test]
    fn a_backup_has_one_connection_for_each_purpose() {
        let backup = ServerId::new(3, 1);
        let mut links = Links::new(vec!["tcp"], 0);
        links.add(1, ConnectionRole::Backup(Channel::Replication, backup));
        links.add(2, ConnectionRole::Backup(Channel::Recovery, backup));
        links.add(3, ConnectionRole::Peer);
        assert_eq!(links.of_backup(Channel::Recovery, backup), Some(2));
        assert_eq!(links.get(3), Some(ConnectionRole::Peer));
        assert_eq!(links.remove_backup(Channel::Replication, backup), Some(1));
        assert_eq!(links.get(1), None);
        assert_eq!(links.remove_backup(Channel::Replication, backup), None);
        // A new connection counts, whatever becomes of the old one.
        links.add(4, ConnectionRole::Backup(Channel::Recovery, backup));
        assert!(links.remove(2).is_some());
        assert_eq!(links.of_backup(Channel::Recovery, backup), Some(4));
    }

    /// One that may not use datagrams.
    struct OverTcp(Vec<String>);

    impl Dial for OverTcp {
        fn dial(&mut self, locator: &str) -> Option<u64> {
            let is_tcp = locator.starts_with("tcp:");
            is_tcp.then(|| {
                self.0.push(locator.to_owned());
                7
            })
        }

        fn hang_up(&mut self, _connection: u64) {}
    }

    #[test]
    fn a_way_that_may_not_be_taken_is_passed_over() {
        let mut links = Links::new(vec!["fast+udp", "tcp"], 1);
        let (mut dial, backup) = (OverTcp(Vec::new()), ServerId::new(1, 1));
        let mut connect = |list: &str| {
            links.connect_backup(Time::ZERO, Channel::Replication, backup, list, &mut dial)
        };
        let fast = "fast+udp:host=127.0.0.1,port=2";
        assert!(connect(&format!("{fast};tcp:host=127.0.0.1,port=1")));
        assert!(!connect(fast), "there is no other way");
        assert_eq!(dial.0, ["tcp:host=127.0.0.1,port=1"]);
    }
}
