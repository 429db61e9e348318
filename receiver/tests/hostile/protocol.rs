//! Requests of a worker that somebody has taken over, to the real loader and reader.

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{fd::BorrowedFd, unix::fs::PermissionsExt as _},
    time::Duration,
};

use rustix::{
    net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, sockopt::socket_domain},
    process::{WaitOptions, wait},
};
use undercurrent::{
    channel::LONGEST_REQUEST,
    config::{File, Flags, Settings},
    files::FileIdentity,
    parts::{Access, Part, Program, Reach},
    reader::{Exchange, FindProcess, FindSockets, Inode, Open, PowerMeters, Query, message::EXCHANGE},
    requirements::{self, Requirements},
};

use crate::support::{
    player::{self, Player},
    runtime::{Runtime, container, with_private_run},
    sidecar::BINARY,
    surroundings::{alone, skip},
};

/// A worker that its attacker controls.
pub const ROLE: &str = "fallen";
/// The only certificate that the configuration names.
const CERTIFICATE: &str = "/run/certificate.pem";
/// The variable with the only socket that the configuration names.
const NAMED: &str = "UNDERCURRENT_TEST_SOCKET";

/// Starts the parts, becomes the worker, and then sends requests of the attacker. It forks first, because the test harness has
/// several threads and the first process has one.
pub fn play() {
    // SAFETY: no other thread holds a lock, because the harness waits for this thread.
    if unsafe { libc::fork() } != 0 {
        let _ = wait(WaitOptions::empty());
        return;
    }
    let socket = std::env::var(NAMED).unwrap();
    let text = format!("workloads: {{sockets: ['{socket}'], kubernetes: false}}\noutputs: [json]\n");
    let file = File::parse("config.yaml".as_ref(), text.as_bytes()).unwrap();
    let (settings, _) = Settings::resolve(Flags::default(), &|_| None, file);
    let (host, _) = requirements::host().unwrap();
    let requirements = Requirements::new(&settings, host.ownership()).readable(vec![CERTIFICATE.into()]);
    let identity = FileIdentity::from_file(&fs::File::open("/dev/null").unwrap()).unwrap();
    let access = Access::gain(&Program::open(BINARY.as_ref()).unwrap(), host, &requirements).unwrap();
    Part::Worker.confine(&Reach::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let foreign = access.reader.foreign();
    player::serve(|request| {
        let (verb, rest) = request.split_once(' ').unwrap_or((request, ""));
        runtime.block_on(async {
            match verb {
                "find" => format!("{:?}", foreign.call(FindSockets {}).await.map(|(found, _)| found.endpoints.len())),
                "inspect" => {
                    let (path, id) = rest.split_once(' ').unwrap();
                    let query = Query::InspectContainer(id.replace("CRLF", "\r\n"));
                    match foreign.call(Exchange { path: path.into(), query }).await {
                        Ok((Ok(reply), descriptors)) => {
                            format!("{} bytes, {} descriptors", reply.len().min(1), descriptors.len())
                        }
                        Ok((Err(error), _)) => format!("{error:?}"),
                        Err(error) => error.to_string(),
                    }
                }
                "open" => match foreign.call(Open { index: 0, identity }).await {
                    Ok((_, descriptors)) => format!("{} descriptors", descriptors.len()),
                    Err(error) => error.to_string(),
                },
                "certificate" => match foreign.open_or_connect(rest.into()).await {
                    Ok(descriptor) => io::read_to_string(fs::File::from(descriptor)).unwrap(),
                    Err(error) => error.to_string(),
                },
                "process" => format!("{:?}", access.reader.files(FindProcess { path: rest.into() }).is_ok()),
                "namespace" => format!("{:?}", access.reader.files(Inode { index: rest.parse().unwrap() }).is_ok()),
                "meters" => {
                    let meters = PowerMeters::through(access.reader.clone());
                    format!("{:?}", [(); 3].map(|()| meters.read().is_ok()))
                }
                "replace" => {
                    format!("{:?}", access.reader.files(FindProcess { path: vec![0; LONGEST_REQUEST] }).is_ok())
                }
                "pass" => format!("{:?}", pass_descriptors()),
                other => panic!("no request has the name {other}"),
            }
        })
    });
    std::process::exit(0);
}

/// Sends a descriptor through each Unix socket of this process. Returns the kinds of the errors.
fn pass_descriptors() -> BTreeSet<String> {
    let numbers = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let numbers: Vec<i32> = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let pass = |number: i32| {
        // SAFETY: nothing closes the descriptor during the call; a closed one is an error of the kernel.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        if socket_domain(socket) != Ok(AddressFamily::UNIX) {
            return None;
        }
        let (mut space, passed) = ([MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))], [socket]);
        let mut rights = SendAncillaryBuffer::new(&mut space);
        assert!(rights.push(SendAncillaryMessage::ScmRights(&passed)));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = sendmsg(socket, &[IoSlice::new(&[0])], &mut rights, flags).map_err(io::Error::from);
        Some(sent.map_or_else(|error| format!("{:?}", error.kind()), |_| "passed".to_owned()))
    };
    numbers.into_iter().filter_map(pass).collect()
}

