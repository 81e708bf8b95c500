//! Machines of a cluster, by number and by name.

use crate::event::Owner;
use crate::net::network::Host;

/// The coordinator's machine; servers' follow, clients' come from [`FIRST_CLIENT`] on.
pub const COORDINATOR: Host = 0;
pub const FIRST_CLIENT: Host = 1000;
pub const COORDINATOR_LOCATOR: &str = "tcp:host=coordinator,port=11100";

/// Machines of further coordinators.
pub const FIRST_STANDBY: Host = 900;

pub fn coordinator_host(process: usize) -> Host {
    match process {
        0 => COORDINATOR,
        _ => FIRST_STANDBY + process as Host,
    }
}

pub fn server_host(server: usize) -> Host {
    server as Host + 1
}

pub fn client_host(client: usize) -> Host {
    FIRST_CLIENT + client as Host
}

/// What a host is called in locators and in the trace.
pub fn host_name(host: Host) -> String {
    match host {
        COORDINATOR => "coordinator".to_owned(),
        FIRST_STANDBY..FIRST_CLIENT => format!("standby{}", host - FIRST_STANDBY),
        FIRST_CLIENT.. => format!("client{}", host - FIRST_CLIENT),
        _ => format!("m{host}"),
    }
}

/// The machine of somebody who has ports for datagrams.
pub fn machine_of(owner: Owner) -> Host {
    match owner {
        Owner::Client(client) => client_host(client),
        Owner::Shard { server, .. } => server_host(server),
    }
}
