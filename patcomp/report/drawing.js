// The drawing of a tree as SVG: only what is in sight, or close to it, has elements.

const AROUND = 0.5; // how much is drawn around the window, in windows
const OPEN_FROM = 24; // pixels; the inside of a lower box is not drawn

class Drawing extends Moving {
  /** A drawing in an SVG element; `onSelect` is called with a node that the user clicks. */
  constructor(svg, onSelect) {
    super(svg);
    Object.assign(this, { onSelect, root: null, selected: null, focused: null });
    this.layer = drawn("g", {});
    this.boxes = new Map(); // the element of each node that is drawn
    this.marked = new Set(); // nodes
    this.flags = new Map(); // how many findings there are in a node
    svg.append(this.layer);
  }

  fit() {
    const { width, height } = layOut(this.root);
    const { clientWidth, clientHeight } = this.svg;
    if (!clientWidth || !clientHeight) return;
    this.scale = Math.max(Math.min(clientWidth / width, clientHeight / height, 1), Math.min(0.6, clientWidth / width), 0.02);
    this.x = (clientWidth - width * this.scale) / 2;
    this.y = Math.max(0, (clientHeight - height * this.scale) / 2);
    this.draw();
  }

  /** Expand or collapse a node; it stays where it is on the screen. */
  toggle(node) {
    const started = performance.now();
    const before = placeOf(node);
    node.expanded = !node.expanded;
    forget(node);
    layOut(this.root);
    const after = placeOf(node);
    this.x += (before.x + before.width / 2 - after.x - after.width / 2) * this.scale;
    this.y += (before.y - after.y) * this.scale;
    this.draw();
    this.focus(node);
    document.body.dataset.toggled = (performance.now() - started).toFixed(1);
  }

  /** Expand what is around nodes. */
  open(nodes) {
    for (const node of nodes) {
      for (let at = node.parent; at; at = at.parent) {
        if (at.expanded) continue;
        at.expanded = true;
        forget(at);
      }
    }
    layOut(this.root);
  }

  /** Expand what is around nodes, and move the drawing to them. */
  reveal(nodes) {
    this.open(nodes);
    const spots = nodes.map(placeOf);
    const x = Math.min(...spots.map((spot) => spot.x)), right = Math.max(...spots.map((spot) => spot.x + spot.width));
    const y = Math.min(...spots.map((spot) => spot.y)), bottom = Math.max(...spots.map((spot) => spot.y + spot.height));
    const { clientWidth, clientHeight } = this.svg;
    const wanted = Math.min(clientWidth / (right - x + 40), clientHeight / (bottom - y + 40), 1);
    this.scale = nodes.length > 1 ? Math.max(wanted, 0.35) : Math.max(this.scale, Math.min(0.9, Math.max(wanted, 0.35)));
    const isLow = (bottom - y) * this.scale < clientHeight;
    this.x = clientWidth / 2 - ((x + right) / 2) * this.scale;
    this.y = isLow ? clientHeight / 2 - ((y + bottom) / 2) * this.scale : 20 - y * this.scale;
    this.draw();
  }

  /** Move what is selected above something that covers the lower pixels of the window. */
  lift(covered) {
    const spot = this.selected?.spot && placeOf(this.selected);
    if (!spot) return;
    const free = this.svg.clientHeight - covered, bottom = this.y + (spot.y + spot.height) * this.scale;
    if (bottom < free) return;
    this.y -= bottom - Math.max(free / 2, 30);
    this.draw();
  }

  draw() {
    if (!this.root) return;
    this.drawnArea = this.window(AROUND);
    this.drawnScale = this.scale;
    this.size = [this.svg.clientWidth, this.svg.clientHeight];
    const hadFocus = this.layer.contains(document.activeElement);
    this.boxes.clear();
    this.lines = [];
    const parts = [];
    this.drawInside(this.root, 0, 0, parts);
    this.layer.setAttribute("transform", `translate(${this.x} ${this.y}) scale(${this.scale})`);
    this.layer.replaceChildren(...parts);
    this.mark();
    if (hadFocus) this.focus(this.focused);
    this.onDraw();
  }

