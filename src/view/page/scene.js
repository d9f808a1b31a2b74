// Boxes and lines of a picture: which boxes are open, and the places of everything. Rust lays out each level with all of its
// boxes closed; here boxes move apart where one is open.

const HEAD = 30;
const PADDING = 16;
const PORT = [10, 0];
const ITEM_GAP = 26;
const LINE_GAP = 14;
/** Rows of the index of drawn things, in pixels of the picture. */
const STRIP = 800;

class Scene {
  constructor(model) {
    this.model = model;
    this.boxes = model.boxes;
    this.children = this.boxes.map(() => []);
    this.boxes.forEach((box, index) => box.parent !== undefined && this.children[box.parent].push(index));
    this.depth = [];
    this.boxes.forEach((box, index) => { this.depth[index] = box.parent === undefined ? 0 : this.depth[box.parent] + 1; });
    this.roots = this.boxes.flatMap((box, index) => box.parent === undefined ? [index] : []);
    this.opened = new Set(this.roots);
    this.inner = new Map();
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
  collect() {
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

  // Open boxes.

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
  }

  setAll(open) {
    this.boxes.forEach((box, index) => {
      if (this.isContainer(index) && (open || !this.roots.includes(index))) this.setOpen(index, open);
    });
    this.inner.clear();
  }

  // Values.

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
