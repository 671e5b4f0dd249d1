// The two panes: the graph that is shown, and beside it the graph of another stage to compare it with.

const at = (id) => document.getElementById(id);

/** The graph of a stage that is shown first: an entry point. */
const entryOf = (stage) => Math.max(0, DATA.stages[stage].graphs.findIndex((each) => DATA.entrypoints.some(({ name }) => name === each.name)));

class Pane {
  constructor(prefix) {
    this.trees = new Map();
    this.drawing = new Drawing(at(`${prefix}drawing`), (node) => select(node, this));
    this.graphs = at(`${prefix}graph`);
    this.message = at(`${prefix}message`);
    this.graphs.addEventListener("change", () => this.goTo(this.stage, Number(this.graphs.value)));
    at(`${prefix}fit`).addEventListener("click", () => this.drawing.fit());
    at(`${prefix}collapse`).addEventListener("click", () => {
      this.trees.delete(`${this.stage}/${this.graph}`);
      this.goTo(this.stage, this.graph);
    });
  }

  goTo(stage, graph = entryOf(stage)) {
    this.stage = stage;
    this.graph = graph;
    const key = `${stage}/${graph}`;
    if (!this.trees.has(key)) this.trees.set(key, treeOf(stage, graph));
    this.graphs.replaceChildren(...DATA.stages[stage].graphs.map((each, index) =>
      element("option", { value: index }, [`@${each.name} (${each.ops.name.length} ops)`])));
    this.graphs.value = graph;
    this.message.textContent = "";
    this.drawing.show(this.trees.get(key));
    this.onChange();
  }

  onChange() {}

  /** Mark ops of the stage, also the closed boxes around them, and move to them if `reveal`. */
  mark(ops, reveal = true) {
    const graphs = new Set(ops.filter((op) => !op.isConstant).map((op) => op.graph));
    if (reveal && graphs.size && !graphs.has(this.graph)) {
      this.goTo(this.stage, graphs.has(entryOf(this.stage)) ? entryOf(this.stage) : [...graphs][0]);
    }
    const { leaves } = this.drawing.root;
    const nodes = ops.filter((op) => op.graph === this.graph).map((op) => leaves.get(op.number)).filter(Boolean);
    this.drawing.marked = new Set(nodes);
    for (const node of nodes) for (let around = node.parent; around; around = around.parent) this.drawing.marked.add(around);
    this.message.textContent = ops.length ? `${ops.length} marked${nodes.length < ops.length ? `, ${nodes.length} of them drawn here` : ""}` : "";
    if (nodes.length && reveal) this.drawing.reveal(nodes.slice(0, 50));
    else this.drawing.mark();
  }
}

const main = new Pane("");
const other = new Pane("other-");
const isComparing = () => !at("other").hidden;

/** Open the second pane with a stage. */
function compareWith(stage) {
  at("other").hidden = false;
  document.body.classList.add("comparing");
  at("compare").setAttribute("aria-pressed", true);
  other.goTo(stage);
  main.drawing.fit();
}

function stopComparing() {
  at("other").hidden = true;
  document.body.classList.remove("comparing");
  at("compare").setAttribute("aria-pressed", false);
  main.mark([], false);
  main.drawing.fit();
}

const toggleComparing = () => (isComparing() ? stopComparing() : compareWith(Math.max(0, main.stage - 1)));

/** The ops of another stage that an op comes from, or that come from it. */
function counterparts(op, stage) {
  if (stage === op.stage) return [op];
  if (stage < op.stage) return sourcesIn(stage, op.place);
  return resultsIn(stage, op.stage).get(op) || [];
}

/** Mark an op, what one rewrite made with it, and what the other stage has of it. */
function markCounterparts(op, pane) {
  const opposite = pane === main ? other : main;
  const together = consumed(op.place).length ? opsByPlace(op.stage).get(op.place) : [op];
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
other.onChange = () => (at("other-stage").value = other.stage);
