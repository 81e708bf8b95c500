//! How much memory this process may use: what its container has, or the machine.

use std::path::{Path, PathBuf};

/// The lowest limit of the cgroups that the process is in, or the machine's memory if that is less. `None` if the kernel tells neither.
pub fn memory_bytes() -> Option<usize> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let limit = read(Path::new("/proc/self/cgroup"))
        .zip(read(Path::new("/proc/self/mountinfo")))
        .and_then(|(groups, mounts)| limit_bytes(&groups, &mounts, read));
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| machine_bytes(&text));
    let least = limit.into_iter().chain(machine).min()?;
    usize::try_from(least).ok()
}

fn machine_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The lowest limit on the way from the process's own cgroup to the top of what is mounted, given /proc/self/cgroup and /proc/self/mountinfo.
fn limit_bytes(groups: &str, mounts: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let mounted = mounts.lines().filter_map(Mount::of);
    let limits = mounted.filter_map(|mount| {
        let group = groups.lines().find_map(|line| mount.group(line))?;
        let own = group.strip_prefix(&mount.root).ok();
        // In a namespace of its own a process may be told a path that is beyond what it sees.
        let own = own.filter(|own| !own.starts_with(".."));
        let folder = mount.folder.join(own.unwrap_or(Path::new("")));
        let folders = folder
            .ancestors()
            .take_while(|folder| folder.starts_with(&mount.folder));
        let texts = folders.filter_map(|folder| read(&folder.join(mount.file)));
        texts.filter_map(|text| text.trim().parse().ok()).min()
    });
    limits.min()
}

/// Where the kernel shows cgroups that can limit memory.
struct Mount {
    root: PathBuf,
    folder: PathBuf,
    is_unified: bool,
    /// The file with a cgroup's limit: bytes, or a word for none.
    file: &'static str,
}

impl Mount {
    /// As a line of /proc/self/mountinfo has it, if it is one.
    fn of(line: &str) -> Option<Mount> {
        let (mount, system) = line.split_once(" - ")?;
        let mut words = mount.split(' ').skip(3);
        let (root, folder) = (words.next()?.into(), words.next()?.into());
        let mut words = system.split(' ');
        let is_unified = match (words.next()?, words.nth(1)?) {
            ("cgroup2", _) => true,
            ("cgroup", options) if options.split(',').any(|one| one == "memory") => false,
            _ => return None,
        };
        Some(Mount {
            root,
            folder,
            is_unified,
            file: match is_unified {
                true => "memory.max",
                false => "memory.limit_in_bytes",
            },
        })
    }

    /// The path of the process's cgroup, if a line of /proc/self/cgroup is about this hierarchy.
    fn group<'l>(&self, line: &'l str) -> Option<&'l Path> {
        let mut words = line.splitn(3, ':').skip(1);
        let (controllers, path) = (words.next()?, words.next()?);
        let is_meant = match self.is_unified {
            true => controllers.is_empty(),
            false => controllers.split(',').any(|one| one == "memory"),
        };
        is_meant.then_some(Path::new(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(groups: &str, mounts: &str, files: &[(&str, &str)]) -> Option<u64> {
        limit_bytes(groups, mounts, |path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path)?;
            Some(found.1.to_owned())
        })
    }

    const V2: &str =
        "31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
    const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      36 31 0:33 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu";

    #[test]
    fn a_container_has_the_lowest_limit_above_it() {
        let files = [
            ("/sys/fs/cgroup/pods/one/memory.max", "max\n"),
            ("/sys/fs/cgroup/pods/memory.max", "268435456\n"),
            ("/sys/fs/cgroup/memory.max", "536870912\n"),
        ];
        assert_eq!(limit("0::/pods/one\n", V2, &files), Some(256 << 20));
        assert_eq!(limit("0::/\n", V2, &files), Some(512 << 20));
        // As a container with a namespace of its own is told.
        assert_eq!(limit("0::/../../other\n", V2, &files), Some(512 << 20));
        assert_eq!(limit("0::/pods/one\n", V2, &[]), None);
    }

    #[test]
    fn version_1_has_a_hierarchy_for_memory() {
        let files = [
            (
                "/sys/fs/cgroup/memory/pod/memory.limit_in_bytes",
                "268435456\n",
            ),
            (
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
        ];
        let groups = "5:devices:/pod\n4:memory:/pod\n1:cpu:/elsewhere\n0::/\n";
        assert_eq!(limit(groups, V1, &files), Some(256 << 20));
        // A container sees its own cgroup at the top.
        let mounts = V1.replace("0:32 / ", "0:32 /kubepods/pod ");
        let files = [("/sys/fs/cgroup/memory/memory.limit_in_bytes", "134217728\n")];
        let groups = "4:memory:/kubepods/pod\n";
        assert_eq!(limit(groups, &mounts, &files), Some(128 << 20));
    }

    #[test]
    fn a_machine_has_what_the_kernel_counts() {
        assert_eq!(
            machine_bytes("MemTotal:       24684036 kB\nMemFree: 1 kB\n"),
            Some(24_684_036 << 10)
        );
        assert_eq!(machine_bytes("nothing"), None);
        assert!(memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
