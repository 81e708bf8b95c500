//! `clusterperf ping`: a datagram there and back, with nothing done to it. What the store takes beside that is the store's.

use std::io::{self, ErrorKind};
use std::net::{SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use program::locators::host_port;
use program::{NoRuntime, tokio_runtime, version};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::samples::{Collector, Summary};

/// Measures how long a UDP datagram takes there and back: what a store over the same ports can be compared with.
///
/// One side runs with --serve and sends back what comes, both poll. Over DPDK (the default) the port belongs to this process;
/// with --socket, over the kernel.
#[derive(Parser, Clone, Debug)]
#[command(name = "clusterperf ping", bin_name = "clusterperf ping", version = version(), after_help = EXAMPLES)]
pub struct Options {
    /// The side that serves
    #[arg(value_name = "HOST:PORT", value_parser = host_port, required_unless_present = "serve", conflicts_with = "serve")]
    to: Option<SocketAddrV4>,
    /// Send back what comes, until SIGTERM
    #[arg(long)]
    serve: bool,
    /// Our own address and UDP port. Over DPDK, an address of this process alone; with --socket, one that the kernel has
    #[arg(long, value_name = "HOST:PORT", value_parser = host_port, required_unless_present = "socket")]
    local: Option<SocketAddrV4>,
    /// Use a socket of the kernel
    #[arg(long)]
    socket: bool,
    /// Bytes of the payload
    #[arg(short = 's', long, default_value_t = 100, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(8..=8972))]
    size: u16,
    /// Round trips to measure
    #[arg(short = 'c', long, default_value_t = 100_000, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=4_000_000))]
    count: u64,
    /// Round trips before the measurement starts
    #[arg(long, default_value_t = 1000, value_name = "NUMBER")]
    warmup: u64,
    /// How long to wait until the other side answers for the first time
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    patience: u64,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[cfg(feature = "dpdk")]
    #[command(flatten)]
    dpdk: over_dpdk::PortOptions,
}

const EXAMPLES: &str = "\
Examples:
Two processes of one machine, over shared memory, without any rights:
  clusterperf ping --local 10.9.0.1:7000 --serve --dpdk \"--vdev net_memif0,role=server,socket=/tmp/ping.sock,socket-abstract=no\"
  clusterperf ping --local 10.9.0.2:7000 --dpdk \"--vdev net_memif0,role=client,socket=/tmp/ping.sock,socket-abstract=no\" 10.9.0.1:7000
Over NICs that are bound to vfio-pci:
  clusterperf ping --local 192.168.101.29:7000 --serve --dpdk \"-a 0000:03:00.1\"
  clusterperf ping --local 192.168.101.30:7000 --dpdk \"-a 0000:03:00.1\" 192.168.101.29:7000
The same through the kernel, for comparison:
  clusterperf ping --local 192.168.100.29:7000 --serve --socket
  clusterperf ping --socket 192.168.100.29:7000";

/// Bytes at the start of a payload that number it.
const NUMBER_BYTES: usize = 8;
/// What is not back by then is lost.
const LOST_AFTER: Duration = Duration::from_millis(100);
/// In so many polls a server looks once whether it is to end.
const POLLS_PER_LOOK: u32 = 4096;

/// What datagrams go over.
trait DatagramPort {
    fn name(&self) -> String;
    /// How many datagrams have come.
    fn poll(&mut self) -> Result<usize, PingError>;
    /// One of them.
    fn payload(&self, index: usize) -> &[u8];
    /// Sends one of them back.
    fn echo(&mut self, index: usize) -> Result<(), PingError>;
    fn send(&mut self, to: SocketAddrV4, payload: &[u8]) -> Result<(), PingError>;
    /// Whatever waits goes out.
    fn flush(&mut self) {}
}

/// Why there is no round trip.
#[derive(Debug, thiserror::Error)]
pub enum PingError {
    #[error(transparent)]
    NoRuntime(#[from] NoRuntime),
    #[error("cannot watch for signals: {0}")]
    Signals(#[source] io::Error),
    #[error("cannot start a thread: {0}")]
    Spawn(#[source] io::Error),
    #[error(
        "{to} does not answer over {over}: is there a \"clusterperf ping --serve\" with that --local, and a link between the two?"
    )]
    NoAnswer { to: SocketAddrV4, over: String },
    #[error("{lost} datagrams were lost over {over}")]
    Lost { lost: u64, over: String },
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("a socket at {local}: {error}")]
    Socket {
        local: SocketAddrV4,
        error: io::Error,
    },
    #[error("cannot send to {to}: {error}")]
    Send { to: SocketAddrV4, error: io::Error },
    #[error("cannot receive: {0}")]
    Receive(#[source] io::Error),
    #[cfg(not(feature = "dpdk"))]
    #[error("this build has no DPDK: add --socket, or build with the feature dpdk")]
    WithoutDpdk,
    #[cfg(feature = "dpdk")]
    #[error("--local is needed")]
    NoLocal,
    #[cfg(feature = "dpdk")]
    #[error("--size {size} does not fit --mtu {mtu}")]
    Size { size: u16, mtu: u16 },
    /// As DPDK says it.
    #[cfg(feature = "dpdk")]
    #[error("{0}")]
    Dpdk(String),
}

/// Runs one side.
pub fn run(options: &Options) -> Result<(), PingError> {
    if options.socket {
        return run_over(options, Socket::bind(options)?);
    }
    #[cfg(feature = "dpdk")]
    return run_over(options, over_dpdk::Port::open(options)?);
    #[cfg(not(feature = "dpdk"))]
    Err(PingError::WithoutDpdk)
}

fn run_over(options: &Options, mut link: impl DatagramPort) -> Result<(), PingError> {
    match options.to {
        Some(to) => measure(options, &mut link, to),
        None => serve(&mut link),
    }
}

fn serve(link: &mut impl DatagramPort) -> Result<(), PingError> {
    let stop = on_signal()?;
    eprintln!("# serving over {}", link.name());
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..POLLS_PER_LOOK {
            let count = link.poll()?;
            for index in 0..count {
                link.echo(index)?;
            }
            if count > 0 {
                link.flush();
            }
        }
    }
    Ok(())
}

/// Becomes true with SIGTERM or SIGINT.
fn on_signal() -> Result<Arc<AtomicBool>, PingError> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let runtime = tokio_runtime()?;
    let (mut terminate, mut interrupt) = {
        let _entered = runtime.enter();
        let watch = |kind| signal(kind).map_err(PingError::Signals);
        (
            watch(SignalKind::terminate())?,
            watch(SignalKind::interrupt())?,
        )
    };
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        });
        told.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .map_err(PingError::Spawn)?;
    Ok(stop)
}

