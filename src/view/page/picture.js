// The picture of a model: draws a scene as SVG, and moves and zooms it.

/** Boxes have text from this scale on; below it, closed boxes are drawn together. */
const TEXT_SCALE = 0.3;

class Picture extends Scene {
  /** Draws the boxes of `model` into a `host`. `select` and `toggle` are called with the number of a box. `wheel`: the wheel moves the picture even without the Ctrl key. */
  constructor(host, model, { wheel, select, toggle }) {
    super(model);
    Object.assign(this, { host, wheel, select, toggle });
    this.view = { x: 0, y: 0, scale: 1 };
    this.selected = null;
    this.matches = new Set();
    this.overlay = null;
    this.svg = svg("svg", { role: "group", "aria-label": "Graph of the model. The list beside it has the same boxes." });
    this.layer = svg("g", {});
    this.svg.append(this.layer);
    host.append(this.svg);
    this.drawn = new Map();
    this.listen();
    this.build();
  }

  /** Collects everything to draw, with absolute places. */
  build() {
    this.collect();
    this.drawn.forEach((node) => node.remove());
    this.drawn.clear();
    this.window = null;
    this.draw();
  }

  // Drawing.

  /** Draws all things near the visible part. Moving within the margin around it only moves the SVG. */
  draw() {
    const { clientWidth: width, clientHeight: height } = this.host;
    if (!width || !height) return;
    const { x, y, scale } = this.view;
    const margin = 0.5;
    const shown = this.window;
    const dx = shown && (x - shown.x) * scale;
    const dy = shown && (y - shown.y) * scale;
    if (shown && shown.scale === scale && shown.width === width && shown.height === height && Math.abs(dx) < margin * width && Math.abs(dy) < margin * height) {
      this.svg.style.transform = `translate(${-dx}px, ${-dy}px)`;
      return;
    }
    this.window = { x, y, scale, width, height };
    const box = { left: x - margin * width / scale, top: y - margin * height / scale };
    box.right = box.left + (1 + 2 * margin) * width / scale;
    box.bottom = box.top + (1 + 2 * margin) * height / scale;
    const style = this.svg.style;
    Object.assign(style, { left: `${-margin * width}px`, top: `${-margin * height}px`, transform: "translate(0, 0)" });
    this.svg.setAttribute("width", (1 + 2 * margin) * width);
    this.svg.setAttribute("height", (1 + 2 * margin) * height);
    this.svg.setAttribute("viewBox", `${box.left} ${box.top} ${box.right - box.left} ${box.bottom - box.top}`);
    this.fill(box, scale < TEXT_SCALE);
  }

  /** Makes the SVG elements of the things in a part of the picture, and drops those outside of it. */
  fill(part, small) {
    const wanted = new Set();
    const { things, strips } = this.scene;
    for (let strip = Math.floor(part.top / STRIP); strip <= Math.floor(part.bottom / STRIP); strip++) {
      for (const number of strips.get(strip) ?? []) {
        const thing = things[number];
        if (thing.right >= part.left && thing.left <= part.right && thing.bottom >= part.top && thing.top <= part.bottom) wanted.add(number);
      }
    }
    if (small !== this.small) {
      this.drawn.forEach((node) => node.remove());
      this.drawn.clear();
      this.small = small;
    }
    this.layer.querySelectorAll(".together").forEach((node) => node.remove());
    if (small) return this.fillTogether([...wanted].sort((a, b) => a - b).map((number) => things[number]));
    for (const [number, node] of this.drawn) {
      if (!wanted.has(number)) { node.remove(); this.drawn.delete(number); }
    }
    const fresh = document.createDocumentFragment();
    for (const number of [...wanted].sort((a, b) => a - b)) {
      if (this.drawn.has(number)) continue;
      const node = this.node(things[number]);
      this.drawn.set(number, node);
      fresh.append(node);
    }
    this.layer.append(fresh);
  }

  /** Draws things as a few paths: lines, open boxes, and the boxes of each colour. */
  fillTogether(things) {
    const paths = new Map();
    const put = (name, d, colour) => {
      const path = paths.get(name) ?? { d: [], colour };
      path.d.push(d);
      paths.set(name, path);
    };
    for (const thing of things) {
      if (thing.kind === "line") put("line", thing.d);
      if (thing.kind !== "box") continue;
      const d = `M${r(thing.left)} ${r(thing.top)}H${r(thing.right)}V${r(thing.bottom)}H${r(thing.left)}Z`;
      const box = this.boxes[thing.index];
      const look = this.look(thing.index, thing.open);
      const colour = look.fill ?? (thing.open ? `var(--open-${this.depth[thing.index] % 2})` : box.category === undefined ? "light-dark(#d5dde8, #3a424d)" : null);
      put(thing.open ? `open depth-${this.depth[thing.index]}` : `${look.fill ?? ""} category-${box.category ?? "none"}`, d, colour);
    }
    for (const [name, { d, colour }] of paths) {
      const path = svg("path", { class: `together ${name}`, d: d.join("") });
      if (name !== "line") path.style.cssText = `fill: ${colour ?? "var(--category)"}; stroke: var(--line); vector-effect: non-scaling-stroke`;
      this.layer.append(path);
    }
    if (this.selected !== null) {
      const place = this.scene.place.get(this.selected);
      if (place) this.layer.append(svg("rect", { class: "together", x: place.x, y: place.y, width: place.width, height: place.height, style: "fill: none; stroke: var(--accent); stroke-width: 4px; vector-effect: non-scaling-stroke" }));
    }
  }

