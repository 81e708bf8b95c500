//! Pages of which the memory for objects is made.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use clap::ValueEnum;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// What pages the memory for objects consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HugePages {
    /// Small ones
    Off,
    /// Huge ones where the kernel finds some
    Transparent,
    /// Huge ones of 2 MiB that were reserved; without enough of them the server does not start
    Reserved,
    /// Huge ones of 1 GiB that were reserved
    #[value(name = "reserved1g")]
    Reserved1G,
}

impl HugePages {
    /// Of a page that was reserved.
    fn reserved_bytes(self) -> Option<usize> {
        match self {
            HugePages::Off | HugePages::Transparent => None,
            HugePages::Reserved => Some(2 << 20),
            HugePages::Reserved1G => Some(1 << 30),
        }
    }

    pub fn are_reserved(self) -> bool {
        self.reserved_bytes().is_some()
    }
}

/// There are not as many reserved pages as are needed.
#[derive(Debug)]
pub struct PagesError {
    wanted: usize,
    pool: Pool,
    errno: Errno,
}

impl std::error::Error for PagesError {}

/// Zeroed memory of pages that were reserved, for as long as the process lives.
pub struct Reserved {
    rest: &'static mut [u8],
}

impl Reserved {
    /// # Errors
    /// There are not as many pages; says how many there are, and how to get more. `None`: `pages` are not to be reserved ones.
    pub fn new(pages: HugePages, bytes: usize) -> Result<Option<Reserved>, PagesError> {
        let Some(page_bytes) = pages.reserved_bytes() else {
            return Ok(None);
        };
        let wanted = bytes.div_ceil(page_bytes);
        let rest = map(wanted, page_bytes).map_err(|errno| PagesError {
            wanted,
            pool: Pool::read(page_bytes),
            errno,
        })?;
        let mib = bytes >> 20;
        tracing::info!(
            pages = wanted,
            page_mib = page_bytes >> 20,
            mib,
            "reserved huge pages for objects"
        );
        Ok(Some(Reserved { rest }))
    }

    /// All of it, before a part was taken.
    pub fn range(&self) -> Range<*const u8> {
        self.rest.as_ptr_range()
    }

    /// The next part; as often as [`Reserved::new`] had room for.
    pub fn take(&mut self, bytes: usize) -> &'static mut [u8] {
        let (part, rest) = std::mem::take(&mut self.rest).split_at_mut(bytes);
        self.rest = rest;
        part
    }

    /// The next part, in words.
    ///
    /// # Panics
    /// If what was taken before does not end at the end of a word.
    #[allow(unsafe_code)]
    pub fn take_words(&mut self, words: usize) -> &'static mut [u64] {
        let bytes = self.take(words * size_of::<u64>());
        // SAFETY: any eight bytes are a number.
        let (before, words, after) = unsafe { bytes.align_to_mut() };
        assert!(before.is_empty() && after.is_empty());
        words
    }
}

/// Takes pages of this size from those that were reserved.
#[allow(unsafe_code)]
fn map(pages: usize, page_bytes: usize) -> Result<&'static mut [u8], Errno> {
    let length = pages.checked_mul(page_bytes).ok_or(Errno::NOMEM)?;
    let size = match page_bytes {
        0x4000_0000 => MapFlags::HUGE_1GB,
        _ => MapFlags::HUGE_2MB,
    };
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | size;
    // SAFETY: new memory, where nothing else is.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), length, protection, flags) }?;
    // SAFETY: mapped just now, zeroed, for reading and writing, and never unmapped; nobody else knows it.
    Ok(unsafe { std::slice::from_raw_parts_mut(start.cast(), length) })
}

/// What the kernel says of the pages of one size.
#[derive(Debug)]
struct Pool {
    page_bytes: usize,
    path: PathBuf,
    /// All of them, and those that nobody has and nobody was promised. `None`: there is no such size here.
    counts: Option<(usize, usize)>,
}

impl Pool {
    fn read(page_bytes: usize) -> Pool {
        let path = PathBuf::from(format!(
            "/sys/kernel/mm/hugepages/hugepages-{}kB",
            page_bytes >> 10
        ));
        let number = |name: &str| {
            let text = std::fs::read_to_string(path.join(name)).ok()?;
            text.trim().parse::<usize>().ok()
        };
        let counts = || {
            let free = number("free_hugepages")?;
            let promised = number("resv_hugepages")?;
            Some((number("nr_hugepages")?, free.saturating_sub(promised)))
        };
        Pool {
            counts: counts(),
            page_bytes,
            path,
        }
    }
}

/// How many there are, and how to get more.
impl fmt::Display for PagesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PagesError {
            wanted,
            pool,
            errno,
        } = self;
        let (size, resource) = match pool.page_bytes >> 30 {
            0 => (format!("{} MiB", pool.page_bytes >> 20), "hugepages-2Mi"),
            gib => (format!("{gib} GiB"), "hugepages-1Gi"),
        };
        let wants = format!("--hugePages: {wanted} reserved pages of {size} are needed");
        let Some((all, free)) = pool.counts else {
            return write!(
                f,
                "{wants}, and this machine has none of that size ({errno}); use another --hugePages, or start its kernel with \
                 hugepagesz={size} hugepages={wanted}",
                size = size.replace(" MiB", "M").replace(" GiB", "G"),
            );
        };
        if free >= *wanted {
            return write!(
                f,
                "{wants}, {free} are free on this machine, and this process gets none of them: {errno}. In a container, its limit \
                 {resource} has to be as high"
            );
        }
        let path = pool.path.join("nr_hugepages");
        let more = all + (wanted - free);
        write!(
            f,
            "{wants}, and {free} of {all} are free on this machine; reserve {more} as root, best at boot, before memory is in pieces: \
             echo {more} > {path} (for 2 MiB: sysctl vm.nr_hugepages={more}). On a node of Kubernetes, restart the kubelet then, and give the \
             container {resource}. Or use --hugePages transparent, or a smaller -t",
            path = path.display()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(counts: Option<(usize, usize)>) -> Pool {
        Pool {
            page_bytes: 2 << 20,
            path: PathBuf::from("/sys/kernel/mm/hugepages/hugepages-2048kB"),
            counts,
        }
    }

    fn why(counts: Option<(usize, usize)>) -> String {
        let error = PagesError {
            wanted: 100,
            pool: pool(counts),
            errno: Errno::NOMEM,
        };
        error.to_string()
    }

    #[test]
    fn pages_that_are_missing_are_counted_and_how_to_get_them_is_said() {
        let short = why(Some((40, 30)));
        assert!(short.contains("100 reserved pages of 2 MiB are needed, and 30 of 40 are free"));
        assert!(short.contains("sysctl vm.nr_hugepages=110"), "{short}");
        let limited = why(Some((400, 300)));
        assert!(
            limited.contains("its limit hugepages-2Mi has to be as high"),
            "{limited}"
        );
        let none = why(None);
        assert!(none.contains("hugepagesz=2M hugepages=100"), "{none}");
    }

    #[test]
    fn more_than_any_machine_has_is_an_error_and_no_signal() {
        let Err(error) = Reserved::new(HugePages::Reserved, 1 << 50) else {
            panic!("a pebibyte");
        };
        assert_eq!(error.wanted, 536_870_912, "{error}");
        assert!(matches!(Reserved::new(HugePages::Transparent, 1), Ok(None)));
    }
}
