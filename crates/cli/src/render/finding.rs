//! The text of `doctor`.

use pinfold_daemon::doctor::{Finding, Level};

use super::paint::{Paint, Tone};

/// One line for each finding, with the remedy below it.
pub(crate) fn render_findings(findings: &[Finding], paint: Paint) -> String {
    let mut text = String::new();
    for finding in findings {
        let (word, tone) = match finding.level {
            Level::Good => ("good", Tone::Good),
            Level::Note => ("note", Tone::Busy),
            Level::Bad => ("bad ", Tone::Bad),
        };
        text.push_str(&format!("{}  {}: {}\n", paint.apply(tone, word), finding.topic, finding.text));
        if let Some(remedy) = &finding.remedy {
            text.push_str(&format!("      → {remedy}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_comes_with_its_remedy() {
        let finding = Finding {
            level: Level::Bad,
            topic: "home".into(),
            text: "cannot be written".into(),
            remedy: Some("chown it".into()),
        };
        assert_eq!(render_findings(&[finding], Paint::Plain), "bad   home: cannot be written\n      → chown it\n");
    }
}
