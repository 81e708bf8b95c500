//! The shim as Rust sees it. All unsafe code of this crate is here, behind types that own what they stand for.
//!
//! What the types do not say: buffers must be gone before the port whose pool they come from. Those who hold buffers hold the port, too.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `struct rcbox_buffer`.
#[repr(C)]
struct Raw {
    mbuf: *mut c_void,
    data: *mut u8,
    length: u32,
    flags: u32,
}

const IP_GOOD: u32 = 1;
const UDP_GOOD: u32 = 2;
/// Not of the shim's.
const INSIDE: u32 = 4;

/// `struct rcbox_info`.
#[repr(C)]
struct RawInfo {
    name: [c_char; 64],
    driver: [c_char; 64],
    mac: [u8; 6],
    max_rx_queues: u16,
    max_tx_queues: u16,
    max_mtu: u16,
    socket: i32,
    has_tx_sums: u32,
    has_rx_sums: u32,
    has_link_interrupt: u32,
}

/// Where a port comes from; `struct rcbox_place`.
#[repr(C)]
struct RawPlace {
    bus: [c_char; 32],
    device: [c_char; 64],
    arguments: [c_char; 256],
    port: [c_char; 64],
}

/// What a port is configured with; `struct rcbox_start`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Start {
    pub port: u16,
    pub rx_queues: u16,
    pub tx_queues: u16,
    pub mtu: u16,
    pub tx_sums: u32,
    pub rx_sums: u32,
    pub link_interrupt: u32,
    pub rx_descriptors: u16,
    pub tx_descriptors: u16,
}

/// What a port has counted; `struct rcbox_stats`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    /// Dropped by the NIC for want of room in its ring.
    pub rx_missed: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
    pub rx_no_buffer: u64,
}

unsafe extern "C" {
    fn rcbox_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    fn rcbox_eal_cleanup() -> c_int;
    fn rcbox_error_text(number: c_int) -> *const c_char;
    fn rcbox_thread_register() -> c_int;
    fn rcbox_thread_unregister();
    fn rcbox_port_next(after: c_int) -> c_int;
    fn rcbox_port_info(port: u16, info: *mut RawInfo) -> c_int;
    fn rcbox_port_start(start: *mut Start, pool: *mut c_void, step: *mut *const c_char) -> c_int;
    fn rcbox_port_close(port: u16);
    fn rcbox_port_watch(port: u16) -> c_int;
    fn rcbox_port_wants_anew(port: u16) -> c_int;
    fn rcbox_port_place(port: u16, place: *mut RawPlace) -> c_int;
    fn rcbox_port_remove(port: u16) -> c_int;
    fn rcbox_port_probe(place: *const RawPlace) -> c_int;
    fn rcbox_port_link(port: u16, speed_mbps: *mut u32) -> c_int;
    fn rcbox_port_stats(port: u16, stats: *mut PortStats) -> c_int;
    fn rcbox_flow_udp(port: u16, udp_port: u16, queue: u16, why: *mut *const c_char)
    -> *mut c_void;
    fn rcbox_flow_remove(port: u16, flow: *mut c_void);
    fn rcbox_pool_new(
        name: *const c_char,
        buffers: u32,
        frame_bytes: u16,
        socket: c_int,
    ) -> *mut c_void;
    fn rcbox_pool_free(pool: *mut c_void);
    fn rcbox_pool_in_use(pool: *const c_void) -> u32;
    fn rcbox_receive(port: u16, queue: u16, buffers: *mut Raw, count: u16) -> u16;
    fn rcbox_send(port: u16, queue: u16, buffers: *const Raw, count: u16, sums: c_int) -> u16;
    fn rcbox_allocate(pool: *mut c_void, buffers: *mut Raw, count: u16) -> c_int;
    fn rcbox_free(buffers: *const Raw, count: u32);
}

