// Where the bytes and the work are: weights, multiply-adds and tensors of the final program, or of two programs beside
// each other, by module, as treemaps.

const LAST = DATA.stages.length - 1;
const FIRST = LAST - DATA.costs.length + 1; // the stage of the first program that has costs
const FINAL = DATA.costs[DATA.costs.length - 1];
const [HEADING, PADDING, LEAST] = [15, 2, 5]; // pixels of a module's title and border; smaller boxes have nothing inside
const COLOURS = 7; // of kinds; further ones share the last

/** The module of a weight: that of the op that reads it, or else what its name says. */
const pathOfWeight = (key, op) => (op && pathOf(op)) || key.split(".").slice(0, -1).join(".");

/** What a program costs: rows of a module's path, a label, a kind, a value and an op, made when they are first read. */
class Cost {
  constructor(title, text, make) {
    Object.assign(this, { title, text, make });
  }
  get rows() {
    return (this.made ??= this.make());
  }
}

/** For each program, its weights, multiply-adds and tensors. */
const PROGRAMS = DATA.costs.map((costs, index) => [
  new Cost("Weights", size, () => costs.weights.map(([key, type, bytes, , reader]) => {
    const op = reader && opAt(reader, FIRST + index);
    return { path: pathOfWeight(key, op), label: `${key}  ${plainType(type)}`, kind: elementOf(type), value: bytes, op };
  })),
  new Cost("Multiply-adds", amount, () => costs.work.map(([place, kind, shapes, count]) => {
    const op = opAt(place, FIRST + index);
    return { path: pathOf(op), label: `${kind}  ${shapes}`, kind, value: count, op };
  })),
  new Cost("Tensors between ops", size, () => costs.memory.map(([place, bytes]) => {
    const op = opAt(place, FIRST + index);
    return { path: pathOf(op), label: `${nameOf(op)}  ${plainType(op.type)}`, kind: nameOf(op).replace("broadcasting_", ""), value: bytes, op };
  })),
]);

/** The rows as a tree of modules. */
function moduleTree(rows) {
  const root = { name: "the model", path: "", value: 0, modules: new Map(), rows: [] };
  for (const row of rows) {
    let at = root;
    at.value += row.value;
    for (const name of row.path ? row.path.split(".") : []) {
      if (!at.modules.has(name)) at.modules.set(name, { name, path: at.path ? `${at.path}.${name}` : name, value: 0, modules: new Map(), rows: [] });
      at = at.modules.get(name);
      at.value += row.value;
    }
    at.rows.push(row);
  }
  return root;
}

/** The squarified treemap of Bruls, Huizing and van Wijk: entries of `value`, best the largest first, as boxes that fill a
 * box; `inRows`, in the order in which one reads. */
function squarified(entries, { x, y, width, height }, inRows) {
  const boxes = [];
  const sum = total(entries, (entry) => entry.value);
  const scale = sum ? (width * height) / sum : 0;
  const worst = (row, area, side) => {
    const values = row.map((entry) => entry.value * scale);
    return Math.max((side * side * Math.max(...values)) / area ** 2, area ** 2 / (side * side * Math.min(...values)));
  };
  let start = 0;
  while (start < entries.length && width > 0 && height > 0) {
    const isColumn = width >= height && !inRows, side = isColumn ? height : width;
    let end = start + 1, area = entries[start].value * scale;
    while (end < entries.length) {
      const more = area + entries[end].value * scale;
      if (worst(entries.slice(start, end + 1), more, side) > worst(entries.slice(start, end), area, side)) break;
      area = more;
      end++;
    }
    const thick = area / side;
    let along = 0;
    for (const entry of entries.slice(start, end)) {
      const long = (entry.value * scale) / thick;
      boxes.push({ entry, ...(isColumn ? { x, y: y + along, width: thick, height: long } : { x: x + along, y, width: long, height: thick }) });
      along += long;
    }
    if (isColumn) (x += thick), (width -= thick);
    else (y += thick), (height -= thick);
    start = end;
  }
  return boxes;
}

