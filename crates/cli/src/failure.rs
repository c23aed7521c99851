//! Why a command could not do its work, and the one place that decides its exit code.

use std::io;

use pinfold_api::client::ClientError;
use pinfold_api::error::{ApiError, ErrorCode};

use crate::exit;

/// A failure of the command, not of the process that it is about.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What is printed: as a line for people, or as it is with `--json`.
    pub(crate) error: ApiError,
    /// What the command exits with.
    pub(crate) exit: u8,
    /// Whether there is nothing to say: whoever read our output left.
    pub(crate) quiet: bool,
}

impl Failure {
    /// The request makes no sense as it was given.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Failure::new(ErrorCode::InvalidRequest, message, exit::REFUSED)
    }

    /// pinfold itself could not do it.
    pub(crate) fn trouble(message: impl Into<String>) -> Self {
        Failure::new(ErrorCode::Internal, message, exit::TROUBLE)
    }

    /// With an exit code of the caller's choice.
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>, exit: u8) -> Self {
        Failure { error: ApiError { code, message: message.into(), id: None }, exit, quiet: false }
    }

    /// For commands whose exit code is another program's: our own failures are told apart by 125 to 127.
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
            ClientError::Unreachable { .. } | ClientError::Protocol(_) => Failure::trouble(error.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let quiet = error.kind() == io::ErrorKind::BrokenPipe;
        let exit = if quiet { exit::OUTPUT_CLOSED } else { exit::TROUBLE };
        Failure { quiet, exit, ..Failure::trouble(error.to_string()) }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Failure::trouble(error.to_string())
    }
}

/// 2 where the caller can ask better, 1 where it cannot.
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
        | ErrorCode::AgentBusy
        | ErrorCode::KeyReused
        | ErrorCode::NoStdin
        | ErrorCode::NoTerminal
        | ErrorCode::StdinClosed
        | ErrorCode::LimitReached
        | ErrorCode::Forbidden
        | ErrorCode::Unauthorized => exit::REFUSED,
        ErrorCode::FailedToStart
        | ErrorCode::Damaged
        | ErrorCode::StoreUnwritable
        | ErrorCode::KeeperSilent
        | ErrorCode::Recovering
        | ErrorCode::ResourceShortage
        | ErrorCode::ShuttingDown
        | ErrorCode::Internal => exit::TROUBLE,
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
    fn refusals_exit_with_2_and_trouble_with_1() {
        assert_eq!(api(ErrorCode::BadSignal).exit, 2);
        assert_eq!(api(ErrorCode::StoreUnwritable).exit, 1);
    }

    #[test]
    fn a_run_that_never_ran_is_told_apart_from_any_command() {
        assert_eq!(api(ErrorCode::NoProgram).of_run().exit, 127);
        assert_eq!(api(ErrorCode::FailedToStart).of_run().exit, 126);
        assert_eq!(api(ErrorCode::BadCwd).of_run().exit, 125);
    }

    #[test]
    fn a_reader_that_left_is_no_news() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(failure.quiet && failure.of_run().exit == 141);
    }
}
