//! The floor: a server that sends everything back, without sleeping.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::Failure;

pub fn serve(address: &str) -> Result<(), Failure> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let mut streams: Vec<TcpStream> = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            streams.push(stream);
        }
        // One connection needs no search; with more, everybody's turn comes round.
        for _ in 0..64 {
            streams.retain_mut(|stream| match stream.read(&mut buffer) {
                Ok(0) => false,
                Ok(count) => send(stream, &buffer[..count]),
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            });
        }
    }
}

fn send(stream: &mut TcpStream, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
    }
    true
}
