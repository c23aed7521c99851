//! Errors of a command, with the exit code for each.

use std::io;

use pinfold_api::client::ClientError;
use pinfold_api::error::{ApiError, ErrorCode};

use crate::exit;

/// An error of the command itself. A process that failed is not an error.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Printed as a line, or as an object with `--json`.
    pub(crate) error: ApiError,
    /// Exit code of the command.
    pub(crate) exit: u8,
    /// Exit without a message: the reader of our output closed the pipe.
    pub(crate) quiet: bool,
}

impl Failure {
    /// The command line or the request is invalid: exit code 2.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Failure::new(ErrorCode::InvalidRequest, message, exit::USAGE)
    }

    /// pinfold or the system failed: exit code 1.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Failure::new(ErrorCode::Internal, message, exit::FAILED)
    }

    /// An error with a given exit code.
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>, exit: u8) -> Self {
        Failure { error: ApiError { code, message: message.into(), id: None }, exit, quiet: false }
    }

    /// For commands that exit with the code of another program: our own errors use 125 to 127.
    pub(crate) fn of_run(mut self) -> Self {
        if self.quiet {
            return self;
        }
        self.exit = match self.error.code {
            ErrorCode::NoProgram => exit::code_of_exec(&self.error.message),
            ErrorCode::FailedToStart => exit::NOT_EXECUTABLE,
            _ => exit::PINFOLD_FAILED,
        };
        self
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Api { error, .. } => Failure { exit: exit_of(error.code), error, quiet: false },
            ClientError::Unreachable { .. } | ClientError::Protocol(_) => Failure::internal(error.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let quiet = error.kind() == io::ErrorKind::BrokenPipe;
        let exit = if quiet { exit::OUTPUT_CLOSED } else { exit::FAILED };
        Failure { quiet, exit, ..Failure::internal(error.to_string()) }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Failure::internal(error.to_string())
    }
}

/// 2 if a different request could succeed, otherwise 1.
fn exit_of(code: ErrorCode) -> u8 {
    match code {
        ErrorCode::InvalidJson
        | ErrorCode::BodyTooLarge
        | ErrorCode::InvalidRequest
        | ErrorCode::NoSuchRoute
        | ErrorCode::MethodNotAllowed
        | ErrorCode::NotFound
        | ErrorCode::AmbiguousId
        | ErrorCode::BadCwd
        | ErrorCode::NoProgram
        | ErrorCode::BadPattern
        | ErrorCode::BadSignal
        | ErrorCode::AlreadyOver
        | ErrorCode::StillRunning
        | ErrorCode::AgentBusy
        | ErrorCode::KeyReused
        | ErrorCode::NoStdin
        | ErrorCode::NoTerminal
        | ErrorCode::StdinClosed
        | ErrorCode::LimitReached
        | ErrorCode::Forbidden
        | ErrorCode::Unauthorized => exit::USAGE,
        ErrorCode::FailedToStart
        | ErrorCode::Damaged
        | ErrorCode::StoreUnwritable
        | ErrorCode::KeeperSilent
        | ErrorCode::Recovering
        | ErrorCode::ResourceShortage
        | ErrorCode::ShuttingDown
        | ErrorCode::Internal => exit::FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(code: ErrorCode) -> Failure {
        let error = ApiError { code, message: "m".into(), id: None };
        Failure::from(ClientError::Api { status: 400, error })
    }

    #[test]
    fn invalid_requests_exit_with_2_and_internal_errors_with_1() {
        assert_eq!(api(ErrorCode::BadSignal).exit, 2);
        assert_eq!(api(ErrorCode::StoreUnwritable).exit, 1);
    }

    #[test]
    fn a_command_that_did_not_start_has_exit_codes_125_to_127() {
        assert_eq!(api(ErrorCode::NoProgram).of_run().exit, 127);
        assert_eq!(api(ErrorCode::FailedToStart).of_run().exit, 126);
        assert_eq!(api(ErrorCode::BadCwd).of_run().exit, 125);
    }

    #[test]
    fn a_closed_pipe_is_silent() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(failure.quiet && failure.of_run().exit == 141);
    }
}
