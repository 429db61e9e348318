//! Privileges of the parts, and the end of a part.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    os::{
        fd::OwnedFd,
        unix::{
            fs::PermissionsExt as _,
            net::{UnixListener, UnixStream},
        },
    },
    path::PathBuf,
    process::Command,
    time::Duration,
};

use caps::{CapSet, Capability};
use rustix::{
    net::{AddressFamily, sockopt::socket_domain},
    process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, WaitOptions, kill_process, pidfd_getfd, pidfd_open, wait},
};
use undercurrent::parts::{FileAccess, Part, Reach, USER, limit_supervisor_to_readers};

use crate::support::{
    attached::{assert_nothing_left, attached},
    player::{self, Player},
    processes::family,
    sidecar::{BINARY, Sidecar, command},
    status::{Status, part},
    surroundings::{alone, often, patience, wait_for},
    tree::Tree,
};

/// A process with the privileges of a part.
pub const ROLE: &str = "confined";
/// The variable with the name of the part.
const PART: &str = "UNDERCURRENT_TEST_PART";
/// The supervisor once it has started the loader.
const LIMITED: &str = "limited supervisor";
/// The variable with the file of the writer.
const OUTPUT: &str = "UNDERCURRENT_TEST_OUTPUT";
/// The worker of a service that notifies its manager.
const NOTIFYING: &str = "notifying worker";
/// The worker with a screen.
const DRAWING: &str = "drawing worker";
/// The worker that answers readers.
const LISTENING: &str = "listening worker";
/// The user of the loader.
const LOADER: u32 = 65_528;
/// `TCSETS2` of `include/uapi/asm-generic/ioctls.h`.
const TCSETS2: libc::Ioctl = 0x402c_542b;
/// The user of the reader.
const READER: u32 = 65_527;
/// Seccomp's mode of a process with a filter.
const FILTER: u64 = 2;

/// Drops the privileges that a part has not, and then attempts the requested operations. It forks first, because the test
/// harness has several threads and the child has one.
pub fn play() {
    // SAFETY: no other thread holds a lock, because the harness waits for this thread.
    if unsafe { libc::fork() } != 0 {
        let _ = wait(WaitOptions::empty());
        return;
    }
    let name = std::env::var(PART).unwrap();
    let part = Part::ALL.into_iter().find(|part| name.ends_with(part.as_str())).unwrap();
    let outputs = std::env::var_os(OUTPUT).into_iter().map(PathBuf::from).collect();
    let is = |other| name == other;
    let (notifies, draws, listens) = (is(NOTIFYING), is(DRAWING), is(LISTENING));
    let reach = Reach { outputs, notifies, draws, listens, ..Reach::default() };
    part.confine(&reach).unwrap();
    if name == LIMITED {
        limit_supervisor_to_readers(&reach).unwrap();
    }
    player::serve(|request| match attempt(request) {
        Ok(()) => "succeeded".to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    });
    std::process::exit(0);
}

