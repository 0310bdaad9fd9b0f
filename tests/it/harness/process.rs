//! Child processes that cannot outlive the test process, and what the kernel tells about them.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::wait::wait_for;

/// The last lines of output that are kept for a failure's report.
const KEPT_LINES: usize = 400;

/// A running child. Dropping it kills it; so does the death of the test process, however that comes.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    exited: Option<ExitStatus>,
    output: Arc<Mutex<VecDeque<String>>>,
}

/// What a file may hold and the like, set in the child before it runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Soft limit, bytes, of any file that the process writes: beyond it a write fails as on a full disk. The hard limit
    /// stays, so that [`Process::lift_file_limit`] can free the space again.
    pub file_size: Option<u64>,
}

impl Process {
    pub fn spawn(name: &str, command: Command, limits: Limits) -> Self {
        let mut child = spawn_from_the_spawner(command, limits);
        let output = Arc::new(Mutex::new(VecDeque::new()));
        keep_lines(child.stdout.take().expect("stdout is piped"), output.clone());
        keep_lines(child.stderr.take().expect("stderr is piped"), output.clone());
        Self { name: name.to_owned(), child, exited: None, output }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The last lines that it wrote to its standard output and error.
    pub fn output(&self) -> String {
        let lines = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|line| format!("{}| {line}\n", self.name)).collect()
    }

    pub fn has_printed(&self, text: &str) -> bool {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|line| line.contains(text))
    }

    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        if self.exited.is_none() {
            self.exited = self.child.try_wait().expect("the child can be waited for");
        }
        self.exited
    }

    /// Waits for the end that the process comes to by itself.
    #[track_caller]
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let what = format!("the end of {} (pid {})", self.name, self.pid());
        wait_for(&what, limit, || self.exit_status())
    }

    pub fn signal(&self, signal: libc::c_int) {
        assert!(self.exited.is_none(), "{} has exited, so its process id may be another's", self.name);
        // SAFETY: kill takes no pointers; the child is not reaped yet, so the id is still its own.
        let result = unsafe { libc::kill(self.pid() as libc::pid_t, signal) };
        assert_eq!(result, 0, "signal {signal} to {}: {}", self.name, std::io::Error::last_os_error());
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        if self.exit_status().is_none() {
            self.signal(libc::SIGKILL);
            let status = self.wait(Duration::from_secs(10));
            assert_eq!(status.signal(), Some(libc::SIGKILL), "{} ended by itself: {status}", self.name);
        }
    }

    /// Lets files grow again.
    pub fn lift_file_limit(&self) {
        self.limit_files(libc::RLIM_INFINITY);
    }

    /// Sets the soft limit of [`Limits::file_size`] while it runs.
    pub fn limit_files(&self, bytes: u64) {
        let free = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: `free` outlives the call and no old limit is asked for.
        let result =
            unsafe { libc::prlimit(self.pid() as libc::pid_t, libc::RLIMIT_FSIZE, &free, std::ptr::null_mut()) };
        assert_eq!(result, 0, "prlimit of {}: {}", self.name, std::io::Error::last_os_error());
    }

    /// Bytes resident now.
    pub fn resident(&self) -> u64 {
        self.status_kilobytes("VmRSS:") * 1024
    }

    /// The most bytes that ever were resident.
    pub fn peak_resident(&self) -> u64 {
        self.status_kilobytes("VmHWM:") * 1024
    }

    pub fn threads(&self) -> u64 {
        self.status_kilobytes("Threads:")
    }

    /// User and system time so far.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("stat of a live child");
        // The second field, the name, may hold blanks; fields 14 and 15 are counted from behind it.
        let fields: Vec<&str> = stat.rsplit(')').next().expect("a name in brackets").split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime");
        // SAFETY: sysconf takes no pointers.
        let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
        Duration::from_millis(ticks * 1000 / per_second)
    }

    fn status_kilobytes(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("status of a live child");
        let line = status.lines().find(|line| line.starts_with(field)).expect("the field is in every status");
        line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
    }

    /// Whether the listener on `port` of 127.0.0.1 is this very process.
    pub fn listens_on(&self, port: u16) -> bool {
        let owned: Vec<String> = match std::fs::read_dir(format!("/proc/{}/fd", self.pid())) {
            Ok(entries) => entries
                .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
                .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
                .collect(),
            Err(_) => return false,
        };
        // Java listens on a v6 socket that takes v4 connections.
        ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
            let table = std::fs::read_to_string(table).unwrap_or_default();
            table.lines().skip(1).any(|line| {
                let fields: Vec<&str> = line.split_whitespace().collect();
                let listening = fields.get(3) == Some(&"0A");
                let here = fields.get(1).is_some_and(|local| local.ends_with(&format!(":{port:04X}")));
                listening && here && fields.get(9).is_some_and(|inode| owned.iter().any(|own| own == inode))
            })
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the last lines of {} ---\n{}", self.name, self.output());
        }
        // A failure to kill only matters while the test process lives: the kernel does it afterwards.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A port of 127.0.0.1 that is free now, below the range that outgoing connections are given, where a client that waits
/// for a stopped server could come to connect to itself and take the port away.
pub fn free_port() -> u16 {
    static RANDOM: OnceLock<Mutex<super::random::Random>> = OnceLock::new();
    let seed = u64::from(std::process::id()) << 32
        | std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |now| u64::from(now.subsec_nanos()));
    let random = RANDOM.get_or_init(|| Mutex::new(super::random::Random::new(seed)));
    for _ in 0..1000 {
        let port = 15_000 + random.lock().unwrap_or_else(PoisonError::into_inner).below(15_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port between 15000 and 30000 is free");
}

fn keep_lines(stream: impl Read + Send + 'static, output: Arc<Mutex<VecDeque<String>>>) {
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let mut lines = output.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() == KEPT_LINES {
                lines.pop_front();
            }
            lines.push_back(String::from_utf8_lossy(&line).into_owned());
        }
    });
}

/// The kernel's "kill me when my parent dies" means the parent *thread*, and a test's thread ends before the test process;
/// so one thread that never ends starts all children.
fn spawn_from_the_spawner(mut command: Command, limits: Limits) -> Child {
    type Job = (Command, SyncSender<std::io::Result<Child>>);
    static SPAWNER: OnceLock<SyncSender<Job>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, jobs) = sync_channel::<Job>(16);
        std::thread::spawn(move || {
            for (mut command, reply) in jobs {
                reply.send(command.spawn()).expect("the test waits for its child");
            }
        });
        sender
    });
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: prctl, signal and setrlimit are async-signal-safe, and nothing is allocated or locked.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // Unless it is ignored, the signal ends the process before a write beyond the limit can fail.
            if libc::signal(libc::SIGXFSZ, libc::SIG_IGN) == libc::SIG_ERR {
                return Err(std::io::Error::last_os_error());
            }
            if let Some(bytes) = limits.file_size {
                let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                if libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                limit.rlim_cur = bytes;
                if libc::setrlimit(libc::RLIMIT_FSIZE, &limit) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    let program = command.get_program().to_string_lossy().into_owned();
    let (reply, answer) = sync_channel(1);
    spawner.send((command, reply)).expect("the spawner never ends");
    answer.recv().expect("the spawner answers").unwrap_or_else(|error| panic!("cannot start `{program}`: {error}"))
}
