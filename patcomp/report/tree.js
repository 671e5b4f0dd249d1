// The data of the page, and the graph of a stage as a tree of modules, composites and ops.

const DATA = JSON.parse(document.getElementById("data").textContent);
const textOf = (number) => DATA.texts[number];
const LIMIT = 60; // more entries on one level are put into groups of consecutive ones

/** The modules whose numbers differ from PyTorch's. */
const failedModules = new Set((DATA.verification?.modules || []).filter(({ error }) => !error.passed).map(({ module }) => module));

const summaries = new Map();

/** The rules, last one first, and the first places in the model that a place leads back to. */
function summary(place) {
  let found = summaries.get(place);
  if (found) return found;
  found = { rules: [], origins: [] };
  summaries.set(place, found);
  const [rule, ...parts] = DATA.places[place];
  if (rule === null) {
    if (textOf(parts[0])) found.origins.push({ node: textOf(parts[0]), path: textOf(parts[1]), source: textOf(parts[2]), place });
  } else if (rule !== undefined) {
    const rules = new Set(textOf(rule) ? [textOf(rule)] : []);
    const origins = new Map();
    for (const part of parts) {
      const inner = summary(part);
      inner.rules.forEach((name) => rules.add(name));
      inner.origins.forEach((origin) => origins.set(origin.place, origin));
    }
    found.rules = [...rules];
    found.origins = [...origins.values()];
  }
  return found;
}

/** The places that the last rule of a place consumed. */
const consumed = (place) => (DATA.places[place].length && DATA.places[place][0] !== null ? DATA.places[place].slice(1) : []);

/** One op: its stage, graph and number. */
class Op {
  constructor(stage, graph, number) {
    this.stage = stage;
    this.graph = graph;
    this.number = number;
    this.inner = []; // the ops of its regions
    const ops = DATA.stages[stage].graphs[graph].ops;
    this.name = textOf(ops.name[number]);
    this.text = textOf(ops.text[number]);
    this.parent = ops.parent[number];
    this.inputs = ops.inputs[number];
    this.place = ops.place[number];
    this.calls = textOf(ops.calls[number]);
    [this.value, this.type] = ops.value[number].map(textOf);
  }
  get label() {
    return this.value ? `%${this.value} = ${this.name}` : this.name;
  }
  get isConstant() {
    return !this.inputs.length && /constant|dense_resource|patcomp\.weight/.test(this.name);
  }
}

const loaded = new Map();

/** All ops of a graph. */
function opsOf(stage, graph) {
  const key = `${stage}/${graph}`;
  if (!loaded.has(key)) {
    const count = DATA.stages[stage].graphs[graph].ops.name.length;
    const ops = Array.from({ length: count }, (_, number) => new Op(stage, graph, number));
    for (const op of ops) if (op.parent >= 0) ops[op.parent].inner.push(op);
    loaded.set(key, ops);
  }
  return loaded.get(key);
}

const byPlace = new Map();

/** The ops of a stage by their place. */
function opsByPlace(stage) {
  if (!byPlace.has(stage)) {
    const found = new Map();
    DATA.stages[stage].graphs.forEach((_, graph) => {
      for (const op of opsOf(stage, graph)) {
        if (!found.has(op.place)) found.set(op.place, []);
        found.get(op.place).push(op);
      }
    });
    byPlace.set(stage, found);
  }
  return byPlace.get(stage);
}

/** The ops of a stage that a place comes from: those of the place itself, or of the places that it was fused from. */
function sourcesIn(stage, place) {
  const known = opsByPlace(stage);
  const found = new Set(), seen = new Set();
  const visit = (number) => {
    if (!number || seen.has(number)) return;
    seen.add(number);
    if (known.has(number)) known.get(number).forEach((op) => found.add(op));
    else consumed(number).forEach(visit);
  };
  visit(place);
  return [...found];
}

const resultsOf = new Map();

/** For each op of a stage, the ops of a later stage that come from it. */
function resultsIn(later, stage) {
  const key = `${later}/${stage}`;
  if (!resultsOf.has(key)) {
    const found = new Map();
    for (const [place, ops] of opsByPlace(later)) {
      for (const source of sourcesIn(stage, place)) {
        if (!found.has(source)) found.set(source, []);
        found.get(source).push(...ops);
      }
    }
    resultsOf.set(key, found);
  }
  return resultsOf.get(key);
}

