//! Connections that the reactor opens.

use rcbox_net::{Address, Options, Protocol};

use super::{ANY_PORT, Running};

#[test]
fn connects_by_address_and_by_name_over_both_framings() {
    for protocol in [Protocol::Rpc, Protocol::Member] {
        let server = Running::start(Options::default(), protocol, None);
        for host in ["127.0.0.1", "localhost"] {
            let to = Address::new(host, server.address.port());
            let client = Running::start(Options::default(), Protocol::Rpc, Some((to, protocol)));
            client.remote.wake();
            client.expect("opened false");
            server.expect("hello");
            client.stop();
        }
        server.stop();
    }
}

#[test]
fn a_connect_that_fails_is_told() {
    let free = std::net::TcpListener::bind(ANY_PORT)
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    for to in [
        Address::new("127.0.0.1", free),
        Address::new("no-such-host.invalid", 1),
    ] {
        let client = Running::start(Options::default(), Protocol::Rpc, Some((to, Protocol::Rpc)));
        client.remote.wake();
        client.expect("closed: cannot connect");
        client.stop();
    }
}

#[test]
fn what_a_handler_plans_when_a_connection_ends_is_not_slept_through() {
    let reserved = std::net::TcpListener::bind(ANY_PORT).unwrap();
    let to = Address::new("127.0.0.1", reserved.local_addr().unwrap().port());
    drop(reserved);
    let client = Running::start(Options::default(), Protocol::Rpc, Some((to, Protocol::Rpc)));
    client.remote.wake();
    for _ in 0..20 {
        client.expect("closed: cannot connect");
    }
    client.stop();
}
