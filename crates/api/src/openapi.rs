//! The OpenAPI document, generated from the wire types and one table of routes.
//!
//! Owns the documented request and responses of each route. Descriptions of types and fields are the doc comments in
//! `types`, and are not repeated here.

mod agents;
mod views;

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::types::*;

/// Returns the schema of one type.
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// One route.
struct Route {
    method: &'static str,
    path: &'static str,
    /// The operation's name for generated clients.
    operation: &'static str,
    summary: &'static str,
    query: Option<SchemaOf>,
    body: Option<SchemaOf>,
    /// Whether the body may be omitted.
    body_optional: bool,
    answers: &'static [Answer],
}

/// One successful response.
struct Answer {
    status: &'static str,
    description: &'static str,
    content: Content,
}

/// The content of a response.
enum Content {
    Json(SchemaOf),
    /// JSON, or bytes or a stream of this media type.
    JsonOr(SchemaOf, &'static str),
    /// Text frames of a WebSocket: to the client, from the client.
    Frames(SchemaOf, SchemaOf),
    Text,
    AnyJson,
}

/// All routes except those of hosted agents.
const ROUTES: &[Route] = &[
    Route {
        body: Some(reference::<StartRequest>),
        answers: &[
            answer("201", "Started.", Content::Json(reference::<Started>)),
            answer("200", "A process with this idempotency key already exists.", Content::Json(reference::<Started>)),
        ],
        ..post("/v1/processes", "start", "Start a process")
    },
    Route {
        query: Some(inline::<ListQuery>),
        answers: &[answer("200", "One page of processes.", Content::Json(reference::<ProcessList>))],
        ..get("/v1/processes", "list", "List processes")
    },
    Route {
        answers: &[answer("200", "The record.", Content::Json(reference::<Record>))],
        ..get("/v1/processes/{id}", "show", "Show one process and its living tree")
    },
    Route {
        query: Some(inline::<OutputQuery>),
        answers: &[answer(
            "200",
            "A range of output. With `format=raw` the bytes, and metadata in the headers `pinfold-cursor`, \
             `pinfold-next-cursor`, `pinfold-end`, `pinfold-gap-from`, `pinfold-gap-to`, `pinfold-exited`, \
             `pinfold-closed` and `pinfold-status`. With `follow` the bytes as they are written, as text/plain or with \
             `format=raw` as application/octet-stream.",
            Content::JsonOr(reference::<OutputPage>, "application/octet-stream"),
        )],
        ..get("/v1/processes/{id}/output", "output", "Read output from a cursor on")
    },
    Route {
        query: Some(inline::<WaitQuery>),
        answers: &[answer(
            "200",
            "How the wait ended; a timeout is not an error.",
            Content::Json(reference::<WaitAnswer>),
        )],
        ..get("/v1/processes/{id}/wait", "wait", "Wait for one process")
    },
    Route {
        body: Some(reference::<WaitManyRequest>),
        answers: &[answer("200", "How the wait ended.", Content::Json(reference::<WaitManyAnswer>))],
        ..post("/v1/wait", "wait_many", "Wait for any or all of many processes")
    },
    Route {
        body: Some(reference::<StopRequest>),
        body_optional: true,
        answers: &[answer("200", "The restarted process, which has a new id.", Content::Json(reference::<Record>))],
        ..post("/v1/processes/{id}/restart", "restart", "Restart a process; if it is running, stop it first")
    },
    Route {
        body: Some(reference::<StopRequest>),
        body_optional: true,
        answers: &[answer(
            "200",
            "The tree is empty, or `survivors` lists what is left.",
            Content::Json(reference::<StopAnswer>),
        )],
        ..post("/v1/processes/{id}/stop", "stop", "Stop a whole tree: signal, grace period, KILL, verification")
    },
    Route {
        body: Some(reference::<SignalRequest>),
        answers: &[answer("200", "Which processes it reached.", Content::Json(reference::<SignalAnswer>))],
        ..post("/v1/processes/{id}/signal", "signal", "Send a signal to a whole tree")
    },
    Route {
        body: Some(reference::<InputRequest>),
        answers: &[answer(
            "200",
            "How much of it was accepted; less than all is not an error.",
            Content::Json(reference::<InputAnswer>),
        )],
        ..post("/v1/processes/{id}/input", "input", "Send input to a process")
    },
    Route {
        answers: &[answer("200", "The screen of its terminal.", Content::Json(reference::<Screen>))],
        ..get("/v1/processes/{id}/screen", "screen", "Show the screen of a process with a terminal")
    },
    Route {
        body: Some(reference::<ResizeRequest>),
        answers: &[answer("200", "The screen in its new size.", Content::Json(reference::<Screen>))],
        ..post("/v1/processes/{id}/resize", "resize", "Resize the terminal of a process")
    },
    Route {
        query: Some(inline::<AttachQuery>),
        answers: &[answer(
            "101",
            "A WebSocket. Binary frames are output from the daemon and input to it; text frames are JSON: `AttachNotice` \
             from the daemon, `AttachControl` to it.",
            Content::Frames(reference::<AttachNotice>, reference::<AttachControl>),
        )],
        ..get("/v1/processes/{id}/attach", "attach", "Attach to a process: output and input over a WebSocket")
    },
    Route {
        answers: &[answer("200", "Which processes were paused.", Content::Json(reference::<SignalAnswer>))],
        ..post("/v1/processes/{id}/pause", "pause", "Pause a whole tree")
    },
    Route {
        answers: &[answer("200", "Which processes were resumed.", Content::Json(reference::<SignalAnswer>))],
        ..post("/v1/processes/{id}/resume", "resume", "Resume a paused tree")
    },
    Route {
        query: Some(inline::<EventsQuery>),
        answers: &[answer(
            "200",
            "A page of the event log. With `Accept: text/event-stream`, a live stream: `id` is the number, \
             `event` the kind, `data` the event.",
            Content::JsonOr(reference::<EventPage>, "text/event-stream"),
        )],
        ..get("/v1/events", "events", "Read or follow the event log")
    },
    Route {
        body: Some(reference::<AckRequest>),
        answers: &[answer("200", "The updated consumer.", Content::Json(reference::<Consumer>))],
        ..post("/v1/consumers/{name}/ack", "ack", "Acknowledge events")
    },
    Route {
        answers: &[answer("200", "The caller's consumers.", Content::Json(reference::<ConsumerList>))],
        ..get("/v1/consumers", "consumers", "List consumers of events")
    },
    Route {
        answers: &[answer("200", "The deleted consumer.", Content::Json(reference::<Consumer>))],
        ..delete("/v1/consumers/{name}", "forget_consumer", "Delete a consumer and its cursor")
    },
    Route {
        body: Some(reference::<HandoverRequest>),
        answers: &[answer("200", "The record, with its new owner.", Content::Json(reference::<Record>))],
        ..post("/v1/processes/{id}/handover", "handover", "Hand a live process over to another owner")
    },
    Route {
        answers: &[answer("200", "The owners that the caller can see.", Content::Json(reference::<OwnerList>))],
        ..get("/v1/owners", "owners", "List owners")
    },
    Route {
        body: Some(reference::<EndRequest>),
        body_optional: true,
        answers: &[answer("200", "What happened to its processes.", Content::Json(reference::<EndAnswer>))],
        ..post("/v1/owners/{name}/end", "end_owner", "End an owner and apply the `lifetime` of its processes")
    },
    Route {
        answers: &[answer("200", "How many waits were open.", Content::Json(reference::<ReleaseAnswer>))],
        ..post("/v1/owners/{name}/release", "release_owner", "Release an owner's open waits; the processes run on")
    },
    Route {
        body: Some(reference::<SessionRequest>),
        answers: &[answer(
            "200",
            "The session, and the processes that were moved to it.",
            Content::Json(reference::<SessionAnswer>),
        )],
        ..post(
            "/v1/sessions",
            "register_session",
            "Register the calling program as the server of an agent's session; the session ends when that program exits",
        )
    },
    Route {
        answers: &[answer("200", "What ended sessions left running.", Content::Json(reference::<LeftBehindList>))],
        ..get(
            "/v1/sessions/left_behind",
            "left_behind",
            "List live processes of ended sessions of the same client in the same directory",
        )
    },
    Route {
        body: Some(reference::<AdoptRequest>),
        answers: &[answer("200", "What was taken over, and what was not.", Content::Json(reference::<AdoptAnswer>))],
        ..post("/v1/sessions/adopt", "adopt", "Take over processes that ended sessions left behind")
    },
    Route {
        body: Some(reference::<TokenRequest>),
        body_optional: true,
        answers: &[answer("201", "The token; its text is shown only now.", Content::Json(reference::<TokenAnswer>))],
        ..post("/v1/tokens", "add_token", "Create a token for TCP")
    },
    Route {
        answers: &[answer("200", "The tokens, without their text.", Content::Json(reference::<TokenList>))],
        ..get("/v1/tokens", "tokens", "List tokens")
    },
    Route {
        answers: &[answer("200", "The revoked token.", Content::Json(reference::<Token>))],
        ..delete("/v1/tokens/{name}", "revoke_token", "Revoke a token")
    },
    Route {
        body: Some(reference::<DashboardRequest>),
        body_optional: true,
        answers: &[answer("200", "Where the dashboard is.", Content::Json(reference::<DashboardAnswer>))],
        ..post("/v1/dashboard", "open_dashboard", "Open the web dashboard on loopback, for one browser to sign in")
    },
    Route {
        answers: &[answer("200", "It is closed.", Content::Json(reference::<DashboardClosed>))],
        ..delete("/v1/dashboard", "close_dashboard", "Sign every browser out and close the dashboard's port")
    },
    Route {
        answers: &[answer("200", "What was found.", Content::Json(reference::<DoctorAnswer>))],
        ..get("/v1/doctor", "doctor", "Examine this machine and the daemon")
    },
    Route {
        body: Some(reference::<GcRequest>),
        body_optional: true,
        answers: &[answer("200", "What was removed.", Content::Json(reference::<GcAnswer>))],
        ..post("/v1/gc", "gc", "Remove ended processes and their output")
    },
    Route {
        body: Some(reference::<ShutdownRequest>),
        body_optional: true,
        answers: &[answer("200", "The daemon is stopping.", Content::Json(reference::<ShutdownAnswer>))],
        ..post("/v1/shutdown", "shutdown", "Stop the daemon; processes run on unless `stop_processes` is set")
    },
    Route {
        answers: &[answer("200", "The daemon's state.", Content::Json(reference::<Health>))],
        ..get("/healthz", "health", "Health of the daemon")
    },
    Route {
        answers: &[answer("200", "Metrics in the Prometheus text format.", Content::Text)],
        ..get("/metrics", "metrics", "Metrics")
    },
    Route {
        answers: &[answer("200", "The document.", Content::AnyJson)],
        ..get("/openapi.json", "openapi", "This document")
    },
];

const fn get(path: &'static str, operation: &'static str, summary: &'static str) -> Route {
    Route { method: "get", path, operation, summary, query: None, body: None, body_optional: false, answers: &[] }
}

const fn post(path: &'static str, operation: &'static str, summary: &'static str) -> Route {
    Route { method: "post", ..get(path, operation, summary) }
}

const fn delete(path: &'static str, operation: &'static str, summary: &'static str) -> Route {
    Route { method: "delete", ..get(path, operation, summary) }
}

const fn answer(status: &'static str, description: &'static str, content: Content) -> Answer {
    Answer { status, description, content }
}

/// A reference to the type's schema in the components.
fn reference<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The type's schema itself, for queries, whose fields become parameters.
fn inline<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    T::json_schema(generator)
}

