//! Measures one store with the same client loop as its peers: a request is written to a socket, then the socket is read
//! without sleeping until the whole answer is there. What differs between the peers is only the text on the wire.
//!
//! usage: peerbench TARGET ADDRESS SECONDS
//!        peerbench echo ADDRESS           (serves `ping`: sends everything back, polling all the time)
//!        peerbench plot FILE.svg < LINES  (a plot of what the other form printed)
//! targets: ping, redis, memcached, rcbox (ADDRESS is the coordinator's), rcbox-library (through the client library)
//!
//! Prints two lines, of get and set: target operation median_us p99_us p999_us samples

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use client::{Cluster, RejectRules, TableId};
use wire::keys::KeysAndValue;
use wire::proto::TableConfig;
use wire::rpc::{self, Lease};

const VALUE: [u8; 100] = [b'v'; 100];
const KEY: &[u8] = b"000000000000000000000000000000";
/// Operations before the measurement starts.
const WARM_UP: u32 = 20_000;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["echo", address] => echo(address),
        ["plot", file] => plot(file),
        [target, address, seconds] => measure_target(target, address, seconds),
        _ => Err("usage: peerbench TARGET ADDRESS SECONDS | echo ADDRESS | plot FILE.svg".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A store as the loop sees it.
trait Peer {
    fn get(&mut self) -> Result<(), Failure>;
    fn set(&mut self) -> Result<(), Failure>;
}

fn measure_target(target: &str, address: &str, seconds: &str) -> Result<(), Failure> {
    let mut peer: Box<dyn Peer> = match target {
        "ping" => Box::new(Ping {
            socket: Socket::connect(address)?,
        }),
        "redis" => Box::new(Redis {
            socket: Socket::connect(address)?,
        }),
        "memcached" => Box::new(Memcached {
            socket: Socket::connect(address)?,
        }),
        "rcbox" => Box::new(Raw::connect(address)?),
        "rcbox-library" => Box::new(Library::connect(address)?),
        _ => return Err(format!("unknown target {target}").into()),
    };
    let time = Duration::from_secs_f64(seconds.parse()?);
    peer.set()?;
    let get = measure(time, || peer.get())?;
    print_result(target, "get", get);
    let set = measure(time, || peer.set())?;
    print_result(target, "set", set);
    Ok(())
}

fn measure(
    time: Duration,
    mut operation: impl FnMut() -> Result<(), Failure>,
) -> Result<Vec<u64>, Failure> {
    for _ in 0..WARM_UP {
        operation()?;
    }
    let mut times = Vec::with_capacity(1 << 20);
    let end = Instant::now() + time;
    loop {
        let start = Instant::now();
        operation()?;
        let now = Instant::now();
        times.push((now - start).as_nanos() as u64);
        if now >= end {
            times.sort_unstable();
            return Ok(times);
        }
    }
}

fn print_result(target: &str, operation: &str, sorted: Vec<u64>) {
    let at =
        |quantile: f64| sorted[((sorted.len() - 1) as f64 * quantile) as usize] as f64 / 1000.0;
    println!(
        "{target} {operation} {:.2} {:.2} {:.2} {}",
        at(0.5),
        at(0.99),
        at(0.999),
        sorted.len()
    );
}

/// A socket that is read without sleeping.
struct Socket {
    stream: TcpStream,
    buffer: Box<[u8]>,
    filled: usize,
}

impl Socket {
    fn connect(address: &str) -> Result<Socket, Failure> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Socket {
            stream,
            buffer: vec![0; 1 << 16].into(),
            filled: 0,
        })
    }

    /// Sends `request` and gives the answer, as soon as `is_complete`.
    fn call(
        &mut self,
        request: &[u8],
        is_complete: impl Fn(&[u8]) -> bool,
    ) -> Result<&[u8], Failure> {
        self.stream.write_all(request)?;
        self.filled = 0;
        loop {
            match self.stream.read(&mut self.buffer[self.filled..]) {
                Ok(0) => return Err("the peer closed the connection".into()),
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.into()),
            }
            if is_complete(&self.buffer[..self.filled]) {
                return Ok(&self.buffer[..self.filled]);
            }
        }
    }
}

