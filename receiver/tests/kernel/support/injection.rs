//! Injects packets with a chosen hardware timestamp into an interface.

use aya::{
    Ebpf,
    programs::{SchedClassifier, TestRun as _, TestRunOptions},
};
use undercurrent::loader::loader;

use super::namespace::Namespace;

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../ebpf/injection.bpf.o");

/// Bytes of `struct __sk_buff` (`include/uapi/linux/bpf.h`) up to the end of its `hwtstamp`.
const CONTEXT: usize = 192;
const MARK: usize = 8;
const STAMP: usize = 184;

/// The injecting program, attached to no hook. Dropping the value removes it.
pub struct Injection(Ebpf);

impl Injection {
    /// Loads the program.
    pub fn load() -> Self {
        let mut ebpf = loader::without_types().load(OBJECT).unwrap();
        <&mut SchedClassifier>::try_from(ebpf.program_mut("inject").unwrap()).unwrap().load().unwrap();
        Self(ebpf)
    }

    /// Lets an interface receive a packet with this timestamp, or without one if it is zero.
    ///
    /// # Errors
    /// On kernels before 5.16, which refuse the context because packets get no timestamp.
    pub fn receive(&self, namespace: &Namespace, interface: u32, stamp: u64) -> Result<(), String> {
        let program: &SchedClassifier = self.0.program("inject").unwrap().try_into().unwrap();
        let mut context = [0; CONTEXT];
        context[MARK..MARK + 4].copy_from_slice(&interface.to_ne_bytes());
        context[STAMP..].copy_from_slice(&stamp.to_ne_bytes());
        let packet = [0_u8; 64];
        // The kernel looks up the interface in the namespace of the calling thread.
        let run = || {
            let options =
                TestRunOptions { data_in: Some(&packet), ctx_in: Some(&context), ..TestRunOptions::default() };
            program.test_run(options)
        };
        let result = namespace.run(run).map_err(|error| format!("{error:?}"))?;
        assert_eq!(result.return_value, 0, "the interface did not get the packet");
        Ok(())
    }
}
