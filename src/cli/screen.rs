//! One screen that shows how far a gateway is, drawn again and again in place; a line each time where there is no terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::status;
use super::table::{duration, fit, mebibytes, short};
use crate::gateway::status::{LaneState, LaneStatus, Snapshot, Status};
use crate::log::no_colour;

/// What every terminal can show, but for its last column: behind a line that fills it, the cursor stays on the last cell, and
/// clearing the rest of the line would clear that. A narrower one cuts lines, since wrapping is off while the screen is drawn.
pub const WIDTH: usize = 79;

/// Lanes on the screen, so that it stays within 24 lines; the others are counted.
const MAX_LANES: usize = 16;

/// The columns beside the lane's name, blanks included.
const FIXED: usize = 60;

/// Cells of a full bar.
const CELLS: usize = 7;

const HIDE_CURSOR_AND_WRAP: &str = "\x1b[?25l\x1b[?7l";
const SHOW_CURSOR_AND_WRAP: &str = "\x1b[?25h\x1b[?7h";
const CLEAR_TO_LINE_END: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// A status and when it was taken, from any one beginning.
#[derive(Clone, Debug)]
pub struct Sample {
    pub at: Duration,
    pub status: Status,
}

/// Draws on a terminal or prints lines elsewhere. Dropping it gives the cursor back.
#[derive(Debug)]
pub struct Screen<W: Write> {
    out: W,
    start: Instant,
    /// Whether to draw in place.
    terminal: bool,
    colour: bool,
    /// Lines of the last drawing.
    drawn: usize,
    last: Option<Sample>,
}

impl Screen<io::Stdout> {
    pub fn stdout() -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        let terminal = io::stdout().is_terminal() && !dumb;
        Self::new(io::stdout(), terminal, terminal && !no_colour())
    }
}

impl<W: Write> Screen<W> {
    pub fn new(out: W, terminal: bool, colour: bool) -> Self {
        Self { out, start: Instant::now(), terminal, colour, drawn: 0, last: None }
    }

    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Shows `status`, with rates since the one before.
    ///
    /// # Errors
    /// When nobody reads what is written any more.
    pub fn show(&mut self, status: Status) -> io::Result<()> {
        let now = Sample { at: self.start.elapsed(), status };
        let last = self.last.as_ref();
        let text = if self.terminal {
            let lines = render(last, &now, WIDTH, self.colour);
            let up = match self.drawn {
                0 => HIDE_CURSOR_AND_WRAP.to_owned(),
                lines => format!("\x1b[{lines}A\r"),
            };
            self.drawn = lines.lines().count();
            format!("{up}{}{CLEAR_BELOW}", lines.replace('\n', &format!("{CLEAR_TO_LINE_END}\n")))
        } else {
            line(last, &now)
        };
        self.last = Some(now);
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Leaves what is drawn where it is and goes on below it.
    ///
    /// # Errors
    /// When nobody reads what is written any more.
    pub fn leave(&mut self) -> io::Result<()> {
        if self.drawn > 0 {
            self.drawn = 0;
            self.out.write_all(SHOW_CURSOR_AND_WRAP.as_bytes())?;
            self.out.flush()?;
        }
        Ok(())
    }
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        // Nobody is left to tell of a failure: the terminal is gone.
        drop(self.leave());
    }
}

/// The screen, `width` columns wide. Rates are those between `last` and `now`.
pub fn render(last: Option<&Sample>, now: &Sample, width: usize, colour: bool) -> String {
    let paint = Paint(colour);
    let status = &now.status;
    let name_width = width.saturating_sub(FIXED).max(8);
    let mut text = format!(
        "{}\n\n",
        fit(
            &format!(
                "tidegate {} · up {} · memory {} of {}",
                status.version,
                duration(status.uptime_seconds),
                mebibytes(status.memory.resident),
                mebibytes(status.memory.budget),
            ),
            width
        )
    );
    let header = format!(
        "{:<name_width$} {:<13} {:<13} {:>5} {:>5} {:>7} {:>5} {:>5}",
        "LANE", "STATE", "SNAPSHOT", "IN/s", "OUT/s", "DROPPED", "LAG", "DEAD"
    );
    text.push_str(&paint.dim(&fit(&header, width)));
    text.push('\n');
    let lanes: Vec<_> = lanes(status).collect();
    for (route, lane) in lanes.iter().take(MAX_LANES) {
        let (rate_in, rate_out) =
            rates(last, now, route, lane).map_or(("-".to_owned(), "-".to_owned()), |(i, o)| (short(i), short(o)));
        let name = fit(&format!("{route}/{}", lane.sink), name_width);
        let dead = format!("{:>5}", short(lane.counts.dead_letters as f64));
        text.push_str(&format!(
            "{name:<name_width$} {} {:<13} {rate_in:>5} {rate_out:>5} {:>7} {:>5} {}\n",
            paint.state(lane.state),
            snapshot(lane),
            short(lane.counts.dropped as f64),
            lane.lag().map_or_else(|| "?".to_owned(), |lag| short(lag as f64)),
            if lane.counts.dead_letters > 0 { paint.yellow(&dead) } else { dead },
        ));
    }
    if lanes.len() > MAX_LANES {
        text.push_str(&format!("… and {} more lanes\n", lanes.len() - MAX_LANES));
    }
    // One line: the screen must not jump while lanes wait and go on.
    if let Some(note) = lanes.iter().find_map(|(route, lane)| note(route, lane)) {
        text.push_str(&format!("\n{}\n", paint.yellow(&fit(&note, width))));
    }
    text
}

