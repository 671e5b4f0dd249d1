// The two panes: the graph that is shown, and beside it the graph of another stage to compare it with.

const at = (id) => document.getElementById(id);

/** The graph of a stage that is shown first: an entry point. */
const entryOf = (stage) => {
  const { graphs } = DATA.stages[stage];
  const entry = graphs.findIndex((each) => DATA.entrypoints.some(({ name }) => name === each.name));
  return entry >= 0 ? entry : Math.max(0, graphs.findIndex((each) => !each.private));
};

class Pane {
  constructor(prefix) {
    this.trees = new Map();
    this.drawing = new Drawing(at(`${prefix}drawing`), (node) => select(node, this));
    this.minimap = new Minimap(at(`${prefix}minimap`), this.drawing);
    this.graphs = at(`${prefix}graph`);
    this.message = at(`${prefix}message`);
    this.graphs.addEventListener("change", () => this.goTo(this.stage, Number(this.graphs.value)));
    at(`${prefix}fit`).addEventListener("click", () => this.drawing.fit());
    at(`${prefix}collapse`).addEventListener("click", () => {
      this.trees.delete(`${this.stage}/${this.graph}`);
      this.shown = null;
      this.goTo(this.stage, this.graph);
    });
  }

  /** Show a graph; where it has the modules that were shown before, it shows them at the same place. */
  goTo(stage, graph = entryOf(stage), like = this.shown && this) {
    const place = like ? viewOf(like.drawing) : null;
    const key = `${stage}/${graph}`;
    this.stage = stage;
    this.graph = graph;
    if (!this.trees.has(key)) this.trees.set(key, treeOf(stage, graph));
    this.graphs.replaceChildren(...DATA.stages[stage].graphs.map((each, index) =>
      element("option", { value: index }, [`@${each.name} (${each.ops.name.length} ops)`])));
    this.graphs.value = graph;
    this.message.textContent = "";
    this.shown = key;
    this.drawing.root = this.trees.get(key);
    this.drawing.marked.clear();
    this.drawing.flags.clear();
    if (!place || !showLike(this.drawing, place)) this.drawing.fit();
    this.onChange();
  }

  onChange() {}

  /** The nodes of ops in the graph that is shown. */
  nodesOf(ops) {
    const { leaves } = this.drawing.root;
    return ops.filter((op) => op.stage === this.stage && op.graph === this.graph).map((op) => leaves.get(shownBy(op).number)).filter(Boolean);
  }

  /** Mark ops of the stage, also the closed boxes around them, and move to them if `reveal`. */
  mark(ops, reveal = true) {
    const graphs = new Set(ops.filter((op) => !op.isConstant).map((op) => op.graph));
    if (reveal && graphs.size && !graphs.has(this.graph)) {
      this.goTo(this.stage, graphs.has(entryOf(this.stage)) ? entryOf(this.stage) : [...graphs][0]);
    }
    const nodes = this.nodesOf(ops);
    this.drawing.marked = new Set(nodes);
    for (const node of nodes) for (let around = node.parent; around; around = around.parent) this.drawing.marked.add(around);
    this.message.textContent = ops.length ? `${ops.length} marked${nodes.length < ops.length ? `, ${nodes.length} of them drawn here` : ""}` : "";
    if (nodes.length && reveal) this.drawing.reveal(nodes.slice(0, 50));
    else this.drawing.mark();
  }
}

// ---- the same place in another graph -----------------------------------------------------------------

/** The modules of a tree by their path, among the items of expanded nodes only if `open`. */
function modulesOf(root, open) {
  const found = new Map();
  const visit = (node) => {
    for (const item of node.items) {
      if (item.path && !found.has(item.path)) found.set(item.path, item);
      if (item.kind !== "op" && (!open || item.expanded)) visit(item);
    }
  };
  visit(root);
  return found;
}

