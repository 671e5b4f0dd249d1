// The lists on the left: a summary, the rules of a stage, weights, composites, the audit, notes, the check.

const state = { tab: "summary", finding: null };

const card = (value, words, act, kind = "") => element(act ? "button" : "div", { class: `figure ${kind}`, onclick: act }, [element("b", {}, [value]), element("span", {}, [words])]);

/** What the check with PyTorch says, in one sentence. */
function verdict() {
  const check = DATA.verification;
  if (!check) return element("p", { class: "verdict unknown" }, [element("b", {}, ["Not compared with PyTorch"]), " The report was written without a check."]);
  const worst = check.errors.reduce((most, error) => (error.max_abs > most.max_abs ? error : most), check.errors[0]);
  return element("button", { class: `verdict ${check.passed ? "passed" : "failed"}`, onclick: () => showTab("check") }, [
    element("b", {}, [check.passed ? "✓ The numbers are PyTorch's" : "✗ The numbers differ from PyTorch's"]),
    worst ? ` largest difference ${digits(worst.max_abs)}, ${digits(worst.tolerance)} allowed (${worst.name})` : "",
  ]);
}

function overview() {
  const last = DATA.stages[LAST];
  const peak = Math.max(0, ...FINAL.peaks.map(([, bytes]) => bytes));
  const types = sums(FINAL.weights, (weight) => elementOf(weight[1]), (weight) => weight[2]);
  const toMap = () => showView("map");
  const warnings = DATA.notes.filter(([kind]) => kind === "warning").length;
  return [
    verdict(),
    element("div", { class: "figures" }, [
      card(size(total(FINAL.weights, (weight) => weight[2])), `weights, ${types.map(([type]) => type).join(", ") || "none"}`, toMap),
      card(amount(total(FINAL.work, (row) => row[3])), "multiply-adds", toMap),
      card(size(peak), "tensors, at most", toMap),
      card(last.count, "ops", () => showView("graph")),
      ...(DATA.composites.length ? [card(DATA.composites.length, "composites", () => showTab("composites"))] : []),
      ...(warnings ? [card(warnings, warnings > 1 ? "warnings" : "warning", () => showTab("notes"), "warned")] : []),
    ]),
    paragraph(link("Where the bytes and the work are", toMap)),
    ...(DATA.compression ? [paragraph(`Compressed: ${size(DATA.compression.before)} of weights became ${size(DATA.compression.after)}. `, link("Weights", () => showTab("weights")))] : []),
    ...DATA.entrypoints.flatMap(({ name, signature }) => [element("h3", {}, [`Entry point @${name}`]), element("pre", {}, [signature])]),
    ...section("Stages", [table(["stage", "#ops", "#rewrites"], DATA.stages.map((stage, index) =>
      [link(stage.name, () => main.goTo(index)), stage.count, total(stage.rules, (rule) => rule[2])]))]),
  ];
}

