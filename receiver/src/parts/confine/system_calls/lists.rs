//! Lists of system calls and of their arguments.

/// Calls of every part for memory, threads, time, files and open descriptors.
pub const ALLOWED: &[libc::c_long] = &[
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
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_uname,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_write,
    libc::SYS_writev,
    // Sockets, whose families are restricted.
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
pub const OLDER: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_epoll_wait,
    libc::SYS_lstat,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_stat,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
pub const OLDER: &[libc::c_long] = &[];

/// Further calls of the loader: eBPF programs, perf events and their limits, and capabilities for single calls.
pub const OF_LOADER: &[libc::c_long] = &[
    // To a loopback address, for requests about NICs. Other sockets than UDP are not allowed.
    libc::SYS_bind,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_perf_event_open,
    libc::SYS_prlimit64,
    libc::SYS_setrlimit,
];

/// Further calls of the supervisor, and of the parts before they drop their privileges.
pub const OF_SUPERVISOR: &[libc::c_long] = &[
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_close_range,
    // For the files of the writer.
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_pidfd_open,
    libc::SYS_seccomp,
    libc::SYS_set_tid_address,
];

/// Creates processes, like `clone`. musl calls it on architectures that have it.
#[cfg(target_arch = "x86_64")]
pub const FORKS: &[libc::c_long] = &[libc::SYS_fork];
#[cfg(not(target_arch = "x86_64"))]
pub const FORKS: &[libc::c_long] = &[];

/// Further calls of the worker: musl's resolver binds the socket for its queries.
#[cfg(target_env = "musl")]
pub const OF_RESOLVER: &[libc::c_long] = &[libc::SYS_bind];
#[cfg(not(target_env = "musl"))]
pub const OF_RESOLVER: &[libc::c_long] = &[];

/// The commands of `bpf` that the loader may use: those that create maps, programs and links, and access them by descriptors. Commands that
/// open objects of other programs or pin objects are missing. The numbers are those of `enum bpf_cmd` in
/// `include/uapi/linux/bpf.h`.
pub const COMMANDS: [u64; 13] = [
    0,  // BPF_MAP_CREATE
    1,  // BPF_MAP_LOOKUP_ELEM
    2,  // BPF_MAP_UPDATE_ELEM
    3,  // BPF_MAP_DELETE_ELEM
    4,  // BPF_MAP_GET_NEXT_KEY
    5,  // BPF_PROG_LOAD
    8,  // BPF_PROG_ATTACH
    9,  // BPF_PROG_DETACH
    15, // BPF_OBJ_GET_INFO_BY_FD
    17, // BPF_RAW_TRACEPOINT_OPEN
    18, // BPF_BTF_LOAD
    22, // BPF_MAP_FREEZE
    28, // BPF_LINK_CREATE
];

/// Socket families of the worker: IP for collectors and DNS. Without netlink, the resolver assumes that the node has addresses of both
/// IP versions. By a Unix socket, the worker could pass descriptors to other processes.
pub const FAMILIES: [libc::c_int; 2] = [libc::AF_INET, libc::AF_INET6];

/// `ioctl` requests for sockets, terminals (size and settings, never input), interface names and NIC clocks.
pub const REQUESTS: [libc::Ioctl; 11] = [
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
/// `ioctl` requests of the loader for perf events (`include/uapi/linux/perf_event.h`), and for the timestamps and clocks of NICs.
pub const OF_EVENTS: [libc::Ioctl; 5] = [
    0x2400,      // PERF_EVENT_IOC_ENABLE
    0x2401,      // PERF_EVENT_IOC_DISABLE
    0x4004_2408, // PERF_EVENT_IOC_SET_BPF
    libc::SIOCETHTOOL as libc::Ioctl,
    libc::SIOCGHWTSTAMP as libc::Ioctl,
];
/// `TCGETS2` of `include/uapi/asm-generic/ioctls.h`, which newer C libraries use.
const TCGETS2: libc::Ioctl = 0x802c_542a_u32 as libc::Ioctl;

/// `ioctl` requests that set the modes of a terminal. Newer C libraries use `TCSETS2`.
pub const MODES: [libc::Ioctl; 2] = [libc::TCSETS, TCSETS2];
/// `TCSETS2` of `include/uapi/asm-generic/ioctls.h`.
const TCSETS2: libc::Ioctl = 0x402c_542b;

/// `prctl` options: the names of threads and of memory areas.
pub const ATTRIBUTES: [libc::c_int; 3] = [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_VMA];
/// `prctl` options of the supervisor. The parts drop privileges with them.
pub const OF_PRIVILEGES: [libc::c_int; 6] = [
    libc::PR_CAPBSET_DROP,
    libc::PR_CAPBSET_READ,
    libc::PR_CAP_AMBIENT,
    libc::PR_SET_KEEPCAPS,
    libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_SET_SECCOMP,
];
