//! Responses on the wire: escapes, newline, content type, errors as coder's client prints them.

use pinfold_testkit::Pinfold;
use serde_json::json;

use super::{Client, Reply};
use crate::PINFOLD;

#[test]
fn escaping_and_newline() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let id = client.start("printf '<a href=\"x\">&amp;</a>\\342\\200\\250☃\\n'");
    client.waited(&id);
    let reply = client.get(&format!("/{id}/output"));
    let raw = r#""output":"\u003ca href=\"x\"\u003e\u0026amp;\u003c/a\u003e\u2028☃\n""#;
    assert!(reply.body.contains(raw), "{}", reply.body);
    assert_eq!(reply.json()["output"], "<a href=\"x\">&amp;</a>\u{2028}☃\n");
    let error = client.get("/%3Cx%3E/output");
    assert!(error.body.starts_with(r#"{"message":"Process \"\u003cx\u003e\" not found."}"#), "{}", error.body);
    let bad = client.send("POST", "/start", b"{");
    for reply in [reply, error, bad, client.get("/list")] {
        assert!(reply.body.ends_with("}\n") && !reply.body.ends_with("\n\n"), "{:?}", reply.body);
        assert_eq!(reply.body.matches('\n').count(), 1);
        assert!(reply.head.contains("content-type: application/json; charset=utf-8"), "{}", reply.head);
    }
}

#[test]
fn unknown_routes_and_methods() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    assert_eq!(client.get("/nope").status, 404);
    assert_eq!(client.get("/nope").body, "404 page not found\n");
    let wrong = [("GET", "/start"), ("POST", "/list"), ("POST", "/x/output"), ("DELETE", "/x/signal")];
    let heads = ["/start", "/list", "/x/output", "/x/signal"].map(|path| ("HEAD", path));
    for (method, path) in wrong.into_iter().chain(heads) {
        let reply = client.send(method, path, b"");
        assert_eq!((reply.status, reply.body.as_str()), (405, ""), "{method} {path}");
    }
    assert_eq!(client.send("HEAD", "/nope", b"").status, 404);
}

#[test]
fn an_id_that_is_not_utf8_is_not_found() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let message = |id: &str| (404, format!("Process {id} not found."));
    assert_eq!(client.get("/a%ffb/output").error(), message(r#""a\xffb""#));
    assert_eq!(client.get("/%1b%5B1m/output").error(), message(r#""\x1b[1m""#));
    assert_eq!(client.signal("%e2%98", "kill").error(), message(r#""\xe2\x98""#));
}

/// Reads an error as coder's SDK does.
fn client_error(method: &str, url: &str, reply: &Reply) -> String {
    #[derive(serde::Deserialize)]
    struct Body {
        message: String,
        #[serde(default)]
        detail: String,
        #[serde(default)]
        validations: Vec<Validation>,
    }
    #[derive(serde::Deserialize)]
    struct Validation {
        field: String,
        detail: String,
    }
    let body: Body = serde_json::from_str(&reply.body).expect("an error body");
    let mut text = format!("{method} {url}: unexpected status code {}: {}", reply.status, body.message);
    if !body.detail.is_empty() {
        text += &format!("\n\tError: {}", body.detail);
    }
    body.validations.iter().for_each(|one| text += &format!("\n\t{}: {}", one.field, one.detail));
    text
}

#[test]
fn client_error_text() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let base = "http://agent/api/v0/processes";
    let reply = client.get("/gone/output");
    let text = client_error("GET", &format!("{base}/gone/output"), &reply);
    assert_eq!(text, format!("GET {base}/gone/output: unexpected status code 404: Process \"gone\" not found."));
    let reply = client.post("/start", &json!({ "command": "true", "workdir": "/nope" }));
    let text = client_error("POST", &format!("{base}/start"), &reply);
    let (first, second) = text.split_once('\n').expect("two lines");
    assert_eq!(first, format!("POST {base}/start: unexpected status code 500: Failed to start process."));
    assert!(second.starts_with("\tError: start process: ") && second.contains("/nope"), "{second}");
}
