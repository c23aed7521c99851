// A model's server that follows a script: the Messages API of Anthropic, as far as Claude Code uses it.

import http from "node:http";
import type { AddressInfo } from "node:net";

/** What the model does in one request: it calls Bash, or says something. */
export type Step = { bash: string } | { text: string };

export class ScriptedModel implements AsyncDisposable {
  /** The requests with tools, which are those of the agent itself. */
  readonly requests: { messages: unknown[] }[] = [];
  private readonly server = http.createServer((request, response) => void this.answer(request, response));

  /** `gate` is waited for before a step is given; the number of the step is passed to it. */
  constructor(private readonly steps: readonly Step[], private readonly gate: (step: number) => Promise<void> = async () => {}) {}

  async listen(): Promise<string> {
    await new Promise<void>((done) => this.server.listen(0, "127.0.0.1", done));
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  private async answer(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece as Buffer);
    const path = request.url?.split("?")[0];
    if (path !== "/v1/messages") return void response.writeHead(path === "/v1/messages/count_tokens" ? 200 : 404, { "content-type": "application/json" }).end('{"input_tokens": 1}');
    const body = JSON.parse(Buffer.concat(pieces).toString());
    let step: Step = { text: "ok" };
    if ((body.tools ?? []).length > 0) {
      const number = this.requests.push(body) - 1;
      await this.gate(number);
      step = this.steps[number] ?? { text: "the script is over" };
    }
    const content = "bash" in step ? { type: "tool_use", id: `toolu_${this.requests.length}`, name: "Bash", input: { command: step.bash, description: "a step" } } : { type: "text", text: step.text };
    const stop = "bash" in step ? "tool_use" : "end_turn";
    const message = { id: `msg_${this.requests.length}`, type: "message", role: "assistant", model: body.model, stop_sequence: null, usage: { input_tokens: 1, output_tokens: 1 } };
    if (!body.stream) return void response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ ...message, content: [content], stop_reason: stop }));
    response.writeHead(200, { "content-type": "text/event-stream" });
    const send = (type: string, data: object) => response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
    send("message_start", { message: { ...message, content: [], stop_reason: null } });
    const delta = "bash" in step ? { type: "input_json_delta", partial_json: JSON.stringify(content.input) } : { type: "text_delta", text: step.text };
    send("content_block_start", { index: 0, content_block: "bash" in step ? { ...content, input: {} } : { type: "text", text: "" } });
    send("content_block_delta", { index: 0, delta });
    send("content_block_stop", { index: 0 });
    send("message_delta", { delta: { stop_reason: stop, stop_sequence: null }, usage: { output_tokens: 1 } });
    send("message_stop", {});
    response.end();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
  }
}
