//! The text of `owner` and `token` commands.

use jiff::Timestamp;
use pinfold_api::types::{EndAnswer, Owner, OwnerList, Token, TokenList};

use super::paint::{Paint, Tone};
use super::quantity::{render_duration, since};
use super::summary::render_survivors;
use super::table::{Cell, Heading, Side, cell, plain, render_table};

const OWNERS: &[Heading] =
    &[("OWNER", Side::Left), ("LIVE", Side::Right), ("CONTACT", Side::Right), ("PARENT", Side::Left)];
const TOKENS: &[Heading] = &[
    ("ID", Side::Left),
    ("OWNER", Side::Left),
    ("CREATED", Side::Left),
    ("EXPIRES", Side::Left),
    ("LABEL", Side::Left),
];

/// The table of `owner ls`. CONTACT is the time since the last contact.
pub(crate) fn render_owners(list: &OwnerList, now: Timestamp, width: Option<usize>, paint: Paint) -> String {
    if list.owners.is_empty() {
        return "no owners\n".to_owned();
    }
    let row = |owner: &Owner| -> Vec<Cell> {
        let contact = owner.last_contact.as_deref().and_then(|at| since(at, now));
        vec![
            cell(&owner.owner, Tone::Strong),
            plain(owner.live.to_string()),
            plain(contact.map_or_else(dash, render_duration)),
            plain(owner.parent.clone().unwrap_or_else(dash)),
        ]
    };
    render_table(OWNERS, &list.owners.iter().map(row).collect::<Vec<_>>(), width, paint)
}

/// What happened to the processes and agents of an owner that was ended.
pub(crate) fn render_end(answer: &EndAnswer, paint: Paint) -> String {
    let mut text = format!("{}  ended\n", paint.apply(Tone::Strong, &answer.owner));
    let kinds = [
        ("stopped", &answer.stopped),
        ("kept", &answer.kept),
        ("handed over", &answer.handed_over),
        ("agents stopped", &answer.agents_stopped),
        ("agents handed over", &answer.agents_handed_over),
    ];
    for (kind, ids) in kinds.into_iter().filter(|(_, ids)| !ids.is_empty()) {
        text.push_str(&format!("  {kind}: {}\n", ids.join(" ")));
    }
    text.push_str(&render_survivors(&answer.survivors, "still runs", paint));
    text
}

/// The table of `token ls`.
pub(crate) fn render_tokens(list: &TokenList, width: Option<usize>, paint: Paint) -> String {
    if list.tokens.is_empty() {
        return "no tokens\n".to_owned();
    }
    let row = |token: &Token| -> Vec<Cell> {
        vec![
            cell(&token.id, Tone::Strong),
            plain(token.owner.as_deref().unwrap_or("(operator)")),
            plain(&token.created_at),
            plain(token.expires_at.as_deref().unwrap_or("never")),
            plain(token.label.clone().unwrap_or_else(dash)),
        ]
    };
    render_table(TOKENS, &list.tokens.iter().map(row).collect::<Vec<_>>(), width, paint)
}

fn dash() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use pinfold_api::types::Survivor;

    use super::super::sample;
    use super::*;

    #[test]
    fn owners_are_listed_in_columns() {
        let owner = |name: &str, parent: Option<&str>, at: Option<&str>| Owner {
            owner: name.into(),
            parent: parent.map(str::to_owned),
            live: 2,
            last_contact: at.map(str::to_owned),
        };
        let list =
            OwnerList { owners: vec![owner("a", None, Some("2026-01-01T00:55:00Z")), owner("b", Some("a"), None)] };
        let text = render_owners(&list, sample::now(), None, Paint::Plain);
        assert_eq!(text, "OWNER  LIVE  CONTACT  PARENT\na         2    5m00s  -\nb         2        -  a\n");
    }

    #[test]
    fn ending_an_owner_lists_what_happened_to_each_process() {
        let answer = EndAnswer {
            owner: "a".into(),
            stopped: vec!["k1".into(), "k2".into()],
            kept: vec!["k3".into()],
            agents_stopped: vec!["a1".into()],
            survivors: vec![Survivor { pid: 9, command: "dd".into(), reason: "stuck".into() }],
            ..EndAnswer::default()
        };
        let expected = "a  ended\n  stopped: k1 k2\n  kept: k3\n  agents stopped: a1\n  pid 9 dd still runs: stuck\n";
        assert_eq!(render_end(&answer, Paint::Plain), expected);
    }

    #[test]
    fn a_token_without_an_owner_belongs_to_the_operator() {
        let token = Token {
            id: "t1".into(),
            owner: None,
            label: Some("laptop".into()),
            created_at: "2026-01-01T00:00:00Z".into(),
            expires_at: None,
        };
        let text = render_tokens(&TokenList { tokens: vec![token] }, None, Paint::Plain);
        assert!(text.ends_with("t1  (operator)  2026-01-01T00:00:00Z  never    laptop\n"), "{text}");
    }
}
