//! The store through its client library, one client in one thread.

use std::time::{Duration, Instant};

use client::{Cluster, Options, ReadObject, RejectRules, TableId, ops};

use crate::Failure;
use crate::load::Counter;
use crate::plan::{Case, KEY_BYTES, OBJECTS, Operation, Random, cases, key};
use crate::protocols::locator;

pub fn measure(address: &str, time: Duration, only: &str) -> Result<(), Failure> {
    let coordinator = locator(address)?;
    let mut spinning = Cluster::connect(&coordinator)?;
    let options = Options {
        spin: Duration::ZERO,
        ..Options::default()
    };
    let mut sleeping = Cluster::with_options(&coordinator, options)?;
    let table = spinning.create_table("peerbench", 1)?;
    let mut filled = 0;
    // A client has one connection to each server.
    for case in cases(only).into_iter().filter(|case| case.connections == 1) {
        let value = vec![b'v'; case.value_bytes];
        if filled != case.value_bytes {
            for number in 0..OBJECTS {
                spinning.write(table, &key(number), &value)?;
            }
            filled = case.value_bytes;
        }
        let cluster = if case.sleeps {
            &mut sleeping
        } else {
            &mut spinning
        };
        let mut random = Random(7);
        let mut counter = Counter::new(&case, time);
        while counter.goes_on() {
            let start = Instant::now();
            step(cluster, table, &case, &value, &mut random)?;
            counter.add(start.elapsed().as_nanos() as u64);
        }
        let measured = counter.finish().into_measured("rcbox-library", case);
        println!("{}", serde_json::to_string(&measured)?);
    }
    Ok(())
}

const RULES: RejectRules = RejectRules {
    given_version: 0,
    doesnt_exist: false,
    exists: false,
    version_le_given: false,
    version_ne_given: false,
};

fn step(
    cluster: &mut Cluster,
    table: TableId,
    case: &Case,
    value: &[u8],
    random: &mut Random,
) -> Result<(), Failure> {
    let rules = RULES;
    match (case.operation, case.depth) {
        (Operation::Get, 1) => {
            let object = cluster.read(table, &random.key())?;
            check(object.value.len() == case.value_bytes)
        }
        (Operation::Set, 1) => {
            cluster.write(table, &random.key(), value)?;
            Ok(())
        }
        (Operation::Get, depth) => {
            let submit = |_| {
                let key = random.key();
                cluster.submit(ops::Read { table, key, rules })
            };
            let tickets: Vec<_> = (0..depth).map(submit).collect::<Result<_, _>>()?;
            for ticket in tickets {
                check(cluster.wait(ticket)?.value.len() == case.value_bytes)?;
            }
            Ok(())
        }
        (Operation::Set, depth) => {
            let submit = |_| {
                let key = random.key();
                cluster.submit(ops::Write {
                    table,
                    key,
                    value,
                    rules,
                })
            };
            let tickets: Vec<_> = (0..depth).map(submit).collect::<Result<_, _>>()?;
            for ticket in tickets {
                cluster.wait(ticket)?;
            }
            Ok(())
        }
        (Operation::Multiget, _) => {
            let keys: Vec<[u8; KEY_BYTES]> = (0..case.batch).map(|_| random.key()).collect();
            let object = |key| ReadObject { table, key, rules };
            let wanted: Vec<_> = keys.iter().map(|key| object(&key[..])).collect();
            for object in cluster.multi_read(&wanted)? {
                check(object?.value.len() == case.value_bytes)?;
            }
            Ok(())
        }
    }
}

fn check(condition: bool) -> Result<(), Failure> {
    if condition {
        Ok(())
    } else {
        Err("a value of another length".into())
    }
}
