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
  const [level, ids] = levelOf(node, isFar);
  const graph = arranged(level);
  const inner = graph.graph();
  const middle = (item) => graph.node(ids.get(item)).x;
  const mean = (items) => [...items].reduce((sum, item) => sum + middle(item), 0) / items.size;
  const xs = graph.edges().flatMap((edge) => graph.edge(edge).points.map(({ x }) => x)); // some are beside the boxes
  const before = Math.max(0, 6 - Math.min(...xs)), after = Math.max(0, Math.max(...xs) + 6 - inner.width) + LANE * lanes.size;
  const width = Math.max(inner.width + before + after, 7.4 * shorten(titleOf(node), 60).length + 50);
  const dx = (width - inner.width + before - after) / 2;
  const dy = graph.hasNode("in") ? -8 : 20; // the title is above
  const height = inner.height + dy - (graph.hasNode("out") ? 16 : 0);
  for (const [item, id] of ids) {
    const { x, y, width, height } = graph.node(id);
    item.spot = { x: x - width / 2 + dx, y: y - height / 2 + dy, width, height };
  }
  const laneAt = new Map([...lanes.keys()].map((source, index) => [source, dx + inner.width + after - LANE * (lanes.size - index) - 4]));
  const near = [...node.ins.keys()].filter((source) => lanes.get(source)?.from !== null);
  const ins = portsAt(width, near, (source) => mean(node.ins.get(source)) + dx);
  for (const [source, { from }] of lanes) if (from === null) ins.set(source, laneAt.get(source));
  const outs = portsAt(width, node.outs.keys(), (source) => mean(node.outs.get(source)) + dx);
  node.layout = { width, height, ins, outs, edges: [] };

  const edges = [];
  const way = (from, to) => graph.edge(from ? ids.get(from) : "in", to ? ids.get(to) : "out").points.map(({ x, y }) => ({ x: x + dx, y: y + dy }));
  const add = (from, to, source) => {
    const lane = isFar(from, to, source) ? laneAt.get(source) : null;
    const same = edges.find((edge) => lane === null && edge.from === from && edge.to === to && isOneLine(edge, source));
    if (same) return same.sources.add(source);
    const points = lane === null ? way(from, to) : null;
    edges.push({ from, to, source, sources: new Set([source]), lane, points, arrives: lane ?? points[points.length - 2].x });
  };
  for (const [from, targets] of node.edges) {
    for (const [to, sources] of targets) for (const source of sources) add(from, to, source);
  }
  for (const [source, readers] of node.parent ? node.ins : []) for (const to of readers) add(null, to, source);
  for (const [source, makers] of node.parent ? node.outs : []) for (const from of makers) add(from, null, source);
  const entries = entriesOf(edges);
  for (const edge of edges) {
    const { from, to, source, sources, lane } = edge;
    const start = from ? leaving(from, source) : { x: ins.get(source), y: 0 };
    const end = to ? { x: entries.get(edge), y: to.spot.y } : { x: outs.get(source), y: height };
    const isShort = (!from || !to) && edge.points?.length === 3;
    const between = isShort ? [] : edge.points?.slice(1, -1);
    const points = lane === null ? [start, ...between, end] : alongLane(lane, from && start, end);
    const isPort = !to || (isOpen(to) && layOut(to).ins.has(source));
    node.layout.edges.push(edgeAlong({ from, to, sources, isPort }, points));
  }
  return node.layout;
}

const arrangements = new Map(); // of the levels so far, by what dagre gets

/** A level with the places that dagre gives; the layers of a model repeat, and equal levels are laid out once. */
function arranged(level) {
  const key = JSON.stringify([level.nodes().map((id) => level.node(id)), level.edges().map((edge) => [edge.v, edge.w, level.edge(edge)])]);
  if (!arrangements.has(key)) {
    dagre.layout(level);
    arrangements.set(key, level);
  }
  return arrangements.get(key);
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

/** Whether a further value takes the line of an edge: it has no end of its own at a port or at an op. */
const isOneLine = ({ from, to, source }, other) => from && to && (source === other || !(isOpen(from) || isOpen(to) || to.kind === "op"));

const isOpen = (item) => item.expanded && item.isGroup;

/** Where an edge leaves an item: at the port of an open box. */
function leaving(item, source) {
  const { spot } = item, x = isOpen(item) ? layOut(item).outs.get(source) : undefined;
  return { x: spot.x + (x ?? spot.width / 2), y: spot.y + spot.height };
}

/** Where each edge reaches its item: at the port of an open box; else side by side, in the order in which they come. */
function entriesOf(edges) {
  const places = new Map(), arriving = new Map();
  for (const edge of edges) {
    const { to, source } = edge;
    if (!to) continue;
    const x = isOpen(to) ? layOut(to).ins.get(source) : undefined;
    if (x === undefined) addTo(arriving, to, edge);
    else places.set(edge, to.spot.x + x);
  }
  for (const [{ spot }, coming] of arriving) {
    const sources = new Map(); // the edges of one value come to one place
    for (const edge of [...coming].sort((a, b) => a.arrives - b.arrives)) addTo(sources, edge.source, edge);
    [...sources.values()].forEach((same, index) => {
      for (const edge of same) places.set(edge, spot.x + (spot.width * (index + 1)) / (sources.size + 1));
    });
  }
  return places;
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
