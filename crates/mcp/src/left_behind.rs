//! Shows processes that earlier sessions of the same client left running in the same directory. `process_list` lists
//! them, and `process_list {"adopt":…}` takes them over. The daemon decides which these are and who may adopt them.

use pinfold_api::types::{AdoptAnswer, AdoptRequest, LeftBehind, LeftBehindList};
use serde_json::{Map, Value, json};

use crate::arguments::Arguments;
use crate::compact::MAX_LISTED_COMMAND;
use crate::facts::{self, Facts};
use crate::tool_error::ToolError;
use crate::tools::CallContext;

/// The processes that a call asks to adopt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Adopt {
    All,
    Ids(Vec<String>),
}

impl Adopt {
    /// Parses `"all"`, true (meaning all), one id, or several ids.
    pub(crate) fn parse(arguments: &Arguments) -> Result<Option<Self>, ToolError> {
        let texts = match arguments.raw("adopt") {
            None | Some(Value::Bool(false)) => return Ok(None),
            Some(Value::Bool(true)) => return Ok(Some(Adopt::All)),
            Some(Value::String(text)) => vec![text.clone()],
            Some(_) => arguments.texts("adopt")?,
        };
        let words = texts.iter().flat_map(|text| text.split([',', ' '])).filter(|word| !word.is_empty());
        let ids: Vec<String> = words.map(str::to_owned).collect();
        match ids.as_slice() {
            [] => Err(arguments.invalid("`adopt` is empty: give `all`, or an id that is under left_behind")),
            ids if ids.iter().any(|id| matches!(id.as_str(), "all" | "true")) => Ok(Some(Adopt::All)),
            _ => Ok(Some(Adopt::Ids(ids))),
        }
    }
}

/// Lists the processes left behind; empty if this server does not register sessions or the daemon is older.
pub(crate) async fn list(ctx: &CallContext<'_>) -> LeftBehindList {
    if !ctx.sessions.is_enabled() {
        return LeftBehindList::default();
    }
    let ask = async || ctx.daemon.retry(|client| async move { client.left_behind().await }).await;
    match ask().await {
        Err(error) if error.code == "forbidden" => {
            register_again(ctx).await;
            ask().await.unwrap_or_default()
        }
        listed => listed.unwrap_or_default(),
    }
}

async fn register_again(ctx: &CallContext<'_>) {
    ctx.sessions.forget(&ctx.caller.owner).await;
    let client = ctx.context.client_info().map(|client| client.name);
    ctx.sessions.register(client, &ctx.caller, &ctx.daemon).await;
}

/// Adopts processes. Returns their ids, and a note for each one that was refused.
pub(crate) async fn adopt(
    ctx: &CallContext<'_>,
    wanted: Adopt,
) -> Result<(Option<Vec<String>>, Vec<String>), ToolError> {
    if !ctx.sessions.is_enabled() {
        let message = "this server takes nothing over: it has an owner of its own, or serves over HTTP";
        return Err(ToolError::invalid(message));
    }
    let all = wanted == Adopt::All;
    let request = &AdoptRequest { processes: if let Adopt::Ids(ids) = wanted { ids } else { vec![] } };
    let AdoptAnswer { adopted, refused } =
        ctx.daemon.retry(|client| async move { client.adopt(request).await }).await?;
    let mut notes: Vec<String> = Vec::new();
    if all && adopted.is_empty() && refused.is_empty() {
        notes.push("nothing is left behind here now: another session may have taken it over".into());
    }
    for one in refused {
        notes.push(format!("{} was not taken over: {}", facts::printable(&one.process), one.reason));
    }
    ctx.news.note_adopted(&ctx.caller.owner, &adopted).await;
    Ok((Some(adopted), notes))
}

/// Adds the processes left behind to a list result, with the call that adopts them.
pub(crate) fn add_to(list: &LeftBehindList, facts: &mut Map<String, Value>) {
    if list.left_behind.is_empty() {
        return;
    }
    facts.insert("left_behind".into(), list.left_behind.iter().map(entry).collect());
    let more = list.total.saturating_sub(list.left_behind.len() as u64);
    if more > 0 {
        facts.insert("more_left_behind".into(), more.into());
    }
    let note = "left_behind: processes that earlier sessions in this directory left running; if they are yours, \
                process_list {\"adopt\":\"all\"} takes them over";
    if let Value::Array(notes) = facts.entry("notes").or_insert_with(|| Value::Array(vec![])) {
        notes.push(note.into());
    }
}

fn entry(left: &LeftBehind) -> Value {
    let record = &left.process;
    let shown = Facts::from_record(record);
    let mut ports = shown.ports;
    ports.extend(shown.strays.iter().flat_map(|stray| stray.ports.iter().copied()));
    let mut entry = json!({
        "id": shown.id,
        "command": facts::clip(&facts::printable(&record.command), MAX_LISTED_COMMAND),
        "state": shown.state,
        "session_ended": ago(left.session_ended_seconds_ago),
    });
    if let Some(name) = shown.name {
        entry["name"] = name.into();
    }
    if !ports.is_empty() {
        entry["ports"] = ports.into();
    }
    entry
}

fn ago(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s ago"),
        120..7200 => format!("{}m ago", seconds / 60),
        7200..172_800 => format!("{}h ago", seconds / 3600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}

/// Improves a `not_found` error: a resumed chat may use an id that its earlier session left behind, so say how to adopt
/// it.
pub(crate) async fn explain_not_found(ctx: &CallContext<'_>, arguments: &Arguments, error: ToolError) -> ToolError {
    if error.code != "not_found" {
        return error;
    }
    let mut named = arguments.texts("ids").unwrap_or_default();
    named.extend(arguments.text("id").ok().flatten());
    let left = list(ctx).await.left_behind;
    let is_named = |left: &&LeftBehind| {
        named.iter().any(|word| *word == left.process.id || Some(word) == left.process.name.as_ref())
    };
    let Some(found) = left.iter().find(is_named) else { return error };
    let id = &found.process.id;
    let message = format!("{id} was left behind by a session that has ended: take it over, then call again");
    ToolError { message, ..error }.with_example(&format!("process_list {{\"adopt\":\"{id}\"}}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adopt(value: Value) -> Result<Option<Adopt>, ToolError> {
        let values = json!({ "adopt": value }).as_object().expect("an object").clone();
        Adopt::parse(&Arguments::new(values, &[], &["adopt"], "process_list {}")?)
    }

    #[test]
    fn adopt_is_accepted_in_any_form() {
        for all in [json!("all"), json!(true), json!("true"), json!(["all"])] {
            assert_eq!(adopt(all.clone()), Ok(Some(Adopt::All)), "{all}");
        }
        let two = Ok(Some(Adopt::Ids(vec!["a".into(), "b".into()])));
        for ids in [json!("a,b"), json!("a b"), json!(["a", "b"])] {
            assert_eq!(adopt(ids.clone()), two, "{ids}");
        }
        assert_eq!((adopt(json!(false)), adopt(Value::Null)), (Ok(None), Ok(None)));
        for bad in [json!(""), json!([]), json!(7), json!({})] {
            assert!(adopt(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_are_short() {
        assert_eq!([0, 119, 120, 7200, 200_000].map(ago), ["0s ago", "119s ago", "2m ago", "2h ago", "2d ago"]);
    }
}
