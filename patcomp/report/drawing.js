// The drawing of a tree as SVG: only what is in sight, or close to it, has elements.

const SVG = "http://www.w3.org/2000/svg";
const AROUND = 0.5; // how much is drawn around the window, in windows
const OPEN_FROM = 24; // pixels; the inside of a lower box is not drawn
const TEXT_FROM = 0.3; // smaller texts cannot be read, so they are not drawn
const STEPS = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };

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

class Drawing {
  /** A drawing in an SVG element; `onSelect` is called with a node that the user clicks. */
  constructor(svg, onSelect) {
    Object.assign(this, { svg, onSelect, root: null, x: 0, y: 0, scale: 1, selected: null, focused: null, pending: false });
    this.layer = drawn("g", {});
    this.boxes = new Map(); // the element of each node that is drawn
    this.marked = new Set(); // nodes
    this.dragged = false;
    svg.append(this.layer);
    this.listen();
  }

  /** Show a tree and make it fit. */
  show(root) {
    this.root = root;
    this.marked.clear();
    this.fit();
  }

  fit() {
    const { width, height } = layOut(this.root);
    const { clientWidth, clientHeight } = this.svg;
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

  /** Expand what is around nodes, and move the drawing to them. */
  reveal(nodes) {
    for (const node of nodes) {
      for (let at = node.parent; at; at = at.parent) {
        if (at.expanded) continue;
        at.expanded = true;
        forget(at);
      }
    }
    layOut(this.root);
    const spots = nodes.map(placeOf);
    const x = Math.min(...spots.map((spot) => spot.x)), right = Math.max(...spots.map((spot) => spot.x + spot.width));
    const y = Math.min(...spots.map((spot) => spot.y)), bottom = Math.max(...spots.map((spot) => spot.y + spot.height));
    const { clientWidth, clientHeight } = this.svg;
    const wanted = Math.min(clientWidth / (right - x + 40), clientHeight / (bottom - y + 40), 1);
    this.scale = nodes.length > 1 ? Math.max(wanted, 0.35) : Math.max(this.scale, 0.7);
    const isLow = (bottom - y) * this.scale < clientHeight;
    this.x = clientWidth / 2 - ((x + right) / 2) * this.scale;
    this.y = isLow ? clientHeight / 2 - ((y + bottom) / 2) * this.scale : 20 - y * this.scale;
    this.draw();
  }

  zoom(factor, x, y) {
    const scale = Math.min(4, Math.max(0.02, this.scale * factor));
    this.x = x - ((x - this.x) * scale) / this.scale;
    this.y = y - ((y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.move();
  }

  /** Follow `x`, `y` and `scale`; what comes into sight is drawn in the next frame. */
  move() {
    this.layer.setAttribute("transform", `translate(${this.x} ${this.y}) scale(${this.scale})`);
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      const { x, y, width, height } = this.window(0);
      const { drawnArea: area, drawnScale } = this;
      const covered = x >= area.x && y >= area.y && x + width <= area.x + area.width && y + height <= area.y + area.height;
      if (!covered || Math.abs(Math.log(this.scale / drawnScale)) > 0.2) this.draw();
    });
  }

  /** What the window shows of the tree, with a part of the window around it. */
  window(around) {
    const { clientWidth, clientHeight } = this.svg;
    const size = { width: (clientWidth * (1 + 2 * around)) / this.scale, height: (clientHeight * (1 + 2 * around)) / this.scale };
    return { x: -(this.x + clientWidth * around) / this.scale, y: -(this.y + clientHeight * around) / this.scale, ...size };
  }

  draw() {
    this.drawnArea = this.window(AROUND);
    this.drawnScale = this.scale;
    const hadFocus = this.layer.contains(document.activeElement);
    this.boxes.clear();
    const parts = [];
    this.drawInside(this.root, 0, 0, parts);
    this.layer.setAttribute("transform", `translate(${this.x} ${this.y}) scale(${this.scale})`);
    this.layer.replaceChildren(...parts);
    this.mark();
    if (hadFocus) this.focus(this.focused);
  }

  drawInside(node, x0, y0, parts) {
    const { x, y, width, height } = this.drawnArea;
    const inSight = (spot) => x0 + spot.x < x + width && x0 + spot.x + spot.width > x && y0 + spot.y < y + height && y0 + spot.y + spot.height > y;
    for (const edge of layOut(node).edges.filter(inSight)) {
      const points = edge.points.map((point) => `${(x0 + point.x).toFixed(1)} ${(y0 + point.y).toFixed(1)}`);
      parts.push(drawn("path", { class: "edge", d: `M${points.join("L")}`, "marker-end": "url(#arrow)" }));
    }
    for (const item of node.items.filter(({ spot }) => inSight(spot))) {
      const box = this.box(item, x0 + item.spot.x, y0 + item.spot.y);
      this.boxes.set(item, box);
      parts.push(box);
      const isOpen = item.expanded && item.isGroup && item.spot.height * this.scale >= OPEN_FROM;
      if (isOpen) this.drawInside(item, x0 + item.spot.x, y0 + item.spot.y, parts);
    }
  }

  box(item, x, y) {
    const { width, height } = item.spot;
    const isOpen = item.expanded && item.isGroup;
    const kind = item.kind === "op" && (item.op.calls || item.op.inner.length) ? "op composite" : item.kind;
    const failed = item.kind === "module" && failedModules.has(item.path) ? " failed" : "";
    const title = item.op ? item.op.label : item.path || item.label;
    const children = [drawn("rect", { x, y, width, height, rx: item.kind === "op" ? 4 : 9 })];
    if (this.scale >= TEXT_FROM && isOpen) {
      children.push(drawn("text", { x: x + 26, y: y + 16, class: "title" }, [shorten(item.op ? item.op.label : item.label, 60)]));
    } else if (this.scale >= TEXT_FROM) {
      const [first, second] = lines(item);
      children.push(drawn("text", { x: x + width / 2, y: y + 16, class: "first" }, [first]));
      if (second) children.push(drawn("text", { x: x + width / 2, y: y + 31, class: "second" }, [second]));
    }
    if (item.isGroup) {
      children.push(drawn("g", {
        class: "toggle", role: "button", "aria-label": isOpen ? "Collapse" : "Expand",
        onclick: (event) => (event.stopPropagation(), this.toggle(item)),
      }, [drawn("rect", { x: x + 3, y: y + 3, width: 18, height: 18, rx: 4 }), drawn("text", { x: x + 12, y: y + 17 }, [isOpen ? "−" : "+"])]));
    }
    return drawn("g", {
      class: `node ${kind}${isOpen ? " open" : ""}${failed}`, tabindex: 0, role: "button", "aria-label": title,
      onclick: (event) => (event.stopPropagation(), this.dragged || this.onSelect(item)),
      ondblclick: (event) => (event.stopPropagation(), item.isGroup && this.toggle(item)),
      onfocus: () => this.bringIntoSight(item),
      onkeydown: (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        event.stopPropagation();
        this.onSelect(item);
        if (item.isGroup) this.toggle(item);
      },
    }, children);
  }

  mark() {
    for (const [item, box] of this.boxes) {
      box.classList.toggle("selected", item === this.selected);
      box.classList.toggle("marked", this.marked.has(item) && !(item.expanded && item.isGroup));
    }
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

  listen() {
    this.svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = this.svg.getBoundingClientRect();
      if (!event.shiftKey) return this.zoom(Math.exp(-event.deltaY / 400), event.clientX - box.left, event.clientY - box.top);
      this.x -= event.deltaY + event.deltaX;
      this.move();
    }, { passive: false });
    this.svg.addEventListener("pointerdown", (event) => {
      this.dragged = false;
      const start = { x: event.clientX - this.x, y: event.clientY - this.y, clientX: event.clientX, clientY: event.clientY };
      const drag = (now) => {
        if (Math.hypot(now.clientX - start.clientX, now.clientY - start.clientY) > 4) this.dragged = true;
        if (!this.dragged) return;
        this.x = now.clientX - start.x;
        this.y = now.clientY - start.y;
        this.move();
      };
      window.addEventListener("pointermove", drag);
      window.addEventListener("pointerup", () => window.removeEventListener("pointermove", drag), { once: true });
    });
    this.svg.addEventListener("keydown", (event) => {
      const { clientWidth, clientHeight } = this.svg;
      if (event.key in STEPS) {
        this.x += STEPS[event.key][0];
        this.y += STEPS[event.key][1];
        this.move();
      } else if (event.key === "+" || event.key === "=") this.zoom(1.25, clientWidth / 2, clientHeight / 2);
      else if (event.key === "-") this.zoom(0.8, clientWidth / 2, clientHeight / 2);
      else if (event.key === "0") this.fit();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }
}
