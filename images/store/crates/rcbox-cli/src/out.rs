//! Standard output: buffered, and quiet when nobody reads it any more or the command was given up.

use std::borrow::Cow;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Stdout, Write};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Failure;
use super::notation::{plain, plain_json};
use super::show::COLORS;

/// Output that a slow command has produced is seen after this long.
const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// Standard output of one command.
pub struct Out {
    /// JSON is wanted.
    pub json: bool,
    /// A person reads it.
    pub terminal: bool,
    /// The output of other commands follows: what is not JSON keeps to lines.
    pub is_one_of_many: bool,
    /// It is a terminal that can move its cursor.
    pub has_cursor: bool,
    /// Colours are wanted.
    pub colors: bool,
    stop: Stop,
    buffer: BufWriter<Stdout>,
    flushed: Instant,
}

impl Out {
    pub fn new(json: bool, stop: Stop) -> Out {
        let terminal = io::stdout().is_terminal();
        // See no-color.org: any value but the empty one.
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Out {
            json,
            terminal,
            is_one_of_many: false,
            has_cursor: terminal && !dumb,
            colors: terminal && !no_color && !dumb,
            stop,
            buffer: BufWriter::with_capacity(64 << 10, io::stdout()),
            flushed: Instant::now(),
        }
    }

    /// Writes text, or JSON, and ends its last line. Whatever was put into it, a terminal obeys nothing but our own colours.
    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        let shown = match self.json {
            true => plain_json(text),
            false => colored(text, self.colors),
        };
        self.bytes(shown.as_bytes())?;
        if !text.ends_with('\n') {
            self.bytes(b"\n")?;
        }
        if self.terminal || self.flushed.elapsed() >= FLUSH_EVERY {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes text over what is on the terminal, without flicker; what has no place there is left out.
    pub fn repaint(&mut self, text: &str) -> Result<(), Failure> {
        let rows = rustix::termios::tcgetwinsize(io::stdout())
            .map_or(usize::MAX, |size| usize::from(size.ws_row));
        let screen = screen(&colored(text, self.colors), rows);
        self.bytes(screen.as_bytes())?;
        self.flush()
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.check()?;
        self.buffer.write_all(bytes).map_err(failed)
    }

    /// Writes one line of JSON.
    pub fn json_line(&mut self, value: &Value) -> Result<(), Failure> {
        self.text(&value.to_string())
    }

    pub fn flush(&mut self) -> Result<(), Failure> {
        self.check()?;
        self.flushed = Instant::now();
        self.buffer.flush().map_err(failed)
    }

    /// Waits; ends early when the command is given up.
    pub fn pause(&mut self, duration: Duration) -> Result<(), Failure> {
        self.flush()?;
        self.stop.wait(duration);
        self.check()
    }

    /// Fails when the command was given up.
    pub fn check(&self) -> Result<(), Failure> {
        match self.stop.is_set() {
            true => Err(Failure::Stopped),
            false => Ok(()),
        }
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        if self.stop.is_set() {
            // The terminal belongs to the next command: what is left must not appear there.
            let buffer =
                std::mem::replace(&mut self.buffer, BufWriter::with_capacity(0, io::stdout()));
            let _ = buffer.into_parts();
        }
    }
}

/// Text in which a terminal obeys nothing, but our colours if they are wanted. What is between them comes from others.
fn colored(text: &str, colors: bool) -> Cow<'_, str> {
    if !colors || !COLORS.iter().any(|color| text.contains(color)) {
        return plain(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, color)) = COLORS
        .iter()
        .filter_map(|color| Some((rest.find(color)?, color)))
        .min()
    {
        shown.push_str(&plain(&rest[..at]));
        shown.push_str(color);
        rest = &rest[at + color.len()..];
    }
    shown.push_str(&plain(rest));
    Cow::Owned(shown)
}

/// Text with what repaints a terminal of this many rows; 0 if that is not known.
fn screen(text: &str, rows: usize) -> String {
    const HOME: &str = "\x1b[H";
    const ERASE_LINE: &str = "\x1b[K";
    const ERASE_BELOW: &str = "\x1b[J";
    const NO_WRAP: &str = "\x1b[?7l";
    const WRAP: &str = "\x1b[?7h";
    let count = text.lines().count();
    // The last row stays empty: a line end there would scroll.
    let shown = match rows {
        0 => count,
        rows if count < rows => count,
        rows => rows.saturating_sub(2),
    };
    let mut screen = format!("{HOME}{NO_WRAP}");
    for line in text.lines().take(shown) {
        screen.push_str(line);
        screen.push_str(ERASE_LINE);
        screen.push('\n');
    }
    if shown < count {
        screen.push_str(&format!("({} more lines){ERASE_LINE}\n", count - shown));
    }
    screen + ERASE_BELOW + WRAP
}

fn failed(error: io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::OutputClosed,
        _ => Failure::Because(format!("cannot write to standard output: {error}")),
    }
}

/// Tells a command on another thread that nobody waits for it any more.
#[derive(Clone, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    pub fn set(&self) {
        let (flag, changed) = &*self.0;
        *flag.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }

    fn is_set(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, duration: Duration) {
        let (flag, changed) = &*self.0;
        let flag = flag.lock().unwrap_or_else(PoisonError::into_inner);
        // Whether it is set is asked by the caller; a poisoned lock is as good as any here.
        let _ = changed.wait_timeout_while(flag, duration, |set| !*set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_has_as_many_lines_as_the_terminal() {
        let lines = |rows| screen("a\nb\nc\nd\n", rows).matches('\n').count();
        assert_eq!([0, 2, 3, 4, 5, 6].map(lines), [4, 1, 2, 3, 4, 4]);
        assert!(screen("a\nb\nc\nd\n", 4).contains("(2 more lines)"));
    }

    #[test]
    fn nothing_but_our_colors_reaches_a_terminal() {
        let [red, .., usual] = COLORS;
        let text = format!("{red}m\x1b[2J{usual}\u{9b}31m \n\x1b[1m");
        let shown = format!("{red}m\\x1b[2J{usual}\\xc2\\x9b31m \n\\x1b[1m");
        assert_eq!(colored(&text, true), shown);
        assert!(!colored(&text, false).contains('\x1b'));
        assert_eq!(colored("as it is\n", true), "as it is\n");
    }

    #[test]
    fn a_command_that_is_given_up_writes_nothing_more() {
        let stop = Stop::default();
        let mut out = Out::new(false, stop.clone());
        assert!(out.flush().is_ok());
        let waiter = std::thread::spawn(move || out.pause(Duration::from_secs(3600)));
        stop.set();
        assert!(matches!(waiter.join().unwrap(), Err(Failure::Stopped)));
        let mut late = Out::new(false, stop);
        assert!(matches!(late.text("late"), Err(Failure::Stopped)));
    }
}
