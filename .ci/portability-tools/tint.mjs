// Compiles WGSL with Dawn's Tint, as Chromium does, and creates a pipeline of each file: node tint.mjs PACKAGE FILE…
// Prints each file that fails with the message, and at the end the number of files and of failures.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [packagePath, ...files] = process.argv.slice(2);
const { create, globals } = createRequire(packagePath + "/")("webgpu");
Object.assign(globalThis, globals);
// The null backend validates and compiles without a driver. The process crashes once the object is collected.
globalThis.gpu = create(["backend=null"]);
const adapter = await globalThis.gpu.requestAdapter();
const device = await adapter.requestDevice();

async function failure(file) {
  device.pushErrorScope("validation");
  const module = device.createShaderModule({ code: readFileSync(file, "utf8") });
  const info = await module.getCompilationInfo();
  const errors = info.messages.filter((message) => message.type === "error");
  if (errors.length === 0) device.createComputePipeline({ layout: "auto", compute: { module, entryPoint: "main" } });
  const error = await device.popErrorScope();
  const [first] = errors;
  return first ? `line ${first.lineNum}: ${first.message}` : error?.message;
}

let failures = 0;
for (const file of files) {
  const message = await failure(file);
  if (message) {
    failures += 1;
    console.log(`${file}: ${message}`);
  }
}
console.log(`${files.length} files, ${failures} failures`);
process.exit(failures > 0 ? 1 : 0);
