// The page of `onionskin view`: a viewer with a list, a search, keys and an address for each box.

const viewer = new Viewer(data, { wheel: true, selected: follow, changed: () => list.build(), recoloured: () => list.draw() });
const { picture, details, overlays } = viewer;
const list = new List(picture, { select, toggle });
const box = (index) => data.boxes[index];

element("title").textContent = data.title;
element("title").title = data.title;

function select(index, move = false) {
  viewer.select(index, move || document.activeElement === list.host || document.activeElement === element("search"));
}
function toggle(index) { viewer.toggle(index); }
function setOverlay(overlay) { viewer.setOverlay(overlay); }

/** Shows the selected box in the list and in the address. */
function follow(index) {
  list.follow();
  history.replaceState(null, "", index === null ? location.pathname + location.search : `#${encodeURIComponent(anchorOf(index))}`);
}

function setAll(open) { viewer.setAll(open); }

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
  else if (event.key === "Escape") { search(""); picture.host.focus(); }
  else return;
  event.preventDefault();
  event.stopPropagation();
});

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

element("help").addEventListener("click", () => element("keys").showModal());
addEventListener("hashchange", followAddress);

details.find = search;
viewer.start();
followAddress();