/// Attempts an operation of a compromised part.
fn attempt(request: &str) -> io::Result<()> {
    let checked = |result: i64| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    let socket = |family, kind| {
        // SAFETY: the call takes numbers only.
        checked(unsafe { libc::socket(family, kind, 0) }.into())
    };
    let (verb, object) = request.split_once(' ').unwrap_or((request, ""));
    let number = || object.parse::<i32>().unwrap();
    match verb {
        "read" => File::open(object).map(drop),
        "write" => File::create(object).map(drop),
        "append" => OpenOptions::new().append(true).open(object)?.write_all(b"more"),
        // The kernel refuses the null pointer after the filter has passed the call.
        "modes" | "modes2" => {
            let request = if verb == "modes" { libc::TCSETS } else { TCSETS2 };
            // SAFETY: the pointer is null.
            checked(unsafe { libc::ioctl(number(), request, 0) }.into())
        }
        "input" => {
            // SAFETY: the pointer is null.
            checked(unsafe { libc::ioctl(number(), libc::TIOCSTI, 0) }.into())
        }
        "local" => UnixStream::connect(object).map(drop),
        "become" => {
            let user = number().cast_unsigned();
            // It fails in a part that does not hold the capability.
            let _ = caps::raise(None, CapSet::Effective, Capability::CAP_SETUID);
            // SAFETY: the call takes numbers only.
            checked(unsafe { libc::setresuid(user, user, user) }.into())
        }
        "link" => std::os::unix::fs::symlink("/", object),
        "exec" => Command::new("/bin/true").spawn().map(drop),
        "stream" => socket(libc::AF_INET, libc::SOCK_STREAM),
        "packet" => socket(libc::AF_PACKET, libc::SOCK_RAW),
        "raw" => socket(libc::AF_INET, libc::SOCK_RAW),
        "crypto" => socket(libc::AF_ALG, libc::SOCK_SEQPACKET),
        "unix" => socket(libc::AF_UNIX, libc::SOCK_DGRAM),
        "netlink" => socket(libc::AF_NETLINK, libc::SOCK_RAW),
        "bind" => UdpSocket::bind("127.0.0.1:0").map(drop),
        "connect" => TcpStream::connect(object).map(drop),
        "code" => map(libc::PROT_WRITE | libc::PROT_EXEC).map(drop),
        "alter" => map(libc::PROT_WRITE).and_then(|page| {
            // SAFETY: the page was mapped for this call, and nothing refers to it.
            checked(unsafe { libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_EXEC) }.into())
        }),
        "signal" => kill_process(Pid::from_raw(number()).unwrap(), Signal::KILL).map_err(io::Error::from),
        call => {
            let (call, arguments) = match call {
                // CLONE_NEWUSER and CLONE_NEWNS.
                "unshare" => (libc::SYS_unshare, [libc::CLONE_NEWUSER | libc::CLONE_NEWNS, 0]),
                "fork" => (libc::SYS_clone, [libc::SIGCHLD, 0]),
                "listen" => (libc::SYS_listen, [-1, 0]),
                "accept" => (libc::SYS_accept4, [-1, 0]),
                "bpf" => (libc::SYS_bpf, [0, 0]),
                // BPF_OBJ_PIN, BPF_OBJ_GET, BPF_MAP_GET_FD_BY_ID and BPF_PROG_GET_FD_BY_ID.
                "pin" => (libc::SYS_bpf, [6, 0]),
                "pinned" => (libc::SYS_bpf, [7, 0]),
                "map" => (libc::SYS_bpf, [14, 0]),
                "program" => (libc::SYS_bpf, [13, 0]),
                "module" => (libc::SYS_init_module, [0, 0]),
                "mount" => (libc::SYS_mount, [0, 0]),
                "chmod" => (libc::SYS_fchmodat, [0, 0]),
                "remove" => (libc::SYS_unlinkat, [0, 0]),
                "openat2" => (libc::SYS_openat2, [0, 0]),
                "perf" => (libc::SYS_perf_event_open, [0, 0]),
                "ptrace" => (libc::SYS_ptrace, [libc::PTRACE_SEIZE as i32, number()]),
                "memory" => (libc::SYS_process_vm_readv, [number(), 0]),
                "userfaults" => (libc::SYS_userfaultfd, [0, 0]),
                "ring" => (libc::SYS_io_uring_setup, [1, 0]),
                "key" => (libc::SYS_add_key, [0, 0]),
                "handle" => (libc::SYS_open_by_handle_at, [0, 0]),
                other => panic!("no attempt has the name {other}"),
            };
            // SAFETY: the pointers among the arguments are null.
            let result = unsafe { libc::syscall(call, arguments[0], arguments[1], 0, 0, 0, 0) };
            if call == libc::SYS_clone && result == 0 {
                // SAFETY: the call ends the child, which owns no resources of the parent.
                unsafe { libc::_exit(0) }
            }
            checked(result)
        }
    }
}

/// The size of a mapping, in bytes.
const PAGE: usize = 4096;

fn map(protection: i32) -> io::Result<*mut libc::c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the kernel chooses an unused address.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(page) }
}