  onDraw() {}

  drawInside(node, x0, y0, parts) {
    const { x, y, width, height } = this.drawnArea;
    const inSight = (spot) => x0 + spot.x < x + width && x0 + spot.x + spot.width > x && y0 + spot.y < y + height && y0 + spot.y + spot.height > y;
    for (const edge of layOut(node).edges) {
      if (!inSight(edge)) continue;
      const line = drawn("path", { class: edge.isPort ? "edge" : "edge arrow", d: lineOf(edge, x0, y0) });
      this.lines.push([edge, line, x0, y0]);
      parts.push(line);
    }
    for (const item of node.items) {
      if (!inSight(item.spot)) continue;
      const box = boxOf(this, item, x0 + item.spot.x, y0 + item.spot.y);
      this.boxes.set(item, box);
      parts.push(box);
      const isOpen = item.expanded && item.isGroup && item.spot.height * this.scale >= OPEN_FROM;
      if (!isOpen) continue;
      this.drawInside(item, x0 + item.spot.x, y0 + item.spot.y, parts);
      for (const [ports, y] of [[layOut(item).ins, 0], [layOut(item).outs, item.spot.height]]) {
        for (const x of ports.values()) parts.push(drawn("circle", { class: "port", cx: x0 + item.spot.x + x, cy: y0 + item.spot.y + y, r: 2.5 }));
      }
    }
  }

  /** Show what is selected and marked, with the edges of the selected op and the names of its operands. */
  mark() {
    for (const [item, box] of this.boxes) {
      box.classList.toggle("selected", item === this.selected);
      box.classList.toggle("marked", this.marked.has(item) && !(item.expanded && item.isGroup));
    }
    this.layer.querySelectorAll(".operand").forEach((label) => label.remove());
    const { selected } = this;
    const around = new Set();
    for (let at = selected; at; at = at.parent) around.add(at);
    for (const [edge, line, x0, y0] of this.lines) {
      const isInput = selected && around.has(edge.to) && [...edge.sources].some((source) => selected.sources.has(source));
      line.classList.toggle("input", Boolean(isInput));
      line.classList.toggle("output", edge.sources.has(selected));
      if (selected?.op && edge.to === selected && isInput && this.scale >= TEXT_FROM) this.layer.append(this.operandLabel(edge, x0, y0));
    }
  }

  /** The name of the operand at the end of an edge. */
  operandLabel({ sources, points }, x0, y0) {
    const end = points[points.length - 1], { op } = this.selected, [source] = sources;
    const names = op.inputs.flatMap((input, index) => (input === numberOf(source) ? [op.takes[index]] : []));
    return drawn("text", { class: "operand", x: x0 + end.x + 4, y: y0 + end.y - 6 }, [names.filter(Boolean).join(", ")]);
  }

  /** Draw findings: how many there are in each node, also in what is around it. */
  flag(counts) {
    this.flags = new Map();
    for (const [node, count] of counts) {
      for (let at = node; at; at = at.parent) this.flags.set(at, (this.flags.get(at) || 0) + count);
    }
    this.draw();
  }

  focus(node) {
    this.boxes.get(node)?.focus({ preventScroll: true });
  }

  /** Move the drawing to a node that gets the focus while it is outside the window, as by the key Tab. */
  bringIntoSight(node) {
    this.focused = node;
    const spot = placeOf(node), { x, y, width, height } = this.window(0);
    if (spot.x < x + width && spot.x + spot.width > x && spot.y < y + height && spot.y + spot.height > y) return;
    this.x -= (spot.x - x + Math.min(spot.width - width, 0) / 2) * this.scale;
    this.y -= (spot.y - y + Math.min(spot.height - height, 0) / 2) * this.scale;
    this.move();
  }
}