#[test]
fn a_fallen_worker_reads_nothing_beside_the_places_of_the_configuration() {
    let Some(_alone) = alone("paths of a fallen worker") else { return };
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("cgroup.procs"), "1\n").unwrap();
    with_private_run(|| {
        let mut fallen = Player::start(ROLE, &[], &[(NAMED, "/run/named.sock")]);
        assert_eq!(fallen.ask("process /"), "true");
        let up = "/..".repeat(8);
        assert_eq!(fallen.ask(&format!("process {up}{}", outside.path().display())), "false");
        assert_eq!(fallen.ask("namespace 0"), "false");
        for name in [CERTIFICATE, "/run/secret.pem"] {
            fs::write(name, "text").unwrap();
            fs::set_permissions(name, Permissions::from_mode(0o600)).unwrap();
        }
        assert_eq!(fallen.ask(&format!("certificate {CERTIFICATE}")), "text");
        for other in ["/run/secret.pem", "/run/../run/certificate.pem", "/etc/shadow"] {
            let refusal = fallen.ask(&format!("certificate {other}"));
            assert!(
                refusal.contains("permission denied") || refusal.contains("Permission denied"),
                "{other}: {refusal}"
            );
        }
        assert_eq!(fallen.ask("meters"), "[true, false, false]");
        // Too long a request ends the reader.
        assert_eq!(fallen.ask("replace"), "false");
        assert_eq!(fallen.ask("process /"), "false");
    });
}

#[test]
fn a_fallen_worker_passes_no_descriptor_to_other_parts() {
    let Some(_alone) = alone("descriptors of a fallen worker") else { return };
    with_private_run(|| {
        let mut fallen = Player::start(ROLE, &[], &[(NAMED, "/run/named.sock")]);
        let outcomes = fallen.ask("pass");
        if outcomes.contains("passed") {
            return skip(
                "descriptors of a fallen worker: this kernel lacks SO_PASSRIGHTS (Linux 6.16), the parts refuse them",
            );
        }
        assert!(outcomes.contains("PermissionDenied"), "{outcomes}");
    });
}

#[test]
fn a_fallen_worker_gets_no_connection_to_a_socket() {
    let Some(_alone) = alone("requests of a fallen worker") else { return };
    with_private_run(|| {
        fs::create_dir_all("/run/secret").unwrap();
        fs::set_permissions("/run/secret", Permissions::from_mode(0o700)).unwrap();
        let secret = Runtime::listen("/run/secret/root.sock", 0, |path| Some(container(path, "secret")));
        let usual = Runtime::listen("/run/docker.sock", 0, |path| Some(container(path, "usual")));
        let named = Runtime::listen("/run/named.sock", 0, |path| Some(container(path, "named")));
        let mut fallen = Player::start(ROLE, &[], &[(NAMED, "/run/named.sock")]);
        assert_eq!(fallen.ask("find"), "Ok(1)");
        let id = "0a".repeat(32);
        // A socket that the configuration does not name, also if it has a usual path, and other spellings of its path.
        for path in ["/run/secret/root.sock", "/run/docker.sock", "/run/named.sock/../docker.sock"] {
            assert_eq!(fallen.ask(&format!("inspect {path} {id}")), "Refused(Path)", "{path}");
        }
        // The id cannot change the request.
        for id in ["../../info", "x/../../version?", "xCRLFHost:", "aCRLFCRLFPOST"] {
            let reply = fallen.ask(&format!("inspect /run/named.sock {id}"));
            assert!(reply.starts_with("Other("), "{id}: {reply}");
        }
        // The reply is bytes, and no descriptor comes with them.
        assert_eq!(fallen.ask(&format!("inspect /run/named.sock {id}")), "1 bytes, 0 descriptors");
        assert_eq!(named.requests(), [format!("/containers/{id}/json")]);
        assert_eq!([secret.requests(), usual.requests()], [Vec::<String>::new(), Vec::new()]);
        // The worker names an output by its index, and there is none.
        assert!(!fallen.ask("open").contains("descriptors"));
    });
}

#[test]
fn a_runtime_that_does_not_reply_costs_one_thread_for_a_short_time() {
    let Some(_alone) = alone("a silent runtime") else { return };
    with_private_run(|| {
        let _named = Runtime::listen("/run/named.sock", 0, |_| None);
        let mut fallen = Player::start(ROLE, &[], &[(NAMED, "/run/named.sock")]);
        let begun = std::time::Instant::now();
        let reply = fallen.ask(&format!("inspect /run/named.sock {}", "0a".repeat(32)));
        assert!(reply.contains("timed out") || reply == format!("Kernel({})", libc::ETIMEDOUT), "{reply}");
        assert!(begun.elapsed() < EXCHANGE + Duration::from_secs(60), "{:?}", begun.elapsed());
    });
}
