//! Socket calls of IPv4 and IPv6, and wakeups of and switches between tasks.

use aya_ebpf::{
    macros::{btf_tracepoint, fentry, fexit, kprobe, kretprobe},
    programs::{BtfTracePointContext, FEntryContext, FExitContext, ProbeContext, RetProbeContext},
};
use undercurrent_ebpf::abi::cost::CostKind;

use crate::{
    kernel::{
        context::Arguments as _,
        fields::{TASK_ID, Task},
        pointer::Ptr,
    },
    signals::{processor, reader_states, socket_calls},
};

/// Declares the programs of a function: at entry and exit, for BPF trampolines and for kprobes.
macro_rules! calls {
    ($($(#[$prototype:meta])* $kind:ident $entry:ident $exit:ident $entry_probe:ident $exit_probe:ident;)+) => {$(
        $(#[$prototype])*
        #[fentry]
        fn $entry(_: FEntryContext) -> i32 {
            socket_calls::entered(CostKind::$kind);
            0
        }

        $(#[$prototype])*
        #[fexit]
        fn $exit(_: FExitContext) -> i32 {
            socket_calls::exited();
            0
        }

        $(#[$prototype])*
        #[kprobe]
        fn $entry_probe(_: ProbeContext) -> i32 {
            socket_calls::entered(CostKind::$kind);
            0
        }

        $(#[$prototype])*
        #[kretprobe]
        fn $exit_probe(_: RetProbeContext) -> i32 {
            socket_calls::exited();
            0
        }
    )+};
}

calls! {
    /// `int inet_sendmsg(struct socket *sock, struct msghdr *msg, size_t size)`, 5.10 to 7.3. `sock_sendmsg` misses almost
    /// every call: the kernel inlines it.
    SocketSend inet_sendmsg inet_sendmsg_exit inet_sendmsg_probe inet_sendmsg_exit_probe;
    /// `int inet6_sendmsg(struct socket *sock, struct msghdr *msg, size_t size)`, 5.10 to 7.3.
    SocketSend inet6_sendmsg inet6_sendmsg_exit inet6_sendmsg_probe inet6_sendmsg_exit_probe;
    /// `int inet_recvmsg(struct socket *sock, struct msghdr *msg, size_t size, int flags)`, 5.10 to 7.3.
    SocketReceive inet_recvmsg inet_recvmsg_exit inet_recvmsg_probe inet_recvmsg_exit_probe;
    /// `int inet6_recvmsg(struct socket *sock, struct msghdr *msg, size_t size, int flags)`, 5.10 to 7.3.
    SocketReceive inet6_recvmsg inet6_recvmsg_exit inet6_recvmsg_probe inet6_recvmsg_exit_probe;
}

/// Tracepoint `sock_send_length(struct sock *sk, int ret, int flags)`, 6.3 and later: the end of a send on a socket of any family.
/// It takes half as many instructions as a BPF trampoline at exit.
#[btf_tracepoint(function = "sock_send_length")]
fn send_exit(_: BtfTracePointContext) -> i32 {
    socket_calls::exited();
    0
}

/// Tracepoint `sock_recv_length(struct sock *sk, int ret, int flags)`, 6.3 and later: the end of a read of a socket of any family.
#[btf_tracepoint(function = "sock_recv_length")]
fn receive_exit(_: BtfTracePointContext) -> i32 {
    socket_calls::exited();
    0
}

/// Tracepoint `sched_waking(struct task_struct *p)`, 5.10 to 7.3: a task is about to be woken, in the context of the waker.
#[btf_tracepoint(function = "sched_waking")]
fn sched_waking(ctx: BtfTracePointContext) -> i32 {
    let task: Ptr<Task> = ctx.pointer(0);
    reader_states::woken(task.read(&TASK_ID));
    0
}

/// Tracepoint `sched_switch(bool preempt, struct task_struct *prev, struct task_struct *next)`, 5.10 to 7.3; since 5.19 with
/// `prev_state` as the last argument. `prev` is still the current task.
#[btf_tracepoint(function = "sched_switch")]
fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    let (from, to): (Ptr<Task>, Ptr<Task>) = (ctx.pointer(1), ctx.pointer(2));
    let next = to.read(&TASK_ID);
    processor::switched(from, to, next == 0);
    reader_states::switched(next);
    socket_calls::switched(from, to);
    0
}
