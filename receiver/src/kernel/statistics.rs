//! The kernel's own counts for a program, from `/proc/self/fdinfo` (`bpf_prog_show_fdinfo`, Linux 5.12 and later), and
//! for a kprobe from its link (`bpf_perf_link_fill_kprobe`, 6.7 and later).

use std::{
    collections::BTreeMap,
    fs, io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
};

use aya::programs::ProgramFd;
use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_link_info, bpf_link_type, bpf_perf_event_type};
use serde::{Deserialize, Serialize};

/// What the kernel counted for one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// Runs; only counted while the kernel's statistics are on (`kernel.bpf_stats_enabled`).
    pub count: u64,
    /// Nanoseconds they took; only while the statistics are on.
    pub nanoseconds: u64,
    /// Runs that did not happen since the program, or for a kprobe's any other, was running on that CPU already.
    pub misses: u64,
}

/// Links of this process that hold programs at kprobes, by the programs' identifiers. While one is here, its program stays
/// attached.
#[derive(Default)]
pub struct Links(BTreeMap<u64, OwnedFd>);

impl Links {
    /// Those that this process has now. The library that attaches programs hands out no link's descriptor.
    #[must_use]
    pub fn of_this_process() -> Self {
        let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let descriptors = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Self(descriptors.filter_map(probe).collect())
    }

    /// Reads the counts of a program; `None` where the kernel does not tell.
    #[must_use]
    pub fn runs(&self, program: &ProgramFd) -> Option<Runs> {
        let text = told(program.as_fd().as_raw_fd())?;
        let mut runs = parse(&text);
        let link = number(&text, "prog_id").and_then(|program| self.0.get(&program));
        runs.misses += link.and_then(|link| missed(link.as_fd()).ok()).unwrap_or(0);
        Some(runs)
    }
}

/// The program that a descriptor's link holds at a kprobe, and the link.
fn probe(descriptor: RawFd) -> Option<(u64, OwnedFd)> {
    let text = told(descriptor)?;
    number(&text, "link_id")?;
    let program = number(&text, "prog_id")?;
    // SAFETY: a number of something else by now, which another thread opened in its place, is found out when it is asked
    // for a kprobe's count; it is borrowed for one call, which refuses a number that is not open.
    let link = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned().ok()?;
    missed(link.as_fd()).ok()?;
    Some((program, link))
}

/// How often the kernel left a kprobe out for another one's sake, by its link (`bpf_link_info`; 6.6 says always none).
///
/// # Errors
/// The kernel's refusal, or that the link is no kprobe's (`InvalidInput`); before Linux 6.6 none says that it is.
fn missed(link: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: both are plain integers, for which zeros stand for nothing.
    let (mut info, mut question): (bpf_link_info, bpf_attr) = unsafe { std::mem::zeroed() };
    question.info.bpf_fd = link.as_raw_fd().cast_unsigned();
    question.info.info = (&raw mut info) as u64;
    question.info.info_len = size_of_val(&info) as u32;
    // SAFETY: the kernel writes no more than `info_len` bytes to `info`, which lives through the call as `question` does.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &raw const question, size_of_val(&question))
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all of the union's members are plain integers, which hold any bits.
    let event = unsafe { info.__bindgen_anon_1.perf_event };
    if info.type_ != PERF_EVENT || ![KPROBE, KRETPROBE].contains(&event.type_) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: as above.
    Ok(unsafe { event.__bindgen_anon_1.kprobe.missed })
}

const PERF_EVENT: u32 = bpf_link_type::BPF_LINK_TYPE_PERF_EVENT as u32;
const KPROBE: u32 = bpf_perf_event_type::BPF_PERF_EVENT_KPROBE as u32;
const KRETPROBE: u32 = bpf_perf_event_type::BPF_PERF_EVENT_KRETPROBE as u32;

/// What the kernel prints of a descriptor.
fn told(descriptor: RawFd) -> Option<String> {
    fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).ok()
}

fn number(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().filter_map(|line| line.split_once(':')).find(|(found, _)| *found == key);
    value?.1.trim().parse().ok()
}

fn parse(text: &str) -> Runs {
    let of = |key| number(text, key).unwrap_or(0);
    Runs { count: of("run_cnt"), nanoseconds: of("run_time_ns"), misses: of("recursion_misses") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_what_the_kernel_prints() {
        let text = "pos:\t0\nflags:\t02000002\nprog_type:\t26\nprog_jited:\t1\nprog_tag:\tda1f4b8e1d5c9a3b\nmemlock:\t4096\n\
                    prog_id:\t41\nrun_time_ns:\t812\nrun_cnt:\t9\nrecursion_misses:\t3\nverified_insns:\t87\n";
        assert_eq!(parse(text), Runs { count: 9, nanoseconds: 812, misses: 3 });
        assert_eq!(parse("run_cnt:\tmany\nrun_time_ns"), Runs::default());
    }
}
