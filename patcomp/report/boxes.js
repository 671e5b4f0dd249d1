// The boxes of the graph: their texts, sizes and elements.

const SVG = "http://www.w3.org/2000/svg";
const FACTS = 46; // characters of a line of attributes
const LINES = 3; // lines of attributes
const TEXT_FROM = 0.3; // smaller texts cannot be read, so they are not drawn
const FACTS_FROM = 0.5;

function element(name, attributes = {}, children = [], namespace = null) {
  const made = namespace ? document.createElementNS(namespace, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...[].concat(children));
  return made;
}
const drawn = (name, attributes, children = []) => element(name, attributes, children, SVG);

const shorten = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

/** A type as a reader says it: `1x64x56x56 f32`. */
const plainType = (type) => type.replace(/tensor<((?:[\d?]+x)*)(\w+|complex<\w+>)[^>]*>/g, (_, sizes, kind) => `${sizes.slice(0, -1)} ${kind}`.trim());

const titleOf = (node) => (node.op ? nameOf(node.op) : node.label);
const nameOf = (op) => (op.calls ? `${compositeOf(op) || op.calls}` : op.shortName);

/** The composite that an op calls. */
function compositeOf(op) {
  return DATA.stages[op.stage].graphs.find((graph) => graph.name === op.calls)?.composite;
}

/** Facts in lines of a few words. */
function packed(facts) {
  const lines = [];
  for (const fact of facts) {
    const last = lines.length - 1;
    if (last >= 0 && lines[last].length + fact.length + 3 <= FACTS) lines[last] += ` · ${fact}`;
    else lines.push(shorten(fact, FACTS));
  }
  return lines.length > LINES ? [...lines.slice(0, LINES - 1), `… ${lines.length - LINES + 1} more`] : lines;
}

/** The lines of a node's box: its name, what it gives, its attributes. */
function lines(node) {
  if (node.lines) return node.lines;
  if (node.kind === "op") {
    const { op } = node;
    const second = [plainType(op.type), op.value && `%${op.value}`].filter(Boolean).join("  ");
    node.lines = [shorten(nameOf(op), 36), shorten(second, 44), ...packed(op.facts)];
  } else if (node.kind === "argument") {
    node.lines = [shorten(node.label, 36), shorten([plainType(node.type), node.fact && `= ${node.fact}`].filter(Boolean).join("  "), 44)];
  } else node.lines = [shorten(node.label, 40), `${node.count} ${node.count === 1 ? "op" : "ops"}`];
  return node.lines;
}

/** The size of the box of a node that is not expanded. */
function closedSize(node) {
  const [first, ...others] = lines(node);
  const sign = node.items.length || node.fill ? 24 : 0; // the sign + is left of the text
  const width = Math.max(64, 7.4 * first.length + 24 + 2 * sign, ...others.map((line) => 5.9 * line.length + 22));
  return { width, height: 24 + (others[0] ? 15 : 0) + 13 * Math.max(0, others.length - 1) + (others.length > 1 ? 3 : 0) };
}

/** The element of a node's box. */
function boxOf(drawing, item, x, y) {
  const { width, height } = item.spot;
  const isOpen = item.expanded && item.isGroup;
  const kind = item.kind === "op" ? `op ${item.op.kind}` : item.kind;
  const failed = item.kind === "module" && failedModules.has(item.path) ? " failed" : "";
  const flags = drawing.flags.get(item);
  const children = [drawn("rect", { class: "card", x, y, width, height, rx: item.kind === "op" ? 5 : 9 })];
  if (item.kind === "op" && !isOpen) children.push(drawn("path", { class: "stripe", d: `M${x + 5} ${y}h-1q-4 0-4 4v${height - 8}q0 4 4 4h1z` }));
  if (drawing.scale >= TEXT_FROM && isOpen) {
    children.push(drawn("text", { x: x + 27, y: y + 17, class: "title" }, [shorten(titleOf(item), 60)]));
  } else if (drawing.scale >= TEXT_FROM) {
    const [first, second, ...facts] = lines(item);
    children.push(drawn("text", { x: x + width / 2, y: y + 16, class: "first" }, [first]));
    if (second) children.push(drawn("text", { x: x + width / 2, y: y + 31, class: "second" }, [second]));
    const isReadable = drawing.scale >= FACTS_FROM;
    facts.forEach((fact, index) => isReadable && children.push(drawn("text", { x: x + width / 2, y: y + 46 + 13 * index, class: "fact" }, [fact])));
  }
  if (flags) {
    children.push(drawn("circle", { class: "flag", cx: x + width, cy: y, r: 8 }), drawn("text", { class: "count", x: x + width, y: y + 3.5 }, [flags > 99 ? "99+" : flags]));
  }
  if (item.isGroup) {
    children.push(drawn("g", {
      class: "toggle", role: "button", "aria-label": isOpen ? "Collapse" : "Expand",
      onclick: (event) => (event.stopPropagation(), drawing.toggle(item)),
    }, [drawn("rect", { x: x + 4, y: y + 4, width: 18, height: 18, rx: 4 }), drawn("text", { x: x + 13, y: y + 17.5 }, [isOpen ? "−" : "+"])]));
  }
  return drawn("g", {
    class: `node ${kind}${isOpen ? " open" : ""}${failed}${flags ? " flagged" : ""} ${(item.op && signOf(item.op)) || ""}`, tabindex: 0, role: "button",
    "aria-label": item.op ? item.op.label : item.path || item.label,
    onclick: (event) => (event.stopPropagation(), drawing.dragged || drawing.onSelect(item)),
    ondblclick: (event) => (event.stopPropagation(), item.isGroup && drawing.toggle(item)),
    onfocus: () => drawing.bringIntoSight(item),
    onkeydown: (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      drawing.onSelect(item);
      if (item.isGroup) drawing.toggle(item);
    },
  }, children);
}

const ROUND = 18; // pixels of an edge that are round before it turns

/** The line of an edge: straight, and round where it turns. */
function lineOf({ points }, x0, y0) {
  const at = ({ x, y }) => `${(x0 + x).toFixed(1)} ${(y0 + y).toFixed(1)}`;
  const towards = (from, to) => {
    const length = Math.hypot(to.x - from.x, to.y - from.y), share = Math.min(0.5, ROUND / (length || 1));
    return { x: from.x + (to.x - from.x) * share, y: from.y + (to.y - from.y) * share };
  };
  const last = points.length - 1;
  let line = `M${at(points[0])}`;
  for (let index = 1; index < last; index++) {
    const turn = points[index];
    line += `L${at(towards(turn, points[index - 1]))}Q${at(turn)} ${at(towards(turn, points[index + 1]))}`;
  }
  return `${line}L${at(points[last])}`;
}
