//! Sentences of README and docs that count something are held against the programs.

use std::collections::BTreeSet;

use crate::common::{Rpc, Store};
use wire::opcode::{Opcode, Service};
use wire::status::Status;

const README: &str = include_str!("../../../../../../README.md");
const PROTOCOL: &str = include_str!("../../../../../../docs/protocol.md");

/// Whether they are served is looked at after the request's length: with `--allowTestRpcs` only.
const FOR_TESTS: [Opcode; 2] = [Opcode::Kill, Opcode::FillWithTestData];

/// What a peer serves: it knows the opcode, whatever it says of a request that ends after its header.
fn served(peer: &mut Rpc, service: Service) -> impl Iterator<Item = u16> {
    Opcode::ALL
        .iter()
        .map(|opcode| *opcode as u16)
        .filter(move |opcode| {
            let [low, high] = opcode.to_le_bytes();
            let [service_low, service_high] = (service as u16).to_le_bytes();
            let status = peer.status(&[low, high, service_low, service_high]);
            status != Status::UnimplementedRequest as u32
                && status != Status::ServiceNotAvailable as u32
        })
}

/// The numbers in the second column of the table under "What is there".
fn documented() -> BTreeSet<u16> {
    let table = PROTOCOL.split("## What is there").nth(1).unwrap();
    let rows = table.lines().skip_while(|line| !line.starts_with("|---"));
    rows.skip(1)
        .take_while(|line| line.starts_with('|'))
        .flat_map(|row| row.split('|').nth(2).unwrap().split(','))
        .map(|number| number.trim().parse().unwrap())
        .collect()
}

#[test]
fn the_protocols_page_lists_every_opcode_that_is_served_and_no_other() {
    let store = Store::start(1, &[]);
    let (mut master, mut coordinator) = (store.master(), store.client());
    let mut found = BTreeSet::new();
    found.extend(served(&mut master, Service::Master));
    found.extend(served(&mut master, Service::Admin));
    found.extend(served(&mut coordinator, Service::Coordinator));
    found.extend(served(&mut coordinator, Service::Admin));
    found.extend(FOR_TESTS.map(|opcode| opcode as u16));
    assert_eq!(found, documented());
}

#[test]
fn the_readme_counts_the_opcodes() {
    let sentence = format!(
        "{} of RAMCloud's {} opcodes",
        documented().len(),
        Opcode::ALL.len()
    );
    let readme = README.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        readme.contains(&sentence),
        "README.md should say: {sentence}"
    );
}
