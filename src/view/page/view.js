// The page of `onionskin view`: connects the picture, the list, the details, the search, the keys and the address.

const host = element("picture");
const picture = new Picture(host, data, { select, toggle });
const list = new List(picture, { select, toggle });
const details = new Details(picture, { select });
const box = (index) => data.boxes[index];

document.title = `${data.title}: model`;
element("title").textContent = data.title;
element("title").title = data.title;

/** Selects a box, or none. With `move`, opens the modules around it and moves it to the middle. */
function select(index, move = false) {
  const from = picture.selected;
  if (index !== null && index !== undefined) {
    const hidden = !picture.scene.place.has(index);
    if (hidden) {
      picture.reveal(index);
      picture.build();
      if (!list.hits) list.build();
    }
    move ||= hidden || document.activeElement === list.host || (document.activeElement === element("search"));
  }
  picture.setSelected(index ?? null);
  if (index !== null && index !== undefined && move) picture.centre(index);
  list.follow();
  details.show(index ?? null);
  if (from !== index) history.replaceState(null, "", index === null || index === undefined ? location.pathname + location.search : `#${encodeURIComponent(anchorOf(index))}`);
}

/** Opens or closes a box and keeps its upper left corner where it is in the window. */
function toggle(index) {
  const before = picture.scene.place.get(index);
  picture.setOpen(index, !picture.opened.has(index));
  picture.build();
  const after = picture.scene.place.get(index);
  if (before && after) picture.setView({ x: picture.view.x + after.x + after.width / 2 - before.x - before.width / 2, y: picture.view.y + after.y - before.y });
  list.build();
}

function setAll(open) {
  picture.setAll(open);
  picture.build();
  list.build();
  if (picture.selected !== null && picture.scene.place.has(picture.selected)) picture.centre(picture.selected);
  else picture.fit(false);
}

// Links to boxes: `forward/conv2d_3` for the operator with that result, `forward:layer1.0` for a module.

function graphOf(index) {
  let at = index;
  while (box(at).kind !== "graph" && box(at).kind !== "body") at = box(at).parent;
  return at;
}
function anchorOf(index) {
  const { kind, label, module, outputs, parent } = box(index);
  if (kind === "graph") return label;
  if (kind === "body") return `${anchorOf(parent)}/${label}`;
  const graph = anchorOf(graphOf(parent));
  if (kind === "module") return `${graph}:${module}`;
  return outputs ? `${graph}/${data.values[outputs[0]][0]}` : `${graph}#${label}`;
}
function followAddress() {
  const wanted = decodeURIComponent(location.hash.slice(1));
  const index = wanted ? data.boxes.findIndex((_, index) => anchorOf(index) === wanted) : -1;
  if (index >= 0 && index !== picture.selected) select(index, true);
}

// Search.

const field = element("search");
function search(text) {
  field.value = text;
  list.search(text);
  picture.redraw();
  document.querySelector("main").classList.toggle("searching", text !== "");
}
function nextHit(step) {
  if (!list.hits?.length) return;
  const at = list.hits.indexOf(picture.selected);
  const next = at < 0 ? (step > 0 ? 0 : list.hits.length - 1) : (at + step + list.hits.length) % list.hits.length;
  select(list.hits[next], true);
}
field.addEventListener("input", () => search(field.value));
field.addEventListener("keydown", (event) => {
  if (event.key === "Enter") nextHit(event.shiftKey ? -1 : 1);
  else if (event.key === "ArrowDown") list.host.focus();
  else if (event.key === "Escape") { search(""); host.focus(); }
  else return;
  event.preventDefault();
  event.stopPropagation();
});

// Overlays.