/// A text of C's that stays, or nothing.
fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: the shim gives constants and texts of drivers, which end with 0 and are not changed.
    unsafe { CStr::from_ptr(pointer) }
        .to_string_lossy()
        .into_owned()
}

/// A negative result of the shim as a text.
fn failure(result: c_int) -> String {
    // SAFETY: any number has a text, which is good until the next call by this thread.
    let text = text(unsafe { rcbox_error_text(result) });
    if text.is_empty() {
        format!("error {result}")
    } else {
        text
    }
}

fn check(result: c_int) -> Result<(), String> {
    if result < 0 {
        Err(failure(result))
    } else {
        Ok(())
    }
}

/// Starts the EAL. Only once a process: the caller sees to that.
pub fn eal_init(arguments: &[String]) -> Result<(), String> {
    let mut pointers = Vec::new();
    for argument in arguments {
        let argument =
            CString::new(argument.as_str()).map_err(|_| format!("{argument:?} has a zero byte"))?;
        // The EAL keeps pointers into its arguments: they stay.
        pointers.push(argument.into_raw());
    }
    pointers.push(std::ptr::null_mut());
    let count = c_int::try_from(arguments.len()).map_err(|_| "too many arguments".to_owned())?;
    let pointers = pointers.leak();
    // SAFETY: `count` texts and a null pointer behind them, all of which stay.
    check(unsafe { rcbox_eal_init(count, pointers.as_mut_ptr()) })
}

pub fn eal_cleanup() {
    // SAFETY: called once, after all ports and pools are gone. It fails only when there is nothing to clean.
    unsafe { rcbox_eal_cleanup() };
}

/// What a thread of ours is to the EAL, as long as it lives: one with caches of its own for packet buffers.
struct Registration;

impl Registration {
    fn new() -> Option<Registration> {
        // SAFETY: may be called by any thread, once the EAL has started.
        (unsafe { rcbox_thread_register() } == 0).then_some(Registration)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: this thread was registered.
        unsafe { rcbox_thread_unregister() };
    }
}

/// Makes this thread known to the EAL. Where it cannot be (there are more threads than the EAL has room for), it works without caches.
pub fn register_thread() {
    thread_local!(static REGISTRATION: Option<Registration> = Registration::new());
    REGISTRATION.with(|_| ());
}

/// What a port is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// `0000:03:00.1`, `net_memif0`.
    pub name: String,
    /// `net_ixgbe_vf`, `net_memif`.
    pub driver: String,
    pub mac: [u8; 6],
    pub max_rx_queues: u16,
    pub max_tx_queues: u16,
    pub max_mtu: u16,
    /// Of the NUMA node that it is attached to; -1: any.
    pub socket: i32,
    pub has_tx_sums: bool,
    pub has_rx_sums: bool,
    pub has_link_interrupt: bool,
}

/// The numbers of all ports.
pub fn ports() -> Vec<u16> {
    let mut ports = Vec::new();
    let mut last = -1;
    loop {
        // SAFETY: any number is well.
        last = unsafe { rcbox_port_next(last) };
        match u16::try_from(last) {
            Ok(port) => ports.push(port),
            Err(_) => return ports,
        }
    }
}

pub fn port_info(port: u16) -> Result<PortInfo, String> {
    // SAFETY: plain numbers and bytes, for which zeros are values.
    let mut raw: RawInfo = unsafe { std::mem::zeroed() };
    // SAFETY: of any number of a port; writes the structure, whose texts end with 0.
    check(unsafe { rcbox_port_info(port, &raw mut raw) })?;
    Ok(PortInfo {
        name: text(raw.name.as_ptr()),
        driver: text(raw.driver.as_ptr()),
        mac: raw.mac,
        max_rx_queues: raw.max_rx_queues,
        max_tx_queues: raw.max_tx_queues,
        max_mtu: raw.max_mtu,
        socket: raw.socket,
        has_tx_sums: raw.has_tx_sums != 0,
        has_rx_sums: raw.has_rx_sums != 0,
        has_link_interrupt: raw.has_link_interrupt != 0,
    })
}

