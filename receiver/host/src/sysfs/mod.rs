//! Power meters and the topology of CPUs in sysfs, or in a tree with its layout. A tree is foreign input: every read is
//! bounded, and every number and name is validated.

mod hwmon;
mod meter;
mod powercap;
#[cfg(test)]
mod tests;

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

pub use meter::{Driver, Meter, Meters, Object, Quantity, Unreadable};

use crate::files::read_regular;

/// The usual mount point.
pub const ROOT: &str = "/sys";

/// The longest content of a file, in bytes. The kernel's files in sysfs have one page at most.
const LONGEST: u64 = 4096;
/// The most entries of a folder that are read.
const ENTRIES: usize = 256;

/// A tree with the layout of sysfs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sysfs {
    root: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Self {
        Self::new(ROOT.into())
    }
}

impl Sysfs {
    /// Creates the tree below a folder.
    #[must_use]
    pub const fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Returns the hyper-thread sibling of each CPU; `None` for a CPU without one. A core with more than two threads has the next
    /// thread.
    #[must_use]
    pub fn siblings(&self, cpus: usize) -> Vec<Option<u32>> {
        let of = |cpu: u32| {
            let list = format!("devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            let list = cpus_of(&text(&self.root.join(list)).ok()?)?;
            let next = list.iter().find(|other| **other > cpu).or_else(|| list.iter().find(|other| **other != cpu));
            next.copied().filter(|other| (*other as usize) < cpus)
        };
        (0..).take(cpus).map(of).collect()
    }

    /// Reads every power meter of the node.
    #[must_use]
    pub fn meters(&self) -> Meters {
        let class = self.root.join("class");
        let problem = match fs::read_dir(&class) {
            Err(error) => {
                let class = class.display();
                Some(format!("cannot read {class}: {error}: mount sysfs there, or set `sysfs_root`"))
            }
            Ok(_) if powercap::is_hidden(&class.join("powercap")) => Some(format!(
                "hidden: the container engine hides the power meters of {}: mount the host's /sys at another path, and set \
                 `sysfs_root` to it",
                class.join("powercap").display()
            )),
            Ok(_) => None,
        };
        let mut meters = powercap::read(&class.join("powercap"));
        meters.extend(hwmon::read(&class.join("hwmon")));
        Meters { meters, problem }
    }
}

/// Parses a list of CPUs in order, for example `0-1` or `0,4`; `None` if it is invalid.
fn cpus_of(list: &str) -> Option<Vec<u32>> {
    /// The most threads of a core.
    const MOST: usize = 16;
    let mut cpus = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend((first.parse::<u32>().ok()?..=last.parse().ok()?).take(MOST + 1));
        if cpus.len() > MOST {
            return None;
        }
    }
    Some(cpus)
}

/// Returns the names of a folder's entries in order; none if the folder cannot be read.
fn entries(folder: &Path) -> Vec<String> {
    let Ok(found) = fs::read_dir(folder) else { return Vec::new() };
    let names = found.take(ENTRIES).flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| is_name(name)).collect();
    names.sort();
    names
}

/// Returns the text of a file without surrounding white space.
fn text(path: &Path) -> Result<String, Unreadable> {
    let content = read_regular(path, LONGEST)?;
    let text = String::from_utf8(content).map_err(|_| Unreadable::Garbage)?;
    Ok(text.trim_ascii().to_owned())
}

/// Returns the number in a file: decimal digits only.
fn number(path: &Path) -> Result<u64, Unreadable> {
    let text = text(path)?;
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().map_err(|_| Unreadable::Garbage) } else { Err(Unreadable::Garbage) }
}

/// Returns the short printable name in a file.
fn name(path: &Path) -> Result<String, Unreadable> {
    let text = text(path)?;
    if is_name(&text) { Ok(text) } else { Err(Unreadable::Garbage) }
}

/// Returns true for a name of a zone, a driver or a sensor: 64 printable ASCII characters at most.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b" -_:.+".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(is_plain)
}
