//! Where the clients of one measurement meet: objects of a table "control", whether they are threads or processes.
//!
//! Client 0 leads. Each of the others says that it is there by writing its object again and again, until the leader's first
//! command comes; a command is an object whose version grows, and is answered by the number of that version. What an earlier run left
//! behind is removed by the leader, and never mistaken for a command: only versions count that are newer than what was there.

use std::time::{Duration, Instant};

use client::{Cluster, Error, RejectRules, Status, TableId};

use super::Options;

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(2);
const COMMAND: &[u8] = b"command";

pub struct Meeting {
    table: TableId,
    index: u32,
    count: u32,
    /// Version of the last command that was given or taken.
    last: u64,
    /// The leader has seen this client.
    is_seen: bool,
    interval: Duration,
    /// How long one client waits for the others.
    patience: Duration,
}

/// What the leader has the others do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Clients with an index below this do what the test has them do.
    Work(u32),
    End,
}

impl Command {
    fn encode(&self) -> String {
        match self {
            Command::Work(clients) => format!("work {clients}"),
            Command::End => "end".to_owned(),
        }
    }

    fn decode(text: &[u8]) -> Option<Command> {
        let text = std::str::from_utf8(text).ok()?;
        match text.split_once(' ') {
            Some(("work", clients)) => clients.parse().ok().map(Command::Work),
            None if text == "end" => Some(Command::End),
            _ => None,
        }
    }
}

/// Where a client says that it is there.
fn presence_of(index: u32) -> Vec<u8> {
    format!("client {index}").into_bytes()
}

/// Where it answers. Not the same: a client may be there for the next test before the leader has its last answer of this one.
fn answer_of(index: u32) -> Vec<u8> {
    format!("answer {index}").into_bytes()
}

fn late(what: &str, patience: Duration) -> Error {
    Error::Io(std::io::Error::other(format!(
        "waited {} s for {what}: are all clients running, each with its own --clientIndex and the same --numClients? \
         Clients that need longer to start need a longer --patience",
        patience.as_secs()
    )))
}

impl Meeting {
    /// Meets the others; returns when all are there, for the leader, or when the leader may command, for the others.
    pub fn join(cluster: &mut Cluster, options: &Options, index: u32) -> Result<Meeting, Error> {
        let table = cluster.create_table(&options.table("control"), 1)?;
        let count = options.num_clients;
        let mut meeting = Meeting {
            table,
            index,
            count,
            last: 0,
            is_seen: false,
            interval: INTERVAL,
            patience: options.patience(),
        };
        if index == 0 {
            meeting.clear(cluster)?;
            for other in 1..count {
                let what = format!("client {other} of {count}");
                meeting.expect(cluster, &presence_of(other), "here", &what)?;
            }
        } else {
            meeting.last = version(cluster, table, COMMAND)?;
        }
        Ok(meeting)
    }

    /// From now on looks all the time: for tests that measure how long a message takes.
    pub fn look_always(&mut self) {
        self.interval = Duration::ZERO;
    }

    fn pause(&self) {
        if !self.interval.is_zero() {
            std::thread::sleep(self.interval);
        }
    }

    /// The leader has all others do something.
    pub fn command(&mut self, cluster: &mut Cluster, command: &Command) -> Result<(), Error> {
        self.last = cluster.write(self.table, COMMAND, command.encode().as_bytes())?;
        Ok(())
    }

    /// What the others answered to the last command.
    pub fn answers(&mut self, cluster: &mut Cluster) -> Result<Vec<String>, Error> {
        let number = format!("{} ", self.last);
        let others = 1..self.count;
        others
            .map(|other| {
                let what = format!("an answer of client {other}");
                self.expect(cluster, &answer_of(other), &number, &what)
            })
            .collect()
    }

    /// The next command, which comes when all have done their `work`.
    pub fn next(&mut self, cluster: &mut Cluster, work: Duration) -> Result<Command, Error> {
        let deadline = Instant::now() + self.patience + 10 * work;
        let mut told: Option<Instant> = None;
        loop {
            match cluster.read(self.table, COMMAND) {
                Ok(object) if object.version > self.last => {
                    (self.last, self.is_seen) = (object.version, true);
                    let command = Command::decode(&object.value);
                    return command
                        .ok_or(Error::Invalid("a command that this program does not know"));
                }
                Ok(_) => {}
                Err(error) if error.is_absent() => {}
                Err(error) => return Err(error),
            }
            // The leader may have come later than this client, and cleared the table.
            let is_due = told.is_none_or(|at| at.elapsed() > Duration::from_millis(100));
            if is_due && !self.is_seen {
                cluster.write(self.table, &presence_of(self.index), b"here")?;
                told = Some(Instant::now());
            }
            if Instant::now() > deadline {
                return Err(late("client 0", self.patience));
            }
            self.pause();
        }
    }

    /// Answers the last command.
    pub fn answer(&mut self, cluster: &mut Cluster, text: &str) -> Result<(), Error> {
        let text = format!("{} {text}", self.last);
        cluster.write(self.table, &answer_of(self.index), text.as_bytes())?;
        Ok(())
    }

    /// The leader removes what others could mistake for theirs.
    pub fn clear(&mut self, cluster: &mut Cluster) -> Result<(), Error> {
        cluster.remove(self.table, COMMAND)?;
        for index in 0..self.count {
            cluster.remove(self.table, &presence_of(index))?;
            cluster.remove(self.table, &answer_of(index))?;
        }
        Ok(())
    }

    /// Waits until another client's object begins with `start`; gives the rest.
    fn expect(
        &self,
        cluster: &mut Cluster,
        key: &[u8],
        start: &str,
        what: &str,
    ) -> Result<String, Error> {
        let deadline = Instant::now() + self.patience;
        loop {
            match cluster.read(self.table, key) {
                Ok(object) => {
                    let text = String::from_utf8_lossy(&object.value).into_owned();
                    if let Some(rest) = text.strip_prefix(start) {
                        return Ok(rest.to_owned());
                    }
                }
                Err(error) if error.is_absent() => {}
                Err(error) => return Err(error),
            }
            if Instant::now() > deadline {
                return Err(late(what, self.patience));
            }
            self.pause();
        }
    }
}

/// The version of an object, 0 if there is none.
fn version(cluster: &mut Cluster, table: TableId, key: &[u8]) -> Result<u64, Error> {
    let mut value = Vec::new();
    match cluster.read_into(table, key, &RejectRules::default(), &mut value) {
        Err(error) if error.status() == Some(Status::ObjectDoesntExist) => Ok(0),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_round_trip() {
        for command in [Command::Work(7), Command::End] {
            assert_eq!(Command::decode(command.encode().as_bytes()), Some(command));
        }
        assert_eq!(Command::decode(b"work"), None);
        assert_eq!(Command::decode(b"work x"), None);
        assert_eq!(Command::decode(b"\xff"), None);
    }
}
