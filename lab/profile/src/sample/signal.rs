//! The sampling signal: its handler, and the timers that send it.
//!
//! A timer's signal carries the address of the [`Sampled`] it belongs to, and
//! goes to one thread. The handler calls nothing that allocates, locks, or
//! depends on where the thread was interrupted.

use std::io;
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use framehop::UnwindRegsNative;

use super::thread::Sampled;

/// What profilers use by convention; debuggers pass it on unasked.
const SIGNAL: libc::c_int = libc::SIGPROF;

/// Installs the handler, once for the process. It stays: the signal's default
/// action would end the process.
pub(super) fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Option<i32>> = OnceLock::new();
    let error = INSTALLED.get_or_init(|| {
        // SAFETY: all-zero bytes are a valid `sigaction`: no flags, empty mask.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = handle;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: `action` is a valid action whose handler has the signature that
        // SA_SIGINFO asks for.
        let result = unsafe { libc::sigaction(SIGNAL, &action, ptr::null_mut()) };
        (result != 0).then(|| io::Error::last_os_error().raw_os_error().unwrap_or(0))
    });
    match error {
        None => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(*code)),
    }
}

extern "C" fn handle(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: `errno` is this thread's own; the interrupted code may be about to
    // read it, so it is put back below.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel passes a valid `siginfo_t` and, on this platform, a
    // `ucontext_t`, both for the duration of the handler.
    let (info, context) = unsafe { (&*info, &*context.cast::<libc::ucontext_t>()) };
    if info.si_code == libc::SI_TIMER {
        // SAFETY: a signal of a timer has a value. Only `Timer::create` makes
        // timers that send this signal, with the address of a `Sampled` that is
        // never freed.
        let sampled = unsafe { info.si_value().sival_ptr.cast::<Sampled>().as_ref() };
        if let Some(sampled) = sampled {
            sampled.sample(&Registers::of(context));
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Registers of interrupted code.
pub(super) struct Registers {
    pub(super) program_counter: u64,
    pub(super) unwind: UnwindRegsNative,
}

impl Registers {
    #[cfg(target_arch = "x86_64")]
    fn of(context: &libc::ucontext_t) -> Self {
        use framehop::x86_64::Reg;
        let register = |index: libc::c_int| context.uc_mcontext.gregs[index as usize] as u64;
        let program_counter = register(libc::REG_RIP);
        let (sp, bp) = (register(libc::REG_RSP), register(libc::REG_RBP));
        let mut unwind = UnwindRegsNative::new(program_counter, sp, bp);
        for (reg, index) in [
            (Reg::RBX, libc::REG_RBX),
            (Reg::R12, libc::REG_R12),
            (Reg::R13, libc::REG_R13),
            (Reg::R14, libc::REG_R14),
            (Reg::R15, libc::REG_R15),
        ] {
            unwind.set(reg, register(index));
        }
        Self {
            program_counter,
            unwind,
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn of(context: &libc::ucontext_t) -> Self {
        let machine = &context.uc_mcontext;
        let (fp, lr) = (machine.regs[29], machine.regs[30]);
        Self {
            program_counter: machine.pc,
            unwind: UnwindRegsNative::new(lr, machine.sp, fp),
        }
    }

    pub(super) fn stack_pointer(&self) -> u64 {
        self.unwind.sp()
    }
}

/// A one-shot timer of the monotonic clock that signals one thread.
pub(super) struct Timer {
    id: AtomicPtr<libc::c_void>,
    exists: AtomicBool,
}

impl Timer {
    /// No timer yet.
    pub(super) fn unset() -> Self {
        Self {
            id: AtomicPtr::new(ptr::null_mut()),
            exists: AtomicBool::new(false),
        }
    }

    /// Makes the timer of the calling thread, which its signals tell of
    /// `sampled`.
    pub(super) fn create(&self, sampled: &'static Sampled) -> io::Result<()> {
        // SAFETY: all-zero bytes are a valid `sigevent`.
        let mut event: libc::sigevent = unsafe { mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        event.sigev_value.sival_ptr = ptr::from_ref(sampled).cast_mut().cast();
        // SAFETY: takes nothing, returns the caller's thread id.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        let mut id: MaybeUninit<libc::timer_t> = MaybeUninit::uninit();
        // SAFETY: both pointers are valid for the call, which keeps neither.
        let result =
            unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, id.as_mut_ptr()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has succeeded and written the id.
        self.id.store(unsafe { id.assume_init() }, Ordering::SeqCst);
        self.exists.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// What the clock of timers shows, in nanoseconds. Safe in a signal handler.
    pub(super) fn now_ns() -> u64 {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `time` is valid for the call. It cannot fail for this clock; if
        // it did, `time` would still be initialised.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    /// Lets the timer fire once, when its clock shows `moment_ns` or at once if it
    /// does already. Nothing happens if it does not exist. Safe in a signal
    /// handler.
    pub(super) fn set(&self, moment_ns: u64) {
        if !self.exists.load(Ordering::SeqCst) {
            return;
        }
        // SAFETY: all-zero bytes are a valid `itimerspec`.
        let mut time: libc::itimerspec = unsafe { mem::zeroed() };
        time.it_value.tv_sec = (moment_ns / 1_000_000_000) as libc::time_t;
        time.it_value.tv_nsec = (moment_ns % 1_000_000_000) as libc::c_long;
        let (id, absolute) = (self.id.load(Ordering::SeqCst), libc::TIMER_ABSTIME);
        // SAFETY: `time` is valid for the call. The id is that of a timer, or was:
        // then the call fails, and nobody waits for the signal.
        unsafe { libc::timer_settime(id, absolute, &time, ptr::null_mut()) };
    }

    /// Ends the timer.
    pub(super) fn delete(&self) {
        if self.exists.swap(false, Ordering::SeqCst) {
            // SAFETY: the timer exists, and the swap lets one caller delete it.
            unsafe { libc::timer_delete(self.id.load(Ordering::SeqCst)) };
        }
    }
}