/** A node of the tree: a module, a composite, a run of consecutive ops, or an op. */
class TreeNode {
  constructor(label, parent, { op = null, path = "", kind = "module" } = {}) {
    Object.assign(this, { label, parent, op, path, kind, items: [], edges: new Map(), expanded: false, layout: null });
    this.depth = parent ? parent.depth + 1 : 0;
  }
  get isGroup() {
    if (!this.items.length && this.fill) {
      const fill = this.fill;
      this.fill = null;
      fill();
    }
    return this.items.length > 0;
  }
  get count() {
    return this.items.reduce((sum, item) => sum + (item.op ? 1 : item.count), 0);
  }
}

/** The graph of a stage as a tree; `leaves` of its root has the node of each op. */
function treeOf(stage, graph) {
  const name = DATA.stages[stage].graphs[graph].name;
  const root = new TreeNode(`@${name}`, null, { kind: "graph" });
  fillGraph(root, stage, graph, new Set([name]));
  root.expanded = true;
  let only = root;
  while (only.items.filter((item) => item.isGroup).length === 1 && only.items.length < 12) {
    only = only.items.find((item) => item.isGroup);
    only.expanded = true;
  }
  return root;
}

function fillGraph(root, stage, graph, around) {
  const ops = opsOf(stage, graph);
  const leaves = new Map();
  fillLevel(root, ops.filter((op) => op.parent < 0), leaves, around);
  DATA.stages[stage].graphs[graph].arguments.forEach(([name, type], index) => {
    const node = new TreeNode(`%${name}`, root, { kind: "argument" });
    node.type = type;
    leaves.set(-1 - index, node);
    root.items.unshift(node);
  });
  root.leaves = leaves;
  finish(root);
  connect(root, ops, leaves);
}

function fillLevel(root, ops, leaves, around) {
  const groups = new Map([["", root]]);
  const group = (path) => {
    if (!groups.has(path)) {
      const cut = path.lastIndexOf(".");
      const parent = group(cut < 0 ? "" : path.slice(0, cut));
      const made = new TreeNode(path.slice(cut + 1), parent, { path });
      parent.items.push(made);
      groups.set(path, made);
    }
    return groups.get(path);
  };
  for (const op of ops) {
    if (op.isConstant) continue;
    const [origin] = summary(op.place).origins;
    const parent = root.kind === "op" ? root : group(origin ? origin.path : "");
    const node = new TreeNode(op.name, parent, { op, kind: "op" });
    parent.items.push(node);
    leaves.set(op.number, node);
    if (op.inner.length) fillLevel(node, op.inner, leaves, around);
    else if (op.calls && !around.has(op.calls)) {
      const called = DATA.stages[op.stage].graphs.findIndex((each) => each.name === op.calls);
      if (called >= 0) node.fill = () => fillGraph(node, op.stage, called, new Set([...around, op.calls]));
    }
  }
}

/** Join chains of modules with one entry, and put many entries into groups. */
function finish(node) {
  for (let index = 0; index < node.items.length; index++) {
    let item = node.items[index];
    while (item.kind === "module" && item.items.length === 1 && item.items[0].kind === "module") {
      const [inner] = item.items;
      inner.label = `${item.label}.${inner.label}`;
      inner.parent = node;
      node.items[index] = item = inner;
    }
    if (item.items.length) finish(item);
  }
  while (node.items.length > LIMIT) {
    const size = Math.max(LIMIT / 2, Math.ceil(node.items.length / LIMIT));
    const runs = [];
    for (let start = 0; start < node.items.length; start += size) {
      const items = node.items.slice(start, start + size);
      const run = new TreeNode(`${items[0].label} … ${items[items.length - 1].label}`, node, { kind: "run" });
      run.items = items;
      items.forEach((item) => (item.parent = run));
      runs.push(run);
    }
    node.items = runs;
  }
}

/** Give each level the edges between its entries: an edge belongs to the level where its two ends part. */
function connect(root, ops, leaves) {
  const chain = (node) => {
    const found = [];
    for (let at = node; at !== root; at = at.parent) found.push(at);
    return found.reverse();
  };
  const chains = new Map([...leaves.values()].map((node) => [node, chain(node)]));
  for (const [number, node] of leaves) {
    if (number < 0) continue;
    for (const input of ops[number].inputs) {
      const from = leaves.get(input);
      if (!from || from === node) continue;
      const a = chains.get(from), b = chains.get(node);
      let depth = 0;
      while (depth < a.length && depth < b.length && a[depth] === b[depth]) depth++;
      if (depth >= a.length || depth >= b.length) continue; // one is inside the other
      const level = depth ? a[depth - 1] : root;
      if (!level.edges.has(a[depth])) level.edges.set(a[depth], new Map());
      const targets = level.edges.get(a[depth]);
      targets.set(b[depth], (targets.get(b[depth]) || 0) + 1);
    }
  }
}
