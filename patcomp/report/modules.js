// The boxes of modules: which ops are in one.

/** The numbers of all ops that an op reads from, also inside it. */
const readsOf = (op) => [...op.inputs, ...op.inner.flatMap(readsOf)];

/** Put ops into a node, in the boxes of their modules. `depth` is the number of modules around.
 *
 * A module that is called several times gets a further box where its one box would read, by way of others, from itself:
 * an activation that a block shares would else be before and behind everything. */
function fillModules(root, ops, depth, leaves, around) {
  const itemOf = new Map(); // the item of each op
  const before = new Map(); // for each item, the boxes that it reads from, by way of others too
  const behind = new Map(); // for each box, the items that read from it
  const current = new Map(); // the last box of each module
  const inside = new Map(); // the ops of each box
  const add = (item, box) => {
    if (before.get(item).has(box)) return;
    before.get(item).add(box);
    behind.get(box).push(item);
  };
  for (const op of ops) {
    const path = pathOf(op), names = path ? path.split(".") : [];
    const sources = new Set(readsOf(op).map((number) => itemOf.get(number)).filter(Boolean));
    let item;
    if (names.length <= depth) {
      item = leafOf(op, root, leaves, around);
      before.set(item, new Set());
    } else {
      item = current.get(names[depth]);
      if (!item || [...sources].some((source) => source !== item && before.get(source).has(item))) {
        item = new TreeNode(names[depth], root, { path: names.slice(0, depth + 1).join(".") });
        root.items.push(item);
        current.set(names[depth], item);
        before.set(item, new Set());
        behind.set(item, []);
        inside.set(item, []);
      }
      inside.get(item).push(op);
    }
    itemOf.set(op.number, item);
    for (const source of sources) {
      if (source === item) continue;
      for (const box of [...before.get(source), ...(inside.has(source) ? [source] : [])]) {
        if (before.get(item).has(box)) continue;
        add(item, box);
        for (const later of behind.get(item) || []) add(later, box);
      }
    }
  }
  for (const [box, own] of inside) fillModules(box, own, depth + 1, leaves, around);
}

/** The node of an op, with the ops of its regions; what it calls is added when it is opened. */
function leafOf(op, parent, leaves, around) {
  const node = new TreeNode(op.name, parent, { op, kind: "op" });
  parent.items.push(node);
  leaves.set(op.number, node);
  for (const inner of op.inner) if (!inner.isConstant) leafOf(inner, node, leaves, around);
  if (!op.inner.length && op.calls && !around.has(op.calls)) {
    const called = DATA.stages[op.stage].graphs.findIndex((each) => each.name === op.calls);
    if (called >= 0) node.fill = () => fillGraph(node, op.stage, called, new Set([...around, op.calls]), leaves);
  }
  return node;
}
