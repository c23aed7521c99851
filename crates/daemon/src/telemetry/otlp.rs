//! Spans and counters as OTLP JSON: ids in hex, 64-bit numbers as text, enums as numbers.

use pinfold_model::trace::hex;
use pinfold_model::units::Moment;
use serde_json::{Map, Value as Json, json};

use super::spans::{Span, Value};

/// `SPAN_KIND_INTERNAL`.
const KIND_INTERNAL: u32 = 1;
/// `STATUS_CODE_ERROR`.
const STATUS_ERROR: u32 = 2;
/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u32 = 2;

/// What all spans and metrics of a daemon have in common.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    /// Identifies the home, and does not tell its path.
    pub(super) instance: String,
}

/// A counter or a gauge, with the values of one attribute.
#[derive(Clone, Debug)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) about: &'static str,
    pub(super) counts_up: bool,
    pub(super) points: Vec<(Option<(&'static str, &'static str)>, u64)>,
}

impl Resource {
    fn json(&self) -> Json {
        json!({"attributes": [
            text("service.name", "pinfold"),
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("service.instance.id", &self.instance),
        ]})
    }
}

fn scope() -> Json {
    json!({"name": "pinfold", "version": env!("CARGO_PKG_VERSION")})
}

/// The body of `POST /v1/traces`.
pub(super) fn traces(resource: &Resource, spans: &[Span]) -> Json {
    let spans: Vec<Json> = spans.iter().map(span).collect();
    json!({"resourceSpans": [{"resource": resource.json(), "scopeSpans": [{"scope": scope(), "spans": spans}]}]})
}

/// The body of `POST /v1/metrics`.
pub(super) fn metrics(resource: &Resource, metrics: &[Metric], (since, at): (Moment, Moment)) -> Json {
    let metrics: Vec<Json> = metrics.iter().map(|one| metric(one, since, at)).collect();
    json!({"resourceMetrics": [{"resource": resource.json(), "scopeMetrics": [{"scope": scope(), "metrics": metrics}]}]})
}

fn span(span: &Span) -> Json {
    let mut json = json!({
        "traceId": hex(&span.trace_id),
        "spanId": hex(&span.span_id),
        "name": span.name,
        "kind": KIND_INTERNAL,
        "startTimeUnixNano": nanos(span.from),
        "endTimeUnixNano": nanos(span.to),
        "attributes": span.attributes.iter().map(|(key, value)| attribute(key, value)).collect::<Vec<_>>(),
    });
    if let Some(parent) = &span.parent {
        json["parentSpanId"] = hex(parent).into();
    }
    if let Some(error) = &span.error {
        json["status"] = json!({"code": STATUS_ERROR, "message": error});
    }
    json
}

fn metric(metric: &Metric, since: Moment, at: Moment) -> Json {
    let point = |(attribute, value): &(Option<(&'static str, &'static str)>, u64)| {
        let attributes: Vec<Json> = attribute.iter().map(|(key, value)| text(key, value)).collect();
        json!({
            "startTimeUnixNano": nanos(since),
            "timeUnixNano": nanos(at),
            "asInt": value.to_string(),
            "attributes": attributes,
        })
    };
    let points: Vec<Json> = metric.points.iter().map(point).collect();
    let mut json = Map::new();
    json.insert("name".to_owned(), metric.name.into());
    json.insert("unit".to_owned(), metric.unit.into());
    json.insert("description".to_owned(), metric.about.into());
    match metric.counts_up {
        true => json.insert(
            "sum".to_owned(),
            json!({"aggregationTemporality": CUMULATIVE, "isMonotonic": true, "dataPoints": points}),
        ),
        false => json.insert("gauge".to_owned(), json!({"dataPoints": points})),
    };
    Json::Object(json)
}

fn attribute(key: &str, value: &Value) -> Json {
    match value {
        Value::Text(value) => text(key, value),
        Value::Number(number) => json!({"key": key, "value": {"intValue": number.to_string()}}),
    }
}

fn text(key: &str, value: &str) -> Json {
    json!({"key": key, "value": {"stringValue": value}})
}

fn nanos(moment: Moment) -> String {
    moment.0.saturating_mul(1000).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_hex_ids_and_numbers_as_text() {
        let mut span = Span::new("run", ([0xab; 16], [1; 8]), Some([2; 8]), (Moment(1_000_001), Moment(5)));
        span.attributes.push(("process.pid", Value::Number(u64::MAX)));
        let json = traces(&Resource { instance: "i".into() }, &[span]);
        let span = &json["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!(span["traceId"], "ab".repeat(16));
        assert_eq!((&span["spanId"], &span["parentSpanId"]), (&json!("01".repeat(8)), &json!("02".repeat(8))));
        // The clock was set back: a span does not end before it starts.
        assert_eq!(
            (&span["startTimeUnixNano"], &span["endTimeUnixNano"]),
            (&json!("1000001000"), &json!("1000001000"))
        );
        assert_eq!(span["attributes"][0]["value"]["intValue"], "18446744073709551615");
        assert!(span.get("status").is_none());
    }
}