/// The complete document, OpenAPI 3.1.
pub fn document() -> Value {
    // Requests and responses differ in which fields are required.
    let mut requests = generator(SchemaSettings::draft2020_12().for_deserialize());
    let mut responses = generator(SchemaSettings::draft2020_12().for_serialize());
    let error = responses.subschema_for::<ApiError>();
    let mut paths = Map::new();
    for route in ROUTES.iter().chain(views::ROUTES).chain(agents::ROUTES) {
        let operation = render_operation(route, &mut requests, &mut responses);
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        methods[route.method] = operation;
    }
    let mut schemas = requests.take_definitions(true);
    schemas.extend(responses.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "pinfold",
            "description": "The process manager for AI agents.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "http://localhost", "description": "The daemon's Unix socket." }],
        "paths": paths,
        // Over the Unix socket no token is needed.
        "security": [{}, { "token": [] }],
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Over TCP: a token of `POST /v1/tokens` or `pinfold token add`. The daemon's Unix socket needs none: it \
                                    accepts only the daemon's own user and root.",
                },
            },
            "responses": {
                "Error": {
                    "description": "An error: a stable code, what went wrong, and what to do.",
                    "content": { "application/json": { "schema": error } },
                },
            },
            "parameters": {
                "id": {
                    "name": "id",
                    "in": "path",
                    "required": true,
                    "description": "An id, an unambiguous prefix of one, or the name of a process or agent: of a live one, else of the latest that ended.",
                    "schema": { "type": "string" },
                },
                "number": {
                    "name": "number",
                    "in": "path",
                    "required": true,
                    "description": "The number of a turn; the first is 1.",
                    "schema": { "type": "integer" },
                },
                "name": {
                    "name": "name",
                    "in": "path",
                    "required": true,
                    "description": "The name of an owner or consumer, or the id of a token.",
                    "schema": { "type": "string" },
                },
                "owner": {
                    "name": "Pinfold-Owner",
                    "in": "header",
                    "required": false,
                    "description": "Act as this owner: see and change only what belongs to it and its descendants.",
                    "schema": { "type": "string" },
                },
                "parent": {
                    "name": "Pinfold-Parent",
                    "in": "header",
                    "required": false,
                    "description": "The parent of the owner in `Pinfold-Owner`. The first parent given is final.",
                    "schema": { "type": "string" },
                },
                "grace": {
                    "name": "Pinfold-Owner-Grace",
                    "in": "header",
                    "required": false,
                    "description": "With `Pinfold-Owner`: the owner counts as gone this long after its last contact. What is started in its name with `lifetime` `owner` or `parent` and no `owner_grace` gets this one.",
                    "schema": { "type": "string", "examples": ["60s"] },
                },
            },
        },
    })
}

