// The stages, lists, search and details around the drawing.

const SHOWN = 200; // entries of a list; more are counted
const state = { tab: "rules" };

function link(label, act, title) {
  return element("button", { class: "link", onclick: act, title }, [label]);
}

const section = (title, children) => (children.length ? [element("h3", {}, [title]), ...children] : []);
const listed = (children) => element("ul", {}, children.map((child) => element("li", {}, child)));

function capped(entries, make) {
  const rest = entries.length - SHOWN;
  return [listed(entries.slice(0, SHOWN).map(make)), rest > 0 ? `${rest} more are not listed; search for them.` : ""];
}

main.onChange = () => {
  stageTabs();
  at("stage").textContent = DATA.stages[main.stage].name;
  if (state.tab === "rules" && !at("search").value) panel();
};

/** Show an op: in the other pane if that has its stage, else in the main one. */
function goToOp(op) {
  const pane = isComparing() && op.stage === other.stage && op.stage !== main.stage ? other : main;
  if (op.stage !== pane.stage || op.graph !== pane.graph) pane.goTo(op.stage, op.graph);
  const node = pane.drawing.root.leaves.get(op.number);
  if (node) pane.drawing.reveal([node]);
  select(node || { op }, pane);
}

const opLink = (op) => link(shorten(op.label, 70), () => goToOp(op), op.text);

function stageTabs() {
  at("stages").replaceChildren(...DATA.stages.map((stage, index) => {
    const delta = index ? stage.count - DATA.stages[index - 1].count : 0;
    const rewrites = stage.rules.reduce((sum, rule) => sum + rule[2], 0);
    const notes = [index ? `${delta > 0 ? "+" : ""}${delta}` : "", rewrites ? `${rewrites} rewrites` : ""];
    if (stage.seconds !== null) notes.push(`${stage.seconds.toFixed(2)} s`);
    return element("button", {
      role: "tab", "aria-selected": index === main.stage, onclick: () => main.goTo(index), title: `Key ${index + 1}`,
    }, [element("b", {}, [stage.name]), element("span", {}, [`${stage.count} ops`]), element("small", {}, [notes.filter(Boolean).join(", ")])]);
  }));
}

// ---- details ---------------------------------------------------------------------------------------

function select(node, pane) {
  pane.drawing.selected = node;
  if (isComparing() && node.op) markCounterparts(node.op, pane);
  else pane.drawing.mark();
  at("details").replaceChildren(...(node.op ? opDetails(node.op) : groupDetails(node)));
}

function groupDetails(node) {
  const counts = new Map();
  const visit = (each) => {
    if (each.op) counts.set(each.op.name, (counts.get(each.op.name) || 0) + 1);
    each.items.forEach(visit);
  };
  visit(node);
  const rows = [...counts].sort((a, b) => b[1] - a[1]).map(([name, count]) => [name, count]);
  return [
    element("h2", {}, [node.path || node.label]),
    ...(node.type ? [element("pre", {}, [node.type])] : []),
    ...section("Ops inside", rows.length ? [table(["op", "count"], rows)] : []),
    ...moduleCheck(node.path),
  ];
}

function ruleDetails(name) {
  const rule = DATA.rules[name];
  if (!rule) return [element("p", {}, [element("b", {}, [name]), " (a step of the stage itself)"])];
  return [
    element("p", {}, [element("b", {}, [name]), ` · stage ${rule.stage} · ${rule.source}`]),
    element("pre", { class: "doc" }, [rule.doc || "no description"]),
  ];
}

function opDetails(op) {
  const { rules, origins } = summary(op.place);
  const ops = opsOf(op.stage, op.graph);
  const inputs = op.inputs.filter((input) => input >= 0 && input !== op.parent).map((input) => [opLink(ops[input])]);
  const users = ops.filter((each) => each.inputs.includes(op.number)).map((each) => [opLink(each)]);
  const before = op.stage ? sourcesIn(op.stage - 1, op.place) : [];
  const called = op.calls ? DATA.stages[op.stage].graphs.findIndex((graph) => graph.name === op.calls) : -1;
  return [
    element("h2", {}, [op.label]),
    element("pre", { class: "ir" }, [op.text.trim()]),
    ...(called >= 0 ? [link(`Open @${op.calls}`, () => main.goTo(op.stage, called))] : []),
    ...section("Made by", rules.length ? rules.slice(0, 1).flatMap(ruleDetails) : ["The import; no rule made this op."]),
    ...section("Earlier rules", rules.length > 1 ? [listed(rules.slice(1).map((name) => [link(name, () => showRule(name))]))] : []),
    ...section(op.stage ? `Before, in ${DATA.stages[op.stage - 1].name}` : "", before.length ? capped(before, (each) => [opLink(each)]) : []),
    ...section("From the model", origins.length ? capped(origins, (origin) =>
      [`%${origin.node}`, origin.path && ` in ${origin.path}`, origin.source && ` at ${origin.source}`]) : []),
    ...section("Operands", inputs.length ? [listed(inputs)] : []),
    ...section("Users", users.length ? [listed(users.slice(0, SHOWN))] : []),
    ...moduleCheck(origins.length ? origins[0].path : null),
  ];
}

