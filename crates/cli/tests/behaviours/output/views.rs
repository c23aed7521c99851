//! Views: what is shown within a budget, and the exact range that is omitted.

use pinfold_api::types::{Outcome, OutputQuery};
use pinfold_testkit::Pinfold;

use super::gate::Gate;
use super::{assert_shows, read, read_next, read_raw, start_limited, view};
use crate::PINFOLD;
use crate::background::meanwhile;

/// The output of `seq 1 20000`.
fn twenty_thousand() -> String {
    (1..=20_000).map(|line| format!("{line}\n")).collect()
}

#[test]
#[allow(non_snake_case, reason = "the behaviour's name")]
fn no_loss_5MB() {
    let pinfold = Pinfold::start(PINFOLD);
    let started = pinfold.sh("yes | head -c 5000000; echo END");
    let record = pinfold.wait_exit(&started.id);
    let all = "y\n".repeat(2_500_000) + "END\n";
    assert_eq!((record.output.bytes, record.output.dropped), (5_000_004, 0));
    let raw = read_raw(&pinfold, &record.id, 0, "16M");
    assert!(raw.bytes == all.as_bytes() && raw.gap.is_none());
    let page = pinfold.output(&record.id, &OutputQuery::default());
    assert_shows(&page, &all);
    assert_eq!((page.original_bytes, page.end), (5_000_004, 5_000_004));
    assert!(page.text.starts_with("y\ny\n") && page.text.ends_with("y\nEND\n") && page.text.len() <= 32 * 1024);
}

#[test]
fn tail_never_cut() {
    let pinfold = Pinfold::start(PINFOLD);
    let all = twenty_thousand();
    let (record, _) = pinfold.run("seq 1 20000");
    for budget in [1, 256, 257, 1000, 4096, 32 * 1024, all.len() - 1, all.len(), 16 << 20] {
        let page = view(&pinfold, &record.id, &budget.to_string());
        assert_shows(&page, &all);
        assert!(page.text.ends_with("\n20000\n") && page.text.starts_with("1\n"), "{budget}");
        // A budget below 256 is treated as 256.
        assert!(page.text.len() <= budget.max(256), "{budget}: {}", page.text.len());
        assert_eq!(page.omitted.is_none(), budget >= all.len(), "{budget}");
    }
    for (tail, text) in [("1 line", "20000\n"), ("2 lines", "19999\n20000\n"), ("8", "9\n20000\n"), ("0", "")] {
        let page = pinfold.output(&record.id, &OutputQuery { tail: Some(tail.into()), ..OutputQuery::default() });
        assert_eq!((page.text.as_str(), page.next_cursor), (text, all.len() as u64), "{tail}");
    }
}

#[test]
fn contiguous_not_split() {
    let pinfold = Pinfold::start(PINFOLD);
    let (record, _) = pinfold.run("seq -f %079.0f 1 218");
    let all: String = (1..=218).map(|line| format!("{line:079}\n")).collect();
    let page = pinfold.output(&record.id, &OutputQuery::default());
    assert_eq!(page.text, all);
    assert_eq!((page.omitted, page.omitted_bytes, page.gap), (None, 0, None));
    assert_eq!((page.original_bytes, page.shown_bytes, page.next_cursor), (17_440, 17_440, 17_440));
}

#[test]
fn omission_exact() {
    let pinfold = Pinfold::start(PINFOLD);
    let all = twenty_thousand();
    let (record, _) = pinfold.run("seq 1 20000");
    for size in 0..=3 * 256_u64 {
        let cursor = Some(all.len() as u64 - size);
        let query = OutputQuery { cursor, budget: Some("256".into()), ..OutputQuery::default() };
        let page = pinfold.output(&record.id, &query);
        assert_shows(&page, &all);
        assert_eq!((page.original_bytes, page.omitted.is_some()), (size, size > 256));
    }
    // A line longer than the budget is cut, at both ends of the omission.
    let (record, _) = pinfold.run("echo first; head -c 10000 /dev/zero | tr '\\0' x; echo; echo last");
    let all = format!("first\n{}\nlast\n", "x".repeat(10_000));
    for budget in [256, 300, 5000, 9999, 10_000, 10_011, 10_012, 20_000] {
        let page = view(&pinfold, &record.id, &budget.to_string());
        assert_shows(&page, &all);
        assert!(page.text.len() <= budget && page.text.ends_with("x\nlast\n"), "{budget}");
        assert_eq!(page.omitted.is_some(), budget < all.len(), "{budget}");
    }
}

#[test]
fn cr_progress_final_state() {
    let pinfold = Pinfold::start(PINFOLD);
    let command = r"i=1; while [ $i -le 500 ]; do printf '\rstep %d' $i; i=$((i+1)); done; echo ' done'; echo after";
    let (record, _) = pinfold.run(command);
    let all = (1..=500).map(|step| format!("\rstep {step}")).collect::<String>() + " done\nafter\n";
    let page = pinfold.output(&record.id, &OutputQuery::default());
    assert_eq!(page.text, "step 500 done\nafter\n");
    assert_eq!((page.original_bytes, page.shown_bytes, page.omitted_bytes), (all.len() as u64, 20, 0));
    assert_eq!(page.collapsed_bytes, all.len() as u64 - 20);
    let whole = pinfold.output(&record.id, &OutputQuery { collapse_cr: Some(false), ..OutputQuery::default() });
    assert_eq!(whole.text, all);
}

