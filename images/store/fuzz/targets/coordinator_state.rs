//! A coordinator's state, or a checkpoint of it, with anything in it: reading it ends, what is read can be gone on with, and a coordinator that was made of it gives the
//! same state again.
#![no_main]

use base::ids::ReplyTo;
use base::time::Time;
use coordinator::checkpoint::{self, Header};
use coordinator::state::journal::{Loaded, Writer, load};
use coordinator::state::{Changes, Pair};
use coordinator::{Config, Coordinator, CoordinatorEffects, CoordinatorEvent};
use fuzz::bounded_target;
use prost::Message;
use wire::member::{Hello, OpenFloor, Position, ToCoordinator, ToShard, shard};

struct Nobody;

impl CoordinatorEffects for Nobody {
    fn reply(&mut self, _to: ReplyTo, _payload: &[u8]) {}
    fn send_member(&mut self, _connection: u64, _message: ToShard) {}
    fn close_member(&mut self, _connection: u64) {}
    fn report(&mut self, _event: CoordinatorEvent) {}
}

fn says(coordinator: &mut Coordinator, connection: u64, kind: shard::Kind) {
    let message = ToCoordinator::from(kind);
    coordinator.member_message(Time::ZERO, connection, message, &mut Nobody);
}

fn hello(member: &str) -> shard::Kind {
    shard::Kind::Hello(Hello {
        server_id: base::ids::ServerId::INVALID.0,
        member: member.to_owned(),
        instance: "1".to_owned(),
        process: 1,
        shard_count: 1,
        locator: "tcp:host=127.0.0.1,port=1".to_owned(),
        replicas: 1,
        ..Hello::default()
    })
}

/// A small store: two servers, a table, a lease.
fn store() -> Coordinator {
    let mut coordinator = Coordinator::new(Config::new(1, 0, "fuzz"), Time::ZERO);
    for connection in 1..3 {
        says(
            &mut coordinator,
            connection,
            hello(&format!("m{connection}")),
        );
        let floor = OpenFloor { segment_id: 1 };
        says(
            &mut coordinator,
            connection,
            shard::Kind::RaiseOpenFloor(floor),
        );
    }
    let to = ReplyTo {
        connection: 9,
        nonce: 1,
    };
    let mut request = Vec::new();
    let create = wire::rpc::CreateTableRequest {
        name: b"t",
        server_span: 2,
    };
    create.encode(&mut request);
    coordinator.request(Time::ZERO, to, &request, &mut Nobody);
    request.clear();
    wire::rpc::RenewLeaseRequest { lease_id: 0 }.encode(&mut request);
    coordinator.request(Time::ZERO, to, &request, &mut Nobody);
    coordinator
}

fn kept(loaded: &Loaded) -> Vec<Pair> {
    let pairs = loaded.pairs.iter();
    let pairs = pairs.map(|(key, value)| Pair {
        key: key.clone(),
        value: value.clone(),
    });
    pairs.collect()
}

fn all_but_counters(coordinator: &Coordinator) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = coordinator.pairs().filter(|pair| pair.key != [1]).collect();
    pairs.sort();
    pairs
}

fn restore(pairs: Vec<Pair>) {
    let config = Config::new(2, 2, "fuzz");
    let mut restored = match Coordinator::restore(config.clone(), pairs, Time::ZERO) {
        Ok(restored) => restored,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let found = all_but_counters(&restored);
    drop(restored.take_changes(Time::ZERO));
    let again = Coordinator::restore(config, restored.pairs(), Time::ZERO);
    let again = again.expect("what was restored can be restored again");
    assert_eq!(all_but_counters(&again), found);
    let status = restored.cluster_status(Time::ZERO);
    assert_eq!(
        status.table_count,
        restored.tables(0, u32::MAX).tables.len() as u64
    );
    says(&mut restored, 1, hello("m1"));
    restored.tick(Time(1_000_000_000), &mut Nobody);
}

/// A checkpoint of any pairs, and any bytes as one.
fn read_checkpoint(is_whole: bool, data: &[u8]) {
    let header = Header {
        cluster_id: 1,
        position: Position::default(),
        number: 1,
        cluster_time_ns: 0,
    };
    let bytes = match Changes::decode(data) {
        Ok(changes) if is_whole => checkpoint::encode(&header, changes.puts.into_iter()),
        _ => data.to_vec(),
    };
    match checkpoint::decode(&bytes) {
        Ok((_, pairs)) => restore(pairs),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// With bytes of it replaced, from a place on.
fn patched(mut bytes: Vec<u8>, at: [u8; 2], patch: &[u8]) -> Vec<u8> {
    let at = usize::from(u16::from_le_bytes(at)) % bytes.len();
    let end = bytes.len().min(at + patch.len());
    bytes.splice(at..end, patch.iter().copied());
    bytes
}

bounded_target!(fuzz::Bound::STATE, |data: &[u8]| {
    let Some((&mode, data)) = data.split_first() else {
        return;
    };
    if mode % 5 > 2 {
        return read_checkpoint(mode % 5 == 3, data);
    }
    let coordinator = store();
    let mut writer = Writer::new(1);
    let file = writer.snapshot(coordinator.pairs()).expect("it is small");
    let bytes = match mode % 5 {
        // Any bytes.
        0 => data.to_vec(),
        // A file with bytes of it replaced, from a place on.
        1 => match data.split_first_chunk::<2>() {
            Some((at, patch)) => patched(file, *at, patch),
            None => return,
        },
        // Whole records of any changes.
        _ => match Changes::decode(data) {
            Ok(changes) => {
                let record = writer.record(&changes).expect("it is small");
                [file, record].concat()
            }
            Err(_) => return,
        },
    };
    let mut loaded = match load(&bytes) {
        Ok(loaded) => loaded,
        Err(text) => return assert!(!text.is_empty()),
    };
    assert_eq!(loaded.whole_bytes + loaded.torn_bytes, bytes.len() as u64);
    let before = kept(&loaded);
    let mut longer = bytes[..loaded.whole_bytes as usize].to_vec();
    longer.extend(
        loaded
            .writer
            .record(&Changes::default())
            .expect("it is empty"),
    );
    let again = load(&longer).expect("what is whole can be gone on with");
    assert_eq!((kept(&again), again.torn_bytes), (before.clone(), 0));
    restore(before);
});
