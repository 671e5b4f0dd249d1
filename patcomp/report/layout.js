// The sizes and places of the boxes and the ways of the edges. dagre lays out one level of the tree at a time, and only
// what is expanded. In it, the ports of a box are one node above and one below the entries.

const PORT = 14; // the least distance between two ports

/** The ports of one side of a box: where each value crosses the border. */
function portsAt(width, sources, middleOf) {
  const wanted = [...sources].map((source) => [source, middleOf(source)]).sort((a, b) => a[1] - b[1]);
  const places = new Map();
  let least = PORT / 2;
  wanted.forEach(([source, x], index) => {
    const most = width - PORT / 2 - PORT * (wanted.length - 1 - index);
    places.set(source, Math.max(least, Math.min(x, most)));
    least = places.get(source) + PORT;
  });
  return places;
}

/** Lay out an expanded node: its size, ports and edges, and the `spot` of each item, a box from the node's corner. The
 * result is kept until `forget`. */
function layOut(node) {
  if (node.layout) return node.layout;
  const lanes = lanesOf(node);
  const isFar = (from, to, source) => lanes.get(source)?.from === from && lanes.get(source).readers.has(to);
  const [graph, ids] = levelOf(node, isFar);
  dagre.layout(graph);
  const inner = graph.graph();
  const middle = (item) => graph.node(ids.get(item)).x;
  const mean = (items) => [...items].reduce((sum, item) => sum + middle(item), 0) / items.size;
  const room = LANE * lanes.size;
  const width = Math.max(inner.width + room, 7.4 * shorten(titleOf(node), 60).length + 50);
  const dx = (width - inner.width - room) / 2;
  const dy = graph.hasNode("in") ? -8 : 20; // the title is above
  const height = inner.height + dy - (graph.hasNode("out") ? 16 : 0);
  for (const [item, id] of ids) {
    const { x, y, width, height } = graph.node(id);
    item.spot = { x: x - width / 2 + dx, y: y - height / 2 + dy, width, height };
  }
  const laneAt = new Map([...lanes.keys()].map((source, index) => [source, dx + inner.width + LANE * index - 4]));
  const near = [...node.ins.keys()].filter((source) => lanes.get(source)?.from !== null);
  const ins = portsAt(width, near, (source) => mean(node.ins.get(source)) + dx);
  for (const [source, { from }] of lanes) if (from === null) ins.set(source, laneAt.get(source));
  const outs = portsAt(width, node.outs.keys(), (source) => mean(node.outs.get(source)) + dx);
  node.layout = { width, height, ins, outs, edges: [] };

  const way = (from, to) => graph.edge(from, to).points.map(({ x, y }) => ({ x: x + dx, y: y + dy }));
  const add = (from, to, source) => {
    let points;
    const top = to && { x: to.spot.x + to.spot.width / 2, y: to.spot.y };
    if (isFar(from, to, source)) {
      const bottom = from && leaving(from, source, { x: from.spot.x + from.spot.width / 2, y: from.spot.y + from.spot.height });
      points = alongLane(laneAt.get(source), bottom, reaching(to, source, top));
    } else {
      points = way(from ? ids.get(from) : "in", to ? ids.get(to) : "out");
      const last = points.length - 1;
      points[0] = from ? leaving(from, source, points[0]) : { x: ins.get(source), y: 0 };
      points[last] = to ? reaching(to, source, points[last]) : { x: outs.get(source), y: height };
    }
    const isPort = !to || (to.expanded && to.isGroup && layOut(to).ins.has(source));
    node.layout.edges.push(edgeAlong({ from, to, source, isPort }, points));
  };
  for (const [from, targets] of node.edges) {
    for (const [to, sources] of targets) for (const source of sources) add(from, to, source);
  }
  if (!node.parent) return node.layout;
  for (const [source, readers] of node.ins) for (const to of readers) add(null, to, source);
  for (const [source, makers] of node.outs) for (const from of makers) add(from, null, source);
  return node.layout;
}

/** The items of a node as a graph for dagre, with their ids. The ports are a node above and one below all items: edges
 * without weight lead to items without others. */
function levelOf(node, isFar) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ ranksep: 26, nodesep: 18, marginx: 14, marginy: 12, ranker: "longest-path" });
  graph.setDefaultEdgeLabel(() => ({}));
  const ids = new Map(node.items.map((item, index) => [item, String(index)]));
  for (const [item, id] of ids) {
    const { width, height } = item.expanded && item.isGroup ? layOut(item) : closedSize(item);
    graph.setNode(id, { width, height });
  }
  const connect = (from, to, sources, start, end) => {
    if ([...sources].some((source) => !isFar(from, to, source))) graph.setEdge(start, end);
  };
  for (const [from, targets] of node.edges) {
    for (const [to, sources] of targets) connect(from, to, sources, ids.get(from), ids.get(to));
  }
  if (node.parent && node.ins.size) {
    graph.setNode("in", { width: PORT * node.ins.size, height: 1 });
    for (const [source, readers] of node.ins) for (const to of readers) connect(null, to, [source], "in", ids.get(to));
    for (const id of ids.values()) if (!graph.inEdges(id).length) graph.setEdge("in", id, { weight: 0 });
  }
  if (node.parent && node.outs.size) {
    graph.setNode("out", { width: PORT * node.outs.size, height: 1 });
    for (const makers of node.outs.values()) for (const from of makers) graph.setEdge(ids.get(from), "out");
    for (const id of ids.values()) if (!graph.outEdges(id).length) graph.setEdge(id, "out", { weight: 0 });
  }
  return [graph, ids];
}

/** Where an edge leaves an item: at the port of an open box. */
function leaving(item, source, otherwise) {
  const x = item.expanded && item.isGroup ? layOut(item).outs.get(source) : undefined;
  return x === undefined ? otherwise : { x: item.spot.x + x, y: item.spot.y + item.spot.height };
}

/** Where an edge reaches an item: at the port of an open box; an op of several operands has them in their order,
 * unless the order does not matter. */
function reaching(item, source, otherwise) {
  if (item.expanded && item.isGroup) {
    const x = layOut(item).ins.get(source);
    return x === undefined ? otherwise : { x: item.spot.x + x, y: item.spot.y };
  }
  if (item.sources.size < 2 || DATA.commutative.includes(item.op.name)) return otherwise;
  const position = [...item.sources].indexOf(source);
  if (position < 0) return otherwise;
  return { x: item.spot.x + (item.spot.width * (position + 1)) / (item.sources.size + 1), y: item.spot.y };
}

function edgeAlong(edge, points) {
  const xs = points.map(({ x }) => x), ys = points.map(({ y }) => y);
  const x = Math.min(...xs), y = Math.min(...ys);
  return { ...edge, points, x, y, width: Math.max(...xs) - x, height: Math.max(...ys) - y };
}

/** Lay out a node and what is around it again. */
function forget(node) {
  for (let at = node; at; at = at.parent) at.layout = null;
}

/** Where a node is, from the corner of the root of a tree that is laid out; null if something around it is collapsed. */
function placeOf(node) {
  let x = 0, y = 0;
  for (let at = node; at.parent; at = at.parent) {
    if (!at.parent.expanded || !at.spot) return null;
    x += at.spot.x;
    y += at.spot.y;
  }
  return { ...node.spot, x, y };
}
