use std::path::{Path, PathBuf};

/// Bytes that are free or can be freed at once, limited by control groups and resource limits.
pub(super) fn available() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let free = read("/proc/meminfo").and_then(|text| kilobytes(&text, "MemAvailable:"));
    let space = read("/proc/self/limits").zip(read("/proc/self/status"));
    let space = space.and_then(|(limits, status)| address_space(&limits, &status));
    let groups = read("/proc/self/cgroup").map(|text| folders(&text)).unwrap_or_default();
    let groups = groups.iter().filter_map(|folder| left(folder));
    free.into_iter().chain(space).chain(groups).min().unwrap_or(u64::MAX)
}

/// The entry of a name in the form of `/proc/meminfo`, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let entry = text.lines().find_map(|line| line.strip_prefix(name))?;
    entry.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The rest of the address space limit, from `/proc/self/limits` and `/proc/self/status`.
fn address_space(limits: &str, status: &str) -> Option<u64> {
    let entry = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let limit: u64 = entry.split_whitespace().next()?.parse().ok()?;
    Some(limit.saturating_sub(kilobytes(status, "VmSize:")?))
}

/// The folders of the process's memory control groups and their ancestors, from `/proc/self/cgroup`.
fn folders(text: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let root = match controllers {
            "" => Path::new("/sys/fs/cgroup"),
            names if names.split(',').any(|name| name == "memory") => Path::new("/sys/fs/cgroup/memory"),
            _ => continue,
        };
        let path = root.join(path.trim_start_matches('/'));
        all.extend(path.ancestors().take_while(|folder| folder.starts_with(root)).map(Path::to_owned));
    }
    all
}

/// The rest of a control group's limit; file pages that were not used lately can be freed.
fn left(folder: &Path) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let stat = read("memory.stat").unwrap_or_default();
    let entry = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let idle = entry("total_inactive_file ").or_else(|| entry("inactive_file ")).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(idle)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_the_kernel_are_read() {
        let meminfo = "MemTotal:       24085632 kB\nMemFree:        20000000 kB\nMemAvailable:   22000000 kB\n";
        assert_eq!(kilobytes(meminfo, "MemAvailable:"), Some(22_000_000 << 10));
        assert_eq!(kilobytes(meminfo, "SwapFree:"), None);
        let limits = |limit: &str| {
            format!("Limit  Soft Limit  Hard Limit  Units\nMax address space  {limit}  unlimited  bytes\n")
        };
        let status = "Name:\tx\nVmPeak:\t    2000 kB\nVmSize:\t    1000 kB\n";
        assert_eq!(address_space(&limits("2048000"), status), Some(1_024_000));
        assert_eq!(address_space(&limits("unlimited"), status), None);
        assert_eq!(address_space(&limits("5"), status), Some(0));
        let groups = folders("4:cpu,memory:/a/b\n3:cpuset:/c\n0::/d\n");
        let expected = ["memory/a/b", "memory/a", "memory", "d", ""].map(|path| Path::new("/sys/fs/cgroup").join(path));
        assert_eq!(groups, expected);
    }

    #[test]
    fn a_group_leaves_its_limit_less_what_cannot_be_freed() {
        let folder = std::env::temp_dir().join(format!("rewire-group-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        assert_eq!(left(&folder), None);
        write("memory.max", "1000\n");
        write("memory.current", "700\n");
        assert_eq!(left(&folder), Some(300));
        write("memory.stat", "anon 500\ninactive_file 150\nactive_file 50\n");
        assert_eq!(left(&folder), Some(450));
        write("memory.max", "max\n");
        assert_eq!(left(&folder), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
