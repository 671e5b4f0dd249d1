// Two programs beside each other: what only one has, what takes other values, and which op is which.

const partners = [new Map(), new Map()]; // for each op of a program, as `graph/number`, the op of the other
const signs = new Map(); // for each op that differs, as `stage/graph/number`: added, removed or changed
const SIGNS = { "-": "removed", "+": "added", "~": "changed" };

for (const [first, second] of DATA.difference?.pairs || []) {
  partners[0].set(first.join("/"), second);
  partners[1].set(second.join("/"), first);
}
for (const [sign, , first, second] of DATA.difference?.lines || []) {
  [first, second].forEach((place, stage) => place && signs.set(`${stage}/${place.join("/")}`, SIGNS[sign]));
}

/** How an op differs from the other program; nothing if it does not. */
const signOf = (op) => signs.get(`${op.stage}/${op.graph}/${op.number}`);

/** The op of the other program that an op is. */
function partnersOf(op) {
  const place = partners[op.stage].get(`${op.graph}/${op.number}`);
  return place ? [opAt(place, 1 - op.stage)] : [];
}

function partnerDetails(op) {
  const found = partnersOf(op), name = DATA.difference.names[1 - op.stage];
  const changes = DATA.difference.lines.filter(([, , ...places]) => places[op.stage]?.join("/") === `${op.graph}/${op.number}`);
  return [
    ...section(`In ${name}`, found.length ? [listed(found.map((each) => [opLink(each)]))] : [paragraph("It has no such op.")]),
    ...section("Difference", changes.map(([sign, text]) => element("pre", { class: SIGNS[sign] }, [`${sign} ${text}`]))),
  ];
}

function differenceOverview() {
  const { names, totals, lines, weights } = DATA.difference;
  const shown = (kind, value) => ({ ops: String, "multiply-adds": amount }[kind] || size)(value);
  const change = (a, b) => (a === b ? "same" : !a ? "new" : b > 10 * a ? `${(b / a).toFixed(0)} times` : `${b > a ? "+" : ""}${(100 * (b / a - 1)).toFixed(1)} %`);
  const of = (sign) => lines.filter((line) => line[0] === sign);
  const entry = (line) => {
    const [sign, text] = line, op = opOf(line);
    const words = `${sign} ${shorten(text.replace(/coreai\.(decomposable\.)?/g, "").replace(/tensor<([^>]*)>/g, "$1").replace(/dense_resource<(.*?)>/g, "$1"), 150)}`;
    return [op ? link(words, () => goToDifference(op), text) : words];
  };
  const same = !lines.length && !weights.length;
  return [
    element("p", { class: `verdict ${same ? "passed" : "unknown"}` }, [element("b", {}, [same ? "The programs have the same structure" : `${counted(lines.length, "difference")}`]),
      same ? "" : ` ${of("-").length} removed, ${of("+").length} added, ${of("~").length} with other operands${weights.length ? `, ${counted(weights.length, "weight")} with other values` : ""}`]),
    table(["", `#${names[0]}`, `#${names[1]}`, "#"], Object.entries(totals[0]).map(([kind, value]) =>
      [kind, shown(kind, value), shown(kind, totals[1][kind]), change(value, totals[1][kind])])),
    ...Object.keys(SIGNS).flatMap((sign) => section({ "-": `Only in ${names[0]}`, "+": `Only in ${names[1]}`, "~": "Other operands" }[sign],
      of(sign).length ? capped(of(sign), entry).map((part) => (part.classList.add(SIGNS[sign]), part)) : [])),
    ...section("Weights with other values", weights.length ? capped(weights, (name) => [name]) : []),
  ];
}

/** Show an op in its own pane, and its partner, or what is around, in the other. */
function goToDifference(op) {
  showView("graph");
  const pane = isComparing() && op.stage === other.stage ? other : main;
  if (op.stage !== pane.stage || op.graph !== pane.graph) pane.goTo(op.stage, op.graph);
  const [node] = pane.nodesOf([op]);
  if (node) pane.drawing.reveal([node]);
  const opposite = pane === main ? other : main;
  if (isComparing() && node) {
    showLike(opposite.drawing, viewOf(pane.drawing));
    const [, around] = moduleAround(opposite.drawing.root, pathOf(op));
    if (around) opposite.drawing.reveal([around]);
  }
  select(node && !op.isConstant ? node : { op, sources: new Set() }, pane);
}

/** The op of a difference: in the second program if it has one. */
const opOf = ([, , first, second]) => (second ? opAt(second, 1) : first ? opAt(first, 0) : null);

/** Draw on a pane how many ops differ in each box. */
function flagDifferences(pane) {
  const graphs = new Map();
  for (const place of signs.keys()) {
    const [stage, graph, number] = place.split("/").map(Number);
    if (stage === pane.stage && number >= 0) addTo(graphs, graph, number);
  }
  pane.drawing.flag(nodesWith({ ops: [...graphs].map(([graph, numbers]) => [graph, [...numbers]]) }, pane));
}