const overlays = [null, ...(data.overlays ?? [])];
const choices = overlays.map((overlay) => {
  const button = make("button", { textContent: overlay?.title ?? "Type", title: overlay?.note ?? "Colours by kind of operator", onclick: () => setOverlay(overlay) });
  button.setAttribute("role", "radio");
  button.dataset.overlay = overlay?.id ?? "type";
  return button;
});
if (overlays.length > 1) element("overlays").append(...choices);
function setOverlay(overlay) {
  picture.overlay = overlay;
  overlays.forEach((one, at) => choices[at].setAttribute("aria-checked", one === overlay));
  picture.redraw();
  list.draw();
  details.show(picture.selected);
  legend(overlay);
}
function legend(overlay) {
  const target = element("legend");
  if (overlay) {
    const scale = overlay.scale === "heat" ? make("span", { className: "scale" }) : null;
    if (scale) scale.style.background = `linear-gradient(to right, ${colourOf("heat", 0)}, ${colourOf("heat", 1)})`;
    target.replaceChildren(overlay.legend?.[0] ?? "", ...(scale ? [scale] : []), overlay.legend?.[1] ?? "", make("div", { textContent: overlay.note ?? "" }));
    return;
  }
  const used = [...new Set(data.boxes.map((one) => one.category).filter((one) => one !== undefined))].sort((a, b) => a - b);
  target.replaceChildren(...used.map((one) => make("span", {}, make("i", { className: `category-${one}` }), data.categories[one])));
}

// Keys.

function neighbour(key) {
  const index = picture.selected;
  if (index === null) return null;
  if (key === "ArrowUp") return (box(index).inputs ?? []).map(([, value]) => picture.sourceOf(value)).find((one) => one !== null) ?? box(index).parent;
  if (key === "ArrowDown") return (box(index).outputs ?? []).flatMap((value) => picture.readersOf(value))[0] ?? picture.children[index][0];
  const level = box(box(index).parent ?? -1)?.level;
  const item = level?.items.find((one) => one[2] === index);
  if (!item) return null;
  const rank = level.items.filter((one) => one[0] === item[0] && one[2] >= 0).sort((a, b) => a[1] - b[1]);
  return rank[rank.indexOf(item) + (key === "ArrowLeft" ? -1 : 1)]?.[2];
}
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || element("keys").open) return;
  const typing = event.target.closest?.("input, textarea");
  if (typing) return;
  const arrow = event.key.startsWith("Arrow") && !event.target.closest?.("aside");
  const act = arrow ? () => {
    const next = neighbour(event.key);
    if (next !== null && next !== undefined) select(next, true);
    else if (picture.selected === null) picture.pan({ ArrowLeft: -80, ArrowRight: 80 }[event.key] ?? 0, { ArrowUp: -80, ArrowDown: 80 }[event.key] ?? 0);
  } : {
    "/": () => field.focus(), "?": () => element("keys").showModal(), "+": () => picture.zoom(1.25), "=": () => picture.zoom(1.25), "-": () => picture.zoom(0.8),
    0: () => picture.fit(true), e: () => setAll(true), c: () => setAll(false), o: () => setOverlay(overlays[(overlays.indexOf(picture.overlay) + 1) % overlays.length]),
    Enter: () => { if (event.target.closest?.("button, summary")) return false; if (picture.selected !== null && picture.isContainer(picture.selected)) toggle(picture.selected); },
    Escape: () => list.hits ? search("") : select(null), Home: () => picture.fit(false),
  }[event.key];
  if (!act || act() === false) return;
  event.preventDefault();
});

element("open-all").addEventListener("click", () => setAll(true));
element("close-all").addEventListener("click", () => setAll(false));
element("fit").addEventListener("click", () => picture.fit(true));
element("help").addEventListener("click", () => element("keys").showModal());
addEventListener("hashchange", followAddress);

let undoPrint = null;
addEventListener("beforeprint", () => { undoPrint = picture.drawWhole(); });
addEventListener("afterprint", () => { undoPrint?.(); undoPrint = null; });

picture.openSingle();
list.build();
setOverlay(data.start ? overlays.find((one) => one?.id === data.start) ?? null : null);
details.show(null);
picture.fit(false);
followAddress();
