// Checks where boxes and lines of the picture are. Returns the faults as texts.

(() => {
  const faults = [];
  const { place, things } = picture.scene;
  const name = index => `${index} (${picture.boxes[index].label})`;
  const near = (a, b) => Math.abs(a - b) <= 0.3;

  // Boxes of one level do not overlap, and lie in the box around them.
  const levels = new Map();
  for (const index of place.keys()) {
    const parent = picture.boxes[index].parent;
    levels.set(parent, [...(levels.get(parent) ?? []), index]);
  }
  const overlap = (a, b) => a.x + 0.5 < b.x + b.width && b.x + 0.5 < a.x + a.width && a.y + 0.5 < b.y + b.height && b.y + 0.5 < a.y + a.height;
  for (const [parent, level] of levels) {
    level.sort((a, b) => place.get(a).y - place.get(b).y);
    level.forEach((index, at) => {
      const box = place.get(index);
      for (let next = at + 1; next < level.length && place.get(level[next]).y < box.y + box.height; next++) {
        if (overlap(box, place.get(level[next]))) faults.push(`${name(index)} overlaps ${name(level[next])}`);
      }
      const outer = place.get(parent);
      if (outer && (box.x < outer.x - 0.5 || box.y < outer.y - 0.5 || box.x + box.width > outer.x + outer.width + 0.5 || box.y + box.height > outer.y + outer.height + 0.5)) {
        faults.push(`${name(index)} leaves ${name(parent)}`);
      }
    });
  }

  // The box itself and those around it that are in the picture.
  const around = index => {
    const all = [];
    for (let at = index; at !== undefined && at !== null; at = picture.boxes[at].parent) if (place.has(at)) all.push(at);
    return all;
  };
  const ports = new Map();
  for (const thing of things) if (thing.kind === "port") ports.set(thing.value, [...(ports.get(thing.value) ?? []), [thing.x, thing.y]]);
  const isAtPort = (value, [x, y]) => (ports.get(value) ?? []).some(port => near(port[0], x) && near(port[1], y));
  /** The box of `indices` on whose upper or lower side a point lies. */
  const boxAt = (indices, [x, y]) => indices.find(index => {
    const box = place.get(index);
    return box.x - 0.3 <= x && x <= box.x + box.width + 0.3 && (near(y, box.y) || near(y, box.y + box.height));
  });

  // Parts of a path, each a list of points with the command that leads to it.
  const parts = d => d.split("M").slice(1).map(text => {
    const points = [];
    for (const [, command, numbers] of `M${text}`.matchAll(/([MVC])([^MVC]*)/g)) {
      const list = numbers.trim().split(/\s+/).map(Number);
      points.push({ command, at: command === "V" ? [points.at(-1).at[0], list[0]] : list.slice(-2) });
    }
    return points;
  });
  const isOnTrunk = (trunk, [x, y]) => trunk.some(({ command, at }, i) => {
    if (near(at[0], x) && near(at[1], y)) return true;
    const before = trunk[i - 1]?.at;
    return command === "V" && near(at[0], x) && Math.min(before[1], at[1]) - 0.3 <= y && y <= Math.max(before[1], at[1]) + 0.3;
  });

  // Each line leads from the box that makes its value to boxes that read it.
  const reached = new Map();
  for (const { kind, d, tips, value } of things) {
    if (kind !== "line") continue;
    const label = picture.model.values[value][0];
    const source = picture.sourceOf(value);
    const makers = source === null ? [] : around(source);
    const readers = picture.readersOf(value).flatMap(around);
    const [trunk, ...branches] = parts(d);
    const isStub = branches.length === 0 && tips !== "";
    if (!isStub && boxAt(makers, trunk[0].at) === undefined && !isAtPort(value, trunk[0].at)) faults.push(`a line of ${label} starts at ${trunk[0].at}, where nothing makes it`);
    for (const branch of isStub ? [trunk] : branches) {
      const end = branch.at(-1).at;
      if (!isStub && !isOnTrunk(trunk, branch[0].at)) faults.push(`a branch of ${label} starts at ${branch[0].at}, off its line`);
      const reader = boxAt(readers, end);
      if (reader === undefined && !isAtPort(value, end)) faults.push(`a line of ${label} ends at ${end}, where nothing reads it`);
      if (reader !== undefined) reached.set(value, (reached.get(value) ?? new Set()).add(reader));
    }
  }

  // Each box that reads a value made outside of it has a line to it.
  picture.boxes.forEach((box, index) => (box.inputs ?? []).forEach(([, value]) => {
    const source = picture.sourceOf(value);
    const reader = around(index)[0];
    if (source === null || reader === undefined || around(source).includes(reader)) return;
    if (!reached.get(value)?.has(reader)) faults.push(`no line leads ${picture.model.values[value][0]} to ${name(reader)}`);
  }));
  return faults.slice(0, 20);
})()
