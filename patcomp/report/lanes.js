// Values that many items of a level read: one lane at the right of the box, with a branch to each reader, instead of an
// edge to each reader through the level.

const FEW_READERS = 3;
const [LANE, BRANCH] = [9, 10]; // pixels between lanes; and from a branch to the box below it

/** The edges of a level that go along lanes: for each node whose value is read, its readers. Each such reader is below
 * the source anyway, because it reads something else that is. */
function lanesOf(node) {
  const lanes = new Map();
  if (node.parent) {
    for (const [source, readers] of node.ins) {
      if (readers.size > FEW_READERS) lanes.set(source, { from: null, readers: new Set(readers) });
    }
  }
  for (const [from, targets] of node.edges) {
    if (targets.size <= FEW_READERS) continue;
    const [first, ...others] = [...targets.keys()].sort((a, b) => node.items.indexOf(a) - node.items.indexOf(b));
    const below = reachedFrom(node, first, from);
    for (const to of others) {
      if (!below.has(to)) continue;
      for (const source of targets.get(to)) {
        if (!lanes.has(source)) lanes.set(source, { from, readers: new Set() });
        lanes.get(source).readers.add(to);
      }
    }
  }
  return lanes;
}

/** The items of a level that read from an item, by way of others too, but not of `without`. */
function reachedFrom(node, start, without) {
  const found = new Set([start]);
  for (const item of found) {
    for (const next of item === without ? [] : node.edges.get(item)?.keys() || []) found.add(next);
  }
  return found;
}

/** The way of an edge along a lane: from a port at the top of the box or from an item, to the entry of an item. */
function alongLane(x, start, end) {
  const turn = end.y - BRANCH;
  const branch = [{ x, y: turn }, { x: end.x, y: turn }, end];
  return start ? [start, { x: start.x, y: start.y + BRANCH }, { x, y: start.y + BRANCH }, ...branch] : [{ x, y: 0 }, ...branch];
}
