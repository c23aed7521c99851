//! Chart of the cost of one run relative to a bare spawn: one bar for each tool, on a logarithmic scale.

use std::fmt::Write as _;

use super::Measured;
use super::work::p50;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 90.0;
const ROW: f64 = 26.0;
const TOP: f64 = 46.0;
/// End of the scale: a thousand times a bare spawn.
const DECADES: f64 = 3.0;

pub(super) fn svg(measured: &[Measured]) -> String {
    let bare = measured.first().and_then(|peer| p50(peer.single));
    let mut bars: Vec<(&str, f64)> =
        measured.iter().filter_map(|peer| Some((peer.tool.name(), p50(peer.single)? / bare?))).collect();
    bars.sort_by(|one, other| one.1.total_cmp(&other.1));
    draw(&bars)
}

fn draw(bars: &[(&str, f64)]) -> String {
    let (height, span) = (TOP + ROW * bars.len() as f64 + 30.0, WIDTH - LEFT - RIGHT);
    let along = |ratio: f64| LEFT + span * (ratio.max(1.0).log10() / DECADES).min(1.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"ui-sans-serif, system-ui, sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"14\" y=\"24\" font-size=\"15\" font-weight=\"600\" fill=\"#1f2328\">start → exit → result of `sh -c true`, times a \
         bare spawn (p50, log scale)</text>\n"
    );
    for decade in 0..=DECADES as u32 {
        let (x, bottom, times) = (along(10f64.powi(decade as i32)), height - 22.0, 10u32.pow(decade));
        // Writing to a String cannot fail.
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#d1d9e0\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#59636e\">{times}×</text>",
            bottom + 15.0
        );
    }
    for (row, (name, ratio)) in bars.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        let fill = match *name {
            "pinfold" => "#1a7f37",
            "bare spawn" => "#59636e",
            _ => "#8c959f",
        };
        let end = along(*ratio).max(LEFT + 2.0);
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#1f2328\">{name}</text>\
             <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"16\" rx=\"2\" fill=\"{fill}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#1f2328\">{ratio:.2}×</text>",
            LEFT - 8.0,
            y + 15.0,
            y + 3.0,
            end - LEFT,
            end + 6.0,
            y + 15.0
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_grow_with_the_logarithm_and_end_at_the_edge() {
        let svg = draw(&[("bare spawn", 1.0), ("ten", 10.0), ("endless", 1e9)]);
        let span = WIDTH - LEFT - RIGHT;
        assert!(svg.contains(&format!("width=\"{:.1}\"", span / DECADES)), "{svg}");
        assert!(svg.contains(&format!("width=\"{span:.1}\"")), "{svg}");
        assert!(svg.contains("10.00×</text>"));
    }
}
