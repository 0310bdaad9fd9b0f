//! A process with what it used.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;

pub struct Ended {
    pub stdout: String,
    pub stderr: String,
    /// User and system, of all threads.
    pub cpu_seconds: f64,
    pub peak_rss_mib: f64,
}

/// How often a running process is asked for its memory.
const LOOK: Duration = Duration::from_millis(20);

/// Runs a command to its end, whatever its exit code.
pub fn run(mut command: Command) -> anyhow::Result<Ended> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {command:?}"))?;
    let mut out = child.stdout.take().context("piped")?;
    let mut err = child.stderr.take().context("piped")?;
    let reader = thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    let pid = child.id();
    let ended = Arc::new(AtomicBool::new(false));
    let watched = Arc::clone(&ended);
    let watch = thread::spawn(move || {
        let mut peak = 0;
        while !watched.load(Ordering::Relaxed) {
            peak = peak_rss_kib(pid).unwrap_or(0).max(peak);
            thread::sleep(LOOK);
        }
        peak
    });
    let mut stderr = String::new();
    err.read_to_string(&mut stderr)?;
    ended.store(true, Ordering::Relaxed);
    let peak = watch.join().expect("the watch does not panic");
    let stdout = reader.join().expect("the reader does not panic")?;
    let usage = wait(pid)?;
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(Ended {
        stdout,
        stderr,
        cpu_seconds: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        peak_rss_mib: peak as f64 / 1024.0,
    })
}

/// The kernel's own high-water mark. `ru_maxrss` would not do: it begins with what this process had when it forked.
fn peak_rss_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.split_whitespace().next()?.parse().ok()
}

/// Waits for the child, and asks the kernel what it used; `std` waits without asking.
fn wait(pid: u32) -> anyhow::Result<libc::rusage> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::zeroed();
    // SAFETY: both pointers are valid for writes, and all-zero is a valid `rusage`.
    let (waited, usage) = unsafe {
        let waited = libc::wait4(pid as libc::pid_t, &mut status, 0, usage.as_mut_ptr());
        (waited, usage.assume_init())
    };
    anyhow::ensure!(waited == pid as libc::pid_t, "cannot wait for the process {pid}");
    Ok(usage)
}