  node(thing) {
    if (thing.kind === "box") return this.boxNode(thing);
    const on = thing.value !== undefined && this.isNear(thing.value) ? " on" : "";
    if (thing.kind === "text") {
      const node = svg("text", { class: thing.style, x: r(thing.x), y: r(thing.y), "data-value": thing.value ?? "" });
      node.textContent = thing.text;
      return node;
    }
    const [name, type] = this.model.values[thing.value];
    const title = svg("title", {});
    title.textContent = `${name}: ${type}`;
    if (thing.kind === "port") return svg("circle", { class: `port${on}`, cx: r(thing.x), cy: r(thing.y), r: 3 }, title);
    return svg("g", { "data-value": thing.value }, svg("path", { class: `line${on}`, d: thing.d }, title), svg("path", { class: `tip${on}`, d: thing.tips }));
  }

  boxNode({ index, open, left, top, right, bottom }) {
    const box = this.boxes[index];
    const look = this.look(index, open);
    const [x, y, width, height] = [left, top, right - left, bottom - top].map(r);
    const kind = open ? "open" : this.isContainer(index) ? "closed" : box.kind;
    const group = svg("g", { class: `box ${kind} depth-${this.depth[index] % 2} category-${box.category ?? "none"} ${look.style}`, "data-box": index });
    const rect = svg("rect", { x, y, width, height, rx: open || kind === "closed" ? 8 : 5 });
    if (look.fill) rect.style.fill = look.fill;
    group.append(rect);
    if (box.category !== undefined && !open) group.append(svg("rect", { class: "band", x, y: y + 4, width: 4, height: height - 8, rx: 2 }));
    const lines = box.subtitle && !open ? 2 : 1;
    const write = (style, content, tx, ty, anchor) => {
      const text = svg("text", { class: style, x: r(tx), y: r(ty), "text-anchor": anchor });
      text.textContent = content;
      group.append(text);
    };
    if (open) {
      write("title", `▾ ${box.label}`, x + 12, y + 20, "start");
      write("sub", box.subtitle ?? "", x + 12 + 7.4 * (box.label.length + 3), y + 20, "start");
    } else {
      const title = this.isContainer(index) ? `▸ ${box.label}` : box.label;
      write("title", title, x + width / 2, y + height / 2 + (lines === 2 ? -2 : 4), "middle");
      if (lines === 2) write("sub", box.subtitle, x + width / 2, y + height / 2 + 12, "middle");
    }
    if (look.text) write("mark", look.text, x + width - 6, y - 4, "end");
    return group;
  }

  /** Style, colour and text of a box under the overlay and the selection. */
  look(index, open) {
    const style = [];
    if (index === this.selected) style.push("selected");
    else if (this.beside?.has(index)) style.push("beside");
    if (this.matches.has(index)) style.push("match");
    const mark = this.overlay?.marks[index];
    const look = { style: style.join(" "), fill: null, text: null };
    if (!this.overlay) return look;
    if (mark) {
      look.text = mark[1];
      if (!open) look.fill = colourOf(this.overlay.scale, mark[0]);
    } else if (!open) look.fill = "var(--ground)";
    return look;
  }

  /** True if the selected box makes or reads a value. */
  isNear(value) { return this.near?.has(value) ?? false; }

  // Changes.

  setSelected(index) {
    this.selected = index;
    const box = index === null ? null : this.boxes[index];
    this.near = new Set(box ? [...(box.outputs ?? []), ...(box.inputs ?? []).map(([, value]) => value)] : []);
    this.beside = new Set(box ? [...(box.inputs ?? []).map(([, value]) => this.sourceOf(value)), ...(box.outputs ?? []).flatMap((value) => this.readersOf(value))] : []);
    this.redraw();
  }

  redraw() {
    this.drawn.forEach((node) => node.remove());
    this.drawn.clear();
    this.window = null;
    this.draw();
  }

  // The visible part.

  setView(view) {
    Object.assign(this.view, view);
    this.view.scale = Math.min(Math.max(this.view.scale, 0.005), 4);
    this.request ??= requestAnimationFrame(() => { this.request = null; this.draw(); });
  }

