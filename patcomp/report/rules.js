// What a rule did, and why it did nothing.

function ruleDetails(name) {
  const rule = DATA.rules[name];
  if (!rule) return [paragraph(element("b", {}, [name]), " (a step of the stage itself)")];
  return [
    paragraph(element("b", {}, [name]), ` · stage ${rule.stage} · ${rule.source}`),
    element("pre", { class: "doc" }, [rule.doc || "no description"]),
  ];
}

/** The rewrites of a rule whose results are in a stage: ops by place. */
function rewritesOf(stage, name) {
  return [...opsByPlace(stage)].filter(([place]) => textOf(DATA.places[place][0] ?? -1) === name && DATA.places[place][0] !== null);
}

/** Show what a rewrite consumed and produced, each in its stage. */
function showRewrite(stage, before, after) {
  showView("graph");
  if (main.stage !== stage) main.goTo(stage);
  if (!isNarrow()) {
    compareWith(stage - 1);
    other.mark(before);
  }
  main.drawing.selected = null;
  main.mark(after);
}

/** Why a rule rewrote nothing. */
function whyNot(name) {
  const miss = DATA.nearMisses.find(([rule]) => rule === name);
  return section("It rewrote nothing", [miss ? element("pre", {}, [miss[1]])
    : paragraph(`program.why_not(${JSON.stringify(name)}) and patcomp why-not say where it came closest.`)]);
}

/** How the program differs from the one without a rule that someone is writing. */
function watchedChange(name) {
  const found = DATA.watched.find(([rule]) => rule === name);
  if (!found) return [];
  const lines = found[1].split("\n").map((line) => element("span", { class: { "-": "removed", "+": "added", "~": "changed" }[line.trim()[0]] }, [`${line}\n`]));
  return section("The program with it, and without it", [element("pre", { class: "change" }, lines)]);
}

function showRule(name, stage = main.stage) {
  const fired = DATA.stages.findIndex((each) => each.rules.some((rule) => rule[0] === name));
  const head = [element("h2", {}, breakable(`Rule ${name}`)), ...ruleDetails(name)];
  if (fired < 0) return showDetails([...head, ...whyNot(name), ...watchedChange(name)]);
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
  showDetails([
    ...head,
    paragraph(rewrites.length ? `${counted(rewrites.length, "rewrite")} ${rewrites.length > 1 ? "have" : "has"} results after ${DATA.stages[shownAt].name}.`
      : `No op after ${DATA.stages[shownAt].name} is a result of this rule; later rewrites replaced them.`),
    ...watchedChange(name), ...body, rewrites.length > 50 ? `${rewrites.length - 50} more are not listed.` : "",
  ]);
}