fn generator(settings: SchemaSettings) -> SchemaGenerator {
    let at_components = |settings: &mut SchemaSettings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    };
    settings.with(at_components).into_generator()
}

fn render_operation(route: &Route, requests: &mut SchemaGenerator, responses: &mut SchemaGenerator) -> Value {
    let mut parameters = Vec::new();
    if route.path.contains("{id}") {
        parameters.push(json!({ "$ref": "#/components/parameters/id" }));
    }
    if route.path.contains("{number}") {
        parameters.push(json!({ "$ref": "#/components/parameters/number" }));
    }
    if route.path.contains("{name}") {
        parameters.push(json!({ "$ref": "#/components/parameters/name" }));
    }
    if route.path.starts_with("/v1/") {
        parameters.push(json!({ "$ref": "#/components/parameters/owner" }));
    }
    if route.operation == "start" {
        parameters.push(json!({ "$ref": "#/components/parameters/parent" }));
        parameters.push(json!({ "$ref": "#/components/parameters/grace" }));
    }
    if let Some(query) = route.query {
        parameters.extend(render_parameters(&query(requests)));
    }
    let mut answers = Map::new();
    for answer in route.answers {
        let content = render_content(&answer.content, responses);
        answers.insert(answer.status.to_owned(), json!({ "description": answer.description, "content": content }));
    }
    answers.insert("default".to_owned(), json!({ "$ref": "#/components/responses/Error" }));
    let mut operation = json!({
        "operationId": route.operation,
        "summary": route.summary,
        "parameters": parameters,
        "responses": answers,
    });
    if let Some(body) = route.body {
        operation["requestBody"] = json!({ "required": !route.body_optional, "content": { "application/json": { "schema": body(requests) } } });
    }
    operation
}