function compression(report) {
  if (!report) return [];
  const rows = report.weights.map((each) => [each.name, each.scheme || "-", size(each.before), size(each.after),
    each.signal === null ? "-" : digits(each.signal), each.kinds.join(", "), each.shape.join("x")]);
  const tried = report.alternatives;
  return [element("h3", {}, [`Compressed: ${size(report.before)} become ${size(report.after)}`]),
    ...(tried.length ? [paragraph("The rise of the loss on the text, by the size of the weights:"), plot(tried)] : []),
    table(["weight", "scheme", "#size", "#becomes", "#signal, dB", "read by", "shape"], rows),
    paragraph(report.measure === "outputs" ? "Signal: of the outputs for the examples, if this weight alone is compressed."
      : "Signal: of the weight's own channels, which need not be that of the outputs."),
    ...Object.entries(report.output_psnr).map(([name, psnr]) =>
      paragraph(`Output ${name}: ${digits(psnr)} dB against the program before.`))];
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

// ---- the audit -------------------------------------------------------------------------------------

/** How often ops of a graph have a finding, by number; an op that calls a graph has the findings in it. */
function countsOf(finding, stage, graph) {
  const flagged = new Map(finding.ops);
  const { graphs } = DATA.stages[stage];
  const counts = new Map((flagged.get(graph) || []).map((number) => [number, 1]));
  for (const op of opsOf(stage, graph)) {
    const inside = op.calls ? flagged.get(graphs.findIndex((each) => each.name === op.calls)) : null;
    if (inside) counts.set(op.number, (counts.get(op.number) || 0) + inside.length);
  }
  return counts;
}

/** The same for the nodes of a pane. */
function nodesWith(finding, pane) {
  const { leaves } = pane.drawing.root;
  const counts = [...countsOf(finding, pane.stage, pane.graph)].map(([number, count]) => [leaves.get(number), count]);
  return new Map(counts.filter(([node]) => node));
}

const FEW = 12; // ops of a finding that are all brought into sight

/** Draw a finding of an audit on the graph and the treemaps of the final program, or none. */
function showFinding(finding) {
  state.finding = state.finding === finding ? null : finding;
  if (!at("map").hidden) drawMap();
  if (main.stage !== LAST) main.goTo(LAST);
  else flagFinding();
  panel();
  if (state.finding && isNarrow()) showPart("view");
}

function flagFinding() {
  if (DATA.difference) return flagDifferences(main);
  const shown = state.finding && main.stage === LAST ? nodesWith(state.finding, main) : new Map();
  main.drawing.flag(shown);
  if (shown.size && shown.size <= FEW) main.drawing.reveal([...shown.keys()]);
  if (state.finding && main.stage === LAST) main.message.textContent = `${state.finding.what}: ${state.finding.count}`;
}

function auditOf({ target, clean, findings, estimates }) {
  const head = findings.length === 0 ? "nothing to mend" : clean ? "takes the program" : counted(findings.filter((each) => !each.is_advice).length, "problem");
  return element("details", target === DATA.target || DATA.target === "" ? { open: "" } : {}, [
    element("summary", {}, [element("b", {}, [target]), ` ${head}`]),
    ...findings.map((finding) => element("div", { class: "finding" }, [
      element("button", { class: `link ${finding.is_advice ? "" : "bad"}`, "aria-pressed": state.finding === finding, onclick: () => showFinding(finding), disabled: finding.ops.length ? null : "" }, [
        `${finding.is_advice ? "advice: " : ""}${finding.what} (${finding.count})`]),
      ...(finding.mended_by.length ? [element("div", { class: "faint" }, [`see ${finding.mended_by.join(", ")}`])] : []),
      ...finding.places.slice(0, 1).map((place) => element("div", { class: "faint" }, breakable(shorten(place.replace(/\s+/g, " "), 110)))),
      ...finding.sources.map((address) => element("div", { class: "faint" }, [element("a", { href: address }, breakable(address.replace("https://", "")))])),
    ])),
    ...estimates.map((each) => element("div", { class: "finding faint" }, breakable(`estimate: ${each}`))),
  ]);
}

/** The findings of audits about an op, for its details. */
function findingsOf(op) {
  if (op.stage !== LAST) return [];
  const has = (finding) => finding.ops.some(([graph, numbers]) => graph === op.graph && numbers.includes(op.number));
  const rows = DATA.audits.flatMap(({ target, findings }) => findings.filter(has).map((finding) => [target, finding.what]));
  return section("Audit", rows.length ? [table(["target", "finding"], rows)] : []);
}

// ---- the tabs --------------------------------------------------------------------------------------

const TABS = {
  summary: () => (DATA.difference ? differenceOverview() : overview()),
  rules: () => {
    const stage = DATA.stages[main.stage];
    const timed = stage.rules.some((rule) => rule[3] !== null);
    const rows = stage.rules.map(([name, tries, rewrites, seconds]) =>
      [link(name, () => showRule(name, main.stage)), rewrites, tries, ...(timed ? [`${(1000 * seconds).toFixed(1)} ms`] : [])]);
    rows.sort((a, b) => b[1] - a[1]);
    return [element("h3", {}, [`Rules of ${stage.name}`]), rows.length
      ? table(["rule", "#rewrites", "#tries", ...(timed ? ["#time"] : [])], rows)
      : paragraph("No rules rewrote ops in this stage.")];
  },
  weights: () => {
    const { weights } = FINAL;
    const rows = weights.map(([key, type, bytes, uses, reader]) =>
      [reader ? link(key, () => goToOp(opAt(reader))) : key, plainType(type), size(bytes), ...(uses > 1 ? [`read ${uses} times`] : [""])]);
    return [element("h3", {}, [`${counted(weights.length, "weight")}, ${size(total(weights, (weight) => weight[2]))}`]),
      table(["element type", "#size"], sums(weights, (weight) => elementOf(weight[1]), (weight) => weight[2]).map(([type, bytes]) => [type, size(bytes)])),
      ...compression(DATA.compression),
      element("h3", {}, ["The largest"]),
      table(["weight", "type", "#size", ""], rows)];
  },
  composites: () => {
    const counts = sums(DATA.composites, ([name]) => name, () => 1);
    return [element("h3", {}, [counted(DATA.composites.length, "call") + " of composites"]), table(["composite", "#calls"], counts),
      element("h3", {}, ["Calls"]), table(["composite", "rule", "place"], DATA.composites.map(([name, rule, place]) =>
        [name, rule ? link(rule, () => showRule(rule)) : "", place]))];
  },
  audit: () => [element("h3", {}, ["What does not suit a device"]), paragraph("Click a finding to see its ops in the graph, and in the treemaps."), ...DATA.audits.map(auditOf)],
  notes: () => [
    ...section("Warnings and overlaps", DATA.notes.map(([kind, what]) => element("div", { class: "note" }, [element("b", {}, [kind]), ` ${what}`]))),
    ...section("Composites that came close", DATA.nearMisses.flatMap(([name, answer]) => [link(name, () => showRule(name)), element("pre", {}, [answer])])),
    ...(DATA.notes.length + DATA.nearMisses.length ? [] : [paragraph("The conversion has no warnings, and no composite was almost found.")]),
  ],
  check: () => {
    const check = DATA.verification;
    if (!check) return [paragraph("The report was written without a check. Give one: program.html(path, verification=program.verify_against(model, inputs, by=\"module\")), or patcomp convert --verify --html.")];
    const row = (error) => [digits(error.max_abs), digits(error.tolerance), passed(error)];
    return [verdict(),
      table(["output", "backend", "#difference", "#allowed", ""], check.errors.map((error) => [error.name, error.backend, ...row(error)])),
      ...(check.departure ? [element("h3", {}, ["Where the numbers depart"]), table(["", ""], Object.entries(check.departure).filter(([, value]) => value))] : []),
      ...(check.modules.length ? [element("h3", {}, ["By module"]), table(["module", "#difference", "#allowed", ""],
        check.modules.map((each) => [each.module ? link(each.module, () => showModule(each.module)) : "(the model)", ...row(each.error)]))] : []),
      element("h3", {}, ["Relative, and as a signal"]),
      table(["output", "#relative", "#PSNR, dB"], check.errors.map((error) => [error.name, digits(error.max_rel), digits(error.psnr)]))];
  },
};

/** The tabs that have something to show. */
const tabs = () => Object.keys(TABS).filter((name) => ({ composites: DATA.composites.length, audit: DATA.audits.length,
  rules: !DATA.difference && DATA.stages.length > 1, notes: !DATA.difference, check: !DATA.difference }[name] ?? true));

function showTab(name) {
  state.tab = name;
  at("search").value = "";
  panel();
  if (isNarrow()) showPart("side");
}

function panel() {
  at("tabs").replaceChildren(...tabs().map((name) => element("button", {
    role: "tab", "aria-selected": name === state.tab, onclick: () => showTab(name),
  }, [name[0].toUpperCase() + name.slice(1)])));
  at("panel").replaceChildren(...TABS[state.tab]());
}
