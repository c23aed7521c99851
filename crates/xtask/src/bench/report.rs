//! The report: rows with their targets, as a table and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::Scale;
use super::machine::Machine;
use super::stats::Summary;

/// All measurements.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) scale: Scale,
    pub(super) rows: Vec<Row>,
}

/// One figure.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// For programs; stable.
    pub(super) id: &'static str,
    /// For people.
    pub(super) what: String,
    pub(super) unit: &'static str,
    pub(super) measured: Summary,
    pub(super) baseline: Option<Baseline>,
    pub(super) target: Option<Target>,
}

/// The baseline.
#[derive(Clone, Debug)]
pub(super) struct Baseline {
    pub(super) what: String,
    pub(super) measured: Summary,
}

/// The target of a figure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// The ratio of the two p50 is at most this.
    RatioAtMost(f64),
    /// The ratio of the two p50 is at least this.
    RatioAtLeast(f64),
    /// The p50 itself is at most this.
    AtMost(f64),
}

impl Row {
    pub(super) fn new(id: &'static str, what: impl Into<String>, unit: &'static str, measured: Summary) -> Self {
        Row { id, what: what.into(), unit, measured, baseline: None, target: None }
    }

    pub(super) fn against(self, what: impl Into<String>, measured: Summary) -> Self {
        Row { baseline: Some(Baseline { what: what.into(), measured }), ..self }
    }

    pub(super) fn target(self, target: Target) -> Self {
        Row { target: Some(target), ..self }
    }

    fn ratio(&self) -> Option<(f64, f64)> {
        self.baseline.as_ref().map(|baseline| self.measured.over(&baseline.measured))
    }

    /// Whether the target is met; `None` without one.
    fn is_met(&self) -> Option<bool> {
        let ratio = self.ratio().map_or(f64::NAN, |(p50, _)| p50);
        self.target.map(|target| match target {
            Target::RatioAtMost(max) => ratio <= max,
            Target::RatioAtLeast(min) => ratio >= min,
            Target::AtMost(max) => self.measured.p50 <= max,
        })
    }

    fn render(&self) -> String {
        let spread = |summary: &Summary| if summary.count > 1 { number(summary.p95) } else { "–".to_owned() };
        let baseline = self.baseline.as_ref().map_or("–".to_owned(), |baseline| {
            format!("{} / {}", number(baseline.measured.p50), spread(&baseline.measured))
        });
        let ratio = self.ratio().map_or("–".to_owned(), |(p50, p95)| {
            let p95 = if self.measured.count > 1 { format!(" / {p95:.2}×") } else { String::new() };
            format!("{p50:.2}×{p95}")
        });
        let target = self.target.map_or("–".to_owned(), |target| match target {
            Target::RatioAtMost(max) => format!("≤ {max}×"),
            Target::RatioAtLeast(min) => format!("≥ {min}×"),
            Target::AtMost(max) => format!("≤ {max} {}", self.unit),
        });
        let met = self.is_met().map_or("", |met| if met { "yes" } else { "**no**" });
        let measured = format!("{} / {}", number(self.measured.p50), spread(&self.measured));
        // A `|` would end the cell.
        let what = self.what.replace('|', "\\|");
        format!("| {what} | {} | {measured} | {baseline} | {ratio} | {target} | {met} |", self.unit)
    }

    fn to_json(&self) -> Value {
        let summary = |summary: &Summary| json!({ "p50": summary.p50, "p95": summary.p95, "count": summary.count });
        let target = self.target.map(|target| match target {
            Target::RatioAtMost(value) => json!({ "of": "ratio", "at_most": value }),
            Target::RatioAtLeast(value) => json!({ "of": "ratio", "at_least": value }),
            Target::AtMost(value) => json!({ "of": "p50", "at_most": value }),
        });
        json!({
            "id": self.id,
            "what": self.what,
            "unit": self.unit,
            "measured": summary(&self.measured),
            "baseline": self.baseline.as_ref().map(|base| json!({ "what": base.what, "measured": summary(&base.measured) })),
            "ratio": self.ratio().map(|(p50, p95)| json!({ "p50": p50, "p95": p95 })),
            "target": target,
            "met": self.is_met(),
        })
    }
}

impl Report {
    pub(super) fn render_markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# pinfold: what it costs\n\n{}\n", self.machine.render());
        if self.scale == Scale::Quick {
            let _ = writeln!(text, "**Quick: a tenth of every count. For a quick look, not for publication.**\n");
        }
        let _ = writeln!(text, "| what | unit | p50 / p95 | baseline p50 / p95 | ratio p50 / p95 | target | met |");
        let _ = writeln!(text, "|---|---|---|---|---|---|---|");
        for row in &self.rows {
            let _ = writeln!(text, "{}", row.render());
        }
        let mut baselines: Vec<&str> = Vec::new();
        for what in self.rows.iter().filter_map(|row| row.baseline.as_ref()).map(|baseline| baseline.what.as_str()) {
            if !baselines.contains(&what) {
                baselines.push(what);
            }
        }
        let _ = writeln!(text, "\np95: what 19 of 20 samples were no worse than. Baselines: {}.", baselines.join("; "));
        text
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "version": 1,
            "quick": self.scale == Scale::Quick,
            "machine": self.machine.to_json(),
            "rows": self.rows.iter().map(Row::to_json).collect::<Vec<_>>(),
        })
    }
}

/// Three significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(p50: f64, p95: f64) -> Summary {
        Summary { p50, p95, count: 100 }
    }

    #[test]
    fn a_row_compares_with_its_baseline_and_says_whether_the_target_is_reached() {
        let row = Row::new("a", "start", "ms", summary(1.5, 4.0)).against("bare", summary(1.0, 2.0));
        let row = row.target(Target::RatioAtMost(1.6));
        assert_eq!(row.render(), "| start | ms | 1.50 / 4.00 | 1.00 / 2.00 | 1.50× / 2.00× | ≤ 1.6× | yes |");
        assert_eq!(row.to_json()["met"], true);
        let row = row.target(Target::RatioAtLeast(1.6));
        assert!(row.render().ends_with("| ≥ 1.6× | **no** |"));
    }

    #[test]
    fn a_single_figure_has_neither_spread_nor_ratio() {
        let row = Row::new("a", "memory", "MiB", Summary::of_one(0.25)).target(Target::AtMost(0.2));
        assert_eq!(row.render(), "| memory | MiB | 0.250 / – | – | – | ≤ 0.2 MiB | **no** |");
    }

    #[test]
    fn a_comparison_with_nothing_never_reaches_its_target() {
        let row = Row::new("a", "start", "ms", summary(1.0, 1.0)).target(Target::RatioAtMost(1.6));
        assert_eq!(row.is_met(), Some(false));
    }
}
