// Replays recordings of `onionskin test --record FOLDER` with Dawn, Chromium's WebGPU, on the Vulkan driver that
// VK_ICD_FILENAMES names: node dawn.mjs PACKAGE FOLDER [LEFT_OUT]
// Leaves out recordings whose name contains LEFT_OUT.
// Prints each recording whose results differ or that Dawn refuses, and at the end the number of recordings and of failures.
// Recordings run in worker processes, so that one that crashes or hangs fails alone.
import { fork } from "node:child_process";
import { readdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";

const SECONDS_PER_RECORDING = 60;

const [packagePath, folder, leftOut] = process.argv.slice(2);
const isRead = (name) => name.endsWith(".json") && !(leftOut && name.includes(leftOut));
const files = readdirSync(folder).filter(isRead).sort();
const waiting = [...files];
let failures = 0;

// Starts a worker. It is silent: Dawn prints a warning for each adapter that it refuses.
function start() {
  const worker = fork(new URL("dawn-worker.mjs", import.meta.url), [packagePath], { stdio: ["ignore", "ignore", "pipe", "ipc"] });
  worker.complaints = "";
  worker.stderr.on("data", (text) => (worker.complaints = (worker.complaints + text).slice(-2000)));
  return worker;
}

// The failure of a recording; null if all results are as recorded.
function ask(worker, file) {
  return new Promise((resolve) => {
    const finish = (failure) => {
      clearTimeout(timer);
      worker.removeAllListeners("message").removeAllListeners("exit");
      resolve(failure);
    };
    const timer = setTimeout(() => {
      finish(`no result after ${SECONDS_PER_RECORDING} s`);
      worker.kill("SIGKILL");
    }, SECONDS_PER_RECORDING * 1000);
    worker.once("message", ({ failure }) => finish(failure));
    worker.once("exit", (code, signal) => finish(`the process ended with ${signal ?? code}: ${worker.complaints.trim().split("\n").pop()}`));
    worker.send(join(folder, file));
  });
}

async function serve() {
  let worker = start();
  for (let file = waiting.shift(); file; file = waiting.shift()) {
    const failure = await ask(worker, file);
    if (failure !== null) {
      failures += 1;
      console.log(`${file}: ${failure}`);
    }
    if (worker.killed || worker.exitCode !== null || worker.signalCode !== null) worker = start();
  }
  worker.kill("SIGKILL");
}

await Promise.all(Array.from({ length: availableParallelism() }, serve));
console.log(`${files.length} files, ${failures} failures`);
process.exit(failures > 0 || files.length === 0 ? 1 : 0);
