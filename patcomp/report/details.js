// The details of what is selected, and the legend.

/** Show an op: in the other pane if that has its stage, else in the main one. */
function goToOp(op) {
  showView("graph");
  const pane = isComparing() && op.stage === other.stage && op.stage !== main.stage ? other : main;
  if (op.stage !== pane.stage || op.graph !== pane.graph) pane.goTo(op.stage, op.graph);
  const node = pane.drawing.root.leaves.get(op.number);
  if (node) pane.drawing.reveal([node]);
  select(node || { op, sources: new Set() }, pane);
}

const opAt = ([graph, number], stage = DATA.stages.length - 1) => opsOf(stage, graph)[number];
const opLink = (op) => link(shorten(op.label, 70), () => goToOp(op), op.text);

function select(node, pane) {
  pane.drawing.selected = node;
  if (isComparing() && node.op) markCounterparts(node.op, pane);
  else pane.drawing.mark();
  if (pane === main) putIntoAddress(node);
  showDetails(node.op ? opDetails(node.op) : groupDetails(node));
}

/** Fill the details; on a narrow screen they appear over the graph. */
function showDetails(children) {
  at("details").replaceChildren(element("button", { class: "close", "aria-label": "Close the details", onclick: () => showPart("view") }, ["×"]), ...children);
  at("details").scrollTop = 0;
  if (!isNarrow()) return;
  showPart("details");
  main.drawing.lift(at("details").clientHeight);
}

function groupDetails(node) {
  const ops = [];
  const visit = (each) => {
    if (each.op) ops.push(each.op);
    each.items.forEach(visit);
  };
  visit(node);
  const rows = sums(ops, (op) => op.shortName, () => 1).map(([name, count]) => [name, count]);
  return [
    element("h2", {}, breakable(node.path || node.label)),
    ...(node.type ? [element("pre", {}, [plainType(node.type)])] : []),
    ...section("Costs in the final program", node.path ? costsOfModule(node.path) : []),
    ...section("Ops inside", rows.length ? [table(["op", "#count"], rows)] : []),
    ...moduleCheck(node.path),
  ];
}

/** What a module costs, as a table for each program. */
function costsOfModule(path) {
  const isInside = (each) => each === path || each.startsWith(`${path}.`);
  return PROGRAMS.map((costs, index) => table([DATA.difference ? DATA.difference.names[index] : "", "#", "#of the program"], costs.map((cost) => {
    const [own, all] = [cost.rows.filter((row) => isInside(row.path)), cost.rows].map((each) => total(each, (row) => row.value));
    return [cost.title, cost.text(own), all ? `${((100 * own) / all).toFixed(1)} %` : "-"];
  })));
}

function opDetails(op) {
  const { rules, origins } = summary(op.place);
  const ops = opsOf(op.stage, op.graph);
  const inputs = op.inputs.flatMap((input, index) => (input >= 0 && input !== op.parent && !ops[input].isConstant ? [[op.takes[index] ? `${op.takes[index]}  ` : "", opLink(ops[input])]] : []));
  const users = ops.filter((each) => each.inputs.includes(op.number)).map((each) => [opLink(each)]);
  const before = op.stage ? sourcesIn(op.stage - 1, op.place) : [];
  const called = op.calls ? DATA.stages[op.stage].graphs.findIndex((graph) => graph.name === op.calls) : -1;
  const facts = op.isConstant ? [["value", op.attributes[0]]] : op.facts.map((fact) => [fact.split(" ", 1)[0], fact.slice(fact.indexOf(" ") + 1)]);
  return [
    element("h2", {}, [...breakable(op.value ? `%${op.value}` : op.shortName), ...(op.value ? [element("small", {}, [" ", ...breakable(nameOf(op))])] : [])]),
    ...(at("map").hidden ? [] : [paragraph(link("Show it in the graph", () => goToOp(op)))]),
    table(["", ""], [["gives", plainType(op.type) || "nothing"], ...facts, ...costRows(op)]),
    element("pre", { class: "ir" }, [op.text.trim()]),
    ...(called >= 0 ? [link(`Open @${op.calls}`, () => main.goTo(op.stage, called))] : []),
    ...(DATA.difference ? partnerDetails(op) : [
      ...section("Made by", rules.length ? rules.slice(0, 1).flatMap(ruleDetails) : ["The import; no rule made this op."]),
      ...section("Earlier rules", rules.length > 1 ? [listed(rules.slice(1).map((name) => [link(name, () => showRule(name))]))] : []),
      ...section(op.stage ? `Before, in ${DATA.stages[op.stage - 1].name}` : "", before.length ? capped(before, (each) => [opLink(each)]) : []),
    ]),
    ...section("From the model", origins.length ? capped(origins, (origin) =>
      [`%${origin.node}`, origin.path && ` in ${origin.path}`, origin.source && ` at ${origin.source}`]) : []),
    ...section("Operands", inputs.length ? [listed(inputs)] : []),
    ...section("Users", users.length ? [listed(users.slice(0, SHOWN))] : []),
    ...moduleCheck(origins.length ? origins[0].path : null),
    ...findingsOf(op),
  ];
}

