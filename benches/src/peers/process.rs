//! A contestant in a process of its own, asked line by line: its memory is nobody else's, and when it
//! crashes the others go on.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use weir_state_api::{Error, ErrorKind, Result};

/// A process that waits for commands. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Contender {
    /// What it is, for errors: "the JVM".
    what: &'static str,
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Contender {
    /// Starts a process and waits until it is ready.
    pub(crate) fn start(what: &'static str, command: &mut Command) -> Result<Self> {
        let failed = |error| {
            Error::new(ErrorKind::Unavailable, format!("{what} cannot be started")).source(error)
        };
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().map_err(failed)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (commands, answers) = pipes.ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, format!("{what} was started without pipes"))
        })?;
        let mut contender = Contender { what, child, commands, answers: BufReader::new(answers) };
        contender.ask::<0>("ready")?;
        Ok(contender)
    }

    /// Sends a command and reads the numbers of its answer: `ok` and numbers, or `error` and text.
    pub(crate) fn ask<const N: usize>(&mut self, command: &str) -> Result<[u64; N]> {
        let what = self.what;
        let lost = |error: std::io::Error| {
            Error::new(ErrorKind::Unavailable, format!("{what} has gone")).source(error)
        };
        // A process that has gone does not read; how it ended says more than a broken pipe.
        let sent = writeln!(self.commands, "{command}");
        let mut line = String::new();
        if sent.is_err() || self.answers.read_line(&mut line).map_err(lost)? == 0 {
            let status = self.child.wait().map_err(lost)?;
            return Err(Error::new(ErrorKind::Unavailable, format!("{what} ended: {status}")));
        }
        let answer = line.trim_end();
        let numbers = answer.strip_prefix("ok").map(|numbers| {
            numbers.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()
        });
        match numbers {
            Some(Ok(numbers)) => numbers.try_into().ok(),
            _ => None,
        }
        .ok_or_else(|| Error::new(ErrorKind::Unavailable, answer.trim_start_matches("error ")))
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        // Either may fail only because it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Contender> {
        Contender::start("the shell", Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn answers_are_numbers_or_what_went_wrong() {
        let script =
            "read x; echo ok; read x; echo ok 1 22; read x; echo error no disk; read x; echo hm";
        let mut contender = shell(script).unwrap();
        assert_eq!(contender.ask("two").unwrap(), [1, 22]);
        assert!(contender.ask::<1>("one").unwrap_err().to_string().contains("no disk"));
        assert!(contender.ask::<1>("one").is_err());
    }

    #[test]
    fn one_that_crashes_in_the_middle_is_an_error_that_says_how() {
        let mut contender = shell("read x; echo ok; read x; kill -9 $$").unwrap();
        let error = contender.ask::<1>("round 0").unwrap_err().to_string();
        assert!(error.contains("the shell ended") && error.contains('9'), "{error}");
        assert!(contender.ask::<1>("round 1").is_err());
    }

    #[test]
    fn one_that_does_not_start_is_an_error() {
        let mut command = Command::new("/nonexistent/program");
        assert!(Contender::start("it", &mut command).unwrap_err().to_string().contains("started"));
        assert!(shell("exit 3").unwrap_err().to_string().contains('3'));
    }
}
