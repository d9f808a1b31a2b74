// The profile's page: timeline, ceilings, tables, and the picture of the model.

const profile = data.profile;
const { ceilings, steps } = profile;
const palette = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b07aa1", "#edc948", "#9c755f", "#ff9da7"];
const rest = "#8a8f96";

// Each of the kernels that take longest has its own colour.
const colours = new Map(profile.kernels.slice(0, palette.length).map((row, i) => [row.name, palette[i]]));
const colour = (name) => colours.get(name) ?? rest;

// Selected steps: none, or those of a row of a table.
let found = null;
let kept = null;

function head() {
  element("model").textContent = data.model;
  element("device").textContent = `on ${profile.device}, by ${profile.clock}`;
  const sum = (key) => steps.reduce((all, step) => all + step[key], 0);
  const ns = sum("ns") || 1;
  const figure = (title, value, note) => make("div", {}, make("dt", { textContent: title }),
    make("dd", {}, value, make("small", { textContent: note ? ` ${note}` : "" })));
  element("figures").append(
    figure("kernels together", time(ns)),
    figure("dispatches", String(sum("runs")), `of ${profile.kernels.length} names`),
    figure("arithmetic", `${digits(sum("flop") / ns)} GFLOP/s`, `of ${digits(ceilings.gflops)}`),
    figure("memory", `${digits(sum("bytes") / ns)} GB/s`, `of ${digits(ceilings.gb_per_s)}, ${digits(ceilings.cache_gb_per_s)} within caches`),
    figure("of ceiling", percent(sum("min_ns") / ns), `${time(sum("min_ns"))} at least`));
}

function describe(span) {
  const box = element("kernel");
  box.replaceChildren();
  if (!span) {
    box.append(make("span", { textContent: "Point at a kernel." }));
    return;
  }
  const [index, name, start, ns] = span;
  box.append(make("b", { textContent: name }), `  ${time(ns)}, ${time(start)} after the start\n`);
  if (index === null) return;
  const step = steps[index];
  const runs = Math.max(step.runs, 1);
  const [operations, bytes, least] = [step.flop / runs, step.bytes / runs, step.min_ns / runs];
  const at = (rate, unit) => ns ? ` at ${digits(rate / ns)} ${unit}` : "";
  box.append(`step ${index + 1}, ${step.workgroups.join(" × ")} workgroups, ${amount(operations, "FLOP")}`
    + `${at(operations, "GFLOP/s")}, ${amount(bytes, "B")}${at(bytes, "GB/s")}`
    + (ns ? `, ${percent(least / ns)} of ceiling\n` : ", too short for the clock\n"));
  box.append(words(step).join("\n"));
}

// The nodes of a step, the reason for its kernel, and its place.
function words(step) {
  const place = [step.location, step.location && step.module ? `(${step.module})` : step.module];
  const computes = (how, nodes) => nodes.length ? `computes ${how}${nodes.join(", ")}` : "";
  return [computes("", step.nodes), computes("inline ", step.inline), step.reason, place.filter(Boolean).join(" ")].filter(Boolean);
}

// Timeline: frames of modules, and under them the kernels.
const canvas = document.querySelector("canvas");
const row = 22;
const depth = data.frames.reduce((most, frame) => Math.max(most, frame[0] + 1), 0);
const last = data.spans.reduce((end, span) => Math.max(end, span[2] + span[3]), 1);
let [from, to] = [0, last];

function draw() {
  const ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = (depth + 1) * row + 34;
  canvas.style.height = `${height}px`;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  const style = getComputedStyle(canvas);
  const x = (ns) => (ns - from) / (to - from) * width;
  scale(context, x, width, height, style);
  const box = (start, ns, y, size, fill, text, ink, faint) => {
    const [left, right] = [Math.max(x(start), -2), Math.min(x(start + ns), width + 2)];
    if (right < 0 || left > width) return;
    const wide = Math.max(right - left - 1, 1);
    context.globalAlpha = faint ? 0.2 : 1;
    context.fillStyle = fill;
    context.fillRect(left, y, wide, size);
    if (wide > 34) {
      context.save();
      context.beginPath();
      context.rect(left, y, wide - 4, size);
      context.clip();
      context.fillStyle = ink;
      context.fillText(text, Math.max(left, 0) + 5, y + size / 2 + 1);
      context.restore();
    }
    context.globalAlpha = 1;
  };
  const text = style.caretColor;
  for (const [level, path, start, ns] of data.frames) {
    const name = level ? path.slice(path.lastIndexOf(".") + 1) : path;
    box(start, ns, 24 + level * row, row - 3, level % 2 ? "#8a8f9640" : "#8a8f9662", name, text, false);
  }
  for (const span of data.spans) {
    const [index, name, start, ns] = span;
    const faint = found && !found.has(index);
    box(start, ns, 26 + depth * row, row + 2, colour(name), name, "#fff", faint);
    if (span === kept) {
      context.strokeStyle = text;
      context.lineWidth = 2;
      context.strokeRect(x(start), 26 + depth * row, Math.max(x(start + ns) - x(start) - 1, 2), row + 2);
    }
  }
}

