//! Reduction of a kernel's BTF to a few structs and functions, for the fixtures.

use std::{collections::HashMap, env, fs, path::Path};

use object::{Object as _, ObjectSection as _};

use super::{
    super::{Btf, Kind, TypeId, function::tracepoint_type, record::Record},
    FUNCTIONS, TRACEPOINTS,
    builder::Builder,
    on_every_kernel, oracle, parse,
};

/// The structs that the fixtures keep with all members; pointees are reduced to names.
const STRUCTS: [&str; 6] = ["sk_buff", "sock", "scm_timestamping_internal", "tcp_skb_cb", "iov_iter", "iovec"];

/// The members of `tcp_sock` that the fixtures keep.
const TCP: &[&str] = &[
    "bytes_received",
    "copied_seq",
    "ooo_last_skb",
    "out_of_order_queue",
    "rcv_nxt",
    "rcv_ooopack",
    "snd_nxt",
    "snd_una",
    "srtt_us",
    "tcp_wstamp_ns",
    "total_retrans",
    "write_seq",
];

/// Structs that the fixtures keep with some members. Empty names are anonymous structs that contain kept members.
const PARTS: [(&str, &[&str]); 22] = [
    ("Qdisc", &["enqueue", "flags"]),
    ("cgroup", &["kn", "root", "subsys"]),
    ("cgroup_root", &["hierarchy_id"]),
    ("cgroup_subsys_state", &["cgroup"]),
    ("css_set", &["subsys"]),
    ("device", &["parent"]),
    ("hrtimer", &["_softexpires"]),
    ("hw_perf_event", &["", "hrtimer"]),
    ("kernfs_node", &["id"]),
    ("msghdr", &["msg_iter"]),
    ("net", &["ns"]),
    ("net_device", &["dev", "ifindex", "name", "nd_net", "qdisc"]),
    ("perf_event", &["hw"]),
    ("pt_regs", &["orig_ax", "sp"]),
    ("sched_entity", &["sum_exec_runtime"]),
    ("skb_shared_info", &["", "gso_segs", "hwtstamps", "tx_flags"]),
    ("socket", &["sk"]),
    ("task_group", &["se"]),
    ("task_struct", &["cgroups", "comm", "flags", "group_leader", "pid", "stack", "tgid", "thread_info"]),
    ("tcp_sock", TCP),
    ("thread_info", &["status"]),
    ("udp_sock", &["reader_queue"]),
];
/// The enumerations that the fixtures keep with their values, if the kernel has them.
const ENUMERATIONS: [&str; 3] = ["cgroup_subsys_id", "skb_drop_reason", "skb_drop_reason_subsys"];

struct Reduction<'b, 'a> {
    from: &'b Btf<'a>,
    to: Builder,
    copied: HashMap<TypeId, TypeId>,
}

impl Reduction<'_, '_> {
    /// Copies a type after the types that it contains.
    fn copy(&mut self, id: TypeId) -> TypeId {
        if id.0 == 0 {
            return id;
        }
        if let Some(copied) = self.copied.get(&id) {
            return *copied;
        }
        let record = self.from.record(id).expect("a sound record");
        let copied = self.copy_record(&record);
        self.copied.insert(id, copied);
        copied
    }

    fn copy_record(&mut self, record: &Record<'_>) -> TypeId {
        let kind = record.kind.expect("a known kind");
        let name = self.name(record);
        let word = |at| record.word(at).expect("a sound record");
        match kind {
            Kind::Int => self.to.add(kind, &name, record.flag, 0, record.size_or_type, &[word(0)]),
            Kind::Array => {
                let (element, index) = (self.copy(TypeId(word(0))), self.copy(TypeId(word(4))));
                self.to.add(kind, "", false, 0, 0, &[element.0, index.0, word(8)])
            }
            Kind::Struct | Kind::Union => {
                let parts = PARTS.iter().find(|(of, _)| *of == name).map(|(_, parts)| *parts);
                let kept = |at: &usize| parts.is_none_or(|parts| parts.contains(&self.string(word(*at))));
                let kept: Vec<usize> = (0..record.rest.len()).step_by(12).filter(kept).collect();
                let members: Vec<u32> = kept
                    .into_iter()
                    .flat_map(|at| [self.copy_string(word(at)), self.copy(TypeId(word(at + 4))).0, word(at + 8)])
                    .collect();
                self.to.add(kind, &name, record.flag, members.len() / 3, record.size_or_type, &members)
            }
            Kind::Prototype => {
                let parameters: Vec<u32> = (0..record.rest.len())
                    .step_by(8)
                    .flat_map(|at| [self.copy_string(word(at)), self.copy(TypeId(word(at + 4))).0])
                    .collect();
                let returned = self.copy(TypeId(record.size_or_type));
                self.to.add(kind, "", false, parameters.len() / 2, returned.0, &parameters)
            }
            Kind::Pointer => {
                let target = self.pointee(TypeId(record.size_or_type));
                self.to.add(kind, "", false, 0, target.0, &[])
            }
            Kind::Function | Kind::Typedef | Kind::Volatile | Kind::Const | Kind::Restrict | Kind::TypeTag => {
                let target = self.copy(TypeId(record.size_or_type));
                self.to.add(kind, &name, record.flag, 0, target.0, &[])
            }
            Kind::Enum if ENUMERATIONS.contains(&name.as_str()) => {
                let values = (0..record.rest.len()).step_by(8);
                let values: Vec<u32> = values.flat_map(|at| [self.copy_string(word(at)), word(at + 4)]).collect();
                self.to.add(kind, &name, record.flag, values.len() / 2, record.size_or_type, &values)
            }
            // Only the sizes of other enumerations matter, not their values.
            Kind::Enum | Kind::Enum64 | Kind::Float | Kind::Forward => {
                self.to.add(kind, &name, record.flag, 0, record.size_or_type, &[])
            }
            Kind::Variable | Kind::DataSection | Kind::DeclarationTag => panic!("{kind} is part of no struct"),
        }
    }