#[test]
fn a_compromised_worker_gains_no_access() {
    let Some(_alone) = alone("a compromised worker") else { return };
    let folder = tempfile::Builder::new().tempdir_in("/etc").unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let open = tempfile::tempdir().unwrap();
    fs::set_permissions(open.path(), Permissions::from_mode(0o777)).unwrap();
    let beside = open.path().join("file");
    let mut worker = Player::start(ROLE, &[], &[(PART, "worker")]);
    let this = std::process::id();
    assert_eq!(worker.ask("read /etc/hosts"), "succeeded", "the resolver's files are readable");
    // The kernel creates the files of /proc again.
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    for file in ["self/statm", "thread-self/stat", "stat", "net/netstat", "cgroups", "sys/kernel/osrelease"] {
        assert_eq!(worker.ask(&format!("read /proc/{file}")), "succeeded", "{file}");
    }
    let of_others = ["cmdline", "stat", "status", "mountinfo"].map(|file| format!("/proc/{this}/{file}"));
    for file in of_others.iter().map(String::as_str).chain(["/proc/cmdline", "/proc/kallsyms"]) {
        let is_hidden = FileAccess::supported() == FileAccess::Landlock;
        let expected = if is_hidden { "PermissionDenied" } else { "succeeded" };
        assert_eq!(worker.ask(&format!("read {file}")), expected, "{file}");
    }
    for request in [
        format!("read {}", secret.display()),
        "read /dev/kmsg".to_owned(),
        format!("read /proc/{this}/environ"),
        format!("read /proc/{this}/mem"),
    ] {
        let outcome = worker.ask(&request);
        assert_eq!(outcome, "PermissionDenied", "{request}");
    }
    for request in [
        &format!("write {}", secret.display()),
        &format!("write {}", beside.display()),
        "write /proc/self/oom_score_adj",
        &format!("link {}", beside.display()),
        "become 0",
        &format!("signal {this}"),
        "exec",
        "fork",
        "packet",
        "crypto",
        "netlink",
        "unix",
        "bind",
        "listen",
        "accept",
        "code",
        "alter",
        "bpf",
        "perf",
        "unshare",
        "userfaults",
        "ring",
        "key",
        "handle",
        &format!("ptrace {this}"),
        &format!("memory {this}"),
    ] {
        assert_eq!(worker.ask(request), "Unsupported", "{request}");
    }
    assert_ne!(worker.ask("raw"), "succeeded");
    // Neither DNS nor a collector of the configuration.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = worker.ask(&format!("connect {}", listener.local_addr().unwrap()));
    assert_eq!(connected, if connects_are_limited() { "PermissionDenied" } else { "succeeded" });
    assert!(!beside.exists());
}

#[test]
fn a_compromised_worker_with_readers_opens_no_other_port() {
    let Some(_alone) = alone("a compromised worker with readers") else { return };
    let mut worker = Player::start(ROLE, &[], &[(PART, LISTENING)]);
    for request in ["bind", "listen", "exec", "fork"] {
        assert_eq!(worker.ask(request), "Unsupported", "{request}");
    }
    // The kernel refuses the descriptor after the filter has passed the call.
    assert!(!["Unsupported", "succeeded"].contains(&worker.ask("accept").as_str()));
}

#[test]
fn a_compromised_privileged_part_changes_nothing_on_the_host() {
    const OBJECTS: [&str; 4] = ["pin", "pinned", "map", "program"];
    let Some(_alone) = alone("a compromised privileged part") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (secret, new) = (folder.path().join("secret"), folder.path().join("new"));
    fs::write(&secret, "secret").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let mut victim = Command::new("sleep").arg("60").spawn().unwrap();
    for (part, only) in [
        ("supervisor", &OBJECTS[..]),
        (LIMITED, &["bpf", "perf"]),
        ("reader", &["bpf", "perf", "fork"]),
        ("loader", &[&OBJECTS[..], &["unix", "fork"]].concat()),
    ] {
        let mut confined = Player::start(ROLE, &[], &[(PART, part)]);
        assert_eq!(confined.ask(&format!("read {}", secret.display())), "succeeded", "{part} reads what root may read");
        let victim = victim.id();
        let attempts = [
            format!("write {}", secret.display()),
            format!("write {}", new.display()),
            format!("link {}", new.display()),
            format!("signal {victim}"),
            format!("ptrace {victim}"),
            format!("memory {victim}"),
        ];
        let calls = [
            "exec",
            "stream",
            "packet",
            "raw",
            "crypto",
            "netlink",
            "code",
            "alter",
            "unshare",
            "userfaults",
            "ring",
            "key",
            "handle",
            "module",
            "mount",
            "chmod",
            "remove",
            "openat2",
            "become 0",
        ];
        for attempt in attempts.iter().map(String::as_str).chain(calls).chain(only.iter().copied()) {
            assert_eq!(confined.ask(attempt), "Unsupported", "{part}: {attempt}");
        }
    }
    assert!(victim.try_wait().unwrap().is_none());
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert_eq!((fs::read_to_string(&secret).unwrap(), new.exists()), ("secret".to_owned(), false));
}

