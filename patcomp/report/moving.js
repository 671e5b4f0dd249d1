// How a drawing moves: by wheel, mouse, fingers and keys.

const STEPS = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
const [SMALLEST, LARGEST] = [0.02, 4]; // scales

class Moving {
  constructor(svg) {
    Object.assign(this, { svg, x: 0, y: 0, scale: 1, pending: false, dragged: false });
    this.pointers = new Map(); // the places of the fingers, or of the mouse, by pointer
    this.listen();
  }

  zoom(factor, x, y) {
    const scale = Math.min(LARGEST, Math.max(SMALLEST, this.scale * factor));
    this.x = x - ((x - this.x) * scale) / this.scale;
    this.y = y - ((y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.move();
  }

  /** Follow `x`, `y` and `scale`; what comes into sight is drawn in the next frame. */
  move() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      const { x, y, width, height } = this.window(0);
      const { drawnArea: area, drawnScale } = this;
      const covered = area && x >= area.x && y >= area.y && x + width <= area.x + area.width && y + height <= area.y + area.height;
      if (!covered || Math.abs(Math.log(this.scale / drawnScale)) > 0.2) return this.draw();
      this.layer.setAttribute("transform", `translate(${this.x} ${this.y}) scale(${this.scale})`);
      this.onDraw();
    });
  }

  /** What the window shows of the tree, with a part of the window around it. */
  window(around) {
    const { clientWidth, clientHeight } = this.svg;
    const size = { width: (clientWidth * (1 + 2 * around)) / this.scale, height: (clientHeight * (1 + 2 * around)) / this.scale };
    return { x: -(this.x + clientWidth * around) / this.scale, y: -(this.y + clientHeight * around) / this.scale, ...size };
  }

  /** Two fingers zoom, one finger or the mouse moves. */
  follow(event) {
    const before = this.pointers.get(event.pointerId), box = this.svg.getBoundingClientRect();
    const now = { x: event.clientX - box.left, y: event.clientY - box.top };
    if (!before) return;
    const other = [...this.pointers].find(([pointer]) => pointer !== event.pointerId)?.[1];
    if (Math.hypot(now.x - before.startX, now.y - before.startY) > 4) this.dragged = true;
    if (other) {
      const apart = (point) => Math.hypot(point.x - other.x, point.y - other.y) || 1;
      this.zoom(apart(now) / apart(before), (now.x + other.x) / 2, (now.y + other.y) / 2);
    } else if (this.dragged) {
      this.x += now.x - before.x;
      this.y += now.y - before.y;
      this.move();
    }
    if (this.dragged || other) Object.assign(before, now);
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
      if (!this.pointers.size) this.dragged = false;
      const box = this.svg.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      this.pointers.set(event.pointerId, { x, y, startX: x, startY: y });
    });
    window.addEventListener("pointermove", (event) => this.follow(event));
    for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, (event) => this.pointers.delete(event.pointerId));
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
