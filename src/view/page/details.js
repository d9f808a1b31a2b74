// The details of the selected box, or of the whole model.

class Details {
  constructor(picture, { select }) {
    Object.assign(this, { picture, select, model: picture.model, host: element("details") });
    this.stepsOf = new Map();
    (this.model.steps ?? []).forEach((step, number) => [...step.boxes, ...step.inline].forEach((box) => {
      const list = this.stepsOf.get(box) ?? [];
      list.push(number);
      this.stepsOf.set(box, list);
    }));
  }

  show(index) {
    this.host.replaceChildren(...(index === null ? this.summary() : this.box(index)).filter(Boolean));
    this.host.scrollTop = 0;
  }

  // The model.

  summary() {
    const { model } = this;
    const operators = model.boxes.filter((box) => box.operator);
    const facts = [["operators", String(operators.length)], ["modules", String(model.boxes.filter((box) => box.kind === "module").length || "none")],
      ["weights", model.weights.length ? `${model.weights.length} tensors` : null], ...(model.facts ?? [])];
    return [make("h2", { textContent: model.title }), this.table(facts),
      ...model.graphs.flatMap((graph) => this.graph(graph)),
      ...this.findings(model.findings ?? []),
      ...this.memory(null),
      make("h3", { textContent: "Operators" }), this.histogramOf(operators)];
  }

  graph(graph) {
    const sizes = Object.entries(graph.sizes).map(([name, size]) => `${name} = ${size}`).join(", ");
    const guards = graph.guards.length ? make("details", {}, make("summary", { textContent: `${graph.guards.length} guards` }),
      ...graph.guards.map((guard) => make("p", { className: "type", textContent: guard }))) : null;
    return this.section(`Graph ${graph.name}`, sizes && make("p", { textContent: `example sizes: ${sizes}` }), guards);
  }

  histogramOf(operators) {
    const counts = new Map();
    for (const box of operators) {
      const known = counts.get(box.operator) ?? { count: 0, category: box.category };
      known.count++;
      counts.set(box.operator, known);
    }
    const rows = [...counts].sort((a, b) => b[1].count - a[1].count);
    const most = rows[0]?.[1].count ?? 1;
    const table = make("table", { className: "bars" });
    for (const [name, { count, category }] of rows) {
      const find = this.find ? make("button", { className: "link", textContent: name, onclick: () => this.find(name) }) : name;
      const bar = make("td", { textContent: String(count), className: `category-${category}` });
      bar.style.setProperty("--share", `${100 * count / most}%`);
      table.append(make("tr", {}, make("td", {}, find), bar));
    }
    table.querySelectorAll("td:first-child").forEach((cell) => { cell.style.width = "60%"; });
    return table;
  }

  // A box.

  box(index) {
    const box = this.model.boxes[index];
    return [make("h2", { textContent: box.operator ?? box.label }),
      make("p", { className: "path", textContent: [box.kind === "operator" ? null : box.kind, box.module].filter(Boolean).join(" ") }),
      box.kind === "module" || box.kind === "graph" ? make("p", { textContent: box.subtitle ?? "" }) : null,
      ...this.overlay(index), ...this.findings(this.findingsOf(index)),
      ...this.section("Attributes", box.attributes?.length && this.table(box.attributes)),
      ...this.section("Inputs", box.inputs && this.values(box.inputs.map(([name, value]) => [name, value, [this.picture.sourceOf(value)]]))),
      ...this.section("Outputs", box.outputs && this.values(box.outputs.map((value) => ["", value, this.picture.readersOf(value)]))),
      ...this.section("Weights", ...(box.weights ?? []).map(([name, weight]) => this.weight(name, this.model.weights[weight]))),
      ...this.source(box.source), ...this.kernels(index), ...this.memory(index), ...this.contents(index)];
  }

  /** The operators within a module. */
  contents(index) {
    if (!this.picture.isContainer(index)) return [];
    const within = [];
    for (let open = [index]; open.length;) {
      const next = this.picture.children[open.pop()];
      within.push(...next.map((child) => this.model.boxes[child]).filter((child) => child.operator));
      open.push(...next);
    }
    return this.section("Operators", this.histogramOf(within));
  }

  section(title, ...parts) {
    const present = parts.filter(Boolean);
    return present.length ? [make("h3", { textContent: title }), ...present] : [];
  }

