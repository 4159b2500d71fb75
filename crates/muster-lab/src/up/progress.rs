//! What is said while the cluster starts: one line that changes on a terminal, a line for each step elsewhere.

use std::io::{IsTerminal as _, Write as _};

/// The line.
pub(super) struct Progress {
    terminal: bool,
    last: String,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), last: String::new() }
    }

    /// Says what is being done.
    pub(super) fn say(&mut self, what: &str) {
        if what == self.last {
            return;
        }
        what.clone_into(&mut self.last);
        let mut out = std::io::stderr().lock();
        // Nobody is there to read it if it cannot be written.
        let _ = if self.terminal {
            write!(out, "\r\x1b[Kmuster-lab up: {what} ...")
        } else {
            writeln!(out, "muster-lab up: {what}")
        };
        let _ = out.flush();
    }

    /// Says how far something is, which only a line that changes can do well.
    pub(super) fn count(&mut self, what: &str) {
        if self.terminal {
            self.say(what);
        }
    }

    /// Makes room for other words.
    pub(super) fn clear(&mut self) {
        self.last.clear();
        if self.terminal {
            let mut out = std::io::stderr().lock();
            let _ = write!(out, "\r\x1b[K");
            let _ = out.flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
