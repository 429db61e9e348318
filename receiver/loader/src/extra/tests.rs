use undercurrent_kernel::plan::Status;

use super::*;
use crate::btf::{
    Kind,
    tests::{KERNELS, builder::Builder},
};

/// The symbols of a kernel with an unreadable /proc/kallsyms.
fn unreadable() -> Symbols {
    Symbols::default()
}

fn symbols(lines: &str, function: &str) -> Symbols {
    Symbols::of(lines.as_bytes(), &[function.to_owned()]).expect("text")
}

fn placed(packet: u32, socket: Option<u32>) -> Result<Place, Absence> {
    Ok(Place { packet, socket, module: None })
}

#[test]
fn packets_and_sockets_are_found_among_the_arguments() {
    for kernel in &KERNELS {
        let types = Btf::parse(kernel.raw).expect("sound BTF");
        let found = |name: &str| find_one(&types, name, &unreadable());
        assert_eq!(found("ip_rcv_core"), placed(0, None), "{}", kernel.release);
        assert_eq!(found("tcp_queue_rcv"), placed(1, Some(0)), "{}", kernel.release);
        assert_eq!(found("__udp_enqueue_schedule_skb"), placed(1, Some(0)), "{}", kernel.release);
        assert_eq!(found("tcp_recv_timestamp"), Err(Absence::NoPacket), "{}", kernel.release);
        let misspelt = Err(Absence::Unknown { nearest: Some("ip_rcv_core".to_owned()) });
        assert_eq!(found("ip_rcv_cor"), misspelt, "{}", kernel.release);
        assert_eq!(found("xyz"), Err(Absence::Unknown { nearest: None }), "{}", kernel.release);
        // The most similar function takes no packet.
        assert!(!found("sock_recvmsgs").unwrap_err().to_string().contains("`sock_recvmsg`"), "{}", kernel.release);
    }
}

#[test]
fn symbols_detect_duplicate_and_inlined_functions() {
    let types = Btf::parse(KERNELS[1].raw).expect("sound BTF");
    let with = |lines: &str| find_one(&types, "ip_rcv_core", &symbols(lines, "ip_rcv_core"));
    let one = "ffffffff81a00000 t ip_rcv_core\nffffffff81a00100 T ip_rcv\n";
    assert_eq!(with(one), placed(0, None));
    assert_eq!(
        with("0000000000000000 t ip_rcv_core\n0000000000000000 t ip_rcv_core\t[other]\n"),
        Err(Absence::Several(2))
    );
    assert_eq!(with("0000000000000000 d ip_rcv_core\n"), Err(Absence::NoCode { variant: None }));
    let variant = Some("ip_rcv_core.isra.0".to_owned());
    assert_eq!(with("0000000000000000 t ip_rcv_core.isra.0\n"), Err(Absence::NoCode { variant }));
}

/// BTF with `copies` functions. An argument is a pointer to the named struct; a number is a struct of that size, passed
/// by value.
fn kernel_with(copies: usize, arguments: &[&str]) -> Vec<u8> {
    let mut builder = Builder::new();
    let mut words = Vec::new();
    for argument in arguments {
        let size = argument.parse().ok();
        let target = builder.compound(Kind::Struct, argument, false, size.unwrap_or(4), &[]);
        let id = if size.is_some() { target } else { builder.add(Kind::Pointer, "", false, 0, target.0, &[]) };
        words.extend([0, id.0]);
    }
    let prototype = builder.add(Kind::Prototype, "", false, arguments.len(), 0, &words);
    for _ in 0..copies {
        builder.add(Kind::Function, "receive", false, 0, prototype.0, &[]);
    }
    builder.build()
}

fn found_in(copies: usize, arguments: &[&str]) -> Result<Place, Absence> {
    let raw = kernel_with(copies, arguments);
    find_one(&Btf::parse(&raw).expect("sound BTF"), "receive", &unreadable())
}

#[test]
fn packet_argument_must_be_in_a_register() {
    assert_eq!(found_in(1, &["net", "sock", "sk_buff", "sk_buff"]), placed(2, Some(1)));
    assert_eq!(found_in(1, &["8", "sk_buff"]), placed(1, None));
    assert_eq!(found_in(1, &["16", "sk_buff"]), Err(Absence::OutOfReach));
    assert_eq!(found_in(1, &["sk_buff", "16", "sock"]), placed(0, None), "a socket after a struct is not found");
    assert_eq!(found_in(1, &["a", "b", "c", "d", "e", "sk_buff"]), placed(5, None));
    assert_eq!(found_in(1, &["a", "b", "c", "d", "e", "f", "sk_buff"]), Err(Absence::OutOfReach));
    assert_eq!(found_in(1, &[]), Err(Absence::NoPacket));
    assert_eq!(found_in(2, &["sk_buff"]), Err(Absence::Several(2)));
}