/** Whether the modules of a module are a list, whose order is that of their numbers. */
const isList = ({ modules }) => modules.size > 1 && [...modules.keys()].every((name) => /^\d+$/.test(name));
const bySize = (a, b) => b.value - a.value;
const byNumber = (a, b) => parseInt(a.name ?? Infinity) - parseInt(b.name ?? Infinity) || bySize(a, b);

const map = { path: "" };

/** Draw the three treemaps of a module, for each program. */
function drawMap() {
  const steps = map.path ? map.path.split(".") : [];
  const crumbs = [link(DATA.difference ? "both programs" : "the model", () => zoomMap("")), ...steps.flatMap((name, index) => [" › ", link(name, () => zoomMap(steps.slice(0, index + 1).join(".")))])];
  const peaks = DATA.costs.flatMap((costs, index) => costs.peaks.map(([name, bytes, place]) => [
    `@${name}${DATA.difference ? ` of ${DATA.difference.names[index]}` : ""}: at most `, element("b", {}, [size(bytes)]), " of tensors are alive at once",
    ...(place ? [", at ", opLink(opAt(place, FIRST + index))] : []), ". "]));
  const places = PROGRAMS.map((costs) => costs.map(() => element("figure")));
  at("map").replaceChildren(
    element("nav", { class: "crumbs", "aria-label": "Module" }, crumbs),
    ...places.flatMap((figures, index) => [
      ...(DATA.difference ? [element("h3", {}, [DATA.difference.names[index]])] : []), element("div", { class: "maps" }, figures)]),
    element("p", { class: "faint" }, ["Click a module's title to see all three of it, a box to see its op. ", ...peaks.flat(),
      "Ops run in the order of the program here, and views share memory.", DATA.costs.some((costs) => costs.isOpen) ? " Dynamic sizes count as 1." : ""]));
  const fills = PROGRAMS.flatMap((costs, program) => costs.map((cost, index) => costIn(cost, places[program][index])));
  for (const fill of fills) fill(); // once all titles have their heights
}

/** Put the title of a cost into its place; return what draws its boxes. */
function costIn(cost, figure) {
  const rows = cost.rows.filter((row) => !map.path || row.path === map.path || row.path.startsWith(`${map.path}.`));
  const kinds = sums(rows, (row) => row.kind, (row) => row.value);
  const all = total(rows, (row) => row.value);
  const colour = new Map(sums(cost.rows, (row) => row.kind, (row) => row.value).map(([kind], index) => [kind, Math.min(index, COLOURS - 1)]));
  const area = element("div", { class: "area" });
  figure.append(
    element("figcaption", {}, [element("b", {}, [cost.title]), ` ${cost.text(all)}`]),
    element("div", { class: "kinds" }, kinds.slice(0, COLOURS).map(([kind, value]) => element("span", { title: `${kind}: ${cost.text(value)}` }, [
      element("i", { class: `c${colour.get(kind)}` }), `${kind} ${value / all < 0.005 ? "<1" : ((100 * value) / all).toFixed(0)} %`]))),
    area);
  if (!all) return () => area.append(element("p", { class: "faint" }, ["None here."]));
  let node = moduleTree(cost.rows);
  for (const name of map.path ? map.path.split(".") : []) node = node.modules.get(name);
  const flagged = new Map(); // for each graph, the ops with the finding that is shown
  const isFlagged = ({ op }) => {
    if (!state.finding || !op) return false;
    if (!flagged.has(op.graph)) flagged.set(op.graph, countsOf(state.finding, LAST, op.graph));
    return flagged.get(op.graph).has(op.number);
  };
  const fill = (at, box) => {
    const entries = [...at.modules.values(), ...at.rows].filter((entry) => entry.value).map(onlyInside).sort(isList(at) ? byNumber : bySize);
    for (const { entry, x, y, width, height } of squarified(entries, box, isList(at))) {
      const place = `left:${x.toFixed(1)}px;top:${y.toFixed(1)}px;width:${Math.max(1, width - 1).toFixed(1)}px;height:${Math.max(1, height - 1).toFixed(1)}px`;
      const share = `${cost.text(entry.value)}, ${((100 * entry.value) / all).toFixed(1)} %`;
      if (!entry.modules) {
        const words = width > 46 && height > 26 ? [element("span", {}, [entry.name || entry.label.split("  ")[0].split(".").pop()]), element("small", {}, [cost.text(entry.value)])] : [];
        area.append(element("button", { class: `box c${colour.get(entry.kind)}${isFlagged(entry) ? " flagged" : ""}`, style: place, title: `${entry.label}\n${entry.path}\n${share}`,
          onclick: () => entry.op && (select({ op: entry.op, sources: new Set() }, main)) }, words));
        continue;
      }
      if (width < LEAST || height < LEAST) {
        area.append(element("button", { class: "box module", style: place, title: `${entry.path}\n${share}`, onclick: () => zoomMap(entry.path) }));
        continue;
      }
      const hasTitle = width > 34 && height > 2.2 * HEADING;
      area.append(element("button", { class: "box module", style: place, title: `${entry.path}\n${share}`, onclick: () => zoomMap(entry.path) },
        hasTitle ? [element("span", {}, [entry.name, " ", element("small", {}, [cost.text(entry.value)])])] : []));
      const top = hasTitle ? HEADING : PADDING;
      fill(entry, { x: x + PADDING, y: y + top, width: width - 2 * PADDING - 1, height: height - top - PADDING - 1 });
    }
  };
  return () => fill(node, { x: 0, y: 0, width: area.clientWidth, height: area.clientHeight });
}