/// Memory for frames.
pub struct Pool(*mut c_void);

// SAFETY: a mempool is made for use by several threads.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    pub fn new(name: &str, buffers: u32, frame_bytes: u16, socket: i32) -> Result<Pool, String> {
        let name = CString::new(name).map_err(|error| error.to_string())?;
        // SAFETY: the text is copied.
        let pool = unsafe { rcbox_pool_new(name.as_ptr(), buffers, frame_bytes, socket) };
        if pool.is_null() {
            return Err(format!(
                "no memory for {buffers} packet buffers of {frame_bytes} bytes"
            ));
        }
        Ok(Pool(pool))
    }

    /// Buffers that are somewhere else: on a NIC's ring, with one of us, in a thread's cache.
    pub fn in_use(&self) -> u32 {
        // SAFETY: the pool lives.
        unsafe { rcbox_pool_in_use(self.0) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the port that used it is closed, and all buffers hold a reference to that port's owner.
        unsafe { rcbox_pool_free(self.0) };
    }
}

/// Starts a port; with as many descriptors as it takes.
fn start_port(mut start: Start, pool: &Pool) -> Result<Start, String> {
    let mut step = std::ptr::null();
    // SAFETY: the pool outlives the port; the others are written while this lasts.
    let result = unsafe { rcbox_port_start(&raw mut start, pool.0, &raw mut step) };
    check(result).map_err(|error| format!("{}: {error}", text(step)))?;
    Ok(start)
}

fn place(port: u16) -> Result<RawPlace, String> {
    // SAFETY: bytes, for which zeros are values.
    let mut place: RawPlace = unsafe { std::mem::zeroed() };
    // SAFETY: of any number of a port; writes texts that end with 0.
    let result = unsafe { rcbox_port_place(port, &raw mut place) };
    check(result).map_err(|error| {
        format!("it cannot be opened anew, since its device is not its own: {error}")
    })?;
    Ok(place)
}

/// A port that has started, with the queues that it has. Dropped, it is closed.
pub struct RunningPort {
    pub start: Start,
    /// How to find its device again; else why that is not possible.
    place: Result<RawPlace, String>,
    /// That DPDK has it: not between an attempt to open it anew that has failed and the next. Whoever asks the driver something holds this.
    present: Mutex<bool>,
    /// Behind the port, so that it goes last.
    pub pool: Pool,
}

/// One port after the other: each gets the number back that it had.
static ANEW: Mutex<()> = Mutex::new(());

impl RunningPort {
    pub fn new(start: Start, pool: Pool) -> Result<RunningPort, String> {
        let mut running = RunningPort {
            start,
            place: place(start.port),
            present: Mutex::new(true),
            pool,
        };
        running.start = start_port(start, &running.pool)?;
        running.watch();
        Ok(running)
    }

    /// Whether its device is its own, and can be found again.
    pub fn can_be_opened_anew(&self) -> bool {
        self.place.is_ok()
    }

    /// Gives the device back, takes it again, and starts the port with what it had: its hardware address afterwards, which may be another.
    /// Nobody may receive or send meanwhile, and rules of the NIC are gone: the caller sees to that.
    pub fn open_anew(&self) -> Result<[u8; 6], String> {
        let place = self.place.as_ref().map_err(Clone::clone)?;
        let _one = ANEW.lock().unwrap_or_else(PoisonError::into_inner);
        let mut present = self.present();
        if std::mem::take(&mut *present) {
            // SAFETY: the port is ours. What remains when this fails is asked for again below.
            unsafe { rcbox_port_remove(self.start.port) };
        }
        // SAFETY: its texts end with 0.
        let number = unsafe { rcbox_port_probe(place) };
        check(number).map_err(|error| format!("its device is not there: {error}"))?;
        if number != c_int::from(self.start.port) {
            return Err(format!(
                "it has become port {number}, and was {}",
                self.start.port
            ));
        }
        *present = true;
        start_port(self.start, &self.pool)?;
        self.watch();
        Ok(port_info(self.start.port)?.mac)
    }

