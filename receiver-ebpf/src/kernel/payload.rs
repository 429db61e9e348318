//! The data of a read, for programs that inspect it. It, or the value of its `traceparent`, leaves the kernel only with
//! the event of a selected packet.

use core::mem::MaybeUninit;

use aya_ebpf::{
    bindings::bpf_dynptr,
    helpers::generated::{bpf_dynptr_read, bpf_probe_read_user},
};
use undercurrent_ebpf::abi::{cast::PACKET, slow::PAYLOAD};

use super::{
    constant::constants,
    fields::{IOVEC_BASE, ITER_BUFFER, ITER_OFFSET, IoVec, MSG_ITER, MsgHdr, SKB_LENGTH, SkBuff},
    pointer::{Access, Probed, Ptr},
    workarounds::opaque,
};

constants! {
    /// 1 if payload is inspected.
    INSPECTED = "payload.inspected";
    /// 1 if the programs find the `traceparent` of HTTP/1, and send nothing else.
    SEARCHED = "payload.searched";
    /// 1 if payload is inspected, and programs of tracepoints can read packets (`bpf_dynptr_from_skb`, 6.12 and later).
    PACKETS = "payload.packets";
}

/// A buffer for the first bytes of a read.
pub type Buffer = [u8; PAYLOAD];

/// Returns true if payload is inspected, a constant to the verifier.
#[inline(always)]
pub fn is_inspected() -> bool {
    INSPECTED.get() != 0
}

/// Returns true if the programs find the `traceparent` of HTTP/1, a constant to the verifier.
#[inline(always)]
pub fn is_searched() -> bool {
    SEARCHED.get() != 0
}

/// Copies the first bytes that a read wrote to the buffer of the current process. Returns their number.
///
/// A read into several buffers that filled one of them exactly returns nothing.
#[inline(always)]
pub fn of_message(message: Ptr<MsgHdr, Probed>, to: *mut Buffer) -> u32 {
    if !is_inspected() || message.is_null() {
        return 0;
    }
    let iter = message.embedded(&MSG_ITER);
    let (buffer, written) = (iter.read(&ITER_BUFFER), iter.read(&ITER_OFFSET));
    // Addresses of the kernel have the highest bit; the list of buffers is in the kernel.
    let buffer = if buffer >> 63 == 0 { buffer } else { Ptr::<IoVec, Probed>::at(buffer).read(&IOVEC_BASE) };
    let length = limited(written);
    if length == 0 {
        return 0;
    }
    // SAFETY: the buffer has at least `length` bytes; the helper checks the address.
    let failed = unsafe { bpf_probe_read_user(to.cast(), length, buffer as *const _) } != 0;
    if failed { 0 } else { length }
}

/// Copies the first bytes of a packet of a tracepoint. Returns their number.
#[inline(always)]
pub fn of_packet<A: Access>(skb: Ptr<SkBuff, A>, to: *mut Buffer) -> u32 {
    if PACKETS.get() == 0 {
        return 0;
    }
    let length = limited(skb.read(&SKB_LENGTH).into());
    if length == 0 {
        return 0;
    }
    // SAFETY: the loader replaces the address by `bpf_dynptr_from_skb`, which has this signature.
    let of: unsafe extern "C" fn(*const SkBuff, u64, *mut bpf_dynptr) -> i32 = unsafe { core::mem::transmute(PACKET) };
    let mut data = MaybeUninit::<bpf_dynptr>::uninit();
    // SAFETY: the packet is an argument of the tracepoint. The function initializes the pointer to its data.
    if unsafe { of(skb.raw(), 0, data.as_mut_ptr()) } != 0 {
        return 0;
    }
    // SAFETY: `to` has more than `length` bytes.
    let failed = unsafe { bpf_dynptr_read(to.cast(), length, data.as_ptr(), 0, 0) } != 0;
    if failed { 0 } else { length }
}

/// Returns a length with a limit that the verifier tracks.
#[inline(always)]
fn limited(length: u64) -> u32 {
    let length = if length > PAYLOAD as u64 - 1 { PAYLOAD as u64 - 1 } else { length };
    (opaque(length) & (PAYLOAD as u64 - 1)) as u32
}