    /// Copies the pointee of a pointer: function prototypes, and structs as forward declarations.
    fn pointee(&mut self, id: TypeId) -> TypeId {
        if id.0 == 0 {
            return id;
        }
        let record = self.from.record(id).expect("a sound record");
        match record.kind {
            Some(Kind::Prototype | Kind::Forward) => self.copy(id),
            Some(kind @ (Kind::Struct | Kind::Union)) if record.name != 0 => {
                let name = self.name(&record);
                self.to.add(Kind::Forward, &name, kind == Kind::Union, 0, 0, &[])
            }
            Some(kind) if kind.is_modifier() => {
                let target = self.pointee(TypeId(record.size_or_type));
                let name = self.name(&record);
                self.to.add(kind, &name, false, 0, target.0, &[])
            }
            _ => TypeId(0),
        }
    }

    fn name(&self, record: &Record<'_>) -> String {
        String::from_utf8(self.from.string(record).expect("a sound name").to_vec()).expect("a name in ASCII")
    }

    fn string(&self, offset: u32) -> &str {
        str::from_utf8(self.from.string_at(offset).expect("a sound name")).expect("a name in ASCII")
    }

    fn copy_string(&mut self, offset: u32) -> u32 {
        let string = self.string(offset).to_owned();
        self.to.string(&string)
    }
}

/// Returns BTF with only the structs and functions of the fixtures.
pub fn reduce(from: &Btf<'_>) -> Vec<u8> {
    let mut reduction = Reduction { from, to: Builder::new(), copied: HashMap::new() };
    let tracepoints = TRACEPOINTS.map(tracepoint_type);
    let roots = STRUCTS
        .iter()
        .chain(PARTS.iter().map(|(name, _)| name))
        .map(|name| (*name, Kind::Struct))
        .chain(
            ENUMERATIONS.iter().map(|name| (*name, Kind::Enum)).filter(|(name, kind)| from.find(name, *kind).is_some()),
        )
        .chain(FUNCTIONS.iter().map(|name| (*name, Kind::Function)))
        .chain(tracepoints.iter().map(|name| (name.as_str(), Kind::Typedef)));
    for (name, kind) in roots {
        let id = from.find(name, kind).unwrap_or_else(|| panic!("the kernel has no {kind} {name}"));
        reduction.copy(id);
    }
    reduction.to.build()
}

#[test]
fn lookups_in_reduced_btf_match_the_full_btf() {
    on_every_kernel(|release, raw| {
        let whole = parse(raw);
        let raw = reduce(&whole);
        let reduced = parse(&raw);
        for name in STRUCTS {
            for member in oracle::member_names(&oracle::types(&raw), name) {
                let expected = whole.member(name, &member).expect("a member of the whole kernel");
                let found = reduced.member(name, &member).expect("a member of the reduced kernel");
                assert_eq!(
                    (found.extent, found.aggregate),
                    (expected.extent, expected.aggregate),
                    "{name}.{member} on {release}"
                );
            }
        }
        let parts = PARTS.iter().flat_map(|(name, members)| members.iter().map(move |member| (name, member)));
        for (name, member) in parts.filter(|(_, member)| !member.is_empty()) {
            let place = |btf: &Btf<'_>| btf.member(name, member).ok().map(|found| found.extent);
            assert_eq!(place(&reduced), place(&whole), "{name}.{member} on {release}");
        }
        for name in ENUMERATIONS {
            assert_eq!(reduced.enumeration(name), whole.enumeration(name), "{name} on {release}");
        }
        for name in FUNCTIONS {
            let parameters = |btf: &Btf<'_>| format!("{:?}", btf.function(name).map(|function| function.parameters));
            assert_eq!(parameters(&reduced), parameters(&whole), "{name} on {release}");
        }
        for name in TRACEPOINTS {
            let parameters = |btf: &Btf<'_>| format!("{:?}", btf.tracepoint(name).map(|found| found.parameters));
            assert_eq!(parameters(&reduced), parameters(&whole), "{name} on {release}");
        }
    });
}

/// Writes the fixtures; `fixtures/btf/README.md` documents the command.
#[test]
#[ignore = "writes the fixtures of the kernels that BTF_FIXTURES names"]
fn write_fixtures() {
    let sources = env::var("BTF_FIXTURES").expect("BTF_FIXTURES=\"RELEASE=VMLINUX_OR_RAW_BTF ...\"");
    for source in sources.split_whitespace() {
        let (release, path) = source.split_once('=').expect("RELEASE=PATH");
        let file = fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let raw = object::File::parse(file.as_slice()).map_or_else(
            |_| file.clone(),
            |elf| elf.section_by_name(".BTF").expect("a .BTF section").data().expect("its bytes").to_vec(),
        );
        let fixture = Path::new(env!("UNDERCURRENT_WORKSPACE")).join(format!("receiver/fixtures/btf/{release}.btf"));
        fs::write(&fixture, reduce(&parse(&raw))).unwrap_or_else(|error| panic!("{}: {error}", fixture.display()));
    }
}