/** What an op of a program with costs has of them, as rows. */
function costRows(op) {
  return (PROGRAMS[op.stage - FIRST] || []).flatMap((cost) => {
    const own = total(cost.rows.filter((row) => row.op === op), (row) => row.value);
    return own ? [[cost.title.toLowerCase(), cost.text(own)]] : [];
  });
}

function moduleCheck(path) {
  const found = DATA.verification && path !== null ? DATA.verification.modules.filter((each) => each.module === path) : [];
  return section("Numbers of this module", found.length ? [table(["value", "#difference", "#tolerance", ""],
    found.map(({ node, error }) => [`%${node}`, digits(error.max_abs), digits(error.tolerance), passed(error)]))] : []);
}

/** Show a module: in the graph that is shown if it has ops there, else in the first stage. */
function showModule(path) {
  showView("graph");
  const isInside = (each) => each.path === path || each.path.startsWith(`${path}.`);
  const find = (node) => {
    for (const item of node.items) {
      const found = isInside(item) ? item : find(item);
      if (found) return found;
    }
    return null;
  };
  if (!find(main.drawing.root)) main.goTo(0);
  const node = find(main.drawing.root);
  if (!node) return;
  main.drawing.reveal([node]);
  select(node, main);
}

// ---- the legend ------------------------------------------------------------------------------------

const LEGEND = [
  ["module", "a module of the model; click + or press Enter to open it"],
  ["op composite", "a composite: ops that Core AI knows by one name; + opens its body"],
  ["op product", "a product or convolution"],
  ["op elementwise", "an elementwise op"],
  ["op view", "a view: the same elements in another shape"],
  ["op reduction", "a reduction"],
  ["op other", "another op"],
  ["argument", "an input"],
  ["module failed", "a module whose numbers differ from PyTorch's"],
  ["op other marked", "marked: what a rewrite consumed or produced"],
];

function legend() {
  const picture = (kind) => drawn("svg", { class: "sample", width: 40, height: 24, viewBox: "0 0 40 24" }, [
    drawn("g", { class: `node ${kind}` }, [
      drawn("rect", { class: "card", x: 2, y: 3, width: 36, height: 18, rx: kind.startsWith("op") ? 5 : 9 }),
      ...(kind.startsWith("op") ? [drawn("path", { class: "stripe", d: "M7 3h-1q-4 0-4 4v10q0 4 4 4h1z" })] : []),
    ]),
  ]);
  const flag = drawn("svg", { class: "sample", width: 40, height: 24, viewBox: "0 0 40 24" }, [
    drawn("g", { class: "node" }, [drawn("circle", { class: "flag", cx: 20, cy: 12, r: 8 }), drawn("text", { class: "count", x: 20, y: 15.5 }, ["3"])]),
  ]);
  const keys = [["/", "search"], [`1 – ${DATA.stages.length}`, "a stage"], ["c", "compare two stages"], ["m", "where the bytes and the work are"],
    ["0", "the whole graph"], ["arrows, + −", "move and zoom"], ["Tab, Enter", "go from box to box, open one"], ["?", "this legend"]];
  return [
    element("h2", {}, ["How to read the graph"]),
    element("dl", { class: "legend" }, [
      ...LEGEND.flatMap(([kind, words]) => [element("dt", {}, [picture(kind)]), element("dd", {}, [words])]),
      ...(DATA.difference ? [["op other removed", `only in ${DATA.difference.names[0]}`], ["op other added", `only in ${DATA.difference.names[1]}`],
        ["op other changed", "reads other values"]].flatMap(([kind, words]) => [element("dt", {}, [picture(kind)]), element("dd", {}, [words])]) : []),
      element("dt", {}, [flag]), element("dd", {}, [DATA.difference ? "differences in a box" : "findings of an audit in a box"]),
    ]),
    paragraph("An edge goes from the op that makes a value to the port of the box, and inside it to the op, that reads it. Constants are lines of the op that reads them. Click an op for its attributes, its IR, the rule that made it and its line of the model. The address of the page then leads to it."),
    ...section("Keys", [element("dl", { class: "keys" }, keys.flatMap(([key, words]) => [element("dt", {}, [element("kbd", {}, [key])]), element("dd", {}, [words])]))]),
  ];
}

at("legend").addEventListener("click", () => showDetails(legend()));