    fn watch(&self) {
        // SAFETY: the port is there. A driver that never says anything is watched in vain.
        unsafe { rcbox_port_watch(self.start.port) };
    }

    /// Whether the driver has asked since the last time that it be opened anew.
    pub fn wants_anew(&self) -> bool {
        // SAFETY: any number is well.
        unsafe { rcbox_port_wants_anew(self.start.port) != 0 }
    }

    fn present(&self) -> MutexGuard<'_, bool> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_present(&self) -> bool {
        *self.present()
    }

    /// Whether the link is up, and its speed in Mbit/s, if the driver tells (0: it does not).
    pub fn link(&self) -> (bool, u32) {
        let mut speed = 0;
        let present = self.present();
        if !*present {
            return (false, speed);
        }
        // SAFETY: the port lives.
        let up = unsafe { rcbox_port_link(self.start.port, &raw mut speed) };
        (up == 1, speed)
    }

    pub fn stats(&self) -> PortStats {
        let mut stats = PortStats::default();
        let present = self.present();
        if !*present {
            return stats;
        }
        // SAFETY: the port lives. Drivers that count nothing leave zeros.
        unsafe { rcbox_port_stats(self.start.port, &raw mut stats) };
        stats
    }

    /// Asks the NIC to put everything for a UDP port into a queue.
    pub fn steer(&self, udp_port: u16, queue: u16) -> Result<Flow, String> {
        let mut why = std::ptr::null();
        // SAFETY: the port lives.
        let flow = unsafe { rcbox_flow_udp(self.start.port, udp_port, queue, &raw mut why) };
        if flow.is_null() {
            Err(text(why))
        } else {
            Ok(Flow(flow))
        }
    }

    pub fn unsteer(&self, flow: Flow) {
        // SAFETY: the port lives, and the rule is given up.
        unsafe { rcbox_flow_remove(self.start.port, flow.0) };
    }

    /// Takes what has come, as far as there is room. No two threads at a time for one queue: the caller sees to that.
    pub fn receive(&self, queue: u16, into: &mut Buffers, count: usize) -> usize {
        assert!(queue < self.start.rx_queues);
        let count = count.min(into.0.capacity() - into.0.len());
        let spare = into.0.spare_capacity_mut().as_mut_ptr().cast::<Raw>();
        // SAFETY: the queue exists, there is room for `count`, a buffer is what the shim writes, and as many as it tells are written.
        let received = unsafe { rcbox_receive(self.start.port, queue, spare, count as u16) };
        // SAFETY: as above.
        unsafe { into.0.set_len(into.0.len() + usize::from(received)) };
        usize::from(received)
    }

    /// Sends the first ones, as far as there is room; they are gone then. No two threads at a time for one queue: the caller sees to that.
    pub fn send(&self, queue: u16, from: &mut Buffers) -> usize {
        assert!(queue < self.start.tx_queues);
        let sums = c_int::from(self.start.tx_sums != 0);
        let count = from.0.len().min(usize::from(u16::MAX)) as u16;
        // SAFETY: the queue exists; each is a buffer with as many bytes as it says.
        let sent =
            unsafe { rcbox_send(self.start.port, queue, from.0.as_ptr().cast(), count, sums) };
        // They are the NIC's now.
        from.0.drain(..usize::from(sent)).for_each(std::mem::forget);
        usize::from(sent)
    }

    /// Adds so many fresh buffers, or none.
    pub fn allocate(&self, into: &mut Buffers, count: usize) -> bool {
        if count > into.0.capacity() - into.0.len() {
            return false;
        }
        let spare = into.0.spare_capacity_mut().as_mut_ptr().cast::<Raw>();
        // SAFETY: the pool lives, there is room for `count`, and all are written if the result is 0.
        if unsafe { rcbox_allocate(self.pool.0, spare, count as u16) } != 0 {
            return false;
        }
        // SAFETY: as above. Their bytes are initialized: the memory was zero or written by a NIC, and is never returned to the allocator of Rust.
        unsafe { into.0.set_len(into.0.len() + count) };
        true
    }
}