function scale(context, x, width, height, style) {
  const rough = (to - from) / Math.max(width / 110, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    context.fillStyle = style.borderTopColor;
    context.fillRect(x(at), 0, 1, height);
    context.fillStyle = style.color;
    context.fillText(time(Math.round(at)), x(at) + 4, 11);
  }
}

function spanAt(event) {
  const bounds = canvas.getBoundingClientRect();
  if (event.clientY - bounds.top < 26 + depth * row) return null;
  const at = from + (event.clientX - bounds.left) / bounds.width * (to - from);
  const near = (to - from) / bounds.width;
  return data.spans.find(([, , start, ns]) => start - near <= at && at <= start + ns + near) ?? null;
}

function view(start, length) {
  length = Math.min(Math.max(length, last / 1e5), last);
  from = Math.min(Math.max(start, 0), last - length);
  to = from + length;
  draw();
}

let grip = null;
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const bounds = canvas.getBoundingClientRect();
  const share = (event.clientX - bounds.left) / bounds.width;
  const length = (to - from) * 1.0015 ** event.deltaY;
  view(from + (to - from - length) * share, length);
}, { passive: false });
canvas.addEventListener("pointerdown", (event) => {
  grip = { x: event.clientX, from, moved: false };
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  if (!grip) return describe(spanAt(event) ?? kept);
  grip.moved ||= Math.abs(event.clientX - grip.x) > 3;
  if (grip.moved) view(grip.from - (event.clientX - grip.x) / canvas.clientWidth * (to - from), to - from);
});
canvas.addEventListener("pointerup", (event) => {
  if (grip && !grip.moved) keep(spanAt(event));
  grip = null;
});
canvas.addEventListener("pointerleave", () => describe(kept));
canvas.addEventListener("dblclick", () => view(0, last));
canvas.addEventListener("keydown", (event) => {
  const [length, centre] = [to - from, (from + to) / 2];
  const zoom = (factor) => view(centre - length * factor / 2, length * factor);
  const act = { ArrowLeft: () => view(from - length / 5, length), ArrowRight: () => view(from + length / 5, length),
    "+": () => zoom(0.7), "-": () => zoom(1.4), Escape: () => keep(null) }[event.key];
  if (act) { event.preventDefault(); act(); }
});
addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

function keep(span) {
  kept = span;
  describe(span);
  draw();
}

// Ceilings: operations per byte against operations per second, both by powers of ten.
function roofline() {
  const svg = element("roofline");
  const add = (tag, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text) node.textContent = text;
    svg.append(node);
    return node;
  };
  const points = steps.map((step, index) => ({ step, index, x: step.flop / step.bytes, y: step.flop / step.ns }))
    .filter(({ x, y }) => x > 0 && y > 0 && isFinite(x) && isFinite(y));
  const ridge = ceilings.gflops / ceilings.cache_gb_per_s;
  const range = (values) => [Math.floor(Math.log10(Math.min(...values))), Math.ceil(Math.log10(Math.max(...values)))];
  const [x0, x1] = range([ridge / 10, ridge * 10, ...points.map((point) => point.x)]);
  const [y0, y1] = range([ceilings.gflops / 100, ceilings.gflops, ...points.map((point) => point.y)]);
  const x = (value) => 60 + (Math.log10(value) - x0) / (x1 - x0) * 810;
  const y = (value) => 290 - (Math.log10(value) - y0) / (y1 - y0) * 265;
  for (let power = x0; power <= x1; power++) {
    add("line", { class: "grid", x1: x(10 ** power), x2: x(10 ** power), y1: 25, y2: 290 });
    add("text", { x: x(10 ** power), y: 306, "text-anchor": "middle" }, String(Number((10 ** power).toPrecision(1))));
  }
  for (let power = y0; power <= y1; power++) {
    add("line", { class: "grid", x1: 60, x2: 870, y1: y(10 ** power), y2: y(10 ** power) });
    add("text", { x: 54, y: y(10 ** power) + 4, "text-anchor": "end" }, String(Number((10 ** power).toPrecision(1))));
  }
  add("text", { x: 870, y: 324, "text-anchor": "end" }, "FLOP per byte");
  add("text", { x: 60, y: 14 }, "GFLOP/s");
  for (const rate of [ceilings.cache_gb_per_s, ceilings.gb_per_s]) {
    const left = Math.max(10 ** x0, 10 ** y0 / rate);
    add("path", { class: "roof", d: `M${x(left)} ${y(left * rate)}L${x(ceilings.gflops / rate)} ${y(ceilings.gflops)}L870 ${y(ceilings.gflops)}` });
  }
  add("text", { x: 864, y: y(ceilings.gflops) - 6, "text-anchor": "end" }, `${digits(ceilings.gflops)} GFLOP/s`);
  const longest = Math.max(...steps.map((step) => step.ns));
  for (const { step, index, x: intensity, y: rate } of points) {
    const size = 3 + 9 * Math.sqrt(step.ns / longest);
    const point = add("circle", { cx: x(intensity), cy: y(rate), r: size, fill: colour(step.kernel), "data-step": index });
    const span = data.spans.find((span) => span[0] === index) ?? null;
    point.append(document.createElementNS("http://www.w3.org/2000/svg", "title"));
    point.firstChild.textContent = `${step.kernel} (step ${index + 1}): ${time(step.ns)}`;
    point.addEventListener("click", () => keep(span));
  }
}

