//! The prompts for worker and reviewer, and the parser of the reviewer's verdict.

/// The verdict of a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReviewResult {
    Pass,
    /// With the reasons.
    Fail(String),
    /// The answer has no verdict.
    None,
}

/// The verdict in the last line that has one.
pub(super) fn parse_verdict(answer: &str) -> ReviewResult {
    let lines: Vec<&str> = answer.lines().collect();
    let found = lines.iter().enumerate().rev().find_map(|(at, line)| Some((at, verdict_in(line)?)));
    match found {
        Some((_, true)) => ReviewResult::Pass,
        Some((at, false)) => {
            let reasons = lines[..at].iter().chain(&lines[at + 1..]).copied().collect::<Vec<_>>().join("\n");
            ReviewResult::Fail(reasons.trim().to_owned())
        }
        None => ReviewResult::None,
    }
}

/// Parses `VERDICT: PASS`, with any Markdown around it, or `<review>PASS</review>`.
fn verdict_in(line: &str) -> Option<bool> {
    let bare: String = line.chars().filter(|char| !"*_`# \t".contains(*char)).collect();
    let bare = bare.to_ascii_uppercase();
    let word = match bare.strip_prefix("<REVIEW>") {
        Some(rest) => rest.strip_suffix("</REVIEW>")?,
        None => bare.strip_prefix("VERDICT:")?.trim_end_matches(['.', '!']),
    };
    match word {
        "PASS" => Some(true),
        "FAIL" => Some(false),
        _ => None,
    }
}

/// The worker's prompt; with the reviewer's notes after a failed review.
pub(super) fn work(task: &str, notes: Option<&str>) -> String {
    match notes {
        None => format!(
            "{task}\n\nDo this task completely, in the working directory. When you are done, say in a few sentences what \
             you did and how you checked it: a reviewer will judge the result."
        ),
        Some(notes) => format!(
            "A reviewer looked at the result and did not pass it:\n\n{notes}\n\nDeal with every point, check the result, \
             and say what you changed. The task was:\n\n{task}"
        ),
    }
}

/// The reviewer's prompt.
pub(super) fn review(task: &str, report: &str) -> String {
    format!(
        "Review the work of somebody else in the working directory. Change nothing. The task was:\n\n{task}\n\nThe worker \
         reports:\n\n{report}\n\nLook at the result itself, not only at the report. Say what is missing or wrong, in a \
         list, most important first. End with a line of its own: `VERDICT: PASS` if the task is done, else \
         `VERDICT: FAIL`."
    )
}

/// The prompt for a reviewer that gave no verdict.
pub(super) fn ask_verdict() -> String {
    "Your answer has no verdict. Answer with one line: `VERDICT: PASS` if the task is done, else `VERDICT: FAIL`, and \
     before it what is missing."
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_verdict_in_the_answer_counts() {
        for text in [
            "fine\nVERDICT: PASS",
            "**Verdict: pass**\n",
            "VERDICT: FAIL\nno, wait\nVERDICT: PASS.",
            "<review>PASS</review>",
        ] {
            assert_eq!(parse_verdict(text), ReviewResult::Pass, "{text}");
        }
        assert_eq!(parse_verdict("- a\n- b\n\n`VERDICT: FAIL`\n"), ReviewResult::Fail("- a\n- b".into()));
        assert_eq!(parse_verdict("<review>FAIL</review>"), ReviewResult::Fail(String::new()));
        for text in ["", "PASS", "the verdict: pass or fail?", "VERDICT: MAYBE"] {
            assert_eq!(parse_verdict(text), ReviewResult::None, "{text}");
        }
    }

    #[test]
    fn every_prompt_contains_the_task() {
        for text in [work("T", None), work("T", Some("N")), review("T", "R")] {
            assert!(text.contains('T'), "{text}");
        }
    }
}
