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

/** The module of the model that an op comes from; of what is computed from constants alone, such as a compressed weight,
 * the module that reads it. Empty if it is not known. */
function pathOf(op) {
  if (op.path === undefined) {
    const reader = () => (isFixed(op) ? readerOf(op) : null);
    op.path = summary(op.place).origins[0]?.path || (reader() ? pathOf(reader()) : "");
  }
  return op.path;
}

/** Whether an op is computed from constants alone. */
function isFixed(op) {
  const ops = opsOf(op.stage, op.graph);
  return (op.fixed ??= op.isConstant || (op.inputs.length > 0 && op.inputs.every((input) => input >= 0 && isFixed(ops[input]))));
}

/** The first op that reads what an op gives. */
const readerOf = (op) => opsOf(op.stage, op.graph).find((each) => each.inputs.includes(op.number));

/** The op whose box shows an op: of a constant, which is a line of other boxes, the first one. */
const shownBy = (op) => (op.isConstant && readerOf(op)) || op;

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
    this.takes = textOf(ops.takes[number]).split(",");
    this.attributes = textOf(ops.facts[number]).split("\n").filter(Boolean);
    this.place = ops.place[number];
    this.calls = textOf(ops.calls[number]);
    [this.value = "", this.type = ""] = ops.value[number].map(textOf);
  }
  get label() {
    return this.value ? `%${this.value} = ${this.name}` : this.name;
  }
  /** The name without the dialect: `conv2d`. */
  get shortName() {
    return this.name.replace(/^(aten|coreai|patcomp)\.(decomposable\.)?/, "");
  }
  get kind() {
    return this.calls || this.inner.length ? "composite" : DATA.kinds[this.name];
  }
  /** The attributes, and the constants among the operands: `stride [2, 2]`, `weight 64x3x7x7 f32`. */
  get facts() {
    const ops = opsOf(this.stage, this.graph);
    const constants = this.inputs.flatMap((input, index) =>
      input >= 0 && ops[input].isConstant ? [`${this.takes[index]} ${ops[input].attributes[0] ?? ""}`.trim()] : []);
    return [...constants, ...this.attributes];
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
    Object.assign(this, { label, parent, op, path, kind, items: [], expanded: false, layout: null });
    this.edges = new Map(); // for each item and each item that reads from it: the nodes whose values it reads
    this.ins = new Map(); // for each node outside whose value is read inside: the items that read it
    this.outs = new Map(); // for each node inside whose value is read outside: the items that it comes from
    this.sources = new Set(); // the nodes whose values an op reads
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

/** The number of a leaf in its graph, as the inputs of ops name it: negative for an argument. */
function numberOf(leaf) {
  if (leaf.op) return leaf.op.number;
  let around = leaf.parent;
  while (!around.leaves) around = around.parent;
  return [...around.leaves].find(([, each]) => each === leaf)[0];
}

/** The graph of a stage as a tree; `leaves` of its root has the node of each op. */
function treeOf(stage, graph) {
  const name = DATA.stages[stage].graphs[graph].name;
  const root = new TreeNode(`@${name}`, null, { kind: "graph" });
  fillGraph(root, stage, graph, new Set([name]));
  for (let most = root; most; ) { // what has most of the ops is open
    const { items, count } = most;
    most.expanded = true;
    most = items.find((item) => item.items.length > 1 && item.count > count / 2);
  }
  return root;
}

/** Put the ops of a graph into a node: the root, or an op that calls the graph, with the leaves around it. */
function fillGraph(root, stage, graph, around, outer = null) {
  const ops = opsOf(stage, graph);
  const leaves = new Map();
  fillModules(root, ops.filter((op) => op.parent < 0 && !op.isConstant), 0, leaves, around);
  DATA.stages[stage].graphs[graph].arguments.forEach(([name, type], index) => {
    const node = new TreeNode(`%${name}`, root, { kind: "argument" });
    node.type = type;
    leaves.set(-1 - index, node);
    root.items.unshift(node);
  });
  root.leaves = leaves;
  finish(root);
  connect(root, ops, leaves);
  for (const op of ops) if (op.inner.length) leaveBy(leaves.get(op.number), op.inner, leaves);
  if (!outer) return;
  leaveBy(root, ops.filter((op) => op.parent < 0), leaves);
  root.op.inputs.forEach((input, index) => {
    const argument = leaves.get(-1 - index), from = outer.get(input);
    if (from) for (let at = argument; at !== root; at = at.parent) addTo(at.parent.ins, from, at);
    else if (input >= 0) argument.fact = opsOf(root.op.stage, root.op.graph)[input].attributes[0]; // a constant
  });
}

/** The results of an op leave it by the terminators among the ops inside. */
function leaveBy(node, inside, leaves) {
  for (const op of inside.filter(({ name }) => /\.(output|yield)$/.test(name))) {
    for (let at = leaves.get(op.number); at !== node; at = at.parent) addTo(at.parent.outs, node, at);
  }
}

/** Add an entry to the set of a key. */
function addTo(map, key, entry) {
  if (!map.has(key)) map.set(key, new Set());
  map.get(key).add(entry);
}

/** The name of a node; of a run of nodes, that of the first. */
const firstName = (node) => (node.kind === "run" ? firstName(node.items[0]) : titleOf(node));

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
      const run = new TreeNode([items[0], items[items.length - 1]].map(firstName).join(" … "), node, { kind: "run" });
      run.items = items;
      items.forEach((item) => (item.parent = run));
      runs.push(run);
    }
    node.items = runs;
  }
}

/** Give each level the edges between its entries: an edge belongs to the level where its two ends part. The boxes around
 * an end, below that level, get a port for it. */
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
      node.sources.add(from);
      const a = chains.get(from), b = chains.get(node);
      let depth = 0;
      while (depth < a.length && depth < b.length && a[depth] === b[depth]) depth++;
      if (depth >= a.length || depth >= b.length) continue; // one is inside the other
      const level = depth ? a[depth - 1] : root;
      if (!level.edges.has(a[depth])) level.edges.set(a[depth], new Map());
      addTo(level.edges.get(a[depth]), b[depth], from);
      for (let at = depth; at < a.length - 1; at++) addTo(a[at].outs, from, a[at + 1]);
      for (let at = depth; at < b.length - 1; at++) addTo(b[at].ins, from, b[at + 1]);
    }
  }
}
