// A picture with the details of the selected box, overlays and a legend.

class Viewer {
  /**
   * Shows a model in the elements `picture`, `details`, `overlays` and `legend`. `wheel`: the wheel moves the picture, not
   * the page. `selected(index)`, `changed()` and `recoloured()` are called after a change.
   */
  constructor(model, { wheel = false, selected = () => {}, changed = () => {}, recoloured = () => {} } = {}) {
    Object.assign(this, { model, selected, changed, recoloured });
    const select = (index, move) => this.select(index, move);
    this.picture = new Picture(element("picture"), model, { wheel, select, toggle: (index) => this.toggle(index) });
    this.details = new Details(this.picture, { select });
    this.overlays = [null, ...(model.overlays ?? [])];
    this.addChoices();
    element("open-all").addEventListener("click", () => this.setAll(true));
    element("close-all").addEventListener("click", () => this.setAll(false));
    element("fit").addEventListener("click", () => this.picture.fit(true));
    let undo = null;
    addEventListener("beforeprint", () => { undo = this.picture.drawWhole(); });
    addEventListener("afterprint", () => { undo?.(); undo = null; });
  }

  /** Shows the beginning, with the overlay of an id, or none. */
  start(id) {
    this.picture.openSingle();
    this.picture.build();
    this.changed();
    this.setOverlay(this.overlays.find((overlay) => overlay?.id === id) ?? null);
    this.picture.fit(false);
  }

  /** Selects a box, or none with `null`. With `move`, moves it to the middle. Opens the modules around a hidden box. */
  select(index, move = false) {
    index ??= null;
    const { picture } = this;
    const before = picture.selected;
    const hidden = index !== null && !picture.scene.place.has(index);
    if (hidden) {
      picture.reveal(index);
      picture.build();
      this.changed();
    }
    picture.setSelected(index);
    if (index !== null && (move || hidden)) picture.centre(index);
    this.details.show(index);
    if (before !== index) this.selected(index);
  }

  /** Opens or closes a box, and keeps it where it is in the window. */
  toggle(index) {
    const { picture } = this;
    const before = picture.scene.place.get(index);
    picture.setOpen(index, !picture.opened.has(index));
    picture.build();
    const after = picture.scene.place.get(index);
    if (before && after) picture.setView({ x: picture.view.x + after.x + after.width / 2 - before.x - before.width / 2, y: picture.view.y + after.y - before.y });
    this.changed();
  }

  setAll(open) {
    const { picture } = this;
    picture.setAll(open);
    picture.build();
    this.changed();
    if (picture.scene.place.has(picture.selected)) picture.centre(picture.selected);
    else picture.fit(false);
  }

  // Overlays.

  addChoices() {
    this.choices = this.overlays.map((overlay) => {
      const button = make("button", { textContent: overlay?.title ?? "Type", title: overlay?.note ?? "Colours by kind of operator", onclick: () => this.setOverlay(overlay) });
      button.setAttribute("role", "radio");
      button.dataset.overlay = overlay?.id ?? "type";
      return button;
    });
    if (this.overlays.length > 1) element("overlays").append(...this.choices);
  }

  setOverlay(overlay) {
    this.picture.overlay = overlay;
    this.overlays.forEach((one, at) => this.choices[at].setAttribute("aria-checked", one === overlay));
    this.picture.redraw();
    this.details.show(this.picture.selected);
    element("legend").replaceChildren(...(overlay ? this.legendOf(overlay) : this.categories()));
    this.recoloured();
  }

  legendOf(overlay) {
    const scale = overlay.scale === "heat" ? make("span", { className: "scale" }) : null;
    if (scale) scale.style.background = `linear-gradient(to right, ${colourOf("heat", 0)}, ${colourOf("heat", 1)})`;
    return [overlay.legend[0], scale, overlay.legend[1], make("div", { textContent: overlay.note })].filter(Boolean);
  }

  /** The categories of the operators that the model has. */
  categories() {
    const used = new Set(this.model.boxes.map((box) => box.category).filter((category) => category !== undefined));
    return [...used].sort((a, b) => a - b).map((category) => make("span", {}, make("i", { className: `category-${category}` }), this.model.categories[category]));
  }
}
