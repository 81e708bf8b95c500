//! Looks after the port of a NIC: opens it anew when it is dead. When it is, `watch.rs` says; here is what is done about it, by a thread of its own,
//! since drivers take their time.

use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use frames::arp::Arp;
use frames::{Interface, Mac, mac_text};

use crate::device::Port;
use crate::ffi::{Buffers, PortInfo, RunningPort, register_thread};
use crate::watch::{Advice, LOOK, Watch};

/// How often a port is opened anew before it is used at all.
const FIRST_ATTEMPTS: u32 = 3;
/// Within which a NIC with a link sends a frame, and counts it.
const LEAVES_WITHIN: Duration = Duration::from_millis(500);
const LOOKS_EVERY: Duration = Duration::from_millis(2);

/// Ends with this.
pub(crate) struct Keeper {
    /// Taken away, it tells the thread to end.
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub fn start(port: &Arc<Port>) -> Result<Keeper, String> {
        let (stop, stopped) = sync_channel(0);
        let port = Arc::downgrade(port);
        let thread = std::thread::Builder::new()
            .name("port-keeper".to_owned())
            .spawn(move || keep(&port, &stopped))
            .map_err(|error| format!("no thread to look after a port: {error}"))?;
        Ok(Keeper {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // One that has panicked has ended.
            let _ = thread.join();
        }
    }
}

fn keep(port: &Weak<Port>, stopped: &Receiver<()>) {
    register_thread();
    let start = Instant::now();
    let mut watch = Watch::default();
    while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        let Some(port) = port.upgrade() else { return };
        look(&port, &mut watch, start);
        let was_dead = port.is_dead();
        port.set_dead(watch.is_dead());
        if was_dead && !watch.is_dead() {
            tracing::info!(
                port = port.name(),
                mac = mac_text(port.us().mac),
                "the port works again"
            );
        }
    }
}

fn look(port: &Port, watch: &mut Watch, start: Instant) {
    match watch.look(start.elapsed(), port.seen()) {
        Advice::Nothing => {}
        Advice::Announce => port.want_announcement(),
        Advice::OpenAnew(why) => {
            let result = port.open_anew();
            watch.attempted(start.elapsed(), result.is_ok());
            let why = why.text();
            match result {
                Ok(()) => tracing::warn!(port = port.name(), why, "a port was opened anew"),
                Err(error) => {
                    tracing::warn!(port = port.name(), why, %error, "a port could not be opened anew, and will be tried again");
                }
            }
        }
    }
}

/// Sees to it that a port that has just been started works, if it shows a link: a virtual function to whose hello the physical function has not
/// answered has no address yet, or not its own. Its hardware address then, and whether it was seen to work.
pub(crate) fn settle(running: &RunningPort, ip: Ipv4Addr, info: &PortInfo) -> (Mac, bool) {
    let mut mac = info.mac;
    for attempt in 0..=FIRST_ATTEMPTS {
        if !running.link().0 {
            return (mac, false);
        }
        if sends(running, Interface { ip, mac }) {
            return (mac, true);
        }
        if attempt == FIRST_ATTEMPTS {
            break;
        }
        match running.open_anew() {
            Ok(other) => {
                mac = other;
                tracing::warn!(
                    port = info.name,
                    attempt,
                    mac = mac_text(mac),
                    "nothing left the port: it was opened anew"
                );
            }
            Err(error) => {
                tracing::warn!(port = info.name, attempt, %error, "nothing leaves the port, and it could not be opened anew");
            }
        }
    }
    (mac, false)
}

/// Whether a frame leaves the port: one that says that we are here.
pub(crate) fn sends(running: &RunningPort, us: Interface) -> bool {
    let mut frames = Buffers::with_capacity(1);
    if !running.is_present() || !running.allocate(&mut frames, 1) {
        return false;
    }
    if let Some(buffer) = frames.get_mut(0) {
        let frame = Arp::announcement(us).encode();
        buffer.truncate(frame.len());
        buffer.bytes_mut().copy_from_slice(&frame);
    }
    let before = running.stats().tx_packets;
    running.send(0, &mut frames);
    let start = Instant::now();
    while running.stats().tx_packets == before {
        if start.elapsed() > LEAVES_WITHIN {
            return false;
        }
        std::thread::sleep(LOOKS_EVERY);
    }
    true
}
