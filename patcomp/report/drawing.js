// Layout with dagre, one level at a time, and the drawing as SVG: only what is expanded is laid out and drawn.

const SVG = "http://www.w3.org/2000/svg";
const svg = document.getElementById("drawing");

function element(name, attributes = {}, children = [], namespace = null) {
  const made = namespace ? document.createElementNS(namespace, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...[].concat(children));
  return made;
}
const drawn = (name, attributes, children) => element(name, attributes, children, SVG);

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
  return [shorten(node.label, 40), `${node.count} ops`];
}

/** Lay out an expanded node; `width`, `height` and, for each item, its centre `x`, `y` are kept until it changes. */
function layOut(node) {
  if (node.layout) return node.layout;
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ ranksep: 26, nodesep: 16, marginx: 14, marginy: 14, ranker: "longest-path" });
  graph.setDefaultEdgeLabel(() => ({}));
  const ids = new Map();
  node.items.forEach((item, index) => {
    ids.set(item, String(index));
    let size;
    if (item.expanded && item.isGroup) {
      const inner = layOut(item);
      size = { width: inner.width, height: inner.height };
    } else {
      const [first, second] = lines(item);
      size = { width: Math.max(60, 7.1 * first.length + 20, 6.2 * second.length + 20), height: second ? 38 : 26 };
    }
    graph.setNode(String(index), size);
  });
  for (const [from, targets] of node.edges) {
    for (const to of targets.keys()) {
      if (ids.has(from) && ids.has(to)) graph.setEdge(ids.get(from), ids.get(to));
    }
  }
  dagre.layout(graph);
  const { width, height } = graph.graph();
  const places = node.items.map((item) => ({ item, ...graph.node(ids.get(item)) }));
  const edges = graph.edges().map((edge) => graph.edge(edge).points);
  const title = 8 * shorten(node.label, 60).length + 50;
  node.layout = { width: Math.max(width, title), height: height + 24, places, edges };
  return node.layout;
}

function forget(node) {
  for (let at = node; at; at = at.parent) at.layout = null;
}

const view = { root: null, x: 0, y: 0, scale: 1, layer: null, selected: null, boxes: new Map(), marked: new Set() };

function transform() {
  view.layer.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
}

/** Show a tree and make it fit. */
function show(root) {
  view.root = root;
  draw();
  fit();
}

function fit() {
  const { width, height } = layOut(view.root);
  const box = svg.getBoundingClientRect();
  view.scale = Math.max(Math.min(box.width / width, box.height / height, 1), Math.min(0.6, box.width / width), 0.02);
  view.x = (box.width - width * view.scale) / 2;
  view.y = height * view.scale > box.height ? 0 : (box.height - height * view.scale) / 2;
  transform();
}

function draw() {
  const layer = drawn("g", {}, [picture(view.root)]);
  const arrow = drawn("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
    [drawn("path", { d: "M0 0L8 4L0 8z" }, [])]);
  svg.replaceChildren(drawn("defs", {}, [arrow]), layer);
  view.layer = layer;
  transform();
  mark();
}

/** The inside of an expanded node, drawn from its corner. It is kept with the layout, so that a change draws only what
 * is around it. */
function picture(node) {
  const layout = layOut(node);
  if (layout.picture) return layout.picture;
  const layer = (layout.picture = drawn("g"));
  const inset = (layout.width - Math.max(...layout.places.map((p) => p.x + p.width / 2), 0) - 14) / 2;
  const dx = Math.max(0, inset), dy = 22;
  for (const points of layout.edges) {
    const [first, ...others] = points.map((point) => `${(point.x + dx).toFixed(1)} ${(point.y + dy).toFixed(1)}`);
    layer.append(drawn("path", { class: "edge", d: `M${first}L${others.join("L")}`, "marker-end": "url(#arrow)" }, []));
  }
  for (const { item, x, y, width, height } of layout.places) {
    const x0 = x - width / 2 + dx, y0 = y - height / 2 + dy;
    const open = item.expanded && item.isGroup;
    const box = boxOf(item, open, x0, y0, width, height);
    layer.append(box);
    view.boxes.set(item, { box, x: x0, y: y0, width, height });
    if (!open) continue;
    const inner = picture(item);
    inner.setAttribute("transform", `translate(${x0} ${y0})`);
    layer.append(inner);
  }
  return layer;
}

