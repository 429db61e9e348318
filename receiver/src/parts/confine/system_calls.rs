//! The system calls that each part may make (seccomp). All other calls fail with `ENOSYS`, the error of kernels that
//! lack a call, so that libraries fall back to older calls.

mod lists;

use std::{collections::BTreeMap, env::consts::ARCH};

use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Is,
    SeccompCondition as Condition, SeccompFilter, SeccompRule as Rule, apply_filter,
};

use self::lists::{
    ALLOWED, ATTRIBUTES, COMMANDS, FAMILIES, FORKS, MODES, OF_EVENTS, OF_LOADER, OF_PRIVILEGES, OF_RESOLVER,
    OF_SUPERVISOR, OLDER, REQUESTS,
};
use super::{
    Part, Reach,
    users::{LOADER, READER},
};

/// The flags of `clone` that create namespaces, from `include/uapi/linux/sched.h`.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;
/// The access mode in the flags of `open`. musl's `O_ACCMODE` has another flag too: `O_PATH`.
const ACCESS: libc::c_int = 0o3;
/// The kind in the second argument of `socket`, whose other bits are flags (`SOCK_TYPE_MASK` of `include/linux/net.h`).
const KIND: u64 = 0xf;

type Rules = BTreeMap<i64, Vec<Rule>>;

/// Restricts this thread and all threads that it starts.
pub(super) fn restrict(part: Part, reach: &Reach) -> Result<(), Error> {
    apply_filter(&program(rules(part, reach)?)?)
}

/// Restricts the supervisor to the system calls of readers and of their start.
pub(super) fn restrict_supervisor_to_readers(reach: &Reach) -> Result<(), Error> {
    let mut rules = rules(Part::Reader, reach)?;
    rules.extend(of_supervisor()?);
    apply_filter(&program(rules)?)
}

fn program(rules: Rules) -> Result<BpfProgram, Error> {
    let (allow, refuse) = (SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32));
    Ok(SeccompFilter::new(rules, refuse, allow, ARCH.try_into()?)?.try_into()?)
}

/// Returns the allowed calls and the rules for their arguments. An empty list of rules allows all arguments.
fn rules(part: Part, reach: &Reach) -> Result<Rules, BackendError> {
    let mut rules: Rules = ALLOWED.iter().chain(OLDER).map(|call| (*call, Vec::new())).collect();
    rules.extend(of_memory()?);
    rules.extend(of_files(matches!(part, Part::Supervisor | Part::Writer) && !reach.outputs.is_empty())?);
    rules.insert(libc::SYS_tgkill, vec![only(0, std::process::id().into())?]);
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
    rules.insert(libc::SYS_clone, vec![masked(0, libc::CLONE_THREAD as u64, libc::CLONE_THREAD as u64)?]);
    match part {
        Part::Worker => {
            let notification = reach.notifies.then_some(libc::AF_UNIX);
            let families = FAMILIES.into_iter().chain(notification).map(|family| family as u64);
            rules.insert(libc::SYS_socket, among(0, families)?);
            // Without `listen`, the call works on the endpoints of the first process only.
            if reach.listens {
                rules.insert(libc::SYS_accept4, Vec::new());
            }
            rules.extend(OF_RESOLVER.iter().map(|call| (*call, Vec::new())));
            if reach.draws {
                rules.entry(libc::SYS_ioctl).or_default().extend(of_terminal()?);
            }
        }
        Part::Reader => drop(rules.insert(libc::SYS_socket, among(0, [libc::AF_UNIX as u64])?)),
        Part::Loader => rules.extend(of_loader()?),
        Part::Writer => {}
        Part::Supervisor => {
            rules.extend(of_loader()?);
            rules.entry(libc::SYS_socket).or_default().push(only(0, libc::AF_UNIX as u64)?);
            rules.extend(of_supervisor()?);
        }
    }
    Ok(rules)
}

/// Memory is never writable and executable. The loader of libraries maps files as executable; they cannot change.
fn of_memory() -> Result<Rules, BackendError> {
    let without = |right: libc::c_int| masked(2, right as u64, 0);
    Ok(BTreeMap::from([
        (libc::SYS_mmap, vec![without(libc::PROT_WRITE)?, without(libc::PROT_EXEC)?]),
        (libc::SYS_mprotect, vec![without(libc::PROT_EXEC)?]),
    ]))
}

