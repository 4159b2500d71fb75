//! Progress messages while the cluster starts: one changing line on a terminal, a line for each step elsewhere.

use std::io::{IsTerminal as _, Write as _};

/// The progress line.
pub(super) struct Progress {
    terminal: bool,
    last: String,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), last: String::new() }
    }

    /// Prints the current step.
    pub(super) fn say(&mut self, what: &str) {
        if what == self.last {
            return;
        }
        what.clone_into(&mut self.last);
        let mut out = std::io::stderr().lock();
        // Errors are ignored: the terminal may be closed.
        let _ = if self.terminal {
            write!(out, "\r\x1b[Kmuster-lab up: {what} ...")
        } else {
            writeln!(out, "muster-lab up: {what}")
        };
        let _ = out.flush();
    }

    /// Prints a count; only on a terminal, where the line can change.
    pub(super) fn count(&mut self, what: &str) {
        if self.terminal {
            self.say(what);
        }
    }

    /// Clears the line for other output.
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
