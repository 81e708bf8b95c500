//! The generic checks of every request, and what is for tests only.

use crate::common::{Action, CLUSTER, Harness, hello};
use ::coordinator::CoordinatorEvent;
use ::coordinator::reports::ClientEvent;
use base::ids::ServerId;
use wire::member::{LocateServer, coordinator, shard};
use wire::opcode::{Opcode, Service};
use wire::rpc;
use wire::status::Status;

/// Everything that a coordinator serves, with the length of the request's fixed part.
const SERVED: &[(Service, Opcode, usize)] = &[
    (Service::Coordinator, Opcode::CreateTable, 12),
    (Service::Coordinator, Opcode::GetTableId, 8),
    (Service::Coordinator, Opcode::DropTable, 8),
    (Service::Coordinator, Opcode::GetTableConfig, 12),
    (Service::Coordinator, Opcode::SplitTablet, 16),
    (Service::Coordinator, Opcode::GetServerList, 8),
    (Service::Coordinator, Opcode::RenewLease, 12),
    (Service::Coordinator, Opcode::GetLeaseInfo, 12),
    (Service::Coordinator, Opcode::HintServerCrashed, 12),
    (Service::Coordinator, Opcode::SetRuntimeOption, 12),
    (Service::Coordinator, Opcode::GetRuntimeOption, 8),
    (Service::Coordinator, Opcode::ServerControlAll, 12),
    (Service::Admin, Opcode::Ping, 12),
    (Service::Admin, Opcode::ProxyPing, 20),
    (Service::Admin, Opcode::GetMetrics, 4),
    (Service::Admin, Opcode::GetServerId, 4),
];

fn fixed_bytes(opcode: u16, service: u16) -> Option<usize> {
    let mut served = SERVED.iter();
    served
        .find(|(known, number, _)| *known as u16 == service && *number as u16 == opcode)
        .map(|(_, _, bytes)| *bytes)
}

/// What a request of `length` bytes with this header is answered before its handler sees it.
fn refusal(opcode: u16, service: u16, length: usize) -> Option<Status> {
    if length < 4 {
        return Some(Status::MessageTooShort);
    }
    if opcode >= 81 {
        return Some(Status::UnimplementedRequest);
    }
    if service != 2 && service != 3 {
        return Some(Status::ServiceNotAvailable);
    }
    match fixed_bytes(opcode, service) {
        None => Some(Status::UnimplementedRequest),
        Some(bytes) if length < bytes => Some(Status::MessageTooShort),
        Some(_) => None,
    }
}

#[test]
fn every_opcode_and_service_is_checked_in_the_protocols_order() {
    let mut harness = Harness::new();
    for opcode in 0..=90u16 {
        for service in 0..=4u16 {
            let whole = fixed_bytes(opcode, service).unwrap_or(4);
            for length in [0, 3, 4, whole - 1, whole] {
                let mut payload = vec![0; whole];
                payload[..2].copy_from_slice(&opcode.to_le_bytes());
                payload[2..4].copy_from_slice(&service.to_le_bytes());
                payload.truncate(length);
                let Some(expected) = refusal(opcode, service, length) else {
                    continue;
                };
                let what = format!("opcode {opcode}, service {service}, {length} bytes");
                assert_eq!(
                    harness.answer(&payload),
                    rpc::status_bytes(expected),
                    "{what}"
                );
            }
        }
    }
}

#[test]
fn kill_ends_the_process_where_tests_are_allowed_and_nowhere_else() {
    let mut payload = Vec::new();
    rpc::encode_bare_request(Opcode::Kill, Service::Admin, &mut payload);
    let mut harness = Harness::new();
    for _ in 0..3 {
        let refused = rpc::status_bytes(Status::UnimplementedRequest);
        assert_eq!(harness.answer(&payload), refused);
    }
    assert!(!harness.out.ended);
    let refused = CoordinatorEvent::from(ClientEvent::KillRefused);
    assert_eq!(harness.out.events, [refused], "reported once");

    let mut harness = Harness::with(|config| config.allow_test_rpcs = true);
    assert_eq!(harness.request(&payload), []);
    assert!(harness.out.ended);
}

#[test]
fn a_shard_is_told_where_another_one_is() {
    let mut harness = Harness::new();
    let mut other = hello("b", 2, 0, 1);
    other.locator = "tcp:host=10.0.0.2,port=12100".to_owned();
    harness.enlist(1, hello("a", 1, 0, 1));
    harness.enlist(2, other);
    let mut locate = |id: ServerId| {
        let question = LocateServer { server_id: id.0 };
        let actions = harness.shard_says(1, shard::Kind::LocateServer(question));
        let [Action::Send(1, coordinator::Kind::ServerLocation(location))] = &actions[..] else {
            panic!("{actions:?}");
        };
        assert_eq!(location.server_id, id.0);
        location.locator.clone()
    };
    assert_eq!(locate(ServerId::new(2, 0)), "tcp:host=10.0.0.2,port=12100");
    for nobody in [
        ServerId::new(2, 1),
        ServerId::new(3, 0),
        ServerId::INVALID,
        ServerId(CLUSTER << 40),
    ] {
        assert_eq!(locate(nobody), "", "{nobody}");
    }
}
