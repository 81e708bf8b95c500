//! Proof that whoever asks receives what is sent to its address, without remembering anything about it.

use core::hash::Hasher;
use core::time::Duration;
use std::net::SocketAddrV4;

use base::time::Time;
use siphasher::sip::SipHasher24;

/// A cookie is good for this long, and for as long again at most.
const LIFE: Duration = Duration::from_secs(32);

pub struct Baker {
    key: [u64; 2],
}

impl Baker {
    pub fn new(key: [u64; 2]) -> Baker {
        Baker { key }
    }

    fn at(&self, period: u64, peer: SocketAddrV4, session: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.key[0], self.key[1]);
        hasher.write_u64(period);
        hasher.write(&peer.ip().octets());
        hasher.write_u16(peer.port());
        hasher.write_u64(session);
        // 0 stands for none.
        hasher.finish().max(1)
    }

    fn period(now: Time) -> u64 {
        now.0 / LIFE.as_nanos() as u64
    }

    pub fn cookie(&self, now: Time, peer: SocketAddrV4, session: u64) -> u64 {
        self.at(Baker::period(now), peer, session)
    }

    pub fn is_good(&self, now: Time, peer: SocketAddrV4, session: u64, cookie: u64) -> bool {
        let period = Baker::period(now);
        cookie != 0
            && (cookie == self.at(period, peer, session)
                || cookie == self.at(period.wrapping_sub(1), peer, session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_cookie_is_for_one_peer_one_session_and_a_minute() {
        let baker = Baker::new([1, 2]);
        let peer = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7);
        let other = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8);
        let start = Time(1_000_000_000_000);
        let cookie = baker.cookie(start, peer, 5);
        assert!(baker.is_good(start + LIFE, peer, 5, cookie));
        assert!(!baker.is_good(start + 2 * LIFE, peer, 5, cookie));
        assert!(!baker.is_good(start, other, 5, cookie));
        assert!(!baker.is_good(start, peer, 6, cookie));
        assert!(!baker.is_good(start, peer, 5, 0));
        assert!(!Baker::new([1, 3]).is_good(start, peer, 5, cookie));
    }
}
