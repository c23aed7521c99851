//! The project of the scenarios: programs for sh and node that behave like builds, servers and watchers.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const PROGRAMS: &[(&str, &str)] = &[
    // Fails until a typo is fixed.
    (
        "build.sh",
        r#"#!/bin/sh
for file in config env http log main pay pool queue retry route store time; do
    echo "cc -O2 -Wall -Wextra -Iinclude -c src/$file.c -o out/$file.o"
    if [ $file = pay ] && grep -q retrun src/pay.c; then
        echo "src/pay.c:3:5: error: 'retrun' undeclared (first use in this function)"
        echo "    3 |     retrun total;"
        echo "      |     ^~~~~~"
        echo "make: *** [Makefile:12: out/pay.o] Error 1"
        exit 2
    fi
done
echo "cc -o app out/*.o"
echo "built app"
"#,
    ),
    // 500 tests.
    (
        "tests.js",
        r#"const modules = ['cart', 'order', 'pay', 'stock', 'user'];
let failed = 0;
for (let n = 0; n < 500; n++) {
    const name = `${modules[n % 5]}::tests::case_${String(n).padStart(3, '0')}_keeps_the_totals_right`;
    if ([117, 262, 431].includes(n)) {
        failed++;
        console.log(`test ${name} ... FAILED`);
        console.log(`    assertion failed: left == right, left: ${n}, right: ${n + 1}, at tests/${modules[n % 5]}.js:${n}:9`);
    } else {
        console.log(`test ${name} ... ok`);
    }
}
console.log(`test result: FAILED. ${500 - failed} passed; ${failed} failed`);
process.exitCode = 1;
"#,
    ),
    // Silent for 40 s.
    ("pack.js", "setTimeout(() => { console.log('not packed: 3 files changed'); process.exit(3); }, 40000);\n"),
    // 2 MB of output, with the error in the middle.
    (
        "noise.js",
        r#"const lines = [];
for (let n = 0; n < 24000; n++) {
    lines.push(`[${String(n).padStart(5, '0')}/24000] compiling unit ${n * 7919 % 99991} of the generated bindings, level 2`);
    if (n === 12000) lines.push("bindings/gen_4711.c:88:14: error: unknown type name 'u128_t'");
}
lines.push('ninja: build stopped: subcommand failed.');
process.stdout.write(lines.join('\n') + '\n', () => process.exit(1));
"#,
    ),
    (
        "server.js",
        r#"const [port, delay, silent] = process.argv.slice(2);
require('fs').appendFileSync('pids', process.pid + '\n');
const server = require('http').createServer((request, response) => {
    const broken = request.url === '/orders';
    if (!silent) console.log(broken ? 'GET /orders 500 TypeError: total is undefined' : `GET ${request.url} 200`);
    response.statusCode = broken ? 500 : 200;
    response.end(broken ? 'Internal Server Error\n' : 'all is well\n');
});
setTimeout(() => server.listen(+port, '127.0.0.1', () => {
    if (!silent) console.log(`listening on http://127.0.0.1:${port}`);
}), +(delay || 0));
"#,
    ),
    (
        "get.js",
        r#"const [port, path] = process.argv.slice(2);
require('http').get(`http://127.0.0.1:${port}${path}`, (response) => {
    process.stdout.write(`HTTP ${response.statusCode} `);
    response.pipe(process.stdout);
}).on('error', (error) => { console.log(error.message); process.exitCode = 1; });
"#,
    ),
    // A worker that fails after a second.
    (
        "worker.js",
        r#"console.log('worker ready');
setTimeout(() => { console.log('FATAL: out of connections'); process.exit(7); }, 1000);
"#,
    ),
    ("idle.js", "console.log('idle worker ready');\nsetInterval(() => {}, 1000);\n"),
    // Leaves a server running, as many start scripts do.
    ("start.sh", "#!/bin/sh\nnode \"$1\" \"$2\" &\necho started\n"),
    // Ignores TERM, INT and HUP, and has a child in its own session.
    (
        "stubborn.sh",
        r#"#!/bin/sh
trap '' TERM INT HUP
echo $$ >> pids
if [ "$1" != child ]; then
    setsid "$0" child &
    while [ "$(wc -l < pids)" -lt 2 ]; do sleep 0.1; done
    echo running
fi
while :; do sleep 1; done
"#,
    ),
    (
        "watch.js",
        r#"const fs = require('fs');
require('fs').appendFileSync('pids', process.pid + '\n');
let last = fs.readFileSync('watched.ts', 'utf8'), build = 1;
console.log('build 1: found 0 errors. Watching for file changes.');
setInterval(() => {
    const text = fs.readFileSync('watched.ts', 'utf8');
    if (text === last) return;
    last = text;
    build++;
    console.log('File change detected. Starting incremental compilation...');
    console.log(text.includes('totl')
        ? `build ${build}: watched.ts(1,13): error TS2304: Cannot find name 'totl'.`
        : `build ${build}: found 0 errors. Watching for file changes.`);
}, 100);
"#,
    ),
    // 3 MB of output, then keeps running.
    (
        "batch.js",
        r#"require('fs').appendFileSync('pids', process.pid + '\n');
const lines = [];
for (let n = 0; n < 40000; n++) {
    lines.push(n === 23456 ? 'order 4711 rejected: card expired, customer 90210'
        : `order ${100000 + n} accepted: ${n * 37 % 9973} EUR, shipped from warehouse ${n % 7}, customer ${n * 31 % 99991}`);
}
lines.push('all orders queued');
process.stdout.write(lines.join('\n') + '\n');
setInterval(() => {}, 1000);
"#,
    ),
    // Asks on a terminal for a different word each time.
    (
        "ask.sh",
        r#"#!/bin/sh
[ -t 0 ] || { echo "this needs a terminal"; exit 2; }
printf 'type code-%s to delete the branch old: ' $$
read -r answer
if [ "$answer" = "code-$$" ]; then echo "deleted branch old"; exit 0; fi
echo "not deleted"
exit 1
"#,
    ),
    ("sub/show.sh", "#!/bin/sh\necho \"mode $MODE in $(basename \"$PWD\")\"\n"),
    ("crash.sh", "#!/bin/sh\necho working\nkill -SEGV $$\n"),
    ("src/pay.c", "int pay(int total)\n{\n    retrun total;\n}\n"),
    ("watched.ts", "console.log(total)\n"),
];

/// Writes the project to a directory.
pub(super) fn place(directory: &Path) {
    for (name, text) in PROGRAMS {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(&path, text).expect("a program");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("its mode");
    }
}
