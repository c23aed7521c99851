// pm2's own Node API, asked over JSON-RPC on stdin and stdout.
const { openSync, readSync, fstatSync, closeSync } = require("fs");
const { createInterface } = require("readline");
const pm2 = require("pm2");

const write = process.stdout.write.bind(process.stdout);
process.stdout.write = () => true;
const call = (name, ...given) =>
  new Promise((resolve, reject) => pm2[name](...given, (error, value) => (error ? reject(error) : resolve(value))));
const ended = new Map();
let bus, count = 0;
const of = (name) => {
  if (!ended.has(name)) {
    let tell;
    ended.set(name, { promise: new Promise((resolve) => (tell = resolve)), tell: (code) => tell(code) });
  }
  return ended.get(name);
};

const methods = {
  async start(script) {
    const name = `job${process.pid}x${count++}`;
    of(name);
    await call("start", {
      name, script: "/bin/sh", args: ["-c", script], interpreter: "none", autorestart: false,
      out_file: `${process.cwd()}/${name}.log`, error_file: `${process.cwd()}/${name}.log`,
    });
    return name;
  },
  wait: (name) => of(name).promise,
  async tail(name) {
    const file = openSync(`${process.cwd()}/${name}.log`, "r");
    const end = fstatSync(file).size, bytes = Buffer.alloc(Math.min(end, 4096));
    readSync(file, bytes, 0, bytes.length, end - bytes.length);
    closeSync(file);
    return bytes.toString();
  },
  stop: (name) => call("stop", name).then(() => null),
};

call("connect")
  .then(() => call("launchBus"))
  .then((opened) => {
    bus = opened;
    bus.on("process:event", ({ event, process: of_job }) => event === "exit" && of(of_job.name).tell(of_job.exit_code));
    createInterface({ input: process.stdin }).on("line", async (line) => {
      const { id, method, params } = JSON.parse(line);
      let reply;
      try {
        reply = { result: (await methods[method](...params)) ?? null };
      } catch (error) {
        reply = { error: String(error) };
      }
      write(JSON.stringify({ id, ...reply }) + "\n");
    });
  });