// Tables.
const columns = [["ms", (r) => digits(r.ms)], ["share", (r, all) => percent(r.ms / all)], ["steps", (r) => r.steps],
  ["gflops", (r) => r.gflops ? digits(r.gflops) : "–"], ["gb_per_s", (r) => r.gb_per_s ? digits(r.gb_per_s) : "–"],
  ["of_ceiling", (r) => r.of_ceiling === null ? "–" : percent(r.of_ceiling)], ["name", (r) => r.name || "?"]];
const titles = { gflops: "GFLOP/s", gb_per_s: "GB/s", of_ceiling: "of ceiling" };
const kinds = ["kernel", "module", "line"];
let shown = { kind: 0, key: "ms", up: false };

function table() {
  const rows = [...profile[`${kinds[shown.kind]}s`]];
  const all = rows.reduce((sum, row) => sum + row.ms, 0);
  const key = shown.key === "share" ? "ms" : shown.key;
  rows.sort((a, b) => key === "name" ? a.name.localeCompare(b.name) : b[key] - a[key]);
  if (shown.up) rows.reverse();
  element("tabs").replaceChildren(...kinds.map((kind, index) => {
    const button = make("button", { textContent: `by ${kind}`, onclick: () => { shown.kind = index; search(null); } });
    button.setAttribute("aria-pressed", String(index === shown.kind));
    return button;
  }));
  element("table").tHead.replaceChildren(make("tr", {}, ...columns.map(([name]) => make("th", {
    textContent: name === "name" ? kinds[shown.kind] : titles[name] ?? name,
    onclick: () => { shown = { ...shown, key: name, up: shown.key === name && !shown.up }; table(); },
  }))));
  element("table").tBodies[0].replaceChildren(...rows.map((row) => line(row, all)));
}

function line(row, all) {
  const cells = columns.map(([name, text]) => make("td", { textContent: text(row, all) }));
  cells[1].className = "bar";
  cells[1].style.setProperty("--share", `${100 * row.ms / all}%`);
  if (shown.kind === 0) {
    const mark = make("span", { className: "mark" });
    mark.style.background = colour(row.name);
    cells.at(-1).prepend(mark);
  }
  const tr = make("tr", { onclick: () => search(found?.name === row.name ? null : row.name) }, ...cells);
  tr.classList.toggle("found", found?.name === row.name);
  return tr;
}

// Marks the steps of a name in all pictures.
function search(name) {
  found = null;
  if (name !== null) {
    const of = { kernel: "kernel", module: "module", line: "location" }[kinds[shown.kind]];
    const own = steps.map((step, index) => [step, index]).filter(([step]) => (step[of] ?? "") === name);
    found = Object.assign(new Set(own.map(([, index]) => index)), { name });
  }
  document.querySelectorAll("circle").forEach((point) => point.classList.toggle("found", Boolean(found?.has(Number(point.dataset.step)))));
  table();
  draw();
}

head();
describe(null);
roofline();
table();
draw();

// The picture: the kernels of the selected operator are marked elsewhere.
const viewer = new Viewer(data.picture, { selected: (index) => {
  const values = new Set((data.picture.boxes[index]?.outputs ?? []).map((value) => data.picture.values[value][0]));
  const steps = data.profile.steps.flatMap((step, number) => step.nodes.some((name) => values.has(name)) ? [number] : []);
  search(null);
  if (steps.length) found = Object.assign(new Set(steps), { name: null });
  draw();
} });
viewer.start("time");
