//! Requests that the kernel refused, with the reason and the remedy for the user.

use std::io;

use aya::programs::{KProbeError, ProgramError};
use undercurrent_kernel::{
    cpu_events::CpuEvent,
    hooks::{Attachment, Program},
    host::Host,
    refusal::Refusal,
};

use crate::{descriptors, options::AttachKind};

/// `ENOTSUPP`, which the kernel returns for missing trampolines. C libraries do not define it.
const ENOTSUPP: i32 = 524;

/// Returns a refusal that only another kernel, machine or policy would change.
fn incurable(program: &Program<'_>, what: impl Into<String>, cure: impl Into<String>) -> Refusal {
    Refusal { is_curable: false, ..Refusal::new(program.symbol, what, cure) }
}

/// Returns the refusal of a program of a kind that `hooks.avoid` or `--avoid` excludes.
#[must_use]
pub fn avoided(program: &Program<'_>, means: AttachKind) -> Refusal {
    let what = format!("the configuration avoids {}", means.as_str());
    incurable(program, what, "remove it from `hooks.avoid` and `--avoid`")
}

/// Returns the refusal of a kprobe on an architecture without a table of argument registers.
#[must_use]
pub fn unsupported_architecture(program: &Program<'_>) -> Refusal {
    let what = format!("kprobes are supported on x86-64 and arm64, not on {}", std::env::consts::ARCH);
    incurable(program, what, "use another machine")
}

/// Returns the reason why a program could not be loaded or attached.
#[must_use]
pub fn of(program: &Program<'_>, error: &ProgramError, host: &Host) -> Refusal {
    let lacking = lacking(program, host);
    let by_kernel = |what: String, error: &io::Error| {
        let (cure, is_curable) = cure(error, &lacking, host);
        Refusal { is_curable, ..Refusal::new(program.symbol, what, cure) }
    };
    match error {
        ProgramError::Btf(_) => incurable(
            program,
            "this kernel has no function or tracepoint of that name (inlined, not built, or in a module)",
            "use a kernel that has the function",
        ),
        ProgramError::LoadError { io_error, verifier_log } => {
            let log = verifier_log.to_string();
            tracing::debug!(program = program.symbol, "verifier log:\n{log}");
            match verdict(&log) {
                Some(reason) if lacking.is_empty() && log.lines().any(has_fewer_arguments) => incurable(
                    program,
                    format!("load: {} has fewer arguments on this kernel: {reason}", program.target),
                    "use a newer kernel",
                ),
                Some(reason) if lacking.is_empty() => {
                    Refusal::new(program.symbol, format!("load: the verifier rejected the program: {reason}"), REPORT)
                }
                _ => by_kernel(format!("load: {}", message(io_error)), io_error),
            }
        }
        ProgramError::SyscallError(error) if lacks_counter(program, &error.io_error) => {
            incurable(program, format!("attach to {}: {NO_COUNTER}", program.target), NO_COUNTER_CURE)
        }
        ProgramError::SyscallError(error) => {
            by_kernel(format!("attach to {}: {}", program.target, message(&error.io_error)), &error.io_error)
        }
        ProgramError::IOError(error) => by_kernel(format!("attach to {}: {error}", program.target), error),
        ProgramError::KProbeError(KProbeError::FileError { filename, io_error }) => Refusal {
            // The kernel has the file if it has kprobes and /sys is mounted.
            is_curable: !std::path::Path::new("/sys/kernel").exists(),
            ..Refusal::new(
                program.symbol,
                format!("attach: {}: {io_error}", filename.display()),
                "mount /sys; if it is mounted, use a kernel with kprobes (CONFIG_KPROBE_EVENTS=y)",
            )
        },
        other => Refusal::new(program.symbol, other.to_string(), REPORT),
    }
}

const REPORT: &str = "report it together with the output of `undercurrent doctor --json`";

const NO_COUNTER: &str = "this machine has no cycle counter that interrupts (many virtual machines have none)";
const NO_COUNTER_CURE: &str = "set `signals.network_functions.source: auto`, or give the virtual machine a PMU";