fn render_content(content: &Content, schemas: &mut SchemaGenerator) -> Value {
    match content {
        Content::Json(schema) => json!({ "application/json": { "schema": schema(schemas) } }),
        Content::JsonOr(schema, other) => json!({ "application/json": { "schema": schema(schemas) }, *other: {} }),
        Content::Frames(to_client, from_client) => {
            json!({ "application/json": { "schema": { "anyOf": [to_client(schemas), from_client(schemas)] } } })
        }
        Content::Text => json!({ "text/plain": { "schema": { "type": "string" } } }),
        Content::AnyJson => json!({ "application/json": { "schema": { "type": "object" } } }),
    }
}

/// One parameter for each field of a query type.
fn render_parameters(query: &Schema) -> Vec<Value> {
    let fields = query.get("properties").and_then(Value::as_object);
    let required = query.get("required").and_then(Value::as_array);
    let render = |(name, schema): (&String, &Value)| {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|fields| fields.remove("description"));
        drop_null(&mut schema);
        let mut parameter = json!({
            "name": name,
            "in": "query",
            "required": required.is_some_and(|names| names.iter().any(|required| required == name)),
            "schema": schema,
        });
        if let Some(description) = description {
            parameter["description"] = description;
        }
        parameter
    };
    fields.into_iter().flatten().map(render).collect()
}

