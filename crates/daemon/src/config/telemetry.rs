//! The settings of traces and metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use pinfold_model::units::parse_duration;
use serde::Deserialize;

use super::Text;

/// Maximum number of headers.
const MAX_HEADERS: usize = 16;
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Where traces and metrics are sent, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telemetry {
    /// The base address of an OTLP/HTTP collector; nothing is collected or sent without one.
    pub endpoint: Option<String>,
    /// Headers of each request, such as a token.
    pub headers: BTreeMap<String, SecretText>,
    /// How often metrics are sent.
    pub interval: Duration,
    /// Whether command lines are sent.
    pub commands: bool,
}

/// A text that is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for SecretText {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SecretText")
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self { endpoint: None, headers: BTreeMap::new(), interval: Duration::from_secs(60), commands: false }
    }
}

/// The section's contents.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileTelemetry {
    endpoint: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    interval: Option<Text>,
    commands: Option<bool>,
}

/// Headers may hold secrets.
impl std::fmt::Debug for FileTelemetry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("FileTelemetry")
    }
}

impl FileTelemetry {
    /// The settings, or the name of an invalid one and what is wrong.
    pub(super) fn try_into_telemetry(self) -> Result<Telemetry, (&'static str, String)> {
        let default = Telemetry::default();
        let endpoint = self.endpoint.filter(|endpoint| !endpoint.is_empty());
        let endpoint = endpoint.map(check_endpoint).transpose().map_err(|problem| ("telemetry.endpoint", problem))?;
        if self.headers.len() > MAX_HEADERS {
            return Err(("telemetry.headers", format!("give at most {MAX_HEADERS} headers")));
        }
        for (name, value) in &self.headers {
            if HeaderName::try_from(name).is_err() || HeaderValue::try_from(value).is_err() {
                // The value is not repeated: it may be a secret.
                return Err((
                    "telemetry.headers",
                    format!("`{name}` cannot be a header: check its name and its value"),
                ));
            }
        }
        let interval = match self.interval {
            Some(text) => parse_duration(&text.text()).map_err(|error| ("telemetry.interval", error.to_string()))?,
            None => default.interval,
        };
        if interval < MIN_INTERVAL {
            return Err(("telemetry.interval", "give at least a second".to_owned()));
        }
        let headers = self.headers.into_iter().map(|(name, value)| (name, SecretText(value))).collect();
        Ok(Telemetry { endpoint, headers, interval, commands: self.commands.unwrap_or(default.commands) })
    }
}

fn check_endpoint(endpoint: String) -> Result<String, String> {
    let wrong = |problem: &str| Err(format!("`{endpoint}` {problem}: write \"http://127.0.0.1:4318\""));
    let Ok(uri) = endpoint.parse::<hyper::Uri>() else { return wrong("is not a URL") };
    let Some(authority) = uri.authority() else { return wrong("has no host") };
    if authority.as_str().contains('@') {
        // Not repeated: it has a password in it.
        return Err("put credentials into `telemetry.headers`, not into the address".to_owned());
    }
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return wrong("is neither http nor https");
    }
    if uri.query().is_some() {
        return wrong("has a query");
    }
    if uri.path().ends_with("/v1/traces") {
        return wrong("is the address of traces, and metrics go elsewhere: leave `/v1/traces` out");
    }
    Ok(endpoint)
}

impl Telemetry {
    /// With this endpoint, for tests.
    #[cfg(test)]
    pub(crate) fn at(endpoint: &str) -> Self {
        Self { endpoint: Some(endpoint.to_owned()), ..Self::default() }
    }

    pub(super) fn render_toml(&self) -> String {
        let endpoint = match &self.endpoint {
            Some(endpoint) => format!("endpoint = {}\n", toml::Value::String(endpoint.clone())),
            None => "# endpoint = \"http://127.0.0.1:4318\"\n".to_owned(),
        };
        let headers = match self.headers.is_empty() {
            true => "# headers = { authorization = \"Bearer ...\" }\n",
            false => "# headers are set, and not shown\n",
        };
        format!(
            "\n[telemetry]\n# the OTLP/HTTP collector that traces and metrics are sent to; none are without it\n{endpoint}\
             # headers of each request\n{headers}# how often metrics are sent\ninterval = \"{}s\"\n\
             # whether command lines are sent, which may hold secrets\ncommands = {}\n",
            self.interval.as_secs_f64(),
            self.commands
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Telemetry, String> {
        let file: FileTelemetry = toml::from_str(text).map_err(|error| error.to_string())?;
        file.try_into_telemetry().map_err(|(setting, problem)| format!("{setting}: {problem}"))
    }

    #[test]
    fn every_setting_is_taken_and_headers_are_not_printed() {
        let text = "endpoint = \"https://otel.example/base\"\nheaders = { authorization = \"Bearer s3cret\" }\n\
                    interval = \"5s\"\ncommands = true\n";
        let telemetry = parse(text).expect("valid");
        assert_eq!(telemetry.endpoint.as_deref(), Some("https://otel.example/base"));
        assert_eq!((telemetry.interval, telemetry.commands), (Duration::from_secs(5), true));
        assert_eq!(telemetry.headers["authorization"].reveal(), "Bearer s3cret");
        let shown = format!("{telemetry:?}{}", telemetry.render_toml());
        assert!(!shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn mistakes_are_refused_and_secrets_are_not_repeated() {
        for (text, named) in [
            ("endpoint = \"localhost:4318\"", "telemetry.endpoint"),
            ("endpoint = \"ftp://h\"", "http"),
            ("endpoint = \"http://h/v1/traces\"", "leave"),
            ("endpoint = \"http://h/?a=b\"", "query"),
            ("endpoint = \"http://u:s3cret@h\"", "telemetry.headers"),
            ("headers = { \"a b\" = \"s3cret\" }", "`a b`"),
            ("headers = { a = \"s3cret\\n\" }", "`a`"),
            ("interval = \"10ms\"", "second"),
            ("endpont = \"\"", "endpont"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(named) && !error.contains("s3cret"), "{error}");
        }
    }
}