/** What is alone in a module, in its place, with the names of both. */
function onlyInside(entry) {
  let name = "";
  while (entry.modules && entry.modules.size + entry.rows.length === 1) {
    name = name ? `${name}.${entry.name}` : entry.name;
    entry = [...entry.modules.values(), ...entry.rows][0];
  }
  return name ? { ...entry, name: entry.modules ? `${name}.${entry.name}` : name } : entry;
}

function zoomMap(path) {
  map.path = path;
  drawMap();
  showDetails(moduleDetails(path));
}

/** What a module, or the model, costs; and the modules inside. */
function moduleDetails(path) {
  const inside = modulesInside(path, PROGRAMS.flatMap((costs) => [...costs].reverse().flatMap((cost) => cost.rows)));
  const row = (costs) => (each) => [link(path ? each.slice(path.length + 1) : each, () => zoomMap(each)),
    ...costs.map((cost) => cost.text(total(cost.rows.filter(isInside(each)), ({ value }) => value)))];
  return [
    element("h2", {}, breakable(path || (DATA.difference ? "Both programs" : "By module"))),
    ...(path ? [paragraph(link("Show it in the graph", () => showModule(path)))] : []),
    ...(path ? costsOfModule(path) : []),
    ...(inside.length ? PROGRAMS.flatMap((costs, index) => section(DATA.difference ? `Modules of ${DATA.difference.names[index]}` : path && "Modules",
      [table(["module", "#weights", "#multiply-adds", "#tensors"], inside.map(row(costs)))])) : []),
  ];
}

const isInside = (path) => (row) => !path || row.path === path || row.path.startsWith(`${path}.`);

/** The modules inside one, in the order of the program; instead of one with most of the rows, those inside it. */
function modulesInside(path, rows) {
  const within = rows.filter((row) => row.path !== path && isInside(path)(row));
  const depth = path ? path.split(".").length + 1 : 1;
  const counts = sums(within, (row) => row.path.split(".").slice(0, depth).join("."), () => 1, (found) => found);
  return counts.flatMap(([each, count]) => {
    const inner = count > within.length / 2 ? modulesInside(each, rows) : [];
    return inner.length ? inner : [each];
  });
}