fn expect(condition: bool, answer: &[u8]) -> Result<(), Failure> {
    if condition {
        Ok(())
    } else {
        Err(format!("unexpected answer {:?}", String::from_utf8_lossy(answer)).into())
    }
}

/// As many bytes as a read's answer has, there and back.
struct Ping {
    socket: Socket,
}

impl Peer for Ping {
    fn get(&mut self) -> Result<(), Failure> {
        self.socket
            .call(&VALUE, |answer| answer.len() == VALUE.len())
            .map(|_| ())
    }
    fn set(&mut self) -> Result<(), Failure> {
        self.get()
    }
}

fn echo(address: &str) -> Result<(), Failure> {
    let listener = TcpListener::bind(address)?;
    loop {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut buffer = [0; 4096];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => stream.write_all(&buffer[..count])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
    }
}

struct Redis {
    socket: Socket,
}

/// One RESP command.
fn resp(parts: &[&[u8]]) -> Vec<u8> {
    let mut command = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        command.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        command.extend_from_slice(part);
        command.extend_from_slice(b"\r\n");
    }
    command
}

impl Peer for Redis {
    fn get(&mut self) -> Result<(), Failure> {
        let answer_bytes = "$100\r\n".len() + VALUE.len() + 2;
        let answer = self.socket.call(&resp(&[b"GET", KEY]), |answer| {
            answer.len() >= answer_bytes || answer.starts_with(b"$-1\r\n")
        })?;
        expect(answer.starts_with(b"$100\r\n"), answer)
    }
    fn set(&mut self) -> Result<(), Failure> {
        let answer = self.socket.call(&resp(&[b"SET", KEY, &VALUE]), |answer| {
            answer.ends_with(b"\r\n")
        })?;
        expect(answer == b"+OK\r\n", answer)
    }
}

struct Memcached {
    socket: Socket,
}

impl Peer for Memcached {
    fn get(&mut self) -> Result<(), Failure> {
        let request = [b"get ", KEY, b"\r\n"].concat();
        let answer = self
            .socket
            .call(&request, |answer| answer.ends_with(b"END\r\n"))?;
        expect(answer.starts_with(b"VALUE "), answer)
    }
    fn set(&mut self) -> Result<(), Failure> {
        let request = [b"set ", KEY, b" 0 0 100\r\n", &VALUE[..], b"\r\n"].concat();
        let answer = self
            .socket
            .call(&request, |answer| answer.ends_with(b"\r\n"))?;
        expect(answer == b"STORED\r\n", answer)
    }
}

/// The store by its own wire format, without its client library.
struct Raw {
    socket: Socket,
    table: TableId,
    lease: Lease,
    rpc_id: u64,
}

impl Raw {
    fn connect(coordinator: &str) -> Result<Raw, Failure> {
        let mut cluster = Cluster::connect(&format!("tcp:{}", locator(coordinator)?))?;
        let table = cluster.create_table("peerbench", 1)?;
        let lease = cluster.acquire_lease()?;
        let mut socket = Socket::connect(coordinator)?;
        let request = frame(|out| rpc::GetTableConfigRequest { table_id: table }.encode(out));
        let answer = socket.call(&request, is_whole)?;
        let config = rpc::GetTableConfigResponse::decode(&answer[12..])
            .map_err(|status| format!("the table's config: {status}"))?;
        let config: TableConfig = prost::Message::decode(config.table_config)?;
        let locator = config
            .tablet
            .first()
            .and_then(|tablet| tablet.service_locator.clone())
            .ok_or("no tablet")?;
        let locator = wire::locator::Locator::parse(&locator)?;
        let (host, port) = locator.tcp()?;
        let socket = Socket::connect(&format!("{host}:{port}"))?;
        Ok(Raw {
            socket,
            table,
            lease,
            rpc_id: 0,
        })
    }
}

fn locator(address: &str) -> Result<String, Failure> {
    let address: SocketAddr = address.parse()?;
    Ok(format!("host={},port={}", address.ip(), address.port()))
}