/// The powers are those of docs/security.md.
#[test]
fn a_compromised_part_has_the_powers_of_the_documentation() {
    let Some(_alone) = alone("the powers of compromised parts") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (file, socket) = (folder.path().join("file"), folder.path().join("socket"));
    fs::write(&file, "text").unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    for path in [&file, &socket] {
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    }
    let mut victim = Command::new("sleep").arg("60").spawn().unwrap();
    let memory = format!("read /proc/{}/mem", victim.id());
    let [local, append] = [format!("local {}", socket.display()), format!("append {}", file.display())];
    for (part, can, cannot) in [
        ("reader", &[&memory, &local][..], &[append.as_str(), "become 65528"][..]),
        ("loader", &[&format!("read {}", file.display())], &[&local, &append, "become 65527"]),
        (LIMITED, &[&local, &"become 65527".to_owned()], &[&append]),
        (NOTIFYING, &[&"unix".to_owned()], &[&append, "fork"]),
    ] {
        let mut confined = Player::start(ROLE, &[], &[(PART, part)]);
        for attempt in cannot {
            assert_eq!(confined.ask(attempt), "Unsupported", "{part}: {attempt}");
        }
        for attempt in can {
            assert_eq!(confined.ask(attempt), "succeeded", "{part}: {attempt}");
        }
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    drop(listener);
    victim.kill().unwrap();
    victim.wait().unwrap();
}

#[test]
fn a_compromised_worker_sets_the_modes_of_its_own_terminal_alone() {
    let Some(_alone) = alone("terminals of a compromised worker") else { return };
    let mut confined = Player::start(ROLE, &[], &[(PART, DRAWING)]);
    for attempt in ["modes 0", "modes2 0"] {
        // Standard input is a pipe here, which has no modes.
        assert_eq!(confined.ask(attempt), "Uncategorized", "{attempt}");
    }
    for attempt in ["modes 1", "modes2 1", "modes 2", "modes2 5", "input 0"] {
        assert_eq!(confined.ask(attempt), "Unsupported", "{attempt}");
    }
    let mut without_screen = Player::start(ROLE, &[], &[(PART, "worker")]);
    for attempt in ["modes 0", "modes2 0", "input 0"] {
        assert_eq!(without_screen.ask(attempt), "Unsupported", "{attempt}");
    }
}

/// Returns true if Landlock of this kernel limits TCP connections: ABI 4, Linux 6.7.
fn connects_are_limited() -> bool {
    // SAFETY: with `LANDLOCK_CREATE_RULESET_VERSION` (1) the call accesses no memory.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, 1) >= 4 }
}

#[test]
fn stacks_of_a_flame_graph_are_read_without_privileges() {
    let Some(_alone) = alone("a confined flame graph") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut drawing = Command::new(BINARY);
    drawing.args(["flamegraph", "--seconds", "3", "-o"]).arg(folder.path().join("graph.svg"));
    let mut drawing = drawing.spawn().unwrap();
    let worker = wait_for("a confined worker", patience(Duration::from_secs(20)), || {
        let status = Status::of_process(part(drawing.id(), "uc-worker")?)?;
        (status.number("Seccomp") == FILTER).then_some(status)
    });
    for set in ["CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"] {
        assert_eq!(worker.capabilities(set), HashSet::new(), "{set}");
    }
    assert_eq!(worker.text("Uid").split_whitespace().next(), Some(&*USER.to_string()));
    let loader = Status::of_process(part(drawing.id(), "uc-loader").unwrap()).unwrap();
    assert!(loader.capabilities("CapEff").contains(&Capability::CAP_BPF));
    // It succeeds if this machine had traffic meanwhile.
    drawing.wait().unwrap();
}

#[test]
fn every_part_has_only_the_privileges_that_it_needs() {
    let Some(_alone) = alone("privileges") else { return };
    let sidecar = Sidecar::start(often());
    let status = |name| Status::of_process(part(sidecar.pid(), name).unwrap()).unwrap();
    let (loader, reader, worker) = (status("uc-loader"), status("uc-reader"), status("undercurrent"));
    let supervisor = status("uc-supervisor");
    for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
        assert_eq!(worker.capabilities(set), HashSet::new(), "{set}");
    }
    for (part, user) in [(&worker, USER), (&loader, LOADER), (&reader, READER), (&supervisor, 0)] {
        let expected = [(); 4].map(|()| user.to_string());
        for ids in ["Uid", "Gid"] {
            assert_eq!(part.text(ids).split_whitespace().collect::<Vec<_>>(), expected, "{ids}");
        }
        assert!(user == 0 || part.text("Groups").is_empty(), "{}", part.text("Groups"));
    }
    [&supervisor, &loader, &reader, &worker].iter().for_each(|part| assert_eq!(part.number("Seccomp"), FILTER));
    let lacks = |status: &Status, lacking: &[Capability]| {
        let effective = status.capabilities("CapEff");
        lacking.iter().for_each(|capability| assert!(!effective.contains(capability), "{capability}"));
    };
    use Capability::{
        CAP_BPF, CAP_DAC_OVERRIDE, CAP_NET_ADMIN, CAP_PERFMON, CAP_SETGID, CAP_SETPCAP, CAP_SETUID, CAP_SYS_ADMIN,
        CAP_SYS_PTRACE,
    };
    lacks(&loader, &[CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_SETUID]);
    lacks(&reader, &[CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, CAP_SYS_ADMIN, CAP_SETUID]);
    assert!(
        loader.capabilities("CapEff").contains(&CAP_BPF) && reader.capabilities("CapEff").contains(&CAP_SYS_PTRACE)
    );
    assert_eq!(reader.capabilities("CapPrm"), reader.capabilities("CapEff"));
    assert!(loader.capabilities("CapPrm").is_disjoint(&HashSet::from([CAP_SYS_PTRACE, CAP_DAC_OVERRIDE])));
    assert_eq!(supervisor.capabilities("CapEff"), HashSet::from([CAP_SETPCAP]));
    // It has started the loader.
    let starts_readers = HashSet::from([CAP_SETPCAP, CAP_SETUID, CAP_SETGID]);
    assert_eq!(supervisor.capabilities("CapPrm"), &reader.capabilities("CapPrm") | &starts_readers);
    assert_eq!(worker.capabilities("CapBnd"), HashSet::new());
    for part in [supervisor, loader, reader] {
        assert_eq!(part.capabilities("CapBnd"), part.capabilities("CapPrm"));
        ["CapInh", "CapAmb"].iter().for_each(|set| assert_eq!(part.capabilities(set), HashSet::new(), "{set}"));
        assert_eq!(part.number("NoNewPrivs"), 1);
    }
    assert_eq!(worker.number("NoNewPrivs"), 1);
    for thread in fs::read_dir(format!("/proc/{}/task", sidecar.pid())).unwrap() {
        let status = Status::read(&thread.unwrap().path()).unwrap();
        assert_eq!((status.number("Seccomp"), status.capabilities("CapPrm")), (FILTER, HashSet::new()));
    }
}