/// Returns true for the errors of a processor without the counter: no PMU has the event, or it cannot interrupt.
fn lacks_counter(program: &Program<'_>, error: &io::Error) -> bool {
    program.attachment == Attachment::CpuEvent(CpuEvent::Cycles)
        && matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP))
}

/// Returns the error message. The C library has none for `ENOTSUPP`.
fn message(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(ENOTSUPP) => format!("Operation not supported by this kernel (os error {ENOTSUPP})"),
        _ => error.to_string(),
    }
}

/// Returns the capabilities that this kind of program needs and this process lacks.
fn lacking<'a>(program: &Program<'_>, host: &'a Host) -> Vec<&'a str> {
    let of_the_other_kind = match program.attachment {
        Attachment::CgroupIngress | Attachment::CgroupSocket | Attachment::CgroupRead => "CAP_PERFMON",
        Attachment::Fentry
        | Attachment::Fexit
        | Attachment::Kprobe
        | Attachment::Kretprobe
        | Attachment::Tracepoint
        | Attachment::CpuEvent(_) => "CAP_NET_ADMIN",
    };
    host.missing_capabilities.iter().map(String::as_str).filter(|missing| *missing != of_the_other_kind).collect()
}

/// Returns the remedy for an error of the kernel, and true if the remedy applies on this machine.
fn cure(error: &io::Error, lacking: &[&str], host: &Host) -> (String, bool) {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if !lacking.is_empty() => {
            (format!("grant {} (or run as root)", lacking.join(", ")), true)
        }
        Some(libc::EPERM | libc::EACCES) if host.lockdown.as_deref().is_some_and(|mode| mode == "confidentiality") => (
            "kernel lockdown forbids BPF reads of kernel memory: boot without lockdown=confidentiality".to_owned(),
            true,
        ),
        Some(libc::EPERM) => ("allow this kind of program in the security policy of this host".to_owned(), false),
        Some(libc::ENOENT) => ("use a kernel that has the target".to_owned(), false),
        Some(ENOTSUPP | libc::EOPNOTSUPP) => {
            ("use an architecture and a kernel with BPF trampolines".to_owned(), false)
        }
        Some(libc::EMFILE | libc::ENFILE) => (descriptors::REMEDY.to_owned(), true),
        Some(libc::ENOMEM | libc::E2BIG) => {
            ("raise the memory limit (`ulimit -l unlimited`) or lower `memory_limit`".to_owned(), true)
        }
        _ => (REPORT.to_owned(), true),
    }
}

/// Returns the verifier's reason: the last line of the log that is not a statistic. `None` if the verifier did not run.
fn verdict(log: &str) -> Option<&str> {
    log.lines().rev().map(str::trim).find(|line| !line.is_empty() && !is_statistics(line))
}

/// Returns true for the verifier's message about a missing argument of a function or tracepoint (`btf_ctx_access`).
fn has_fewer_arguments(line: &str) -> bool {
    line.starts_with("func '") && line.ends_with("-th argument")
}

