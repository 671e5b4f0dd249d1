// A small picture of the whole drawing, and of the part that the window shows.

const SMALLEST_BOX = 1.5; // pixels; lower boxes are not drawn

class Minimap {
  constructor(canvas, drawing) {
    Object.assign(this, { canvas, drawing, picture: null, of: null });
    drawing.onDraw = () => this.draw();
    const go = (event) => {
      if (!event.buttons) return;
      const box = canvas.getBoundingClientRect(), { clientWidth, clientHeight } = drawing.svg;
      drawing.x = clientWidth / 2 - ((event.clientX - box.left) / this.scale) * drawing.scale;
      drawing.y = clientHeight / 2 - ((event.clientY - box.top) / this.scale) * drawing.scale;
      drawing.move();
    };
    canvas.addEventListener("pointerdown", (event) => (canvas.setPointerCapture(event.pointerId), go(event)));
    canvas.addEventListener("pointermove", go);
  }

  draw() {
    const { drawing, canvas } = this;
    const { width, height } = layOut(drawing.root), view = drawing.window(0);
    const isWhole = view.x <= 1 && view.y <= 1 && view.x + view.width >= width - 1 && view.y + view.height >= height - 1;
    canvas.hidden = isWhole;
    if (isWhole) return;
    const most = canvas.parentElement.clientWidth < 500 ? [90, 150] : [150, 220];
    this.scale = Math.min(most[0] / width, most[1] / height);
    if (this.of !== drawing.root.layout) this.paint(width, height);
    const context = canvas.getContext("2d");
    const ratio = window.devicePixelRatio || 1;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(this.picture, 0, 0);
    context.scale(ratio * this.scale, ratio * this.scale);
    context.strokeStyle = this.colour("--accent");
    context.lineWidth = 2 / this.scale;
    const edge = context.lineWidth / 2;
    const [left, top] = [Math.max(edge, view.x), Math.max(edge, view.y)];
    const [right, bottom] = [Math.min(width - edge, view.x + view.width), Math.min(height - edge, view.y + view.height)];
    context.strokeRect(left, top, right - left, bottom - top);
  }

  /** Paint the boxes anew, after the layout changed. */
  paint(width, height) {
    this.of = this.drawing.root.layout;
    const { canvas } = this, ratio = window.devicePixelRatio || 1;
    const size = [Math.max(12, width * this.scale), Math.max(12, height * this.scale)];
    [canvas.width, canvas.height] = size.map((each) => Math.ceil(each * ratio));
    [canvas.style.width, canvas.style.height] = size.map((each) => `${Math.ceil(each)}px`);
    this.picture = document.createElement("canvas");
    [this.picture.width, this.picture.height] = [canvas.width, canvas.height];
    const context = this.picture.getContext("2d");
    context.scale(ratio * this.scale, ratio * this.scale);
    const colours = { module: this.colour("--module-line"), run: this.colour("--module-line"), argument: this.colour("--argument-line") };
    const other = this.colour("--faint");
    const inside = (node, x0, y0) => {
      for (const item of node.items) {
        const { x, y, width, height } = item.spot;
        if (height * this.scale < SMALLEST_BOX) continue;
        context.fillStyle = colours[item.kind] || other;
        context.globalAlpha = item.expanded ? 0.25 : 0.75;
        context.fillRect(x0 + x, y0 + y, width, height);
        if (item.expanded && item.isGroup) inside(item, x0 + x, y0 + y);
      }
    };
    inside(this.drawing.root, 0, 0);
  }

  colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name);
  }
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => panes().forEach((pane) => ((pane.minimap.of = null), pane.drawing.draw())));