#[test]
fn a_compromised_writer_appends_in_the_folders_of_outputs_only() {
    let Some(_alone) = alone("a compromised writer") else { return };
    let [folder, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [output, precious] = [&folder, &other].map(|folder| folder.path().join("file"));
    [&output, &precious].iter().for_each(|file| fs::write(file, "text").unwrap());
    let mut writer = Player::start(ROLE, &[], &[(PART, "writer"), (OUTPUT, output.to_str().unwrap())]);
    assert_eq!(writer.ask(&format!("append {}", output.display())), "succeeded");
    let limited = if FileAccess::supported() == FileAccess::Landlock { "PermissionDenied" } else { "succeeded" };
    for attempt in ["append", "read"] {
        assert_eq!(writer.ask(&format!("{attempt} {}", precious.display())), limited, "{attempt}");
    }
    let write = format!("write {}", output.display());
    for attempt in
        [&write, "exec", "fork", "unix", "stream", "bpf", "perf", "code", "become 65527", "unshare", "remove"]
    {
        assert_eq!(writer.ask(attempt), "Unsupported", "{attempt}");
    }
    assert_eq!(fs::read_to_string(&output).unwrap(), "textmore");
}

#[test]
fn only_the_writer_of_files_stays_root_besides_the_supervisor() {
    let Some(_alone) = alone("the user of the writer") else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = format!("json={}", folder.path().join("lines").display());
    let sidecar = Sidecar::start_with(often(), &["--output", &output], &[]);
    let status = |name| Status::of_process(part(sidecar.pid(), name).unwrap()).unwrap();
    let writer = status("uc-writer");
    assert_eq!([status("uc-reader"), status("uc-loader")].map(|part| part.number("Uid") as u32), [READER, LOADER]);
    assert_eq!((writer.number("Uid"), writer.number("Seccomp")), (0, FILTER));
    ["CapPrm", "CapEff", "CapBnd"]
        .iter()
        .for_each(|set| assert_eq!(writer.capabilities(set), HashSet::from([Capability::CAP_DAC_OVERRIDE]), "{set}"));
    let all = family(sidecar.pid());
    assert_eq!(all.len(), 5);
    sidecar.stop();
    all_end(&all);
}

#[test]
fn another_user_with_capabilities_starts_parts_with_few_of_them() {
    use Capability::{
        CAP_BPF, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_PTRACE, CAP_SYSLOG,
    };
    const CAPABILITIES: &str = "+bpf,+perfmon,+net_admin,+syslog,+sys_ptrace,+dac_override,+dac_read_search";
    let Some(_alone) = alone("another user with capabilities") else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("undercurrent");
    fs::copy(BINARY, &program).unwrap();
    let user = READER - 100;
    let mut command = command("setpriv");
    command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"]);
    command.args(["--inh-caps", CAPABILITIES, "--ambient-caps", CAPABILITIES]).arg(program);
    let sidecar = Sidecar::start_by(command, often(), &[]);
    sidecar.snapshot();
    let status = |name| Status::of_process(part(sidecar.pid(), name).unwrap()).unwrap();
    let of_reader = HashSet::from([CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE]);
    let of_loader = HashSet::from([CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, CAP_SYSLOG, CAP_DAC_READ_SEARCH]);
    for (name, permitted) in [
        ("undercurrent", HashSet::new()),
        ("uc-supervisor", of_reader.clone()),
        ("uc-loader", of_loader),
        ("uc-reader", of_reader),
    ] {
        let status = status(name);
        assert_eq!(status.number("Uid"), u64::from(user), "{name}");
        assert_eq!(status.capabilities("CapPrm"), permitted, "{name}");
    }
    assert_eq!(status("uc-supervisor").capabilities("CapEff"), HashSet::new());
    sidecar.stop();
}

#[test]
fn a_frozen_loader_keeps_no_capability() {
    let Some(_alone) = alone("a frozen loader") else { return };
    let sidecar = Sidecar::configured("separation: {frozen: true}\n");
    sidecar.snapshot();
    let status = |name| Status::of_process(part(sidecar.pid(), name).unwrap()).unwrap();
    assert_eq!(status("uc-loader").capabilities("CapEff"), HashSet::new());
    assert_eq!(status("uc-loader").capabilities("CapPrm"), HashSet::new());
    // A reader can still be replaced, and measurements continue.
    let reader = part(sidecar.pid(), "uc-reader").unwrap();
    send(reader, Signal::KILL);
    let another = || part(sidecar.pid(), "uc-reader").filter(|process| *process != reader);
    wait_for("another reader", patience(Duration::from_secs(10)), another);
    sidecar.snapshot();
    sidecar.stop();
}

#[test]
fn the_worker_keeps_no_descriptor_of_a_map_but_those_of_ring_buffers() {
    /// `BPF_MAP_TYPE_RINGBUF` of `include/uapi/linux/bpf.h`.
    const RING: &str = "27";
    let Some(_alone) = alone("descriptors of the worker") else { return };
    let sidecar = Sidecar::start(often());
    // The worker closes them before its first snapshot.
    sidecar.snapshot();
    let descriptors = fs::read_dir(format!("/proc/{}/fdinfo", sidecar.pid())).unwrap();
    let infos = descriptors.filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok());
    let kind = |info: String| info.lines().find_map(|line| Some(line.strip_prefix("map_type:")?.trim().to_owned()));
    let kinds: Vec<String> = infos.filter_map(kind).collect();
    assert!(!kinds.is_empty() && kinds.iter().all(|kind| kind == RING), "{kinds:?}");
}

