//! `process_input`: says how to give input, as long as no process has a stdin to write to.

use super::{Answer, Desk, wait};
use crate::arguments::Arguments;
use crate::refusal::Refusal;

/// A right call.
pub(super) const RIGHT: &str = r#"execute {"command":"cat > answers <<'EOF'\nyes\nEOF\n./setup < answers"}"#;

pub(super) async fn call(desk: &Desk<'_>, arguments: &Arguments) -> Result<Answer, Refusal> {
    let id = arguments.required("id")?;
    let record = wait::record(desk, &id).await?;
    Err(Refusal {
        code: "no_stdin".into(),
        message: format!(
            "{} has no stdin to write to: it was started with /dev/null. Start it again with its input: from a \
             here-document, a pipe (`printf 'yes\\n' | ./setup`) or a file (`./setup < answers`)",
            record.id
        ),
        right_call: Some(RIGHT.into()),
    })
}
