//! The kernel's own counts for a program, from `/proc/self/fdinfo` (`bpf_prog_show_fdinfo`, Linux 5.12 and later), and
//! for a kprobe from its link (`bpf_perf_link_fill_kprobe`, 6.7 and later).

use std::{
    collections::BTreeMap,
    fs, io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
};

use aya::programs::ProgramFd;
use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_link_info, bpf_link_type, bpf_perf_event_type};
use undercurrent_kernel::statistics::Runs;

/// The kprobe links of this process, by program id. A link keeps the program attached.
#[derive(Default)]
pub struct Links(BTreeMap<u64, OwnedFd>);

impl Links {
    /// Returns the current kprobe links of this process, from `/proc/self/fd`: aya does not expose their descriptors.
    #[must_use]
    pub fn of_this_process() -> Self {
        let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let descriptors = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Self(descriptors.filter_map(probe).collect())
    }

    /// Reads the counts of a program; `None` if the kernel does not report them.
    #[must_use]
    pub fn runs(&self, program: &ProgramFd) -> Option<Runs> {
        let text = fdinfo(program.as_fd().as_raw_fd())?;
        let mut runs = parse(&text);
        let link = number(&text, "prog_id").and_then(|program| self.0.get(&program));
        runs.misses += link.and_then(|link| missed(link.as_fd()).ok()).unwrap_or(0);
        Some(runs)
    }
}

/// Returns the program id and the link if the descriptor is a kprobe link.
fn probe(descriptor: RawFd) -> Option<(u64, OwnedFd)> {
    let text = fdinfo(descriptor)?;
    number(&text, "link_id")?;
    let program = number(&text, "prog_id")?;
    // SAFETY: the descriptor is borrowed only for `dup`, which fails if it is closed. If another thread reused the
    // number, `missed` rejects the descriptor.
    let link = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned().ok()?;
    missed(link.as_fd()).ok()?;
    Some((program, link))
}

/// Returns the number of hits of a kprobe link that the kernel skipped (`bpf_link_info`; always zero on 6.6).
///
/// # Errors
/// If the kernel refuses, or the link is not a kprobe link (`InvalidInput`; always before Linux 6.6).
fn missed(link: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: both types contain only integers, for which zero bytes are valid.
    let (mut info, mut question): (bpf_link_info, bpf_attr) = unsafe { std::mem::zeroed() };
    question.info.bpf_fd = link.as_raw_fd().cast_unsigned();
    question.info.info = (&raw mut info) as u64;
    question.info.info_len = size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most `info_len` bytes to `info`; `info` and `question` outlive the call.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &raw const question, size_of_val(&question))
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all members of the union are integers, for which any bytes are valid.
    let event = unsafe { info.__bindgen_anon_1.perf_event };
    if info.type_ != PERF_EVENT || ![KPROBE, KRETPROBE].contains(&event.type_) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: all members of the inner union are integers, for which any bytes are valid.
    Ok(unsafe { event.__bindgen_anon_1.kprobe.missed })
}

const PERF_EVENT: u32 = bpf_link_type::BPF_LINK_TYPE_PERF_EVENT as u32;
const KPROBE: u32 = bpf_perf_event_type::BPF_PERF_EVENT_KPROBE as u32;
const KRETPROBE: u32 = bpf_perf_event_type::BPF_PERF_EVENT_KRETPROBE as u32;

/// Returns the contents of `/proc/self/fdinfo` for a descriptor.
fn fdinfo(descriptor: RawFd) -> Option<String> {
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
    fn counts_are_parsed_from_fdinfo() {
        let text = "pos:\t0\nflags:\t02000002\nprog_type:\t26\nprog_jited:\t1\nprog_tag:\tda1f4b8e1d5c9a3b\nmemlock:\t4096\n\
                    prog_id:\t41\nrun_time_ns:\t812\nrun_cnt:\t9\nrecursion_misses:\t3\nverified_insns:\t87\n";
        assert_eq!(parse(text), Runs { count: 9, nanoseconds: 812, misses: 3 });
        assert_eq!(parse("run_cnt:\tmany\nrun_time_ns"), Runs::default());
    }
}