/// One line for a log: every lane's state, progress and rates.
pub fn line(last: Option<&Sample>, now: &Sample) -> String {
    let lane = |(route, lane): (&str, &LaneStatus)| {
        let mut words = vec![format!("{route}/{}", lane.sink), status::state(lane.state).to_owned()];
        if let Snapshot::Percent(percent) = lane.snapshot() {
            words.push(format!("{}{percent} %", if has_ended(lane) { "at " } else { "" }));
        }
        words.push(format!("in {}", lane.counts.records_in));
        if let Some((rate_in, _)) = rates(last, now, route, lane) {
            words.push(format!("({}/s)", short(rate_in)));
        }
        words.push(format!("out {}", lane.counts.records_out));
        words.push(format!("dropped {}", lane.counts.dropped));
        words.push(lane.lag().map_or_else(|| "lag ?".to_owned(), |lag| format!("lag {lag}")));
        words.push(format!("dead {}", lane.counts.dead_letters));
        words.join(" ")
    };
    let lanes: Vec<_> = lanes(&now.status).map(lane).collect();
    let note = self::lanes(&now.status).find_map(|(route, lane)| note(route, lane));
    let note = note.map(|note| format!(" | {}", fit(&note, 200))).unwrap_or_default();
    format!("{:>4} s  {}{note}\n", now.at.as_secs(), lanes.join(" | "))
}

fn lanes(status: &Status) -> impl Iterator<Item = (&str, &LaneStatus)> {
    status.routes.iter().flat_map(|route| route.lanes.iter().map(move |lane| (&*route.name, lane)))
}

/// Records a second, in and out. `None` = there is nothing to compare with.
fn rates(last: Option<&Sample>, now: &Sample, route: &str, lane: &LaneStatus) -> Option<(f64, f64)> {
    let last = last?;
    let seconds = now.at.saturating_sub(last.at).as_secs_f64();
    let before = lanes(&last.status).find(|(name, before)| *name == route && before.sink == lane.sink)?.1;
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    (seconds > 0.0).then(|| {
        (
            rate(lane.counts.records_in, before.counts.records_in),
            rate(lane.counts.records_out, before.counts.records_out),
        )
    })
}

fn snapshot(lane: &LaneStatus) -> String {
    match lane.snapshot() {
        Snapshot::Delivered => "delivered".to_owned(),
        Snapshot::Unknown => "?".to_owned(),
        // A bar would promise that it goes on.
        Snapshot::Percent(percent) if has_ended(lane) => format!("ended at {percent} %"),
        Snapshot::Percent(percent) => {
            let full = usize::from(percent) * CELLS / 100;
            format!("{}{} {percent:>3} %", "█".repeat(full), "░".repeat(CELLS - full))
        }
    }
}

fn has_ended(lane: &LaneStatus) -> bool {
    matches!(lane.state, LaneState::Halted | LaneState::Stopped)
}

fn note(route: &str, lane: &LaneStatus) -> Option<String> {
    let halted = lane.halt.as_ref().map(|halt| format!("halted: {halt}"));
    let waits = || lane.waits_for().map(|waiting| format!("waits: {waiting}"));
    halted.or_else(waits).map(|text| format!("{route}/{} {text}", lane.sink))
}

#[derive(Clone, Copy)]
struct Paint(bool);

impl Paint {
    fn state(self, state: LaneState) -> String {
        let text = format!("{:<13}", status::state(state));
        match state {
            LaneState::Live => self.code("32", &text),
            LaneState::Bootstrapping => self.yellow(&text),
            LaneState::Halted => self.code("1;31", &text),
            LaneState::Starting | LaneState::Stopped => self.dim(&text),
        }
    }

    fn yellow(self, text: &str) -> String {
        self.code("33", text)
    }

    fn dim(self, text: &str) -> String {
        self.code("2", text)
    }