function moduleCheck(path) {
  const found = DATA.verification && path !== null ? DATA.verification.modules.filter((each) => each.module === path) : [];
  return section("Numbers of this module", found.length ? [table(["value", "max abs error", "tolerance", ""],
    found.map(({ node, error }) => [`%${node}`, digits(error.max_abs), digits(error.tolerance), passed(error)]))] : []);
}

/** Show a module: in the graph that is shown if it has ops there, else in the first stage. */
function showModule(path) {
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

// ---- what a rule did -------------------------------------------------------------------------------

/** The rewrites of a rule whose results are in a stage: ops by place. */
function rewritesOf(stage, name) {
  return [...opsByPlace(stage)].filter(([place]) => textOf(DATA.places[place][0] ?? -1) === name && DATA.places[place][0] !== null);
}

/** Show what a rewrite consumed and produced, each in its stage. */
function showRewrite(stage, before, after) {
  compareWith(stage - 1);
  if (main.stage !== stage) main.goTo(stage);
  main.drawing.selected = null;
  other.mark(before);
  main.mark(after);
}

/** Why a rule rewrote nothing. */
function whyNot(name) {
  const miss = DATA.nearMisses.find(([rule]) => rule === name);
  return section("It rewrote nothing", [miss ? element("pre", {}, [miss[1]])
    : element("p", {}, [`program.why_not(${JSON.stringify(name)}) and patcomp why-not say where it came closest.`])]);
}

function showRule(name, stage = main.stage) {
  const fired = DATA.stages.findIndex((each) => each.rules.some((rule) => rule[0] === name));
  if (fired < 0) return at("details").replaceChildren(element("h2", {}, [`Rule ${name}`]), ...ruleDetails(name), ...whyNot(name));
  const shownAt = Math.max(DATA.stages[stage].rules.some((rule) => rule[0] === name) ? stage : fired, 1);
  const rewrites = rewritesOf(shownAt, name);
  const beforeOf = (place) => [...new Set(consumed(place).flatMap((part) => sourcesIn(shownAt - 1, part)))];
  if (rewrites.length) showRewrite(shownAt, beforeOf(rewrites[0][0]), rewrites[0][1]);
  const body = rewrites.slice(0, 50).map(([place, after], index) => {
    const before = beforeOf(place);
    const side = (title, ops) => element("div", {}, [element("h4", {}, [title]), listed([...ops].map((op) => [
      opLink(op), element("pre", { class: "ir" }, [op.text.trim()])]))]);
    const where = summary(place).origins[0];
    return element("details", index ? {} : { open: "" }, [
      element("summary", {}, [where ? `%${where.node} ${where.path}` : `rewrite ${index + 1}`]),
      element("div", { class: "sides" }, [side(`${DATA.stages[shownAt - 1].name}: consumed`, before), side(`${DATA.stages[shownAt].name}: produced`, after)]),
      link("Show in both stages", () => showRewrite(shownAt, before, after)),
    ]);
  });
  at("details").replaceChildren(
    element("h2", {}, [`Rule ${name}`]), ...ruleDetails(name),
    element("p", {}, [rewrites.length ? `${rewrites.length} ${rewrites.length > 1 ? "rewrites have" : "rewrite has"} results after ${DATA.stages[shownAt].name}.`
      : `No op after ${DATA.stages[shownAt].name} is a result of this rule; later rewrites replaced them.`]),
    ...body, rewrites.length > 50 ? `${rewrites.length - 50} more are not listed.` : "",
  );
}

// ---- lists -----------------------------------------------------------------------------------------

const cell = (content) => (content instanceof Node ? content : String(content));

function table(headings, rows) {
  const body = rows.slice(0, SHOWN).map((row) => element("tr", {}, row.map((each) => element("td", {}, [cell(each)]))));
  const rest = rows.length - SHOWN;
  if (rest > 0) body.push(element("tr", {}, [element("td", { colspan: headings.length }, [`${rest} more`])]));
  return element("table", {}, [
    element("thead", {}, [element("tr", {}, headings.map((heading) => element("th", {}, [heading])))]),
    element("tbody", {}, body),
  ]);
}

const digits = (number) => (typeof number === "number" ? number.toPrecision(3) : number);
const passed = (error) => element("span", { class: error.passed ? "good" : "bad" }, [error.passed ? "passed" : "FAILED"]);
const size = (bytes) => (bytes >= 1e6 ? `${(bytes / 1e6).toFixed(1)} MB` : bytes >= 1e3 ? `${(bytes / 1e3).toFixed(1)} kB` : `${bytes} B`);

function compression(report) {
  if (!report) return [];
  const rows = report.weights.map((each) => [each.name, each.kinds.join(", "), each.shape.join("x"), each.scheme || "-",
    size(each.before), size(each.after), each.psnr === null ? "-" : digits(each.psnr)]);
  const tried = report.alternatives;
  return [element("h3", {}, [`Compressed: ${size(report.before)} become ${size(report.after)}`]),
    ...(tried.length ? [element("p", {}, ["The rise of the loss on the text, by the size of the weights:"]), plot(tried)] : []),
    table(["weight", "read by", "shape", "scheme", "size", "becomes", "PSNR, dB"], rows),
    ...Object.entries(report.output_psnr).map(([name, psnr]) =>
      element("p", {}, [`Output ${name}: ${digits(psnr)} dB against the program before.`]))];
}

/** A point for each way to compress: the rise of the loss, logarithmic, over the size of the weights. */
function plot([before, ...tried]) {
  const [width, height, edge] = [420, 240, 36];
  const rises = tried.map((each) => Math.max(each.loss - before.loss, 1e-4));
  const low = Math.floor(Math.log10(Math.min(...rises))), high = Math.max(Math.ceil(Math.log10(Math.max(...rises))), low + 1);
  const largest = 1.25 * Math.max(...tried.map((each) => each.bytes));
  const x = (bytes) => edge + ((width - edge) * bytes) / largest;
  const y = (rise) => 8 + ((height - edge) * (high - Math.log10(rise))) / (high - low);
  const text = (at, words, more = {}) => drawn("text", { x: at[0], y: at[1], fill: "currentColor", "font-size": 11, ...more }, [words]);
  const line = (from, to) => drawn("line", { x1: from[0], y1: from[1], x2: to[0], y2: to[1], stroke: "currentColor", opacity: 0.25 });
  const powers = Array.from({ length: high - low + 1 }, (_, index) => 10 ** (low + index));
  return drawn("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", width: "100%" }, [
    ...powers.flatMap((power) => [line([edge, y(power)], [width, y(power)]), text([0, y(power) + 4], `+${power.toPrecision(1)}`)]),
    ...[0, largest / 2, largest].map((bytes) => text([x(bytes), height - 8], size(Math.round(bytes)), { "text-anchor": "middle" })),
    ...tried.flatMap((each, index) => [
      drawn("circle", { cx: x(each.bytes), cy: y(rises[index]), r: 4, fill: "currentColor" }, [
        drawn("title", {}, [`${each.name}: ${size(each.bytes)}, loss ${each.loss.toFixed(4)}`])]),
      text([x(each.bytes) + 7, y(rises[index]) + 4], each.name)]),
  ]);
}

