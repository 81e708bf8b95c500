//! The clients: what they do until they are told to stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use client::{Cluster, Error, RejectRules, TableId, ops};
use serde_json::json;

use crate::Options;
use crate::random::Random;
use crate::record::{History, Kind, Outcome, Record};

/// How often a client that waits looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);
/// What is under way when the clients are to stop has so long to end.
const GRACE: Duration = Duration::from_secs(30);
/// Kinds of operations, as often as each is done.
const MIX: [(Kind, u64); 6] = [
    (Kind::Read, 30),
    (Kind::Write, 20),
    (Kind::Create, 8),
    (Kind::Replace, 12),
    (Kind::Increment, 20),
    (Kind::Remove, 10),
];

/// Runs all clients to their end.
pub fn run(options: &Options) -> Result<(), String> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    std::thread::spawn(move || {
        // Nothing is said there but that it ends.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        told.store(true, Ordering::SeqCst);
    });
    let history = match &options.to {
        Some(folder) => History::in_folder(folder)?,
        None => History::on_stdout(),
    };
    let mut cluster = connect(options)?;
    let table = cluster
        .create_table(&options.table, options.span)
        .map_err(|error| error.to_string())?;
    let together = Arc::new(Barrier::new(options.clients as usize));
    let results = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..options.clients)
            .map(|number| {
                let (stop, together) = (Arc::clone(&stop), Arc::clone(&together));
                let history = &history;
                scope.spawn(move || {
                    Client::start(options, history, number, table, stop)?.live(&together)
                })
            })
            .collect();
        let ended = clients.into_iter().map(|client| client.join());
        ended.collect::<Vec<_>>()
    });
    for result in results {
        result.map_err(|_| "a client has panicked".to_owned())??;
    }
    Ok(())
}

fn connect(options: &Options) -> Result<Cluster, String> {
    let of_client = client::Options {
        timeout: Duration::from_millis(options.timeout_ms),
        session_timeout: Duration::from_millis(options.session_timeout_ms),
        // The cores are for the store.
        spin: Duration::ZERO,
        ..client::Options::default()
    };
    Cluster::with_options(&options.coordinator, of_client).map_err(|error| error.to_string())
}

struct Client<'a> {
    options: &'a Options,
    history: &'a History,
    cluster: Cluster,
    table: TableId,
    /// Among those of this process.
    number: u32,
    random: Random,
    /// Makes every value that is written another one.
    written: i64,
    /// The newest version of each shared key that was seen here.
    seen: Vec<u64>,
    stop: Arc<AtomicBool>,
    stopped_at: Option<Instant>,
}