    fn code(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::status::samples;

    fn sample(seconds: u64, records: u64, finished: i64) -> Sample {
        let mut lane = samples::lane("read_model", LaneState::Bootstrapping, finished, 20);
        lane.counts.records_in = records;
        lane.counts.records_out = records / 2;
        lane.counts.dropped = 2;
        lane.counts.dead_letters = 3;
        let mut http = samples::lane("a_very_long_name_of_a_sink", LaneState::Live, 20, 20);
        http.waiting =
            Some("http://127.0.0.1:1/profiles answers 503 Service Unavailable, tried 7 times by now".to_owned());
        Sample { at: Duration::from_secs(seconds), status: samples::status(vec![lane, http]) }
    }

    #[test]
    fn the_first_screen_has_no_rates() {
        let expected = "\
tidegate 1.2.3 · up 75 s · memory 84 MiB of 256 MiB

LANE                STATE         SNAPSHOT       IN/s OUT/s DROPPED   LAG  DEAD
profiles/read_model bootstrapping ██░░░░░  35 %     -     -       2    13     3
profiles/a_very_lo… live          delivered         -     -       0     0     0

profiles/a_very_long_name_of_a_sink waits: http://127.0.0.1:1/profiles answers…
";
        let text = render(None, &sample(1, 0, 7), WIDTH, false);
        assert_eq!(text, expected);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH));
    }

    #[test]
    fn rates_are_those_between_two_looks() {
        let text = render(Some(&sample(1, 1_000, 7)), &sample(3, 25_000, 19), WIDTH, false);
        let line = text.lines().nth(3).unwrap();
        assert_eq!(line, "profiles/read_model bootstrapping ██████░  95 % 12.0k  6.0k       2     1     3");
    }

    #[test]
    fn a_halted_lane_looks_as_far_as_it_came() {
        let mut lane = samples::lane("a", LaneState::Halted, 19, 20);
        lane.halt = Some(samples::halt());
        let now = Sample { at: Duration::ZERO, status: samples::status(vec![lane]) };
        let text = render(None, &now, WIDTH, false);
        let row = text.lines().nth(3).unwrap();
        assert_eq!(row, "profiles/a          halted        ended at 95 %     -     -       0     1     0");
        assert!(line(None, &now).contains("profiles/a halted at 95 % in 0 "), "{}", line(None, &now));
    }

    #[test]
    fn two_looks_at_once_give_no_rate() {
        let now = sample(1, 1_000, 7);
        assert_eq!(render(Some(&now), &now, WIDTH, false), render(None, &now, WIDTH, false));
    }

    #[test]
    fn colour_changes_nothing_else() {
        let now = sample(1, 10, 7);
        let (plain, coloured) = (render(None, &now, WIDTH, false), render(None, &now, WIDTH, true));
        assert!(coloured.contains("\x1b[33mbootstrapping\x1b[0m"));
        let stripped = regex::Regex::new("\x1b\\[[0-9;]*m").unwrap().replace_all(&coloured, "").into_owned();
        assert_eq!(stripped, plain);
    }

    #[test]
    fn many_lanes_are_counted() {
        let lane = samples::lane("a", LaneState::Live, 20, 20);
        let now = Sample { at: Duration::ZERO, status: samples::status(vec![lane; MAX_LANES + 4]) };
        let text = render(None, &now, WIDTH, false);
        assert!(text.ends_with("\n… and 4 more lanes\n"), "{text}");
        assert!(text.lines().count() <= 24);
    }

    #[test]
    fn off_a_terminal_each_look_is_one_line() {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, false, false);
        screen.show(sample(0, 10, 7).status).unwrap();
        drop(screen);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "   0 s  profiles/read_model bootstrapping 35 % in 10 out 5 dropped 2 lag 13 dead 3 \
             | profiles/a_very_long_name_of_a_sink live in 0 out 0 dropped 0 lag 0 dead 0 \
             | profiles/a_very_long_name_of_a_sink waits: \
             http://127.0.0.1:1/profiles answers 503 Service Unavailable, tried 7 times by now\n"
        );
    }

    #[test]
    fn a_terminal_is_drawn_in_place_and_gets_its_cursor_back() {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, true, false);
        screen.show(sample(0, 10, 7).status).unwrap();
        screen.show(sample(0, 10, 7).status).unwrap();
        drop(screen);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with(HIDE_CURSOR_AND_WRAP));
        assert!(text.contains("\x1b[7A\r"), "up by the seven lines drawn before");
        assert!(text.ends_with(SHOW_CURSOR_AND_WRAP));
        assert_eq!(text.matches(HIDE_CURSOR_AND_WRAP).count(), 1);
    }
}