/// Whether an RPC response has come in full.
fn is_whole(answer: &[u8]) -> bool {
    let Some(header) = answer.first_chunk::<12>() else {
        return false;
    };
    let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    answer.len() >= 12 + length as usize
}

/// A request behind its transport header.
fn frame(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut payload = Vec::with_capacity(256);
    encode(&mut payload);
    [
        &transport::rpc::header(1, payload.len() as u32)[..],
        &payload,
    ]
    .concat()
}

impl Peer for Raw {
    fn get(&mut self) -> Result<(), Failure> {
        let request = rpc::ReadRequest {
            table_id: self.table,
            rules: RejectRules::default(),
            key: KEY,
        };
        let answer = self
            .socket
            .call(&frame(|out| request.encode(out)), is_whole)?;
        expect(answer.len() == 12 + 16 + VALUE.len(), answer)
    }
    fn set(&mut self) -> Result<(), Failure> {
        self.rpc_id += 1;
        let request = rpc::WriteRequest {
            table_id: self.table,
            lease: self.lease,
            rpc_id: self.rpc_id,
            ack_id: self.rpc_id - 1,
            rules: RejectRules::default(),
            is_async: false,
            object: KeysAndValue::single(KEY, &VALUE).map_err(|_| "the key is too long")?,
        };
        let answer = self
            .socket
            .call(&frame(|out| request.encode(out)), is_whole)?;
        expect(answer.get(12..16) == Some(&[0; 4]), answer)
    }
}

struct Library {
    cluster: Cluster,
    table: TableId,
    value: Vec<u8>,
}

impl Library {
    fn connect(coordinator: &str) -> Result<Library, Failure> {
        let mut cluster = Cluster::connect(&format!("tcp:{}", locator(coordinator)?))?;
        let table = cluster.create_table("peerbench", 1)?;
        Ok(Library {
            cluster,
            table,
            value: Vec::new(),
        })
    }
}

impl Peer for Library {
    fn get(&mut self) -> Result<(), Failure> {
        self.cluster
            .read_into(self.table, KEY, &RejectRules::default(), &mut self.value)?;
        expect(self.value.len() == VALUE.len(), &self.value)
    }
    fn set(&mut self) -> Result<(), Failure> {
        self.cluster.write(self.table, KEY, &VALUE)?;
        Ok(())
    }
}

/// Bars of medians with whiskers to the 99 % quantile, one pair for each target.
fn plot(file: &str) -> Result<(), Failure> {
    let mut rows: Vec<(String, f64, f64)> = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [target, operation, median, p99, ..] = words.as_slice() else {
            continue;
        };
        rows.push((
            format!("{target} {operation}"),
            median.parse()?,
            p99.parse()?,
        ));
    }
    let longest = rows.iter().map(|row| row.2).fold(1.0, f64::max);
    let (left, width, step) = (170.0, 560.0, 26.0);
    let scale = |micros: f64| left + micros / longest * width;
    let height = 50.0 + rows.len() as f64 * step;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"20\" font-size=\"14\">100 B get and set over loopback TCP: median, line to 99 % (us)</text>\n"
    );
    for (index, (name, median, p99)) in rows.iter().enumerate() {
        let top = 34.0 + index as f64 * step;
        let (end, far, middle) = (scale(*median), scale(*p99), top + 9.0);
        let color = if name.starts_with("rcbox") {
            "#2b6cb0"
        } else {
            "#a0aec0"
        };
        svg += &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>\n\
             <rect x=\"{left}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"18\" fill=\"{color}\"/>\n\
             <line x1=\"{end:.1}\" y1=\"{middle:.1}\" x2=\"{far:.1}\" y2=\"{middle:.1}\" stroke=\"black\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"white\">{median:.1}</text>\n",
            left - 8.0,
            top + 13.0,
            end - left,
            left + 5.0,
            top + 13.0
        );
    }
    svg += "</svg>\n";
    std::fs::write(file, svg)?;
    Ok(())
}