fn send(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process.cast_signed()).unwrap(), signal).unwrap();
}

/// Checks that a reader that ends or hangs is replaced, and that measurement continues.
fn is_replaced_after(signal: Signal) {
    const CPU: &str = "undercurrent.cpu.time";
    let Some(_alone) = alone(&format!("{signal:?} of the reader")) else { return };
    let Some(tree) = Tree::create("the reader's end") else { return };
    let sidecar = Sidecar::start(often());
    let reader = part(sidecar.pid(), "uc-reader").unwrap();
    send(reader, signal);
    let another = || part(sidecar.pid(), "uc-reader").filter(|process| *process != reader);
    wait_for("another reader", patience(Duration::from_secs(10)), another);
    let _burner = tree.burn("busy.service");
    wait_for("CPU time of a new workload", patience(Duration::from_secs(10)), || {
        let line = sidecar.snapshot();
        let used: f64 =
            line.find(CPU, &[]).filter(|point| tree.is(point, "busy.service")).map(|point| point.amount()).sum();
        (used > 0.0).then_some(())
    });
    sidecar.stop();
    assert!(Status::of_process(reader).is_none(), "the first reader still runs");
}

#[test]
fn a_reader_that_ends_is_replaced() {
    is_replaced_after(Signal::KILL);
}