/// One round trip: when it started, or nothing if it was lost. What comes late, of an earlier one, is not taken for it.
fn round_trip(
    link: &mut impl DatagramPort,
    to: SocketAddrV4,
    payload: &mut [u8],
    number: u64,
) -> Result<Option<Instant>, PingError> {
    payload[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
    let start = Instant::now();
    link.send(to, payload)?;
    link.flush();
    let mut polls = 0u32;
    loop {
        for index in 0..link.poll()? {
            if link.payload(index) == payload {
                return Ok(Some(start));
            }
        }
        polls = polls.wrapping_add(1);
        // The clock is read now and then only, so that it does not delay what is measured.
        if polls.is_multiple_of(256) && start.elapsed() > LOST_AFTER {
            return Ok(None);
        }
    }
}

fn measure(
    options: &Options,
    link: &mut impl DatagramPort,
    to: SocketAddrV4,
) -> Result<(), PingError> {
    let mut payload: Vec<u8> = (0..options.size).map(|at| at as u8).collect();
    let deadline = Instant::now() + Duration::from_secs(options.patience);
    let mut number = 0;
    let mut next = || {
        number += 1;
        number
    };
    while round_trip(link, to, &mut payload, next())?.is_none() {
        if Instant::now() > deadline {
            let over = link.name();
            return Err(PingError::NoAnswer { to, over });
        }
    }
    for _ in 0..options.warmup {
        round_trip(link, to, &mut payload, next())?;
    }
    let mut collector = Collector::new(Duration::ZERO, Some(options.count));
    let mut lost = 0;
    loop {
        let Some(start) = round_trip(link, to, &mut payload, next())? else {
            lost += 1;
            if lost > options.count.max(100) {
                let over = link.name();
                return Err(PingError::Lost { lost, over });
            }
            continue;
        };
        if !collector.add(start) {
            break;
        }
    }
    let summary = collector.finish().summary(options.size.into());
    show(options, &link.name(), lost, summary)
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    test: &'static str,
    over: &'a str,
    size: u16,
    lost: u64,
    #[serde(flatten)]
    summary: Summary,
}

fn show(options: &Options, over: &str, lost: u64, summary: Summary) -> Result<(), PingError> {
    let report = Report {
        test: "ping",
        over,
        size: options.size,
        lost,
        summary,
    };
    if options.json {
        let text = serde_json::to_string(&report)?;
        println!("{text}");
        return Ok(());
    }
    println!(
        "# {} round trips of {} B over {over}, one at a time",
        summary.samples, options.size
    );
    for (name, micros, what) in [
        ("ping.min", summary.best_us, "shortest"),
        ("ping.p50", summary.median_us, "median"),
        ("ping.p90", summary.p90_us, "90 % take no longer"),
        ("ping.p99", summary.p99_us, "99 %"),
        ("ping.p999", summary.p999_us, "99.9 %"),
    ] {
        println!("{name:<12} {micros:>10.2} us     {what}");
    }
    println!(
        "{:<12} {lost:>10}        not back within {} ms",
        "ping.lost",
        LOST_AFTER.as_millis()
    );
    Ok(())
}

/// A socket of the kernel that is polled.
struct Socket {
    socket: UdpSocket,
    buffer: Vec<u8>,
    from: Option<SocketAddrV4>,
    bytes: usize,
}

impl Socket {
    fn bind(options: &Options) -> Result<Socket, PingError> {
        let local = options
            .local
            .unwrap_or(SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 0));
        let failed = |error| PingError::Socket { local, error };
        let socket = UdpSocket::bind(local).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        Ok(Socket {
            socket,
            buffer: vec![0; 1 << 16],
            from: None,
            bytes: 0,
        })
    }

    fn send_to(&self, to: SocketAddrV4, payload: &[u8]) -> Result<(), PingError> {
        match self.socket.send_to(payload, to) {
            Ok(_) => Ok(()),
            // A full buffer, or nobody there (yet): lost, as datagrams are.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::ConnectionRefused
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(PingError::Send { to, error }),
        }
    }
}