  table(rows) {
    return make("table", {}, ...rows.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) =>
      make("tr", {}, make("td", { textContent: name }), make("td", {}, value))));
  }

  link(index, text) {
    const box = this.model.boxes[index];
    return make("button", { className: "link", textContent: text ?? box.label, title: [box.module, box.source].filter(Boolean).join("\n"), onclick: () => this.select(index, true) });
  }

  /** Values with their types, and the boxes at their other ends. */
  values(rows) {
    return make("div", {}, ...rows.map(([role, value, ends]) => {
      const [name, type] = this.model.values[value];
      const known = ends.filter((end) => end !== null);
      const links = known.slice(0, 6).flatMap((end, at) => [at ? ", " : "", this.link(end)]);
      if (known.length > 6) links.push(` and ${known.length - 6} more`);
      return make("p", {}, role && role !== name ? `${role}: ` : "", make("b", { textContent: name }), " ", make("span", { className: "type", textContent: type }),
        make("br"), known.length ? make("small", {}, role || ends[0] === null ? "from " : "to ", ...links) : "");
    }));
  }

  weight(role, { name, type, summary }) {
    const parts = [make("div", {}, role ? `${role}: ` : "", make("b", { textContent: name })), make("div", { className: "type", textContent: type })];
    if (summary) parts.push(...histogram(summary));
    return make("div", { className: "weight" }, ...parts);
  }

  source(place) {
    if (!place) return [];
    const known = this.model.sources?.[place];
    const line = Number(place.slice(place.lastIndexOf(":") + 1));
    const text = known && make("pre", {}, ...known[1].map((content, at) => make("span", { className: known[0] + at === line ? "at" : "", textContent: `${String(known[0] + at).padStart(5)}  ${content}\n` })));
    return this.section("Source", make("p", {}, make("code", { textContent: place })), text);
  }

  kernels(index) {
    const steps = this.stepsOf.get(index) ?? [];
    if (!steps.length) return this.model.steps && this.model.boxes[index].operator ? this.section("Kernel", make("p", { textContent: "No kernel computes this value by itself: it is a view, a constant, or was simplified away." })) : [];
    return steps.slice(0, 4).flatMap((number) => {
      const step = this.model.steps[number];
      const kernel = this.model.kernels[step.kernel];
      const others = [...new Set(step.boxes)].filter((box) => box !== index);
      const links = others.slice(0, 12).flatMap((box, at) => [at ? ", " : "", this.link(box)]);
      return this.section(`Kernel ${kernel.name}`, this.table([["step", `${number + 1} of ${this.model.steps.length}`],
        ["computes", step.inline.includes(index) ? "this value inline, where it is read" : null],
        ...step.facts, ["fused with", links.length ? make("span", {}, ...links, others.length > 12 ? ` and ${others.length - 12} more` : "") : null]]),
        make("details", {}, make("summary", { textContent: "WGSL" }), make("pre", { textContent: kernel.wgsl })));
    });
  }

  overlay(index) {
    const overlay = this.picture.overlay;
    const lines = overlay?.details?.[index];
    return lines ? this.section(overlay.title, this.table(lines)) : [];
  }

  findingsOf(index) { return (this.model.findings ?? []).filter((finding) => finding.boxes.includes(index)); }

  findings(list) {
    return this.section("Findings", ...list.map((finding) => make("div", { className: `finding ${finding.severity}` },
      make("p", {}, make("b", { textContent: `${finding.id} ` }), finding.message),
      finding.place ? make("p", {}, make("code", { textContent: finding.place })) : null,
      ...finding.details.map((line) => make("p", { textContent: line })),
      this.picture.selected === null && finding.boxes.length ? make("p", {}, ...finding.boxes.slice(0, 6).flatMap((box, at) => [at ? ", " : "", this.link(box)])) : null)));
  }

  /** Memory of temporaries over the steps of the plan. */
  memory(index) {
    const live = this.model.memory;
    if (!live?.some((bytes) => bytes > 0) || (index !== null && this.picture.overlay?.id !== "memory")) return [];
    const [most] = max(live);
    const x = (step) => 300 * step / live.length;
    const d = live.map((bytes, step) => `H${x(step)}V${80 - 76 * bytes / most}`).join("");
    const marks = (this.stepsOf.get(index) ?? []).map((step) => svg("line", { x1: x(step + 0.5), x2: x(step + 0.5), y1: 0, y2: 80 }));
    const chart = svg("svg", { class: "memory", viewBox: "0 0 300 80", preserveAspectRatio: "none", role: "img", "aria-label": `Memory of temporaries over ${live.length} steps, at most ${amount(most, "B")}` },
      svg("path", { d: `M0 80${d}H300V80Z` }), ...marks);
    return this.section("Memory over the steps", chart, make("div", { className: "range" }, make("span", { textContent: "step 1" }), make("span", { textContent: `at most ${amount(most, "B")} of temporaries` }), make("span", { textContent: `step ${live.length}` })));
  }
}

/** A number; figures that overflow are null in JSON. */
const figure = (number) => number === null ? "∞" : number === 0 ? "0" : Math.abs(number) >= 1e5 || Math.abs(number) < 1e-3 ? number.toExponential(2) : String(Number(number.toPrecision(4)));

/** A histogram of a weight with its range, mean and standard deviation. */
function histogram({ min, max: most, mean, std, zeros, non_finite: broken, histogram: bars }) {
  if (min === null) return [make("div", { className: "range", textContent: `${broken} NaN or infinite, no others` })];
  const tallest = Math.max(...bars, 1);
  const zero = min < 0 && most > 0 ? 320 * -min / (most - min) : null;
  const chart = bars.length ? svg("svg", { viewBox: "0 0 320 56", preserveAspectRatio: "none", role: "img", "aria-label": `Histogram from ${figure(min)} to ${figure(most)}` },
    ...bars.map((count, bar) => svg("rect", { x: bar * 10 + 0.5, width: 9, y: 56 - 54 * count / tallest, height: 54 * count / tallest })),
    ...(zero === null ? [] : [svg("line", { x1: zero, x2: zero, y1: 0, y2: 56 })])) : null;
  const text = [`mean ${figure(mean)}, std ${figure(std)}`, zeros ? `${percent(zeros)} zeros` : null, broken ? `${broken} NaN or infinite` : null].filter(Boolean).join(", ");
  return [chart, make("div", { className: "range" }, make("span", { textContent: figure(min) }), make("span", { textContent: text }), make("span", { textContent: figure(most) }))].filter(Boolean);
}