/// Removes `null` from a type: a query can omit a field but cannot set it to null.
fn drop_null(schema: &mut Value) {
    if let Some(Value::Array(kinds)) = schema.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [only] = kinds.as_slice() {
            schema["type"] = only.clone();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Every `$ref` in the document.
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_resolves_to_a_component() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 40, "{}", found.len());
        for reference in found {
            let pointer = reference.strip_prefix('#').expect(reference);
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    #[test]
    fn queries_become_described_optional_parameters() {
        let document = document();
        let parameters = document["paths"]["/v1/processes/{id}/output"]["get"]["parameters"].as_array().unwrap();
        let cursor = parameters.iter().find(|parameter| parameter["name"] == "cursor").unwrap();
        assert_eq!((&cursor["in"], &cursor["required"]), (&json!("query"), &json!(false)));
        assert_eq!(cursor["schema"]["type"], "integer");
        assert!(cursor["description"].as_str().unwrap().contains("from this byte on"));
    }

    #[test]
    fn request_fields_with_a_default_are_optional_and_response_fields_are_required() {
        let schemas = &document()["components"]["schemas"];
        let required = |name: &str, field: &str| {
            schemas[name]["required"].as_array().is_some_and(|names| names.iter().any(|name| name == field))
        };
        assert!(!required("GcRequest", "dry_run") && required("GcAnswer", "dry_run"));
        assert!(required("Record", "outcome") && required("Started", "created"));
    }

    #[test]
    fn types_in_requests_and_responses_have_the_same_schema() {
        let mut requests = generator(SchemaSettings::draft2020_12().for_deserialize());
        let mut responses = generator(SchemaSettings::draft2020_12().for_serialize());
        for route in ROUTES.iter().chain(views::ROUTES) {
            render_operation(route, &mut requests, &mut responses);
        }
        for (name, schema) in requests.definitions() {
            assert!(responses.definitions().get(name).is_none_or(|other| other == schema), "{name}");
        }
    }

    #[test]
    fn a_body_is_required_only_where_omitting_it_is_an_error() {
        let document = document();
        let required = |path: &str| &document["paths"][path]["post"]["requestBody"]["required"];
        assert_eq!(required("/v1/processes"), true);
        for path in ["/v1/gc", "/v1/tokens", "/v1/shutdown", "/v1/owners/{name}/end", "/v1/processes/{id}/stop"] {
            assert_eq!(required(path), false, "{path}");
        }
    }

    #[test]
    fn operation_names_are_unique() {
        let routes = || ROUTES.iter().chain(views::ROUTES).chain(agents::ROUTES);
        let mut names: Vec<_> = routes().map(|route| route.operation).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), routes().count());
    }
}
