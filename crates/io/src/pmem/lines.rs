//! Stores to persistent memory, past the processor's caches: stores, flushes, a fence.
//!
//! Invariants: after [`write`] every line it touched was stored past the caches, or stored and
//! flushed, before a final fence; so on persistent memory all bytes are persistent. Concurrency:
//! plain functions; of concurrent stores to the same bytes any may be last. Failure: none; the
//! caller guarantees the addresses.

#![allow(
    unsafe_code,
    reason = "stores and flushes are instructions on addresses of a mapping, to which there are no references"
)]
#![deny(clippy::undocumented_unsafe_blocks)]

use std::fmt;

/// Bytes that the processor moves to memory at once.
pub(super) const LINE_BYTES: usize = 64;

/// The instructions, as a trait that tests can observe.
pub(super) trait Lines: Send + Sync + fmt::Debug {
    /// Stores whole lines past the caches; they are on their way to memory until the next fence.
    ///
    /// # Safety
    /// `to` is a multiple of [`LINE_BYTES`], and so is the length; as many bytes from there on may
    /// be written, and nobody holds a reference to them.
    unsafe fn stream(&self, to: *mut u8, from: &[u8]);

    /// Stores a part of a line, which then is in the caches.
    ///
    /// # Safety
    /// As many bytes from `to` on may be written, and nobody holds a reference to them.
    unsafe fn store(&self, to: *mut u8, from: &[u8]);

    /// Flushes the line of an address from the caches to memory; complete after the next fence.
    ///
    /// # Safety
    /// The address lies in a mapping.
    unsafe fn flush(&self, at: *mut u8);

    /// Waits for all flushes and stores in progress.
    fn fence(&self);
}

/// Stores `data` at `to`: whole lines past the caches, parts of lines through them. The caller has
/// to add a fence.
///
/// # Safety
/// As many bytes from `to` on are in a mapping and may be written, and nobody holds a reference to
/// them.
pub(super) unsafe fn write(lines: &dyn Lines, to: *mut u8, data: &[u8]) {
    let to_border = to.addr().next_multiple_of(LINE_BYTES) - to.addr();
    let (head, rest) = data.split_at(to_border.min(data.len()));
    let (body, tail) = rest.split_at(rest.len() - rest.len() % LINE_BYTES);
    // SAFETY: the three parts lie one behind the other in what the caller vouches for; the body
    // begins at a border of lines, unless it is empty.
    unsafe {
        let body_to = to.add(head.len());
        if !head.is_empty() {
            lines.store(to, head);
            lines.flush(to);
        }
        if !body.is_empty() {
            lines.stream(body_to, body);
        }
        if !tail.is_empty() {
            let tail_to = body_to.add(body.len());
            lines.store(tail_to, tail);
            lines.flush(tail_to);
        }
    }
}

/// The best instructions of this processor; `None` if programs may not use any.
#[cfg(target_arch = "x86_64")]
pub(super) fn of_this_processor() -> Option<std::sync::Arc<dyn Lines>> {
    Some(std::sync::Arc::new(x86::X86::detected()))
}

/// The best instructions of this processor; `None` if programs may not use any.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn of_this_processor() -> Option<std::sync::Arc<dyn Lines>> {
    None
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    //! The instructions of x86-64.

    use std::arch::asm;
    use std::arch::x86_64::{
        __cpuid, __cpuid_count, __m128i, _mm_clflush, _mm_loadu_si128, _mm_sfence, _mm_stream_si128,
    };

    use super::{LINE_BYTES, Lines};

    /// Bytes of one store past the caches.
    const STORE_BYTES: usize = 16;

    /// Instruction that flushes a line.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(in super::super) enum Flush {
        /// Writes the line back and may keep it in the caches.
        Clwb,
        /// Writes it back and drops it; flushes of several lines overlap.
        Clflushopt,
        /// As `Clflushopt`, but lines are flushed one after another; every x86-64 has it.
        Clflush,
    }

    /// Stores of SSE2, and the best flush there is.
    #[derive(Clone, Copy, Debug)]
    pub(in super::super) struct X86(pub(in super::super) Flush);

    impl X86 {
        pub(in super::super) fn detected() -> X86 {
            X86(*Flush::of_this_processor()
                .first()
                .unwrap_or(&Flush::Clflush))
        }
    }

    impl Flush {
        /// All that this processor has, the best first.
        pub(in super::super) fn of_this_processor() -> Vec<Flush> {
            const CLFLUSHOPT: u32 = 1 << 23;
            const CLWB: u32 = 1 << 24;
            let has = if __cpuid(0).eax >= 7 {
                __cpuid_count(7, 0).ebx
            } else {
                0
            };
            [
                (Flush::Clwb, has & CLWB != 0),
                (Flush::Clflushopt, has & CLFLUSHOPT != 0),
                (Flush::Clflush, true),
            ]
            .into_iter()
            .filter_map(|(flush, is_there)| is_there.then_some(flush))
            .collect()
        }
    }

    impl Lines for X86 {
        unsafe fn stream(&self, to: *mut u8, from: &[u8]) {
            debug_assert!(to.addr().is_multiple_of(LINE_BYTES));
            debug_assert!(from.len().is_multiple_of(LINE_BYTES));
            for (number, part) in from.chunks_exact(STORE_BYTES).enumerate() {
                // SAFETY: the store is aligned and within what the caller vouches for, the load is
                // of 16 bytes that are there; SSE2 is a part of x86-64.
                unsafe {
                    let bytes = _mm_loadu_si128(part.as_ptr().cast::<__m128i>());
                    _mm_stream_si128(to.add(number * STORE_BYTES).cast::<__m128i>(), bytes);
                }
            }
        }

        unsafe fn store(&self, to: *mut u8, from: &[u8]) {
            // SAFETY: the caller vouches for the bytes; what is stored is borrowed, and so lies
            // elsewhere.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
        }

        unsafe fn flush(&self, at: *mut u8) {
            // SAFETY: the address is mapped, as the caller vouches, and the processor has the
            // instruction, which changes no register, flag or byte.
            unsafe {
                match self.0 {
                    Flush::Clwb => {
                        asm!("clwb [{}]", in(reg) at, options(nostack, preserves_flags));
                    }
                    Flush::Clflushopt => {
                        asm!("clflushopt [{}]", in(reg) at, options(nostack, preserves_flags));
                    }
                    Flush::Clflush => _mm_clflush(at.cast_const()),
                }
            }
        }

        fn fence(&self) {
            // SAFETY: it is a part of every x86-64.
            unsafe { _mm_sfence() }
        }
    }
}