impl DatagramPort for Socket {
    fn name(&self) -> String {
        "a kernel socket".to_owned()
    }

    fn poll(&mut self) -> Result<usize, PingError> {
        match self.socket.recv_from(&mut self.buffer) {
            Ok((bytes, std::net::SocketAddr::V4(from))) => {
                (self.bytes, self.from) = (bytes, Some(from));
                Ok(1)
            }
            Ok(_) => Ok(0),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::ConnectionRefused | ErrorKind::Interrupted
                ) =>
            {
                Ok(0)
            }
            Err(error) => Err(PingError::Receive(error)),
        }
    }

    fn payload(&self, _: usize) -> &[u8] {
        &self.buffer[..self.bytes]
    }

    fn echo(&mut self, _: usize) -> Result<(), PingError> {
        self.from.map_or(Ok(()), |from| {
            self.send_to(from, &self.buffer[..self.bytes])
        })
    }

    fn send(&mut self, to: SocketAddrV4, payload: &[u8]) -> Result<(), PingError> {
        self.send_to(to, payload)
    }
}

#[cfg(feature = "dpdk")]
mod over_dpdk {
    use std::net::SocketAddrV4;

    use dpdk::{Device, DeviceOptions, Eal, EalOptions, Receiver, Sender};
    use transport::datagram::{Receive, Transmit};

