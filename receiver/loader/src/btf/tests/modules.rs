//! BTF of modules (split BTF).

use std::fs;

use super::{
    super::{Btf, Extent, Kind, TypeId, VMLINUX, read},
    KERNELS,
    builder::Builder,
    parse, running_kernel,
};

#[test]
fn modules_of_the_running_kernel_are_read() {
    let Some(raw) = running_kernel() else { return };
    let kernel = parse(&raw);
    let mut modules = 0;
    for entry in fs::read_dir("/sys/kernel/btf").expect("the directory of the kernel's BTF") {
        let name = entry.expect("a directory entry").file_name();
        let name = name.to_str().expect("modules are named in ASCII");
        if name == VMLINUX {
            continue;
        }
        let raw = read(name).expect("a loaded module");
        let module = Btf::parse_module(&raw, &kernel).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(module.count() > kernel.count(), "{name} adds types");
        modules += 1;
    }
    eprintln!("{modules} modules are loaded");
}

#[test]
fn lookups_in_a_module_include_the_kernel() {
    for kernel in &KERNELS {
        let base = parse(kernel.raw);
        let sk_buff = base.find("sk_buff", Kind::Struct).expect("every kernel has it");

        let mut builder = Builder::after(kernel.raw, base.count());
        let pointer = builder.add(Kind::Pointer, "", false, 0, sk_buff.0, &[]);
        // The kernel's string section contains the name of the second member.
        let members = [("packet".to_owned(), sk_buff, 64)];
        let own = builder.compound(Kind::Struct, "module_state", false, 8, &members);
        let parameter = builder.string("skb");
        let prototype = builder.add(Kind::Prototype, "", false, 1, 0, &[parameter, pointer.0]);
        let function = builder.add(Kind::Function, "module_receive", false, 0, prototype.0, &[]);
        let raw = builder.build();

        let module = Btf::parse_module(&raw, &base).expect("sound BTF");
        assert_eq!(pointer, TypeId(u32::try_from(base.count()).expect("few types")));
        assert_eq!(module.find("module_state", Kind::Struct), Some(own));
        assert_eq!(module.find("sk_buff", Kind::Struct), Some(sk_buff));
        assert_eq!(base.find("module_state", Kind::Struct), None);

        let in_kernel = base.member("sk_buff", "tstamp").expect("every kernel has it");
        let in_module = module.member("module_state", "packet.tstamp").expect("a member of a nested struct");
        let (Extent::Bytes { offset, .. }, Extent::Bytes { offset: further, .. }) =
            (in_kernel.extent, in_module.extent)
        else {
            panic!("a time is no bit-field");
        };
        assert_eq!(further, offset + 8);

        let found = module.function("module_receive").expect("a function of the module");
        assert_eq!(found.id, function);
        assert_eq!(found.parameters[0].name, "skb");
        assert_eq!(found.parameters[0].points_to, Some("sk_buff"));
    }
}

#[test]
fn types_of_a_module_take_precedence() {
    let base = parse(KERNELS[0].raw);
    let mut builder = Builder::after(KERNELS[0].raw, base.count());
    let own = builder.compound(Kind::Struct, "sk_buff", false, 4, &[]);
    let raw = builder.build();
    let module = Btf::parse_module(&raw, &base).expect("sound BTF");
    assert_eq!(module.find("sk_buff", Kind::Struct), Some(own));
}