const TABS = {
  rules: () => {
    const stage = DATA.stages[main.stage];
    const timed = stage.rules.some((rule) => rule[3] !== null);
    const rows = stage.rules.map(([name, tries, rewrites, seconds]) =>
      [link(name, () => showRule(name, main.stage)), rewrites, tries, ...(timed ? [`${(1000 * seconds).toFixed(1)} ms`] : [])]);
    rows.sort((a, b) => b[1] - a[1]);
    return [element("h3", {}, [`Rules of ${stage.name}`]), rows.length
      ? table(["rule", "rewrites", "tries", ...(timed ? ["time"] : [])], rows)
      : element("p", {}, ["No rules rewrote ops in this stage."])];
  },
  weights: () => {
    const total = DATA.weights.reduce((sum, weight) => sum + weight[2], 0);
    const types = new Map();
    for (const [, type, bytes] of DATA.weights) {
      const element_ = type.replace(/^.*x|tensor<|[>]/g, "");
      types.set(element_, (types.get(element_) || 0) + bytes);
    }
    return [element("h3", {}, [`${DATA.weights.length} weights, ${size(total)}`]),
      table(["element type", "size"], [...types].sort((a, b) => b[1] - a[1]).map(([type, bytes]) => [type, size(bytes)])),
      ...compression(DATA.compression),
      element("h3", {}, ["The largest"]),
      table(["weight", "type", "size", "uses"], DATA.weights.map(([key, type, bytes, uses]) => [key, type, size(bytes), uses]))];
  },
  composites: () => {
    const counts = new Map();
    for (const call of DATA.composites) counts.set(call[0], (counts.get(call[0]) || 0) + 1);
    return [element("h3", {}, [`${DATA.composites.length} calls of composites`]), table(["composite", "calls"], [...counts]),
      element("h3", {}, ["Calls"]), table(["composite", "rule", "place"], DATA.composites.map(([name, rule, place]) =>
        [name, rule ? link(rule, () => showRule(rule)) : "", place]))];
  },
  notes: () => [
    element("h3", {}, ["Warnings and overlaps"]),
    ...(DATA.notes.length ? [table(["kind", "what"], DATA.notes)] : [element("p", {}, ["None."])]),
    element("h3", {}, ["Composites that came close"]),
    ...(DATA.nearMisses.length ? DATA.nearMisses.flatMap(([name, answer]) => [link(name, () => showRule(name)), element("pre", {}, [answer])])
      : [element("p", {}, ["No rule that recovers composites matched half of its ops and then failed."])]),
  ],
  check: () => {
    const check = DATA.verification;
    if (!check) return [element("p", {}, ["The report was written without a check. Give one: program.html(path, verification=program.verify_against(model, inputs, by=\"module\"))."])];
    const row = (error) => [digits(error.max_abs), digits(error.tolerance), digits(error.max_rel), digits(error.psnr), passed(error)];
    const columns = ["max abs", "tolerance", "max rel", "PSNR", ""];
    return [element("h3", {}, [`Against eager PyTorch: ${check.passed ? "passed" : "FAILED"}`]),
      table(["output", "backend", ...columns], check.errors.map((error) => [error.name, error.backend, ...row(error)])),
      ...(check.departure ? [element("h3", {}, ["Where the numbers depart"]), table(["", ""], Object.entries(check.departure).filter(([, value]) => value))] : []),
      ...(check.modules.length ? [element("h3", {}, ["By module"]), table(["module", "value", ...columns],
        check.modules.map((each) => [each.module ? link(each.module, () => showModule(each.module)) : "(the model)", `%${each.node}`, ...row(each.error)]))] : [])];
  },
};