    use super::{DatagramPort, PingError};

    #[derive(clap::Args, Clone, Debug)]
    pub struct PortOptions {
        /// Port of DPDK: its name (0000:03:00.1, `net_memif0`) or number
        #[arg(long, default_value = "0", value_name = "NAME")]
        device: String,
        /// Longest IPv4 packet
        #[arg(long, default_value_t = 1500, value_name = "BYTES")]
        mtu: u16,
        /// MAC address of the side that serves, instead of asking for it by ARP
        #[arg(long, value_name = "MAC", value_parser = |text: &str| dpdk::parse_mac(text).ok_or("six pairs of hexadecimal digits between colons"))]
        mac: Option<[u8; 6]>,
        #[command(flatten)]
        eal: EalOptions,
    }

    pub struct Port {
        name: String,
        receiver: Receiver,
        sender: Sender,
        device: Device,
    }

    impl Port {
        pub fn open(options: &super::Options) -> Result<Port, PingError> {
            let local = options.local.ok_or(PingError::NoLocal)?;
            let eal = Eal::init(&options.dpdk.eal).map_err(PingError::Dpdk)?;
            let wanted = DeviceOptions {
                mtu: options.dpdk.mtu,
                ..DeviceOptions::new(&options.dpdk.device, *local.ip())
            };
            let device = Device::open(&eal, &wanted).map_err(PingError::Dpdk)?;
            let queue = device.queue(0, local.port());
            let (receiver, mut sender) = queue.map_err(PingError::Dpdk)?;
            if usize::from(options.size) > sender.max_payload_bytes() {
                return Err(PingError::Size {
                    size: options.size,
                    mtu: device.mtu(),
                });
            }
            if let (Some(to), Some(mac)) = (options.to, options.dpdk.mac) {
                sender.learn(*to.ip(), mac);
            }
            let info = device.info();
            let name = format!(
                "{} ({}, {})",
                info.name,
                info.driver,
                dpdk::mac_text(device.mac())
            );
            Ok(Port {
                name,
                receiver,
                sender,
                device,
            })
        }
    }

    impl DatagramPort for Port {
        fn name(&self) -> String {
            self.name.clone()
        }

        fn poll(&mut self) -> Result<usize, PingError> {
            Ok(self.receiver.poll(&mut self.sender))
        }

        fn payload(&self, index: usize) -> &[u8] {
            self.receiver.datagram(index).payload
        }

        fn echo(&mut self, index: usize) -> Result<(), PingError> {
            let datagram = self.receiver.datagram(index);
            self.sender.send(datagram.from, &[datagram.payload]);
            Ok(())
        }

        fn send(&mut self, to: SocketAddrV4, payload: &[u8]) -> Result<(), PingError> {
            self.sender.send(to, &[payload]);
            Ok(())
        }

        fn flush(&mut self) {
            self.sender.flush();
        }
    }

    impl Drop for Port {
        /// What the driver counted, other than what came and went.
        fn drop(&mut self) {
            let counters = self.device.counters(0);
            let odd = counters
                .iter()
                .filter(|(name, value)| *value > 0 && !matches!(*name, "received" | "sent"));
            let odd: Vec<String> = odd.map(|(name, value)| format!("{name} {value}")).collect();
            if !odd.is_empty() {
                eprintln!("# the driver counted: {}", odd.join(", "));
            }
        }
    }
}