#[test]
fn utf8_whole_at_seams() {
    let pinfold = Pinfold::start(PINFOLD);
    let all = "aé漢🙂\n".repeat(300);
    std::fs::write(pinfold.home().join("text"), &all).expect("a file");
    let (record, _) = pinfold.run(&format!("cat {}", pinfold.home().join("text").display()));
    for max in 1..=12 {
        let (mut text, mut cursor) = (String::new(), 0);
        while cursor < all.len() as u64 {
            let page = read(&pinfold, &record.id, cursor, &max.to_string());
            assert!(page.next_cursor > cursor, "a read of {max} bytes does not advance");
            assert_shows(&page, &all);
            text.push_str(&page.text);
            cursor = page.next_cursor;
        }
        assert_eq!(text, all, "{max}");
    }
    for budget in 256..300 {
        assert_shows(&view(&pinfold, &record.id, &budget.to_string()), &all);
    }
}

#[test]
fn utf8_whole_over_two_writes() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "second-half");
    let started = pinfold.sh(&format!(r"printf 'a\303'; {}; printf '\251\303'", gate.wait()));
    let page = read_next(&pinfold, &started.id, 0);
    assert_eq!((page.text.as_str(), page.next_cursor, page.end), ("a", 1, 2));
    // A read does not return for half a character.
    let (client, id) = (pinfold.client().clone(), started.id.clone());
    let query = OutputQuery { cursor: Some(1), wait: Some("60s".into()), ..OutputQuery::default() };
    let waiting = async move { client.output(&id, &query).await.expect("a page") };
    let [page] = &meanwhile(&pinfold, [waiting], async || gate.open())[..] else { panic!("one answer") };
    assert!(page.text.starts_with('é'), "{page:?}");
    pinfold.wait_finished(&started.id);
    // Only bytes that can no longer be completed are replaced.
    let page = read(&pinfold, &started.id, 1, "1k");
    assert_eq!((page.text.as_str(), page.next_cursor), ("é\u{FFFD}", 4));
}

/// Where bytes were dropped a character may be cut: its remaining bytes do not stop the reader.
#[test]
fn utf8_cut_by_a_gap_is_passed() {
    let pinfold = Pinfold::start(PINFOLD);
    let id = start_limited(&pinfold, "yes 漢漢 | head -c 700000", "64k").id;
    let record = pinfold.wait_finished(&id);
    let (mut cursor, mut shown, mut missing) = (0, 0, 0);
    while cursor < 700_000 {
        let page = read(&pinfold, &id, cursor, "1000");
        assert!(page.next_cursor > cursor, "a read at {cursor} does not advance");
        missing += page.gap.map_or(0, |gap| gap.to - gap.from);
        shown += page.shown_bytes;
        cursor = page.next_cursor;
    }
    assert_eq!((shown + missing, missing), (700_000, record.output.dropped));
}

#[test]
fn invalid_utf8_cursor_exact() {
    let pinfold = Pinfold::start(PINFOLD);
    let (record, text) = pinfold.run(r"printf 'a\377\000b\200\n'");
    assert_eq!(record.outcome, Some(Outcome::Exited { code: 0 }));
    assert_eq!(text, "a\u{FFFD}\0b\u{FFFD}\n");
    assert_eq!(read_raw(&pinfold, &record.id, 0, "1k").bytes.as_ref(), b"a\xff\0b\x80\n");
    let page = read(&pinfold, &record.id, 3, "1k");
    assert_eq!((page.text.as_str(), page.cursor, page.next_cursor), ("b\u{FFFD}\n", 3, 6));

    let bytes: Vec<u8> = (0..40_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(pinfold.home().join("bytes"), &bytes).expect("a file");
    let (record, _) = pinfold.run(&format!("cat {}", pinfold.home().join("bytes").display()));
    let (mut raw, mut cursor) = (Vec::new(), 0);
    while cursor < bytes.len() as u64 {
        let page = read(&pinfold, &record.id, cursor, "777");
        assert_eq!((page.cursor, page.shown_bytes), (cursor, page.next_cursor - cursor));
        raw.extend(read_raw(&pinfold, &record.id, cursor, &page.shown_bytes.to_string()).bytes);
        cursor = page.next_cursor;
    }
    assert!(raw == bytes && cursor == bytes.len() as u64);
}

#[test]
fn ansi_stripped_on_request() {
    let pinfold = Pinfold::start(PINFOLD);
    let (record, text) = pinfold.run(r"printf '\033[31mred\033[0m plain\033]0;title\007\n'");
    let all = "\x1b[31mred\x1b[0m plain\x1b]0;title\x07\n";
    assert_eq!(text, all);
    assert_eq!(read_raw(&pinfold, &record.id, 0, "1k").bytes, all);
    let page = pinfold.output(&record.id, &OutputQuery { strip_ansi: Some(true), ..OutputQuery::default() });
    assert_eq!(page.text, "red plain\n");
    assert_eq!((page.original_bytes, page.shown_bytes, page.next_cursor), (all.len() as u64, 10, all.len() as u64));
    assert_eq!(page.collapsed_bytes, all.len() as u64 - 10);
    assert_eq!(pinfold.cli(&["logs", &record.id]).stdout, all);
    assert_eq!(pinfold.cli(&["logs", "--strip-ansi", &record.id]).stdout, "red plain\n");
}

#[test]
fn token_budget() {
    let pinfold = Pinfold::start(PINFOLD);
    let all = twenty_thousand();
    let (record, _) = pinfold.run("seq 1 20000");
    for tokens in [100, 1000, 5000] {
        let query = OutputQuery { budget_tokens: Some(tokens), ..OutputQuery::default() };
        let page = pinfold.output(&record.id, &query);
        assert_shows(&page, &all);
        assert_eq!(page.original_bytes, all.len() as u64);
        let max = tokens as usize * 4;
        assert!((max / 2..=max).contains(&page.text.len()), "{tokens} tokens: {} bytes", page.text.len());
    }
}