impl<'a> Client<'a> {
    fn start(
        options: &'a Options,
        history: &'a History,
        number: u32,
        table: TableId,
        stop: Arc<AtomicBool>,
    ) -> Result<Client<'a>, String> {
        Ok(Client {
            options,
            history,
            cluster: connect(options)?,
            table,
            number,
            random: Random::new(options.seed << 32 | u64::from(options.first_client + number)),
            written: 0,
            seen: vec![0; options.keys as usize],
            stop,
            stopped_at: None,
        })
    }

    /// All phases. Nobody leaves early: the others would wait for ever at the barrier, so an error is kept until the end.
    fn live(&mut self, together: &Barrier) -> Result<(), String> {
        let mut result = self.ballast(Kind::Write);
        self.begin("running", together, &mut result);
        while result.is_ok() && !self.stop.load(Ordering::SeqCst) {
            if self.options.overwrite {
                result = self.overwrite();
            } else if self.options.keys > 0 {
                result = self.step();
            }
            let pause = self.random.below(self.options.think_micros.max(1));
            std::thread::sleep(Duration::from_micros(pause));
        }
        self.begin("reading", together, &mut result);
        result?;
        self.ballast(Kind::Read)?;
        for number in self.own(self.options.keys) {
            self.operate(Kind::Read, &shared_key(number), 0, 0)?;
        }
        Ok(())
    }

    /// Waits for the others; one of them says which phase it is.
    fn begin(&self, phase: &str, together: &Barrier, result: &mut Result<(), String>) {
        if together.wait().is_leader() && result.is_ok() {
            *result = self.history.emit(&json!({ "phase": phase }));
        }
    }

    /// Every so-many-th of `count` things is this client's.
    fn own(&self, count: u32) -> impl Iterator<Item = u32> + use<> {
        (self.number..count).step_by(self.options.clients as usize)
    }

    fn ballast(&mut self, kind: Kind) -> Result<(), String> {
        for number in self.own(self.options.ballast) {
            let key = self.ballast_key(number);
            self.operate(kind, &key, i64::from(number), 0)?;
        }
        Ok(())
    }

    fn ballast_key(&self, number: u32) -> String {
        format!("ballast-{}-{number}", self.options.first_client)
    }

    /// Gives one object of the client's ballast another value.
    fn overwrite(&mut self) -> Result<(), String> {
        let own: Vec<u32> = self.own(self.options.ballast).collect();
        if own.is_empty() {
            return Ok(());
        }
        let number = own[self.random.below(own.len() as u64) as usize];
        // None that is there from the beginning.
        self.written += 1 << 20;
        let key = self.ballast_key(number);
        self.operate(Kind::Write, &key, self.written | i64::from(number), 0)?;
        Ok(())
    }

    /// One random operation.
    fn step(&mut self) -> Result<(), String> {
        let index = self.random.below(u64::from(self.options.keys));
        let kind = self.choose();
        // Beyond all that increments can add to the value before.
        self.written += 1 << 20;
        let client = i64::from(self.options.first_client + self.number) + 1;
        let argument = match kind {
            Kind::Increment => self.random.below(9) as i64 + 1,
            Kind::Read | Kind::Remove => 0,
            Kind::Write | Kind::Create | Kind::Replace => client << 48 | self.written,
        };
        let seen = &mut self.seen[index as usize];
        let given = if matches!(kind, Kind::Replace) {
            *seen
        } else {
            0
        };
        let version = self.operate(kind, &shared_key(index as u32), argument, given)?;
        let seen = &mut self.seen[index as usize];
        *seen = version.max(*seen);
        Ok(())
    }

    fn choose(&mut self) -> Kind {
        if self.options.only_reads {
            return Kind::Read;
        }
        let mut left = self.random.below(MIX.iter().map(|(_, often)| often).sum());
        for (kind, often) in MIX {
            match left.checked_sub(often) {
                Some(rest) => left = rest,
                None => return kind,
            }
        }
        Kind::Read
    }

    /// Does something and writes it down; gives the version that was seen.
    fn operate(&mut self, kind: Kind, key: &str, argument: i64, given: u64) -> Result<u64, String> {
        let mut record = Record {
            client: self.options.first_client + self.number,
            kind,
            key,
            argument,
            given,
            outcome: Outcome::unknown(),
            call: net::now().0,
            returned: 0,
        };
        self.history.begin(&record)?;
        record.outcome = self.carry_out(kind, key, argument, given);
        record.returned = net::now().0;
        self.history.emit(&record)?;
        Ok(record.outcome.version)
    }

    fn carry_out(&mut self, kind: Kind, key: &str, argument: i64, given: u64) -> Outcome {
        let (table, none) = (self.table, RejectRules::default());
        let rules = match kind {
            Kind::Create => RejectRules {
                exists: true,
                ..none
            },
            Kind::Replace => RejectRules {
                doesnt_exist: true,
                version_ne_given: true,
                given_version: given,
                ..none
            },
            _ => none,
        };
        let bytes = if key.starts_with("ballast") {
            self.options.ballast_bytes as usize
        } else {
            8
        };
        let result = match kind {
            Kind::Read => {
                let read = self.finish(ops::Read { table, key, rules });
                read.map(|object| match number_in(&object.value, bytes) {
                    Some(value) => Outcome::done(value, object.version),
                    None => Outcome {
                        text: format!("a value that nobody wrote: {:?}", object.value),
                        value: 0,
                        version: object.version,
                    },
                })
            }
            Kind::Write | Kind::Create | Kind::Replace => {
                let value = value_of(argument, bytes);
                let written = self.finish(ops::Write {
                    table,
                    key,
                    value,
                    rules,
                });
                written.map(|version| Outcome::done(0, version))
            }
            Kind::Increment => {
                let increment = self.finish(ops::IncrementI64 {
                    table,
                    key,
                    by: argument,
                    rules,
                });
                increment.map(|made| Outcome::done(made.value, made.version))
            }
            Kind::Remove => {
                let removed = self.finish(ops::Remove { table, key, rules });
                removed.map(|version| Outcome::done(0, version))
            }
        };
        result.unwrap_or_else(|error| Outcome::failed(&error))
    }

    /// Waits for an operation; one that is still under way long after the clients were told to stop is given up.
    fn finish<O: ops::Operation>(&mut self, operation: O) -> Result<O::Output, Error> {
        let ticket = self.cluster.submit(operation)?;
        while !self.cluster.wait_for(&ticket, LOOK)? {
            if self.stopped_at.is_none() && self.stop.load(Ordering::SeqCst) {
                self.stopped_at = Some(Instant::now());
            }
            if self.stopped_at.is_some_and(|at| at.elapsed() > GRACE) {
                self.cluster.cancel(ticket);
                return Err(Error::Closed);
            }
        }
        self.cluster.wait(ticket)
    }
}

fn shared_key(number: u32) -> String {
    format!("key-{number}")
}

/// A number in so many bytes, all of which depend on it.
fn value_of(number: i64, bytes: usize) -> Vec<u8> {
    number
        .to_le_bytes()
        .into_iter()
        .cycle()
        .take(bytes)
        .collect()
}

fn number_in(value: &[u8], bytes: usize) -> Option<i64> {
    let number = i64::from_le_bytes(*value.first_chunk()?);
    (value == value_of(number, bytes)).then_some(number)
}
