// The list beside the picture: the tree of boxes, or the hits of a search. Only the visible rows are elements.

const ROW = 24;

class List {
  constructor(picture, { select, toggle }) {
    Object.assign(this, { picture, select, toggle });
    this.host = element("list");
    this.rows = element("rows");
    this.hits = null;
    this.current = null;
    this.host.addEventListener("scroll", () => this.draw());
    this.host.addEventListener("keydown", (event) => this.key(event));
    this.rows.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (!row) return;
      const index = Number(row.dataset.box);
      if (event.target.closest(".fold")) this.toggle(index);
      this.select(index);
    });
    new ResizeObserver(() => this.draw()).observe(this.host);
    this.build();
  }

  /** Lists the boxes that are visible with the open modules, or the hits. */
  build() {
    const { picture } = this;
    this.items = [];
    if (this.hits) this.items = this.hits.map((index) => ({ index, depth: 0 }));
    else {
      const add = (index, depth) => {
        const siblings = picture.children[picture.boxes[index].parent] ?? picture.roots;
        this.items.push({ index, depth, size: siblings.length });
        if (picture.opened.has(index)) picture.children[index].forEach((child) => add(child, depth + 1));
      };
      const roots = picture.roots.length === 1 ? picture.children[picture.roots[0]] : picture.roots;
      roots.forEach((root) => add(root, 0));
    }
    this.rowOf = new Map(this.items.map(({ index }, row) => [index, row]));
    this.rows.style.height = `${this.items.length * ROW}px`;
    const operators = picture.boxes.filter((box) => box.operator).length;
    const hits = this.hits?.length;
    element("count").textContent = this.hits ? `${hits} ${hits === 1 ? "hit" : "hits"}` : `${operators} operators`;
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.host.scrollTop / ROW) - 8);
    const shown = this.items.slice(first, first + Math.ceil(this.host.clientHeight / ROW) + 16);
    this.rows.replaceChildren(...shown.map((item, offset) => this.row(item, first + offset)));
    const active = this.rows.querySelector("[aria-selected=true]");
    if (active) this.host.setAttribute("aria-activedescendant", active.id); else this.host.removeAttribute("aria-activedescendant");
  }

  row({ index, depth, size }, number) {
    const box = this.picture.boxes[index];
    const container = this.picture.isContainer(index);
    const open = container && this.picture.opened.has(index) && !this.hits;
    const mark = this.picture.overlay?.marks[index]?.[1];
    const more = mark ?? (this.hits ? [box.module, box.source].filter(Boolean).join("  ") : box.subtitle ?? "");
    const row = make("div", { className: `row ${container ? "container" : ""} category-${box.category ?? "none"}`, id: `row-${index}` },
      make("span", { className: "fold", textContent: container && !this.hits ? open ? "▾" : "▸" : "" }),
      box.category === undefined ? null : make("span", { className: "dot" }),
      make("span", { className: "name", textContent: box.label }),
      make("span", { className: "more", textContent: more }));
    row.style.top = `${number * ROW}px`;
    // Deep rows are indented less, so that their names have room.
    row.style.paddingLeft = `${0.3 + 0.8 * Math.min(depth, 8) + 0.1 * Math.max(depth - 8, 0)}rem`;
    row.dataset.box = index;
    row.title = [box.label, box.subtitle, box.module, box.source].filter(Boolean).join("\n");
    row.setAttribute("role", "treeitem");
    row.setAttribute("aria-level", depth + 1);
    row.setAttribute("aria-setsize", size ?? this.items.length);
    row.setAttribute("aria-selected", index === this.picture.selected);
    if (container) row.setAttribute("aria-expanded", open);
    return row;
  }

  /** Scrolls to the selected row. */
  follow() {
    const row = this.rowOf.get(this.picture.selected);
    if (row !== undefined) {
      const [top, height] = [row * ROW, this.host.clientHeight];
      if (top < this.host.scrollTop) this.host.scrollTop = top - ROW;
      else if (top + ROW > this.host.scrollTop + height) this.host.scrollTop = top - height + 3 * ROW;
    }
    this.draw();
  }

  /** Shows the boxes in which every word of a text occurs; an empty text shows the tree. */
  search(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.texts ??= this.picture.boxes.map((box) => [box.label, box.operator, box.module, box.source,
      ...(box.outputs ?? []).map((value) => this.picture.model.values[value][0]),
      ...(box.weights ?? []).map(([, weight]) => this.picture.model.weights[weight].name)].join(" ").toLowerCase());
    const fits = (index) => words.every((word) => this.texts[index].includes(word));
    this.hits = words.length ? this.texts.map((_, index) => index).filter((index) => !this.picture.roots.includes(index) && fits(index)) : null;
    this.picture.matches = new Set(this.hits);
    this.host.scrollTop = 0;
    this.build();
    if (!this.hits) this.follow();
  }

  key(event) {
    const row = this.rowOf.get(this.picture.selected) ?? -1;
    const go = (to) => this.select(this.items[Math.min(Math.max(to, 0), this.items.length - 1)]?.index ?? null);
    const index = this.picture.selected;
    const open = index !== null && this.picture.opened.has(index);
    const page = Math.floor(this.host.clientHeight / ROW);
    const act = { ArrowDown: () => go(row + 1), ArrowUp: () => go(row - 1), Home: () => go(0), End: () => go(this.items.length - 1),
      PageDown: () => go(row + page), PageUp: () => go(row - page),
      ArrowRight: () => { if (index === null) return; if (this.picture.isContainer(index) && !open) this.toggle(index); else go(row + 1); },
      ArrowLeft: () => { if (index === null) return; if (open && this.picture.isContainer(index)) this.toggle(index); else if (this.picture.boxes[index].parent !== undefined) this.select(this.picture.boxes[index].parent); },
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }
}
