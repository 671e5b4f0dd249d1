// The sizes and places of the boxes. dagre lays out one level of the tree at a time, and only what is expanded.

const shorten = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

/** The two lines of a node's box. */
function lines(node) {
  if (node.kind === "op") {
    const second = [node.op.value && `%${node.op.value}`, node.op.type && node.op.type.replace("tensor", "")];
    const short = node.op.name.replace(/^coreai\.(decomposable\.)?/, "");
    const name = node.op.calls ? `${short} @${node.op.calls}` : short;
    return [shorten(name, 34), shorten(second.filter(Boolean).join("  "), 40)];
  }
  if (node.kind === "argument") return [shorten(node.label, 34), shorten(node.type, 40)];
  return [shorten(node.label, 40), `${node.count} ${node.count === 1 ? "op" : "ops"}`];
}

/** The size of the box of a node that is not expanded. */
function closedSize(node) {
  const [first, second] = lines(node);
  const sign = node.items.length || node.fill ? 24 : 0; // the sign + is left of the text
  return { width: Math.max(60, 7.1 * first.length + 20 + 2 * sign, 6.2 * second.length + 20), height: second ? 38 : 26 };
}

/** Lay out an expanded node: its size and edges, and the `spot` of each item, a box from the node's corner. The result is
 * kept until `forget`. */
function layOut(node) {
  if (node.layout) return node.layout;
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ ranksep: 26, nodesep: 16, marginx: 14, marginy: 14, ranker: "longest-path" });
  graph.setDefaultEdgeLabel(() => ({}));
  const ids = new Map(node.items.map((item, index) => [item, String(index)]));
  for (const [item, id] of ids) {
    const { width, height } = item.expanded && item.isGroup ? layOut(item) : closedSize(item);
    graph.setNode(id, { width, height });
  }
  for (const [from, targets] of node.edges) {
    for (const to of targets.keys()) {
      if (ids.has(from) && ids.has(to)) graph.setEdge(ids.get(from), ids.get(to));
    }
  }
  dagre.layout(graph);
  const inner = graph.graph();
  const width = Math.max(inner.width, 8 * shorten(node.label, 60).length + 50);
  const dx = (width - inner.width) / 2, dy = 22; // the title is above
  for (const [item, id] of ids) {
    const { x, y, width, height } = graph.node(id);
    item.spot = { x: x - width / 2 + dx, y: y - height / 2 + dy, width, height };
  }
  const edges = graph.edges().map((edge) => {
    const points = graph.edge(edge).points.map(({ x, y }) => ({ x: x + dx, y: y + dy }));
    const xs = points.map(({ x }) => x), ys = points.map(({ y }) => y);
    const x = Math.min(...xs), y = Math.min(...ys);
    return { points, x, y, width: Math.max(...xs) - x, height: Math.max(...ys) - y };
  });
  node.layout = { width, height: inner.height + 24, edges };
  return node.layout;
}

/** Lay out a node and what is around it again. */
function forget(node) {
  for (let at = node; at; at = at.parent) at.layout = null;
}

/** Where a node is, from the corner of the root of a tree that is laid out; null if something around it is collapsed. */
function placeOf(node) {
  let x = 0, y = 0;
  for (let at = node; at.parent; at = at.parent) {
    if (!at.parent.expanded) return null;
    x += at.spot.x;
    y += at.spot.y;
  }
  return { ...node.spot, x, y };
}