function boxOf(item, open, x0, y0, width, height) {
  const kind = item.kind === "op" && (item.op.calls || item.op.inner.length) ? "op composite" : item.kind;
  const title = item.op ? item.op.label : item.path || item.label;
  const box = drawn("g", { class: `node ${kind}${open ? " open" : ""}`, tabindex: 0, role: "button", "aria-label": title });
  box.append(drawn("rect", { x: x0, y: y0, width, height, rx: item.kind === "op" ? 4 : 9 }, []));
  if (open) {
    box.append(drawn("text", { x: x0 + 26, y: y0 + 16, class: "title" }, [shorten(item.op ? item.op.label : item.label, 60)]));
  } else {
    const [first, second] = lines(item);
    box.append(drawn("text", { x: x0 + width / 2, y: y0 + 16, class: "first" }, [first]));
    if (second) box.append(drawn("text", { x: x0 + width / 2, y: y0 + 31, class: "second" }, [second]));
  }
  if (item.isGroup) {
    const sign = drawn("g", { class: "toggle", role: "button", "aria-label": open ? "Collapse" : "Expand" }, [
      drawn("rect", { x: x0 + 3, y: y0 + 3, width: 18, height: 18, rx: 4 }, []),
      drawn("text", { x: x0 + 12, y: y0 + 17 }, [open ? "−" : "+"]),
    ]);
    sign.addEventListener("click", (event) => (event.stopPropagation(), toggle(item)));
    box.append(sign);
  }
  box.addEventListener("click", (event) => (event.stopPropagation(), moved || select(item)));
  box.addEventListener("dblclick", (event) => (event.stopPropagation(), item.isGroup && toggle(item)));
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    select(item);
    if (item.isGroup) toggle(item);
  });
  return box;
}

/** Where a node is drawn, from the corner of the root; null if it is not. */
function placeOf(node) {
  let x = 0, y = 0;
  for (let at = node; at !== view.root; at = at.parent) {
    const inside = at && view.boxes.get(at);
    if (!inside) return null;
    x += inside.x;
    y += inside.y;
  }
  return { ...view.boxes.get(node), x, y };
}

/** Expand or collapse a node; it stays where it is on the screen. */
function toggle(node) {
  const started = performance.now();
  const before = placeOf(node);
  node.expanded = !node.expanded;
  forget(node);
  draw();
  const after = placeOf(node);
  if (before && after) {
    view.x += (before.x + before.width / 2 - after.x - after.width / 2) * view.scale;
    view.y += (before.y - after.y) * view.scale;
    transform();
    after.box.focus({ preventScroll: true });
  }
  document.body.dataset.toggled = (performance.now() - started).toFixed(1);
}

function mark() {
  for (const [item, { box }] of view.boxes) {
    box.classList.toggle("selected", item === view.selected);
    box.classList.toggle("marked", item.op !== null && view.marked.has(item.op));
  }
}

/** Expand what is around a node, and move the drawing to it. */
function reveal(node) {
  let opened = false;
  for (let at = node.parent; at; at = at.parent) {
    if (!at.expanded) opened = at.expanded = true;
  }
  if (opened) {
    forget(node);
    draw();
  }
  const found = placeOf(node);
  if (!found) return;
  const box = svg.getBoundingClientRect();
  view.scale = Math.max(view.scale, 0.7);
  view.x = box.width / 2 - (found.x + found.width / 2) * view.scale;
  view.y = box.height / 2 - (found.y + found.height / 2) * view.scale;
  transform();
}

function zoom(factor, x, y) {
  const scale = Math.min(4, Math.max(0.02, view.scale * factor));
  view.x = x - ((x - view.x) * scale) / view.scale;
  view.y = y - ((y - view.y) * scale) / view.scale;
  view.scale = scale;
  transform();
}

let moved = false;
svg.addEventListener("wheel", (event) => {
  event.preventDefault();
  const box = svg.getBoundingClientRect();
  if (event.shiftKey) view.x -= event.deltaY + event.deltaX;
  else return zoom(Math.exp(-event.deltaY / 400), event.clientX - box.left, event.clientY - box.top);
  transform();
}, { passive: false });
svg.addEventListener("pointerdown", (event) => {
  moved = false;
  const start = { x: event.clientX - view.x, y: event.clientY - view.y, clientX: event.clientX, clientY: event.clientY };
  const move = (now) => {
    if (Math.hypot(now.clientX - start.clientX, now.clientY - start.clientY) > 4) moved = true;
    if (!moved) return;
    view.x = now.clientX - start.x;
    view.y = now.clientY - start.y;
    transform();
  };
  window.addEventListener("pointermove", move);
  window.addEventListener("pointerup", () => window.removeEventListener("pointermove", move), { once: true });
});
svg.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
  const box = svg.getBoundingClientRect();
  if (step) {
    view.x += step[0];
    view.y += step[1];
    transform();
  } else if (event.key === "+" || event.key === "=") zoom(1.25, box.width / 2, box.height / 2);
  else if (event.key === "-") zoom(0.8, box.width / 2, box.height / 2);
  else if (event.key === "0") fit();
  else return;
  event.preventDefault();
});