function panel() {
  at("tabs").replaceChildren(...Object.keys(TABS).map((name) => element("button", {
    role: "tab", "aria-selected": name === state.tab,
    onclick: () => { state.tab = name; at("search").value = ""; panel(); },
  }, [name[0].toUpperCase() + name.slice(1)])));
  at("panel").replaceChildren(...TABS[state.tab]());
}

function search(wanted) {
  if (!wanted) return panel();
  const low = wanted.toLowerCase();
  const rules = Object.keys(DATA.rules).filter((name) => name.includes(low));
  const known = new Map();
  const matchesPlace = (place) => {
    if (!known.has(place)) {
      const { rules, origins } = summary(place);
      known.set(place, [...rules, ...origins.flatMap((each) => [each.node, each.path, each.source])].some((text) => text.toLowerCase().includes(low)));
    }
    return known.get(place);
  };
  const ops = DATA.stages[main.stage].graphs.flatMap((_, graph) =>
    opsOf(main.stage, graph).filter((op) => op.label.toLowerCase().includes(low) || matchesPlace(op.place)));
  at("panel").replaceChildren(
    ...section(`${ops.length} ops of ${DATA.stages[main.stage].name}`, capped(ops, (op) => [opLink(op)])),
    ...section(`${rules.length} rules`, rules.length ? capped(rules, (name) => [link(name, () => showRule(name))]) : []));
}

at("search").addEventListener("input", (event) => search(event.target.value.trim()));
document.addEventListener("keydown", (event) => {
  if (/INPUT|SELECT/.test(event.target.tagName)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    event.preventDefault();
    at("search").focus();
  } else if (/^[1-9]$/.test(event.key) && Number(event.key) <= DATA.stages.length) main.goTo(Number(event.key) - 1);
  else if (event.key === "0") main.drawing.fit();
  else if (event.key === "c") toggleComparing();
});
window.addEventListener("resize", () => [main, ...(isComparing() ? [other] : [])].forEach((pane) => pane.drawing.fit()));

at("details").append(
  element("h2", {}, ["The program"]),
  ...DATA.entrypoints.map(({ name, signature }) => element("pre", {}, [`@${name}\n${signature}`])),
  element("p", {}, ["Click an op for its IR, the rule that made it, the ops before and its line of the model. Click + or press Enter to expand a module or composite."]),
);
main.goTo(DATA.stages.length - 1);
document.body.dataset.ready = performance.now().toFixed(0);
