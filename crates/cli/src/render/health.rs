//! The text of `daemon status`, with a hint if the daemon has another version than the client.

use pinfold_api::types::Health;

use super::paint::{Paint, Tone};
use super::quantity::render_count;
use crate::version::VERSION;

/// One line for each fact.
pub(crate) fn render_health(health: &Health, paint: Paint) -> String {
    let tone = if health.troubles.is_empty() { Tone::Good } else { Tone::Bad };
    let mut text = format!(
        "{}  pid {}, version {}, since {}\n",
        paint.apply(tone, &health.status),
        health.pid,
        health.version,
        health.started_at
    );
    let reason = health.no_cgroup.as_ref().map(|reason| format!(" (no cgroup: {reason})")).unwrap_or_default();
    text.push_str(&format!("  home         {}\n  socket       {}\n", health.home, health.socket));
    if let Some(tcp) = &health.tcp {
        text.push_str(&format!("  tcp          {tcp}, token required\n"));
    }
    text.push_str(&format!("  containment  {}{reason}\n", health.containment));
    text.push_str(&format!("  live         {}\n", render_count(health.live, "process", "processes")));
    for note in &health.notes {
        text.push_str(&format!("  note: {note}\n"));
    }
    for trouble in &health.troubles {
        text.push_str(&format!("  {}\n", paint.apply(Tone::Bad, &format!("problem: {trouble}"))));
    }
    if health.version != VERSION {
        text.push_str(&format!("  this client is version {VERSION}: `pinfold upgrade` starts that version instead\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_and_every_problem_are_shown() {
        let health = Health {
            status: "degraded".into(),
            version: "0.0.9".into(),
            pid: 7,
            home: "/h".into(),
            socket: "/h/socket".into(),
            tcp: None,
            started_at: "2026-01-01T00:00:00Z".into(),
            live: 1,
            containment: "subreaper".into(),
            no_cgroup: Some("not mounted".into()),
            troubles: vec!["disk full".into()],
            recovering: true,
            notes: vec!["still reading".into()],
        };
        let text = render_health(&health, Paint::Plain);
        for part in [
            "pid 7",
            "(no cgroup: not mounted)",
            "1 process\n",
            "problem: disk full",
            "note: still reading",
            "this client is version",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