  /** Shows the whole picture, or its beginning if it would be too small to read. */
  fit(whole) {
    const { clientWidth: width, clientHeight: height } = this.host;
    const space = 40;
    const wide = (width - space) / this.extent.width;
    const all = Math.min(wide, (height - space) / this.extent.height, 1.2);
    const scale = whole ? all : Math.max(all, Math.min(wide, 0.75), 0.35);
    const y = this.extent.height * scale > height - space ? -space / 2 / scale : (this.extent.height - height / scale) / 2;
    this.setView({ scale, x: (this.extent.width - width / scale) / 2, y });
  }

  /** Moves a box to the middle, large enough to read. */
  centre(index) {
    const place = this.scene.place.get(index);
    if (!place) return;
    const { clientWidth: width, clientHeight: height } = this.host;
    const fits = Math.min((width - 40) / place.width, (height - 40) / place.height);
    const scale = Math.min(Math.max(this.view.scale, 0.8), Math.max(fits, 0.35));
    const tall = place.height * scale > height - 40;
    this.setView({ scale, x: place.x + place.width / 2 - width / scale / 2, y: tall ? place.y - 20 / scale : place.y + place.height / 2 - height / scale / 2 });
  }

  zoom(factor, at) {
    const { clientWidth: width, clientHeight: height } = this.host;
    const [px, py] = at ?? [width / 2, height / 2];
    const { x, y, scale } = this.view;
    const next = Math.min(Math.max(scale * factor, 0.005), 4);
    this.setView({ scale: next, x: x + px / scale - px / next, y: y + py / scale - py / next });
  }

  pan(dx, dy) { this.setView({ x: this.view.x + dx / this.view.scale, y: this.view.y + dy / this.view.scale }); }

  /** The innermost box at a point of the window. */
  boxAt(event) {
    const bounds = this.host.getBoundingClientRect();
    const x = this.view.x + (event.clientX - bounds.left) / this.view.scale;
    const y = this.view.y + (event.clientY - bounds.top) / this.view.scale;
    let found = null;
    for (const number of this.scene.strips.get(Math.floor(y / STRIP)) ?? []) {
      const thing = this.scene.things[number];
      if (thing.kind === "box" && thing.left <= x && x <= thing.right && thing.top <= y && y <= thing.bottom) found = thing;
    }
    return found && { index: found.index, head: found.open && y < found.top + HEAD };
  }

  listen() {
    let grip = null;
    this.host.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      grip = { x: event.clientX, y: event.clientY, view: { ...this.view }, moved: false };
      this.host.setPointerCapture(event.pointerId);
    });
    this.host.addEventListener("pointermove", (event) => {
      if (!grip) return;
      const [dx, dy] = [event.clientX - grip.x, event.clientY - grip.y];
      grip.moved ||= Math.hypot(dx, dy) > 4;
      if (grip.moved) this.setView({ x: grip.view.x - dx / grip.view.scale, y: grip.view.y - dy / grip.view.scale });
    });
    this.host.addEventListener("pointerup", (event) => {
      if (grip && !grip.moved) this.click(event);
      grip = null;
    });
    this.host.addEventListener("wheel", (event) => {
      const zooms = event.ctrlKey || event.metaKey || event.altKey;
      if (!zooms && !this.wheel) return;
      event.preventDefault();
      const bounds = this.host.getBoundingClientRect();
      if (zooms) this.zoom(1.004 ** -event.deltaY, [event.clientX - bounds.left, event.clientY - bounds.top]);
      else this.pan(event.shiftKey ? event.deltaY : event.deltaX, event.shiftKey ? 0 : event.deltaY);
    }, { passive: false });
    new ResizeObserver(() => this.draw()).observe(this.host);
  }

  click(event) {
    const far = document.elementFromPoint(event.clientX, event.clientY)?.closest("text.far");
    if (far) return this.select(this.sourceOf(Number(far.dataset.value)), true);
    const hit = this.boxAt(event);
    if (!hit) return this.select(null);
    if (this.isContainer(hit.index) && (hit.head || !this.opened.has(hit.index))) this.toggle(hit.index);
    this.select(hit.index);
  }

  /** Draws everything in one piece for printing, and returns a function that undoes it. */
  drawWhole() {
    const view = { ...this.view };
    const { width, height } = this.extent;
    this.drawn.forEach((node) => node.remove());
    this.drawn.clear();
    this.svg.setAttribute("viewBox", `-10 -20 ${width + 20} ${height + 30}`);
    this.fill({ left: -1e9, right: 1e9, top: -1, bottom: height + 1 }, false);
    return () => { this.view = view; this.redraw(); };
  }
}

/** Colour of a mark between 0 and 1, or of a number of a kernel or of a severity. */
function colourOf(scale, level) {
  if (scale === "severity") return ["var(--ground)", "var(--note)", "var(--warning)", "var(--error)"].map((one) => `color-mix(in srgb, ${one} 30%, var(--panel))`)[level];
  if (scale === "kernel") return `color-mix(in srgb, hsl(${(level * 137.5) % 360} 65% 55%) 38%, var(--panel))`;
  return `color-mix(in srgb, light-dark(#d9480f, #ff8a4c) ${Math.round(8 + 62 * level)}%, var(--panel))`;
}