/** Which modules a drawing has expanded, and where the module is that is nearest to the middle of its window. */
function viewOf(drawing) {
  if (!drawing.root) return null;
  const { x, y, width, height } = drawing.window(0);
  const modules = [...modulesOf(drawing.root, true)];
  const distance = (spot) => Math.abs(spot.y + spot.height / 2 - y - height / 2) + Math.abs(spot.x + spot.width / 2 - x - width / 2);
  const spots = modules.map(([path, node]) => [path, placeOf(node)]).filter(([, spot]) => spot);
  const nearest = spots.sort((a, b) => distance(a[1]) - distance(b[1]))[0];
  return {
    expanded: modules.filter(([, node]) => node.expanded).map(([path]) => path),
    scale: drawing.scale,
    path: nearest?.[0],
    left: nearest && drawing.x + nearest[1].x * drawing.scale,
    top: nearest && drawing.y + nearest[1].y * drawing.scale,
  };
}

/** The path and the box of a module in a tree, or else of the nearest one around it; and all modules by path. */
function moduleAround(root, path) {
  const modules = modulesOf(root, false);
  while (path && !modules.has(path)) path = path.slice(0, Math.max(0, path.lastIndexOf(".")));
  return [path, modules.get(path), modules];
}

/** Show in a drawing what another one showed; false if it has none of its modules. */
function showLike(drawing, { expanded, scale, path, left, top }) {
  const [near, module, modules] = moduleAround(drawing.root, path || "");
  if (!near) return false;
  const nodes = expanded.map((each) => modules.get(each)).filter(Boolean);
  for (const node of nodes) if (!node.expanded && node.isGroup) (node.expanded = true), forget(node);
  drawing.open([...nodes, module]);
  const spot = placeOf(module);
  const half = drawing.svg.clientWidth / 2;
  drawing.scale = scale;
  drawing.x = near === path ? Math.min(left, 2 * half - 60) - spot.x * scale : half - (spot.x + spot.width / 2) * scale;
  drawing.y = top - spot.y * scale;
  drawing.draw();
  return true;
}

// ---- two panes ---------------------------------------------------------------------------------------

const main = new Pane("");
const other = new Pane("other-");
const isComparing = () => !at("other").hidden;
const panes = () => (isComparing() ? [main, other] : [main]);

/** Open the second pane with a stage, at the place that the first one shows. */
function compareWith(stage) {
  const isOpen = isComparing();
  if (isOpen && other.stage === stage) return;
  at("other").hidden = false;
  document.body.classList.add("comparing");
  at("compare").setAttribute("aria-pressed", true);
  resized(main);
  other.goTo(stage, entryOf(stage), main);
}

function stopComparing() {
  at("other").hidden = true;
  document.body.classList.remove("comparing");
  at("compare").setAttribute("aria-pressed", false);
  resized(main);
  main.mark([], false);
}

const toggleComparing = () => {
  if (at("map").hidden && isComparing()) return stopComparing();
  showView("graph");
  compareWith(main.stage ? main.stage - 1 : Math.min(1, DATA.stages.length - 1));
  if (main.drawing.selected?.op) markCounterparts(main.drawing.selected.op, main);
};

/** The ops of another stage that an op comes from, or that come from it. */
function counterparts(op, stage) {
  if (stage === op.stage) return [op];
  if (DATA.difference) return partnersOf(op);
  if (stage < op.stage) return sourcesIn(stage, op.place);
  return resultsIn(stage, op.stage).get(op) || [];
}

/** Mark an op, what one rewrite made with it, and what the other stage has of it. */
function markCounterparts(op, pane) {
  const opposite = pane === main ? other : main;
  const together = !DATA.difference && consumed(op.place).length ? opsByPlace(op.stage).get(op.place) : [op];
  pane.mark(together, false);
  opposite.mark(counterparts(op, opposite.stage));
}

at("compare").addEventListener("click", toggleComparing);
at("other-close").addEventListener("click", stopComparing);
at("other-stage").append(...DATA.stages.map((stage, index) => element("option", { value: index }, [`${stage.name} (${stage.count} ops)`])));
at("other-stage").addEventListener("change", (event) => {
  other.goTo(Number(event.target.value));
  const { selected } = main.drawing;
  if (selected?.op) markCounterparts(selected.op, main);
});
other.onChange = () => {
  at("other-stage").value = other.stage;
  at("other-name").textContent = DATA.difference ? DATA.stages[other.stage].name : "";
  if (DATA.difference) flagDifferences(other);
};
