//! Pings of other servers, for clients and for the coordinator.

use base::ids::ReplyTo;
use base::time::Time;
use wire::rpc::ProxyPingRequest;
use wire::status::Status;

use crate::delay::BUSY;
use crate::effects::ShardEffects;
use crate::shard::Shard;

impl Shard {
    pub(super) fn proxy_ping(
        &mut self,
        now: Time,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl ShardEffects,
    ) -> Result<(), Status> {
        let request = ProxyPingRequest::decode(payload)?;
        match self.proxies.ask(now, to, &request) {
            true => self.locate_server(request.server_id, out),
            false => self.come_again(to, BUSY, out),
        }
        Ok(())
    }

    /// A connection that [`ShardEffects::connect_server`] began is there.
    pub fn server_connected(&mut self, connection: u64, out: &mut impl ShardEffects) {
        self.proxies.connected(connection, out);
    }

    /// An answer came on such a connection.
    pub fn server_answered(
        &mut self,
        now: Time,
        connection: u64,
        nonce: u64,
        payload: &[u8],
        out: &mut impl ShardEffects,
    ) {
        self.proxies.answered(now, connection, nonce, payload, out);
    }

    /// Such a connection is gone, or could not be made.
    pub fn server_disconnected(&mut self, connection: u64, out: &mut impl ShardEffects) {
        self.proxies.disconnected(connection, out);
    }
}
