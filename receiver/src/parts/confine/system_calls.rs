//! The system calls that the worker may make (seccomp). All other calls fail with `ENOSYS`, the error of kernels that
//! lack a call, so that libraries fall back to older calls.

use std::{collections::BTreeMap, env::consts::ARCH};

use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Is,
    SeccompCondition as Condition, SeccompFilter, SeccompRule as Rule, apply_filter,
};

/// Calls for memory, threads, time and open descriptors.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_uname,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_write,
    libc::SYS_writev,
    // Sockets. `FAMILIES` restricts their families.
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
];

/// Older calls that newer architectures lack.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_epoll_wait,
    libc::SYS_lstat,
    libc::SYS_open,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_stat,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[libc::c_long] = &[];

/// Socket families: IP for collectors and DNS, and Unix for the service manager. Without netlink, the resolver assumes that the node
/// has addresses of both IP versions.
const FAMILIES: [libc::c_int; 3] = [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX];

/// `ioctl` requests for sockets, terminals (size and settings, never input), interface names and NIC clocks.
const REQUESTS: [libc::Ioctl; 11] = [
    libc::FIONBIO,
    libc::FIONREAD,
    libc::FIOCLEX,
    libc::TCGETS,
    libc::TIOCGWINSZ,
    libc::SIOCGIFINDEX as libc::Ioctl,
    libc::SIOCGIFNAME as libc::Ioctl,
    TCGETS2,
    libc::PTP_SYS_OFFSET_PRECISE as libc::Ioctl,
    libc::PTP_SYS_OFFSET_EXTENDED as libc::Ioctl,
    libc::PTP_SYS_OFFSET as libc::Ioctl,
];
/// `TCGETS2` of `include/uapi/asm-generic/ioctls.h`, which newer C libraries use.
const TCGETS2: libc::Ioctl = 0x802c_542a;

/// `prctl` options: the names of threads and of memory areas.
const ATTRIBUTES: [libc::c_int; 3] = [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_VMA];

/// Restricts this thread and all threads that it starts.
pub(super) fn restrict() -> Result<(), Error> {
    apply_filter(&program()?)
}

fn program() -> Result<BpfProgram, Error> {
    let (allow, refuse) = (SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32));
    Ok(SeccompFilter::new(rules()?, refuse, allow, ARCH.try_into()?)?.try_into()?)
}

/// Returns the allowed calls and the rules for their arguments. An empty list of rules allows all arguments.
fn rules() -> Result<BTreeMap<i64, Vec<Rule>>, BackendError> {
    let mut rules: BTreeMap<i64, Vec<Rule>> = ALLOWED.iter().chain(OLDER).map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_socket, among(0, FAMILIES.map(|family| family as u64))?);
    // Memory is never writable and executable. The loader of libraries maps files as executable; they cannot change.
    let (write, execute) = (libc::PROT_WRITE as u64, libc::PROT_EXEC as u64);
    let without = |right| Rule::new(vec![Condition::new(2, Length::Dword, Is::MaskedEq(right), 0)?]);
    rules.insert(libc::SYS_mmap, vec![without(write)?, without(execute)?]);
    rules.insert(libc::SYS_mprotect, vec![without(execute)?]);
    rules.insert(libc::SYS_socketpair, among(0, [libc::AF_UNIX as u64])?);
    rules.insert(libc::SYS_ioctl, among(1, REQUESTS.map(|request| request as u32 as u64))?);
    rules.insert(libc::SYS_prctl, among(0, ATTRIBUTES.map(|attribute| attribute as u64))?);
    // Reads of the limits of this process. A new limit must be null.
    rules.insert(
        libc::SYS_prlimit64,
        vec![Rule::new(vec![
            Condition::new(0, Length::Dword, Is::Eq, 0)?,
            Condition::new(2, Length::Qword, Is::Eq, 0)?,
        ])?],
    );
    // `clone` must create threads, not processes. `clone3` is not allowed, because seccomp cannot read its flags in
    // memory; C libraries then use `clone`.
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(
        libc::SYS_clone,
        vec![Rule::new(vec![Condition::new(0, Length::Qword, Is::MaskedEq(thread), thread)?])?],
    );
    Ok(rules)
}

fn among<const N: usize>(argument: u8, values: [u64; N]) -> Result<Vec<Rule>, BackendError> {
    values.into_iter().map(|value| Rule::new(vec![Condition::new(argument, Length::Dword, Is::Eq, value)?])).collect()
}
