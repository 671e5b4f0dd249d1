// The page as a whole: stages, keys, the parts of a narrow screen, the address; and what is shown first.

const isNarrow = () => matchMedia("(max-width: 800px)").matches;

/** On a narrow screen one part is in sight: the view, the lists, or the details over the view. */
function showPart(name) {
  document.body.dataset.part = name;
  for (const button of at("parts").children) button.setAttribute("aria-pressed", button.dataset.part === name);
}

for (const button of at("parts").children) {
  button.addEventListener("click", () => {
    if (button.dataset.part === "details" && at("details").childElementCount < 2) showDetails(legend());
    showPart(button.dataset.part);
  });
}

/** Show the graph, or the map of bytes and work. */
function showView(name) {
  const isMap = name === "map";
  if (at("map").hidden === !isMap) return isNarrow() && showPart("view");
  at("map").hidden = !isMap;
  document.body.classList.toggle("mapped", isMap);
  pressView();
  if (isNarrow()) showPart("view");
  if (isMap) drawMap();
  else panes().forEach((pane) => pane.drawing.draw());
}

function pressView() {
  at("to-map").setAttribute("aria-pressed", !at("map").hidden);
  at("to-graph").setAttribute("aria-pressed", at("map").hidden);
}

function stageTabs() {
  at("stages").replaceChildren(...DATA.stages.map((stage, index) => {
    const delta = index && !DATA.difference ? stage.count - DATA.stages[index - 1].count : 0;
    const rewrites = total(stage.rules, (rule) => rule[2]);
    const notes = [delta ? `${delta > 0 ? "+" : "−"}${Math.abs(delta)}` : "", rewrites ? counted(rewrites, "rewrite") : ""];
    if (stage.seconds !== null) notes.push(`${stage.seconds.toFixed(2)} s`);
    return element("button", {
      role: "tab", "aria-selected": index === main.stage, onclick: () => (showView("graph"), main.goTo(index)), title: `Key ${index + 1}`,
    }, [element("b", {}, [stage.name]), element("span", {}, [counted(stage.count, "op")]), element("small", {}, [notes.filter(Boolean).join(", ")])]);
  }));
  at("stages").querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

main.onChange = () => {
  stageTabs();
  at("stage").textContent = DATA.stages[main.stage].name;
  if (state.tab === "rules" && !at("search").value) panel();
  flagFinding();
  putIntoAddress(null);
};

// ---- the address -----------------------------------------------------------------------------------

let isFollowing = true; // an address, which stays until the page shows what it names

/** The address of what is shown: `#stage/op`, `#stage/@graph/op` for another graph than the entry point, and
 * `#stage/module=path` for a module. An op whose name others have is a number. */
function putIntoAddress(node) {
  if (isFollowing) return;
  const parts = [DATA.stages[main.stage].name];
  if (main.graph !== entryOf(main.stage)) parts.push(`@${DATA.stages[main.stage].graphs[main.graph].name}`);
  if (node?.op) {
    const { op } = node;
    if (op.graph !== main.graph) parts.push(`@${DATA.stages[op.stage].graphs[op.graph].name}`);
    const isAlone = op.value && opsOf(op.stage, op.graph).filter((each) => each.value === op.value).length === 1;
    parts.push(isAlone && !/^\d+$/.test(op.value) ? op.value : op.number);
  } else if (node?.path) parts.push(`module=${node.path}`);
  history.replaceState(null, "", `#${parts.map((part) => encodeURIComponent(part).replace(/%(40|3D)/g, decodeURIComponent)).join("/")}`);
}

/** Show what the address names; false if it names nothing of this page. */
function followAddress() {
  isFollowing = false;
  const [name, ...parts] = location.hash.slice(1).split("/").map(decodeURIComponent);
  const stage = DATA.stages.findIndex((each) => each.name === name);
  if (stage < 0) return false;
  const graphs = DATA.stages[stage].graphs;
  const named = parts[0]?.startsWith("@") ? graphs.findIndex((each) => `@${each.name}` === parts.shift()) : entryOf(stage);
  const graph = named < 0 ? entryOf(stage) : named;
  isFollowing = true;
  if (main.stage !== stage || main.graph !== graph) main.goTo(stage, graph);
  const [wanted] = parts;
  if (wanted?.startsWith("module=")) showModule(wanted.slice(7));
  else if (wanted) {
    const op = /^\d+$/.test(wanted) ? opsOf(stage, graph)[Number(wanted)] : opsOf(stage, graph).find((each) => each.value === wanted);
    if (op) goToOp(op);
    else main.message.textContent = `${name} has no op ${wanted}`;
  }
  isFollowing = false;
  return true;
}

window.addEventListener("hashchange", followAddress);

// ---- keys and sizes ----------------------------------------------------------------------------------

document.addEventListener("keydown", (event) => {
  if (/INPUT|SELECT/.test(event.target.tagName)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    event.preventDefault();
    if (isNarrow()) showPart("side");
    at("search").focus();
  } else if (/^[1-9]$/.test(event.key) && Number(event.key) <= DATA.stages.length) showView("graph"), main.goTo(Number(event.key) - 1);
  else if (event.key === "0") main.drawing.fit();
  else if (event.key === "c") toggleComparing();
  else if (event.key === "m") showView(at("map").hidden ? "map" : "graph");
  else if (event.key === "?") showDetails(legend());
});
at("to-map").addEventListener("click", () => showView("map"));
at("to-graph").addEventListener("click", () => showView("graph"));

/** A drawing of another size keeps its middle. */
function resized({ drawing }) {
  const [width, height] = drawing.size || [0, 0], { clientWidth, clientHeight } = drawing.svg;
  if (!clientWidth || (clientWidth === width && clientHeight === height)) return;
  if (!width) return drawing.fit();
  drawing.x += (clientWidth - width) / 2;
  drawing.draw();
}

new ResizeObserver(() => {
  panes().forEach(resized);
  if (!at("map").hidden) drawMap();
}).observe(at("view"));

// ---- what is shown first -----------------------------------------------------------------------------

document.body.classList.toggle("difference", DATA.difference !== null);
main.goTo(LAST);
panel();
pressView();
showPart("view");
if (DATA.difference) {
  if (!isNarrow()) {
    main.goTo(1);
    compareWith(0);
  }
  const changed = DATA.difference.lines.map(opOf).filter(Boolean);
  if (changed.length) goToDifference(changed.find((op) => !op.isConstant) || changed[0]);
}
const isNamed = followAddress();
if (!isNamed && DATA.watched.length) showRule(DATA.watched[0][0]);
else if (!isNamed && !DATA.difference && FINAL.weights.length + FINAL.work.length) showView("map");
if (at("details").childElementCount < 2 && !isNarrow()) showDetails(at("map").hidden ? legend() : moduleDetails(""));
document.body.dataset.ready = performance.now().toFixed(0);