/// A kernel that accepts and records all programs.
#[derive(Default)]
struct Recording(Vec<(&'static str, String)>);

impl Attach for Recording {
    fn attach(&mut self, program: &Program<'_>) -> Result<(), Refusal> {
        self.0.push((program.symbol, program.target.to_owned()));
        Ok(())
    }

    fn detach(&mut self, _: &Program<'_>) {}
}

/// A kernel that accepts only kprobes, or no programs.
struct Refusing {
    probes: bool,
}

impl Attach for Refusing {
    fn attach(&mut self, program: &Program<'_>) -> Result<(), Refusal> {
        if self.probes && program.attachment == Attachment::Kprobe {
            return Ok(());
        }
        Err(Refusal::new(program.symbol, "no", "none"))
    }

    fn detach(&mut self, _: &Program<'_>) {}
}

#[test]
fn each_layer_attaches_a_different_program() {
    let mut kernel = Recording::default();
    for number in 0..LAYERS {
        let named = Named { function: format!("function_{number}"), found: placed(0, None) };
        let outcome = serve(&mut kernel, number, &named);
        assert_eq!((outcome.hook.as_ref(), outcome.status), (named.function.as_str(), Status::Healthy));
    }
    let expected = PROGRAMS.iter().enumerate().map(|(number, [entry, _])| (*entry, format!("function_{number}")));
    assert_eq!(kernel.0, expected.collect::<Vec<_>>());
}

#[test]
fn unusable_functions_are_reported_with_reason_and_remedy() {
    let refused = [
        Absence::Unknown { nearest: Some("ip_rcv_finish".to_owned()) },
        Absence::Unknown { nearest: None },
        Absence::Untyped { module: Some("bridge".to_owned()) },
        Absence::Untyped { module: None },
        Absence::NoCode { variant: Some("f.part.0".to_owned()) },
        Absence::NoCode { variant: None },
        Absence::Several(2),
        Absence::NoPacket,
        Absence::OutOfReach,
    ];
    let mut texts = Vec::new();
    for absence in refused {
        let mut kernel = Recording::default();
        let outcome = serve(&mut kernel, 0, &Named { function: "f".to_owned(), found: Err(absence) });
        assert_eq!((outcome.status, kernel.0.len(), outcome.refusals.len()), (Status::Unavailable, 0, 1));
        let Refusal { program, what, cure, .. } = &outcome.refusals[0];
        texts.push(format!("{program}: {what}\n    {cure}"));
    }
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn refusals_name_the_function_instead_of_the_program() {
    let mut kernel = Refusing { probes: false };
    let outcome = serve(&mut kernel, 3, &Named { function: "ip_rcv".to_owned(), found: placed(0, None) });
    assert_eq!((outcome.status, outcome.refusals.len()), (Status::Unavailable, 2));
    assert!(outcome.refusals.iter().all(|refusal| refusal.program == "ip_rcv" && refusal.what == "no"));
}

#[test]
fn kprobes_serve_module_functions_and_replace_refused_fentry() {
    let serve = |kernel: &mut Refusing, found: Place| {
        let outcome = serve(kernel, 2, &Named { function: "f".to_owned(), found: Ok(found) });
        (outcome.status, outcome.by.unwrap_or_default(), outcome.programs, outcome.refusals.len())
    };
    let mut kernel = Refusing { probes: true };
    let place = Place { packet: 1, socket: None, module: None };
    let probed: Vec<std::borrow::Cow<'static, str>> = vec!["extra_2_probe".into()];
    assert_eq!(serve(&mut kernel, place.clone()), (Status::Healthy, "kprobe".into(), probed.clone(), 1));
    let in_module = Place { module: Some("bridge".to_owned()), ..place.clone() };
    assert_eq!(serve(&mut kernel, in_module), (Status::Healthy, "kprobe".into(), probed.clone(), 0));
    let with_socket = Place { socket: Some(0), ..place };
    assert_eq!(serve(&mut kernel, with_socket), (Status::Degraded, "kprobe".into(), probed, 1));
}

#[test]
fn functions_of_modules_need_the_btf_of_the_module() {
    let types = Btf::parse(KERNELS[1].raw).expect("sound BTF");
    let with = |lines: &str| find_one(&types, "br_forward", &symbols(lines, "br_forward"));
    let module = Some("no_such_module".to_owned());
    assert_eq!(with("0000000000000000 t br_forward\t[no_such_module]\n"), Err(Absence::Untyped { module }));
    assert_eq!(with("0000000000000000 t br_forward\n"), Err(Absence::Untyped { module: None }));
    assert_eq!(with(""), Err(Absence::Unknown { nearest: None }));
}