/// Files are opened for reading. With `appends` they are also opened or created for appending.
fn of_files(appends: bool) -> Result<Rules, BackendError> {
    let flags = |argument: u8| {
        let reads = masked(argument, (ACCESS | libc::O_CREAT | libc::O_TRUNC) as u64, libc::O_RDONLY as u64)?;
        let append = libc::O_WRONLY | libc::O_APPEND;
        let adds = masked(argument, (ACCESS | libc::O_APPEND | libc::O_TRUNC) as u64, append as u64)?;
        Ok::<_, BackendError>(if appends { vec![reads, adds] } else { vec![reads] })
    };
    let mut rules = BTreeMap::from([(libc::SYS_openat, flags(2)?)]);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, flags(1)?);
    Ok(rules)
}

/// The screen sets the modes of the terminal on standard input. Other terminals keep theirs, and no request injects input.
fn of_terminal() -> Result<Vec<Rule>, BackendError> {
    let rule = |request: libc::Ioctl| {
        let input = Condition::new(0, Length::Dword, Is::Eq, libc::STDIN_FILENO as u64)?;
        Rule::new(vec![input, Condition::new(1, Length::Dword, Is::Eq, u64::from(request as u32))?])
    };
    MODES.map(rule).into_iter().collect()
}

/// The loader also creates programs and perf events.
fn of_loader() -> Result<Rules, BackendError> {
    let mut rules: Rules = OF_LOADER.iter().map(|call| (*call, Vec::new())).collect();
    let requests = REQUESTS.into_iter().chain(OF_EVENTS).map(|request| request as u32 as u64);
    rules.insert(libc::SYS_bpf, among(0, COMMANDS)?);
    rules.insert(libc::SYS_ioctl, among(1, requests)?);
    let datagram = [
        Condition::new(0, Length::Dword, Is::Eq, libc::AF_INET as u64)?,
        Condition::new(1, Length::Dword, Is::MaskedEq(KIND), libc::SOCK_DGRAM as u64)?,
    ];
    // For requests about NICs. By a Unix socket, the loader could start containers with the files of the host.
    rules.insert(libc::SYS_socket, vec![Rule::new(datagram.to_vec())?]);
    Ok(rules)
}

/// The supervisor also creates processes, which execute the program and change their user. They inherit this filter, so it allows the calls
/// of the other parts too.
fn of_supervisor() -> Result<Rules, BackendError> {
    let mut rules: Rules = OF_SUPERVISOR.iter().chain(FORKS).map(|call| (*call, Vec::new())).collect();
    let options = ATTRIBUTES.into_iter().chain(OF_PRIVILEGES).map(|option| option as u64);
    rules.insert(libc::SYS_prctl, among(0, options)?);
    rules.insert(libc::SYS_clone, vec![masked(0, NAMESPACES, 0)?]);
    rules.insert(libc::SYS_execveat, vec![only(4, libc::AT_EMPTY_PATH as u64)?]);
    // To the users of these parts, and without supplementary groups.
    let changes = [LOADER, READER].map(|user| all_are(user.into())).into_iter().collect::<Result<Vec<_>, _>>()?;
    rules.insert(libc::SYS_setresuid, changes.clone());
    rules.insert(libc::SYS_setresgid, changes);
    rules.insert(libc::SYS_setgroups, vec![only(0, 0)?]);
    Ok(rules)
}

fn only(argument: u8, value: u64) -> Result<Rule, BackendError> {
    Rule::new(vec![Condition::new(argument, Length::Dword, Is::Eq, value)?])
}

/// The first three arguments have one value.
fn all_are(value: u64) -> Result<Rule, BackendError> {
    let is = |argument| Condition::new(argument, Length::Dword, Is::Eq, value);
    Rule::new(vec![is(0)?, is(1)?, is(2)?])
}

fn masked(argument: u8, mask: u64, value: u64) -> Result<Rule, BackendError> {
    Rule::new(vec![Condition::new(argument, Length::Qword, Is::MaskedEq(mask), value)?])
}

fn among(argument: u8, values: impl IntoIterator<Item = u64>) -> Result<Vec<Rule>, BackendError> {
    values.into_iter().map(|value| only(argument, value)).collect()
}
