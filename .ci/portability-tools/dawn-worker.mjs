// Replays the recordings whose paths dawn.mjs sends, and answers each with a failure or null: node dawn-worker.mjs PACKAGE
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// Tolerances of floats: relative to the recorded number, and relative to the largest one of the tensor.
const RELATIVE = 1e-4;
const OF_LARGEST = 1e-5;
const DISPATCHES_PER_SUBMISSION = 1000;

const [packagePath] = process.argv.slice(2);
const { create, globals } = createRequire(packagePath + "/")("webgpu");
Object.assign(globalThis, globals);
// The process crashes once the object is collected.
globalThis.gpu = create(["backend=vulkan"]);

// Opens a device. An adapter opens one device only.
async function open() {
  const adapter = await globalThis.gpu.requestAdapter();
  if (!adapter) throw new Error("Dawn accepts no adapter of this driver");
  return adapter.requestDevice();
}

// Executes the commands of a recording on a device.
class Replay {
  constructor(device, data) {
    Object.assign(this, { device, data, buffers: [], pipelines: [], layouts: [], groups: [], encoder: null, pass: null });
    Object.assign(this, { dispatches: 0, reads: 0 });
  }

  // The encoder of commands outside of passes.
  commands() {
    this.pass?.end();
    this.pass = null;
    return (this.encoder ??= this.device.createCommandEncoder());
  }

  submit() {
    if (this.encoder) this.device.queue.submit([this.commands().finish()]);
    this.encoder = null;
    this.dispatches = 0;
  }

  bytes(position, size) {
    return new Uint8Array(this.data, position, size);
  }

  create_buffer({ size, usage }) {
    this.buffers.push(this.device.createBuffer({ size, usage }));
  }

  create_pipeline({ label, wgsl, bindings }) {
    const entry = (type, binding) => ({ binding, visibility: GPUShaderStage.COMPUTE, buffer: { type } });
    const layout = this.device.createBindGroupLayout({ entries: bindings.map(entry) });
    const module = this.device.createShaderModule({ code: wgsl });
    this.layouts.push(layout);
    this.pipelines.push(
      this.device.createComputePipeline({
        label,
        layout: this.device.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: { module, entryPoint: "main" },
      }),
    );
  }

  create_bind_group({ pipeline, buffers }) {
    const entries = buffers.map(({ buffer, offset, size }, binding) => {
      return { binding, resource: { buffer: this.buffers[buffer], offset, size } };
    });
    this.groups.push({ pipeline, group: this.device.createBindGroup({ layout: this.layouts[pipeline], entries }) });
  }

  async write_buffer({ target: { buffer, offset, size }, data }) {
    this.submit();
    const target = this.buffers[buffer];
    if (target.usage & GPUBufferUsage.MAP_WRITE) {
      await target.mapAsync(GPUMapMode.WRITE);
      new Uint8Array(target.getMappedRange()).set(this.bytes(data, size), offset);
      target.unmap();
    } else {
      this.device.queue.writeBuffer(target, offset, this.data, data, size);
    }
  }

  copy_buffer({ source: { buffer, offset, size }, target, target_offset }) {
    this.commands().copyBufferToBuffer(this.buffers[buffer], offset, this.buffers[target], target_offset, size);
  }

  clear_buffer({ target: { buffer, offset, size } }) {
    this.commands().clearBuffer(this.buffers[buffer], offset, size);
  }

  dispatch({ bind_group, workgroups }) {
    if (this.dispatches >= DISPATCHES_PER_SUBMISSION) this.submit();
    this.dispatches += 1;
    const { pipeline, group } = this.groups[bind_group];
    this.pass ??= this.commands().beginComputePass();
    this.pass.setPipeline(this.pipelines[pipeline]);
    this.pass.setBindGroup(0, group);
    this.pass.dispatchWorkgroups(...workgroups);
  }

  // Returns the first element that is not as recorded.
  async read_buffer({ source: { buffer, offset, size }, storage, data }) {
    this.submit();
    this.reads += 1;
    const source = this.buffers[buffer];
    await source.mapAsync(GPUMapMode.READ);
    const found = source.getMappedRange().slice(offset, offset + size);
    source.unmap();
    const difference = firstDifference(storage, found, this.data.slice(data, data + size));
    return difference && `read ${this.reads}, ${difference}`;
  }
}

function firstDifference(storage, foundBytes, recordedBytes) {
  const type = { f32: Float32Array, i32: Int32Array, u32: Uint32Array }[storage];
  if (!type) return `elements of type ${storage} cannot be compared`;
  const [found, recorded] = [new type(foundBytes), new type(recordedBytes)];
  const largest = recorded.reduce((most, x) => (Number.isFinite(x) ? Math.max(most, Math.abs(x)) : most), 0);
  const tolerance = (x) => (storage === "f32" ? RELATIVE * Math.abs(x) + OF_LARGEST * largest : 0);
  const agrees = (x, y) => Object.is(x, y) || x === y || Math.abs(x - y) <= tolerance(y);
  const index = recorded.findIndex((y, index) => !agrees(found[index], y));
  return index < 0 ? null : `element ${index} of ${recorded.length}: ${found[index]}, recorded ${recorded[index]}`;
}

// The failure of a recording; null if Dawn accepts all commands and all results are as recorded.
async function failure(file) {
  const { commands } = JSON.parse(readFileSync(file, "utf8"));
  const data = new Uint8Array(readFileSync(file.replace(/json$/, "bin"))).buffer;
  const device = await open();
  for (const filter of ["validation", "out-of-memory", "internal"]) device.pushErrorScope(filter);
  const replay = new Replay(device, data);
  let difference = null;
  try {
    for (const command of commands) difference ??= await replay[command.command](command);
  } catch (error) {
    difference = error.message;
  }
  const errors = await Promise.all([device.popErrorScope(), device.popErrorScope(), device.popErrorScope()]);
  device.destroy();
  return errors.find((error) => error)?.message ?? difference ?? null;
}

process.on("message", async (file) => {
  const result = await failure(file).catch((error) => error.message);
  process.send({ failure: result });
});
