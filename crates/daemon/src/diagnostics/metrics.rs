//! `/metrics`: the counters in Prometheus text format. Ten lines of text need no library.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pinfold_store::outbox::Target;

use crate::clock::now;
use crate::core::Core;
use crate::metrics::DeliveryResult;

/// The exposition text.
pub(crate) fn render(core: &Arc<Core>) -> String {
    let metrics = &core.metrics;
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let mut text = String::new();
    let mut put = |name: &str, kind: &str, help: &str, samples: &[(&str, u64)]| {
        let _ = writeln!(text, "# HELP pinfold_{name} {help}\n# TYPE pinfold_{name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(text, "pinfold_{name}{labels} {value}");
        }
    };
    let live = core.registry.live_count() as u64;
    put("processes_live", "gauge", "Processes that are starting, running or lingering.", &[("", live)]);
    put("processes_started_total", "counter", "Processes started.", &[("", read(&metrics.started))]);
    let ended = [
        ("{outcome=\"zero\"}", read(&metrics.exited_zero)),
        ("{outcome=\"nonzero\"}", read(&metrics.exited_other)),
        ("{outcome=\"signaled\"}", read(&metrics.signaled)),
        ("{outcome=\"failed_to_start\"}", read(&metrics.failed_to_start)),
        ("{outcome=\"lost\"}", read(&metrics.lost)),
    ];
    put("processes_ended_total", "counter", "Processes that ended, by outcome.", &ended);
    let output = read(&metrics.output_bytes);
    put("output_bytes_total", "counter", "Bytes of output of ended processes.", &[("", output)]);
    put("keepers_idle", "gauge", "Idle keepers.", &[("", core.keepers.idle_count() as u64)]);
    let last = *core.index_writer.last_event.borrow();
    put("events_last_seq", "gauge", "The number of the latest event.", &[("", last)]);
    let mut deliveries = Vec::with_capacity(6);
    for target in [Target::Webhook, Target::Command] {
        for (result, name) in [
            (DeliveryResult::Done, "delivered"),
            (DeliveryResult::Failed, "failed"),
            (DeliveryResult::GivenUp, "given_up"),
        ] {
            let labels = format!("{{target=\"{}\",result=\"{name}\"}}", target.name());
            deliveries.push((labels, read(&metrics.deliveries[target as usize][result as usize])));
        }
    }
    let deliveries: Vec<_> = deliveries.iter().map(|(labels, count)| (labels.as_str(), *count)).collect();
    put("deliveries_total", "counter", "Attempts to deliver events, by target and result.", &deliveries);
    put("http_requests_total", "counter", "Requests answered.", &[("", read(&metrics.requests))]);
    put("searches_running", "gauge", "Searches of output that run now.", &[("", read(&metrics.searches))]);
    put("search_bytes_total", "counter", "Bytes of output that were searched.", &[("", read(&metrics.search_bytes))]);
    if let Some(telemetry) = &core.telemetry {
        let spans = [("{result=\"sent\"}", read(&telemetry.sent)), ("{result=\"dropped\"}", read(&telemetry.dropped))];
        put("telemetry_spans_total", "counter", "Spans, by what became of them.", &spans);
        let failed = read(&telemetry.failed_exports);
        put("telemetry_failed_exports_total", "counter", "Requests that the collector did not take.", &[("", failed)]);
    }
    let uptime = now().since(core.started_at).as_secs();
    put("uptime_seconds", "gauge", "Seconds since the daemon started.", &[("", uptime)]);
    text
}
