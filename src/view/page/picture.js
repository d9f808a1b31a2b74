// The picture of a model: boxes that open on a click, drawn as SVG. Rust lays out each level with all of its boxes closed;
// here boxes move apart where one is open.

const HEAD = 30;
const PADDING = 16;
const PORT = [10, 0];
const ITEM_GAP = 26;
const LINE_GAP = 14;
/** Boxes have text from this scale on; below it, closed boxes are drawn together. */
const TEXT_SCALE = 0.3;
/** Rows of the index of drawn things, in pixels of the picture. */
const STRIP = 800;

class Picture {
  /** Draws the boxes of `model` into a `host`. `select` and `toggle` are called with the number of a box. `wheel`: the wheel moves the picture even without the Ctrl key. */
  constructor(host, model, { wheel, select, toggle }) {
    Object.assign(this, { host, model, wheel, select, toggle });
    this.boxes = model.boxes;
    this.children = this.boxes.map(() => []);
    this.boxes.forEach((box, index) => box.parent !== undefined && this.children[box.parent].push(index));
    this.depth = [];
    this.boxes.forEach((box, index) => { this.depth[index] = box.parent === undefined ? 0 : this.depth[box.parent] + 1; });
    this.roots = this.boxes.flatMap((box, index) => box.parent === undefined ? [index] : []);
    this.opened = new Set(this.roots);
    this.inner = new Map();
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

  // Sizes and places.

  /** True for the only graph: its inside is the whole picture. */
  isFrameless(index) { return this.roots.length === 1 && index === this.roots[0]; }

  isContainer(index) { return this.boxes[index].level !== undefined; }


  /** Width and height of a box. */
  size(index) {
    if (!this.opened.has(index) || !this.isContainer(index)) return this.boxes[index].size;
    const inner = this.place(index);
    if (this.isFrameless(index)) return [inner.width, inner.height];
    const { label, subtitle } = this.boxes[index];
    const title = 8 * (label.length + 3) + 5.8 * (subtitle ?? "").length;
    return [Math.max(inner.width, title) + 2 * PADDING, inner.height + HEAD + PADDING];
  }

  /** Places of the items in an open box, relative to its inside. */
  place(index) {
    const known = this.inner.get(index);
    if (known) return known;
    const level = this.boxes[index].level;
    const sizes = level.items.map(([, , box]) => box < 0 ? PORT : this.size(box));
    const halves = this.halves(level, sizes);
    const x = this.columns(level, sizes, halves);
    const heights = level.ranks.map(([, height]) => height);
    level.items.forEach(([rank], item) => { heights[rank] = Math.max(heights[rank], sizes[item][1]); });
    const tops = [];
    let y = 0;
    level.ranks.forEach(([top, height], rank) => {
      y += rank ? top - level.ranks[rank - 1][0] - level.ranks[rank - 1][1] : 0;
      tops.push(y);
      y += heights[rank];
    });
    const right = level.items.map((_, item) => x.items[item] + halves[item]);
    const bends = x.bends.flat();
    const placed = { sizes, x, tops, heights, height: y,
      width: Math.max(0, ...max(right), ...max(bends)),
      y: level.items.map(([rank], item) => tops[rank] + (heights[rank] - sizes[item][1]) / 2) };
    this.inner.set(index, placed);
    return placed;
  }

  /** Half of the width of each item, or of the label beneath it. */
  halves(level, sizes) {
    const halves = sizes.map(([width]) => width / 2);
    for (const [source, value] of level.nets) halves[source] = Math.max(halves[source], 3 * clip(this.typeOf(value)).length);
    return halves;
  }

  /** The type of a value as the label of its line. */
  typeOf(value) { return this.model.values[value][2] ?? this.model.values[value][1]; }

  /** Moves items apart in each rank until open boxes fit. Things above each other stay above each other. */
  columns(level, sizes, halves) {
    const same = level.items.every(([, , box], item) => box < 0 || sizes[item] === this.boxes[box].size);
    if (same) return { items: level.items.map(([, x]) => x), bends: level.nets.map((net) => net[3].map(([, x]) => x)) };
    const all = level.items.map(([rank, x, box], item) => ({ rank, x, half: halves[item], gap: ITEM_GAP, item }));
    level.nets.forEach((net, of) => net[3].forEach(([rank, x], bend) => all.push({ rank, x, half: 0, gap: LINE_GAP, of, bend })));
    all.sort((a, b) => a.x - b.x);
    const rights = new Map();
    const result = { items: [], bends: level.nets.map(() => []) };
    let [last, at] = [all[0]?.x ?? 0, all[0]?.x ?? 0];
    for (let start = 0; start < all.length;) {
      let end = start;
      while (end < all.length && all[end].x === all[start].x) end++;
      at += all[start].x - last;
      last = all[start].x;
      const group = all.slice(start, end);
      for (const one of group) {
        const left = rights.get(one.rank);
        at = Math.max(at, left ? left.right + Math.min(left.gap, one.gap) + one.half : one.half);
      }
      for (const one of group) {
        rights.set(one.rank, { right: at + one.half, gap: one.gap });
        if (one.item === undefined) result.bends[one.of][one.bend] = at; else result.items[one.item] = at;
      }
      start = end;
    }
    return result;
  }

  /** Collects everything to draw, with absolute places. */
  build() {
    this.scene = { things: [], strips: new Map(), place: new Map() };
    let y = 0;
    let width = 0;
    for (const root of this.roots) {
      const [wide, high] = this.size(root);
      this.addBox(root, 0, y);
      y += high + 40;
      width = Math.max(width, wide);
    }
    this.extent = { width, height: Math.max(0, y - 40) };
    this.drawn.forEach((node) => node.remove());
    this.drawn.clear();
    this.window = null;
    this.draw();
  }

  add(thing) {
    const number = this.scene.things.push(thing) - 1;
    for (let strip = Math.floor(thing.top / STRIP); strip <= Math.floor(thing.bottom / STRIP); strip++) {
      let list = this.scene.strips.get(strip);
      if (!list) this.scene.strips.set(strip, list = []);
      list.push(number);
    }
  }

  addBox(index, x, y) {
    const [width, height] = this.size(index);
    const open = this.opened.has(index) && this.isContainer(index);
    this.scene.place.set(index, { x, y, width, height });
    if (this.isFrameless(index)) return this.addLevel(index, x, y);
    this.add({ kind: "box", index, open, left: x, right: x + width, top: y, bottom: y + height });
    if (open) this.addLevel(index, x + (width - this.place(index).width) / 2, y + HEAD);
  }

  addLevel(index, left, top) {
    const level = this.boxes[index].level;
    const placed = this.place(index);
    // Open boxes lie beneath the lines.
    this.addLines(level, placed, left, top, ` depth-${this.depth[index] % 2}`);
    level.items.forEach(([, , box], item) => {
      const [width] = placed.sizes[item];
      const [x, y] = [left + placed.x.items[item] - width / 2, top + placed.y[item]];
      if (box >= 0) this.addBox(box, x, y);
    });
  }

  addLines(level, placed, left, top, shade) {
    const slots = this.slots(level, placed);
    level.nets.forEach(([source, value, targets, bends, stubs], net) => {
      const centre = (item) => left + placed.x.items[item];
      const routed = targets.filter((target) => !stubs.includes(target));
      const up = routed.length > 0 && level.items[routed[0]][0] < level.items[source][0];
      const edge = (rank, far) => top + placed.tops[rank] + (far !== up ? placed.heights[rank] : 0);
      const side = (item, far) => top + placed.y[item] + (far !== up ? placed.sizes[item][1] : 0);
      const rank = level.items[source][0];
      const start = [centre(source) + slots.out(source, net), side(source, true)];
      let d = `M${r(start[0])} ${r(start[1])}V${r(edge(rank, true))}`;
      const trunk = new Map([[rank, start[0]]]);
      let from = [start[0], edge(rank, true)];
      bends.forEach(([at], bend) => {
        const x = left + placed.x.bends[net][bend];
        d += curve(from, [x, edge(at, false)]) + `V${r(edge(at, true))}`;
        from = [x, edge(at, true)];
        trunk.set(at, x);
      });
      const xs = [start[0], ...trunk.values()];
      let tips = "";
      const ys = [start[1]];
      for (const target of routed) {
        const to = [centre(target) + slots.in(target, net), side(target, false)];
        const before = level.items[target][0] + (up ? 1 : -1);
        const x = trunk.get(before) ?? start[0];
        const y = trunk.has(before) ? edge(before, true) : start[1];
        d += `M${r(x)} ${r(y)}` + curve([x, y], to);
        if (level.items[target][2] >= 0) tips += tip(to, up);
        xs.push(to[0]);
        ys.push(to[1]);
      }
      ys.push(from[1]);
      this.add({ kind: "line", d, tips, value, left: Math.min(...xs) - 20, right: Math.max(...xs) + 20, top: Math.min(...ys), bottom: Math.max(...ys) });
      if (slots.count(source) === 1 && this.boxes[level.items[source][2]]?.kind !== "input" && level.items[source][2] >= 0 && !up) this.addText(`type${shade}`, this.typeOf(value), start[0], start[1] + 14);
      for (const target of stubs) this.addStub(value, centre(target) + slots.in(target, net), side(target, false));
      if (stubs.length) this.addText("far", `${stubs.length} further on ↓`, start[0], start[1] + 26, value);
    });
    level.items.forEach(([, , box, value], item) => {
      if (box < 0) this.add({ kind: "port", value, x: left + placed.x.items[item], y: top + placed.y[item], ...around(left + placed.x.items[item], top + placed.y[item], 6) });
    });
  }

  addStub(value, x, y) {
    this.add({ kind: "line", d: `M${r(x)} ${r(y - 14)}V${r(y)}`, tips: tip([x, y], false), value, ...around(x, y, 16) });
    this.addText("far", `↑ ${this.model.values[value][0]}`, x, y - 18, value);
  }

  addText(style, text, x, y, value) {
    this.add({ kind: "text", style, text: clip(text), x, y, value, ...around(x, y, 3 * text.length + 6) });
  }

  /** Offsets of lines where they leave and enter boxes. */
  slots(level, placed) {
    const out = level.items.map(() => []);
    const enter = level.items.map(() => []);
    level.nets.forEach(([source, , targets, bends, stubs], net) => {
      out[source].push([placed.x.bends[net][0] ?? placed.x.items[targets[0]], net]);
      for (const target of targets) {
        const before = stubs.includes(target) ? Infinity : bends.findIndex(([rank]) => Math.abs(rank - level.items[target][0]) === 1);
        enter[target].push([before === Infinity ? Infinity : before < 0 ? placed.x.items[source] : placed.x.bends[net][before], net]);
      }
    });
    for (const list of [...out, ...enter]) list.sort((a, b) => a[0] - b[0]);
    const offset = (list, item, net) => {
      const count = list[item].length;
      if (count < 2 || level.items[item][2] < 0) return 0;
      const step = Math.min(18, (Math.min(placed.sizes[item][0], 400) - 24) / count);
      return (list[item].findIndex(([, one]) => one === net) - (count - 1) / 2) * step;
    };
    return { out: (item, net) => offset(out, item, net), in: (item, net) => offset(enter, item, net), count: (item) => out[item].length };
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

  /** Opens or closes a box. */
  setOpen(index, open) {
    if (!this.isContainer(index) || this.opened.has(index) === open) return;
    if (open) this.opened.add(index); else this.opened.delete(index);
    for (let at = index; at !== undefined; at = this.boxes[at].parent) this.inner.delete(at);
  }

  /** Opens every box around a box. */
  reveal(index) {
    for (let at = this.boxes[index].parent; at !== undefined; at = this.boxes[at].parent) this.setOpen(at, true);
  }

  /** Opens the boxes that are the only ones with others in theirs, so that the first picture shows a choice. */
  openSingle() {
    for (let inside = this.roots; ;) {
      const containers = inside.filter((index) => this.isContainer(index));
      if (containers.length !== 1 || inside.some((index) => this.boxes[index].operator && !this.isContainer(index))) break;
      this.setOpen(containers[0], true);
      inside = this.children[containers[0]];
    }
    this.build();
  }

  setAll(open) {
    this.boxes.forEach((box, index) => {
      if (this.isContainer(index) && (open || !this.roots.includes(index))) this.setOpen(index, open);
    });
    this.inner.clear();
  }

  setSelected(index) {
    this.selected = index;
    const box = index === null ? null : this.boxes[index];
    this.near = new Set(box ? [...(box.outputs ?? []), ...(box.inputs ?? []).map(([, value]) => value)] : []);
    this.beside = new Set();
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

  /** The box that makes a value. */
  sourceOf(value) {
    this.sources ??= new Map(this.boxes.flatMap((box, index) => (box.outputs ?? []).map((output) => [output, index])));
    return this.sources.get(value) ?? null;
  }

  /** The boxes that read a value. */
  readersOf(value) {
    if (!this.readers) {
      this.readers = new Map();
      this.boxes.forEach((box, index) => (box.inputs ?? []).forEach(([, read]) => {
        const list = this.readers.get(read) ?? [];
        if (list.at(-1) !== index) list.push(index);
        this.readers.set(read, list);
      }));
    }
    return this.readers.get(value) ?? [];
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

const r = (number) => Math.round(number * 10) / 10;
const clip = (text) => text.length > 34 ? `${text.slice(0, 33)}…` : text;
const around = (x, y, half) => ({ left: x - half, right: x + half, top: y - 16, bottom: y + 16 });
function max(numbers) {
  let most = 0;
  for (const number of numbers) most = Math.max(most, number);
  return [most];
}
function curve([x0, y0], [x1, y1]) {
  if (Math.abs(x0 - x1) < 0.5) return `V${r(y1)}`;
  const middle = (y0 + y1) / 2;
  return `C${r(x0)} ${r(middle)} ${r(x1)} ${r(middle)} ${r(x1)} ${r(y1)}`;
}
function tip([x, y], up) {
  const length = up ? 6 : -6;
  return `M${r(x)} ${r(y)}l-3 ${length}h6Z`;
}

/** Colour of a mark between 0 and 1, or of a number of a kernel or of a severity. */
function colourOf(scale, level) {
  if (scale === "severity") return ["var(--ground)", "var(--note)", "var(--warning)", "var(--error)"].map((one) => `color-mix(in srgb, ${one} 30%, var(--panel))`)[level];
  if (scale === "kernel") return `color-mix(in srgb, hsl(${(level * 137.5) % 360} 65% 55%) 38%, var(--panel))`;
  return `color-mix(in srgb, light-dark(#d9480f, #ff8a4c) ${Math.round(8 + 62 * level)}%, var(--panel))`;
}