impl Drop for RunningPort {
    fn drop(&mut self) {
        if self.is_present() {
            // SAFETY: nobody else has it any more.
            unsafe { rcbox_port_close(self.start.port) };
        }
    }
}

/// A rule of the NIC.
pub struct Flow(*mut c_void);

// SAFETY: a handle, used under a lock.
unsafe impl Send for Flow {}

/// One packet buffer that is ours; dropped, it goes back to its pool.
#[repr(transparent)]
pub struct Buffer(Raw);

// SAFETY: a buffer has one owner, and its pool takes it back from any thread.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Of a received one: the frame. Of a fresh one: all that it can hold.
    pub fn bytes(&self) -> &[u8] {
        if self.0.data.is_null() {
            return &[];
        }
        // SAFETY: the buffer is ours and has so many bytes.
        unsafe { std::slice::from_raw_parts(self.0.data, self.0.length as usize) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if self.0.data.is_null() {
            return &mut [];
        }
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.0.data, self.0.length as usize) }
    }

    /// Leaves so many bytes of it.
    pub fn truncate(&mut self, bytes: usize) {
        self.0.length = self.0.length.min(bytes.min(u32::MAX as usize) as u32);
    }

    /// Moves it to another owner; nothing is left here.
    pub fn take(&mut self) -> Buffer {
        let nothing = Raw {
            mbuf: std::ptr::null_mut(),
            data: std::ptr::null_mut(),
            length: 0,
            flags: 0,
        };
        Buffer(std::mem::replace(&mut self.0, nothing))
    }

    /// Which sums the NIC has found right, and whether it comes from ourselves. What it found wrong is looked at again: some take a UDP sum that was left out for a wrong one.
    pub fn checked(&self) -> frames::Checked {
        frames::Checked {
            ip: self.0.flags & IP_GOOD != 0,
            udp: self.0.flags & UDP_GOOD != 0,
            inside: self.0.flags & INSIDE != 0,
        }
    }

    /// Whoever gets it next need not add up again.
    pub fn set_checked(&mut self) {
        self.0.flags = IP_GOOD | UDP_GOOD;
    }

    /// It comes from ourselves.
    pub fn set_inside(&mut self) {
        self.0.flags = IP_GOOD | UDP_GOOD | INSIDE;
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if !self.0.mbuf.is_null() {
            // SAFETY: one buffer, ours.
            unsafe { rcbox_free(&raw const self.0, 1) };
        }
    }
}

/// Buffers, at most so many as was said at the start. They go back to their pool in one call.
pub struct Buffers(Vec<Buffer>);

impl Buffers {
    pub fn with_capacity(count: usize) -> Buffers {
        Buffers(Vec::with_capacity(count))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, index: usize) -> Option<&Buffer> {
        self.0.get(index)
    }

    pub fn get_mut(&mut self, index: usize) -> Option<&mut Buffer> {
        self.0.get_mut(index)
    }

    /// Adds one; false, and it is freed, if there is no room.
    pub fn push(&mut self, buffer: Buffer) -> bool {
        let room = self.0.len() < self.0.capacity();
        if room {
            self.0.push(buffer);
        }
        room
    }

    pub fn pop(&mut self) -> Option<Buffer> {
        self.0.pop()
    }

    pub fn clear(&mut self) {
        let count = self.0.len();
        if count == 0 {
            return;
        }
        // SAFETY: none of them is dropped a second time.
        unsafe { self.0.set_len(0) };
        // SAFETY: `count` buffers, ours until here.
        unsafe { rcbox_free(self.0.as_ptr().cast(), count as u32) };
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        self.clear();
    }
}
