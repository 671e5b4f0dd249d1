// The search: modules, ops, weights and rules, each with its shape or size.

const FOUND = 40; // entries of each group

function search(wanted) {
  if (!wanted) return panel();
  const low = wanted.toLowerCase();
  const has = (...texts) => texts.some((text) => text && text.toLowerCase().includes(low));
  const line = (label, note, act, title) => [element("button", { class: "found", onclick: act, title }, [element("span", {}, breakable(label)), element("small", {}, [note])])];
  const ops = [], modules = new Map();
  const known = new Map(); // whether a node or line of a place matches
  const matches = (place) => {
    if (!known.has(place)) {
      const { origins } = summary(place);
      for (const { path } of origins.slice(0, 1)) {
        if (has(path) && !modules.has(path)) modules.set(path, 0);
      }
      known.set(place, { own: origins.some((each) => has(each.node, each.source)), path: origins[0]?.path });
    }
    return known.get(place);
  };
  DATA.stages[main.stage].graphs.forEach((graph, index) => {
    for (const op of opsOf(main.stage, index)) {
      if (op.isConstant) continue;
      const { own, path } = matches(op.place);
      if (modules.has(path)) modules.set(path, modules.get(path) + 1);
      if (own || has(op.label, op.calls && compositeOf(op))) ops.push(op);
    }
  });
  const named = (op) => has(op.label) ? 0 : 1;
  ops.sort((a, b) => named(a) - named(b));
  const weights = FINAL.weights.filter(([key]) => has(key));
  const rules = Object.keys(DATA.rules).filter((name) => has(name));
  const groups = [
    [counted(modules.size, "module"), [...modules], ([path, count]) => line(path, counted(count, "op"), () => showModule(path))],
    [`${counted(ops.length, "op")} of ${DATA.stages[main.stage].name}`, ops, (op) =>
      line(`${op.value ? `%${op.value}  ` : ""}${nameOf(op)}`, plainType(op.type), () => goToOp(op), op.text)],
    [counted(weights.length, "weight"), weights, ([key, type, bytes, , reader]) =>
      line(key, `${plainType(type)}  ${size(bytes)}`, () => reader && goToOp(opAt(reader)))],
    [counted(rules.length, "rule"), rules, (name) => line(name, DATA.rules[name].stage, () => showRule(name))],
  ];
  const found = groups.flatMap(([title, entries, make]) => section(title, entries.length ? capped(entries, make, FOUND) : []));
  at("panel").replaceChildren(...(found.length ? found : [paragraph(`Nothing is called ${wanted} in ${DATA.stages[main.stage].name}.`)]));
}

at("search").addEventListener("input", (event) => search(event.target.value.trim()));
