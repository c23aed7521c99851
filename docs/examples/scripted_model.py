#!/usr/bin/env python3
"""A stand-in for a model: plays three turns of a script, to try own_loop.py without a key.

It starts something slow, ends its turn, and reports how it ended once it is notified. Prints its address first. Exits with 1
if the loop did not tell it what a model needs to know.
"""

import http.server
import json
import os


def turns():
    """Each turn gets the messages so far and gives the next one."""
    messages = yield
    arguments = json.dumps({"command": "sleep 2; echo built; exit 3", "timeout": 0})
    call = {"id": "call-1", "type": "function", "function": {"name": "execute", "arguments": arguments}}
    messages = yield {"role": "assistant", "content": None, "tool_calls": [call]}
    result = messages[-1]
    assert result["role"] == "tool" and "id: " in result["content"] and "running" in result["content"], result
    process = result["content"].split("id: ", 1)[1].split()[0]
    messages = yield {"role": "assistant", "content": f"Started {process}; I will be notified when it ends."}
    notice = messages[-1]["content"]
    assert "Automated notice" in notice and process in notice and '"code": 3' in notice, notice
    yield {"role": "assistant", "content": f"{process} failed with exit code 3."}


class Handler(http.server.BaseHTTPRequestHandler):
    script = turns()

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert any(tool["function"]["name"] == "execute" for tool in request["tools"]), request["tools"]
        try:
            message = self.script.send(request["messages"])
        except (AssertionError, StopIteration) as error:
            print(f"unexpected: {error!r}", flush=True)
            os._exit(1)
        body = json.dumps({"choices": [{"message": message}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    next(Handler.script)
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}/v1/chat/completions", flush=True)
    for _ in range(3):
        server.handle_request()