/// Returns true for a statistic at the end of the verifier's log (`print_verification_stats`, 4.15 to 7.2).
fn is_statistics(line: &str) -> bool {
    ["processed ", "stack depth ", "verification time ", "insns processed ", "subprog "].iter().any(|beginning| {
        line.strip_prefix(beginning).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use aya::sys::SyscallError;
    use aya_obj::VerifierLog;

    use super::*;
    use undercurrent_kernel::{
        hooks::{IP, TRANSPORT, on_every_cpu},
        host::Cgroup,
    };

    /// The end of the log of 5.10 for a one-byte load at a pointer's offset.
    const LOG_5_10: &str = "\
regs=8 stack=0 before 16: (61) r3 = *(u32 *)(r2 +0)
;\x20
21: (71) r2 = *(u8 *)(r4 +0)
cannot access ptr member next with moff 0 in struct (anon) with off 0 size 1
verification time 22910 usec
stack depth 12
processed 19 insns (limit 1000000) max_states_per_insn 0 total_states 1 peak_states 1 mark_read 1
";

    /// The log of 5.10 for a read of the third of two arguments.
    const LOG_ARGUMENTS: &str = "\
2: (79) r6 = *(u64 *)(r7 +16)
func 'kfree_skb' doesn't have 3-th argument
invalid bpf_context access off=16 size=8
processed 3 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0
";

    fn host(missing: &[&str], lockdown: Option<&str>) -> Host {
        Host {
            release: "6.1.0".to_owned(),
            btf: true,
            lockdown: lockdown.map(str::to_owned),
            missing_capabilities: missing.iter().map(|capability| (*capability).to_owned()).collect(),
            cgroup: Cgroup::V2,
            cgroup_root: Some(PathBuf::from("/sys/fs/cgroup")),
            hierarchy: None,
            clocksource: Some("tsc".to_owned()),
            cpus: 2,
            preempt_rt: false,
            threaded_napi: Vec::new(),
            meters: undercurrent_host::sysfs::Meters::default(),
        }
    }

    fn load(errno: i32, log: &str, host: &Host) -> String {
        let error = ProgramError::LoadError {
            io_error: io::Error::from_raw_os_error(errno),
            verifier_log: VerifierLog::new(log.to_owned()),
        };
        let refusal = of(&IP.alternates[0].programs[0], &error, host);
        format!("{}: {}\n    {}", refusal.program, refusal.what, refusal.cure)
    }

    #[test]
    fn verdict_skips_the_statistics_at_the_end_of_the_log() {
        assert_eq!(
            verdict(LOG_5_10),
            Some("cannot access ptr member next with moff 0 in struct (anon) with off 0 size 1")
        );
        assert_eq!(verdict("verification time 5 usec\nstack depth 0\nprocessed 0 insns (limit 1000000)\n\n"), None);
        assert_eq!(verdict("processed packets are no number\n"), Some("processed packets are no number"));
        assert_eq!(verdict(""), None);
    }

    #[test]
    fn every_refusal_names_a_remedy() {
        let (whole, poor) = (host(&[], None), host(&["CAP_BPF", "CAP_PERFMON"], None));
        let locked = host(&[], Some("confidentiality"));
        let texts = [
            load(libc::EACCES, LOG_5_10, &whole),
            load(libc::EACCES, LOG_ARGUMENTS, &whole),
            load(libc::EPERM, "", &whole),
            load(libc::EPERM, "", &poor),
            load(libc::EPERM, "", &locked),
            load(ENOTSUPP, "", &whole),
            load(libc::ENOMEM, "", &whole),
        ];
        insta::assert_snapshot!(texts.join("\n"));
    }

    #[test]
    fn remedy_names_only_capabilities_that_the_program_needs() {
        let without_network = host(&["CAP_NET_ADMIN"], None);
        assert!(!load(libc::EPERM, "", &without_network).contains("CAP_NET_ADMIN"));
        assert_eq!(lacking(&TRANSPORT.alternates[0].programs[0], &without_network), ["CAP_NET_ADMIN"]);
    }

    #[test]
    fn a_missing_counter_names_the_other_source() {
        let refused = |errno| {
            let io_error = io::Error::from_raw_os_error(errno);
            let error = ProgramError::SyscallError(SyscallError { call: "perf_event_open", io_error });
            of(&on_every_cpu(CpuEvent::Cycles, "cpu-cycles"), &error, &host(&[], None))
        };
        for errno in [libc::ENOENT, libc::EOPNOTSUPP] {
            let refusal = refused(errno);
            assert!(refusal.what.contains("no cycle counter") && refusal.cure.contains("source: auto"), "{refusal:?}");
        }
        assert!(!refused(libc::EACCES).what.contains("no cycle counter"));
    }

    #[test]
    fn attach_errors_name_the_target() {
        let error = ProgramError::IOError(io::Error::from_raw_os_error(libc::ENOENT));
        let program = &TRANSPORT.alternates[0].programs[0];
        let refusal = of(program, &error, &host(&[], None));
        insta::assert_snapshot!(format!("{}\n{}", refusal.what, refusal.cure));
    }
}