#[test]
fn a_reader_that_stops_is_replaced() {
    is_replaced_after(Signal::STOP);
}

#[test]
fn the_sidecar_ends_with_its_loader_and_with_its_supervisor() {
    let Some(_alone) = alone("the end of the loader and of the supervisor") else { return };
    for killed in ["uc-loader", "uc-supervisor"] {
        let mut sidecar = Sidecar::start(often());
        let (all, attached, loader) =
            (family(sidecar.pid()), attached(sidecar.pid()), part(sidecar.pid(), "uc-loader").unwrap());
        assert!(!attached.programs.is_empty());
        send(part(sidecar.pid(), killed).unwrap(), Signal::KILL);
        assert_eq!(sidecar.wait().code(), Some(3), "{killed}");
        sidecar.logs(&format!("the loader (process {loader}) ended"));
        assert_nothing_left(&attached, patience(Duration::from_secs(1)));
        all_end(&all);
    }
}

#[test]
fn every_part_ends_with_the_worker() {
    let Some(_alone) = alone("the end of the worker") else { return };
    let mut sidecar = Sidecar::start(often());
    let (all, attached) = (family(sidecar.pid()), attached(sidecar.pid()));
    assert_eq!(all.len(), 4);
    assert_eq!(sidecar.signal(Signal::KILL).0.code(), None);
    assert_nothing_left(&attached, patience(Duration::from_secs(1)));
    all_end(&all);
}

fn all_end(processes: &[u32]) {
    let ended = |process: &u32| Status::of_process(*process).is_none_or(|status| status.text("State").starts_with('Z'));
    wait_for("every part to end", patience(Duration::from_secs(2)), || processes.iter().all(ended).then_some(()));
}

/// Returns duplicates of the Unix sockets of a process, including those to other parts.
fn sockets(process: u32) -> Vec<UnixStream> {
    let handle = pidfd_open(Pid::from_raw(process.cast_signed()).unwrap(), PidfdFlags::empty()).unwrap();
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let numbers = descriptors.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let duplicates = numbers.filter_map(|number| pidfd_getfd(&handle, number, PidfdGetfdFlags::empty()).ok());
    let is_unix = |descriptor: &OwnedFd| socket_domain(descriptor) == Ok(AddressFamily::UNIX);
    duplicates.filter(is_unix).map(UnixStream::from).collect()
}

#[test]
fn malformed_requests_of_a_worker_end_the_loader_in_order() {
    let Some(_alone) = alone("a worker that sends malformed requests") else { return };
    for request in [&[0xff; 64][..], &[5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f], &[1, 0, 0, 0, 0x7f]] {
        let mut sidecar = Sidecar::start(often());
        let (all, attached) = (family(sidecar.pid()), attached(sidecar.pid()));
        let sockets = sockets(sidecar.pid());
        assert!(sockets.len() >= 3, "{sockets:?}");
        // The worker may have closed one.
        sockets.iter().for_each(|mut socket| drop(socket.write_all(request)));
        drop(sockets);
        assert_eq!(sidecar.wait().code(), Some(3));
        let log = sidecar.logs("failed: malformed message");
        assert!(!log.contains("panicked"), "{log}");
        assert_nothing_left(&attached, patience(Duration::from_secs(1)));
        all_end(&all);
    }
}
