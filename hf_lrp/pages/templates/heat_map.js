// All shares at once: a row per step, a column per input; as large as the window, never larger.

const MAP_FONT = "system-ui, 'Noto Sans', 'Noto Sans CJK SC', 'Noto Sans Arabic', sans-serif";
const GAP = 8; // between source and prefix
const TALL = 1100; // pixels of a map in a frame, which grows with it

class HeatMap {
  /**
   * @param level names of rows and columns
   * @param value gives the share of (row, input), null where there is none
   * @param kinds colours of source, prefix and negative numbers
   */
  constructor(level, scale, value, kinds, choose) {
    Object.assign(this, { level, scale, value, kinds, choose });
    this.columns = level.width + level.known;
    this.cursor = null;
    this.canvas = make("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", "Heat map of all shares; arrow keys move, the share is said below");
    this.readout = make("p", "readout");
    this.readout.setAttribute("aria-live", "polite");
    this.unnamed = make("p", "detail");
    this.element = make("div", "map", this.canvas, this.readout, this.unnamed);
    this.canvas.addEventListener("pointermove", (event) => this.pointed(event, false));
    this.canvas.addEventListener("pointerleave", () => this.move(null));
    this.canvas.addEventListener("click", (event) => this.pointed(event, true));
    this.canvas.addEventListener("keydown", (event) => this.pressed(event));
  }

  /** Sizes that fit the element's width and the window's height. */
  measure() {
    const { level } = this;
    const width = Math.max(this.element.clientWidth, 200);
    const rows = level.places.length;
    this.context = this.canvas.getContext("2d");
    this.context.font = `600 12px ${MAP_FONT}`;
    const inputs = Array.from({ length: this.columns }, (_, input) => level.label(input));
    const names = level.places.map((_, row) => level.name(row));
    this.left = Math.min(this.widest(names) + 10, 0.28 * width, 150);
    this.top = level.sound ? 44 : Math.min(this.widest(inputs) + 8, 110);
    this.cellWidth = Math.min((width - this.left - GAP - 2) / this.columns, 40);
    const room = (window.parent === window ? Math.max(0.8 * window.innerHeight, 240) : TALL) - this.top;
    this.cellHeight = Math.max(Math.min(room / rows, 26), 2);
    if (this.cellWidth < 7 && this.cellHeight > 18) this.cellHeight = 18;
    this.width = this.left + this.columns * this.cellWidth + GAP + 1;
    this.height = this.top + rows * this.cellHeight + 1;
    const ratio = (this.ratio = window.devicePixelRatio || 1);
    this.canvas.width = Math.ceil(this.width * ratio);
    this.canvas.height = Math.ceil(this.height * ratio);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  widest(texts) {
    return Math.max(...texts.slice(0, 400).map((text) => this.context.measureText(text).width));
  }

  x(input) {
    return this.left + input * this.cellWidth + (input < this.level.width ? 0 : GAP);
  }

  y(row) {
    return this.top + row * this.cellHeight;
  }

  /** Draw everything; cells are kept, since thousands of them would be slow to draw at every move of the pointer. */
  draw({ row, input }) {
    this.chosen = { row, input };
    this.measure();
    this.kept = make("canvas");
    [this.kept.width, this.kept.height] = [this.canvas.width, this.canvas.height];
    const style = getComputedStyle(this.element);
    const names = ["ink", "on-strong", "page-rgb", ...this.kinds];
    const triples = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    this.color = (name, opacity = 1) => `rgb(${triples[name]} / ${opacity})`;
    const context = this.kept.getContext("2d");
    context.setTransform(this.context.getTransform());
    this.cells(context, this.color);
    this.redraw();
  }

  /** Draw what moves with the pointer. */
  redraw() {
    const { context } = this;
    context.clearRect(0, 0, this.width, this.height);
    context.drawImage(this.kept, 0, 0, this.kept.width / this.ratio, this.kept.height / this.ratio);
    this.frames(this.color);
    this.names(this.color);
    this.tell();
  }

  cells(context, color) {
    const { level } = this;
    const space = Math.min(this.cellWidth, this.cellHeight) > 5 ? 1 : 0;
    const numbers = this.cellWidth >= 29 && this.cellHeight >= 15 && this.scale.limit >= 0.03; // two decimals say something
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.direction = "ltr";
    for (let row = 0; row < level.places.length; row++) {
      for (let input = 0; input < this.columns; input++) {
        const share = this.value(row, input);
        const [x, y] = [this.x(input), this.y(row)];
        const kind = share < 0 ? this.kinds[2] : this.kinds[input < level.width ? 0 : 1];
        const strength = share === null ? 0 : this.scale.strength(share);
        context.fillStyle = share === null ? color("ink", 0.03) : color(kind, 0.04 + 0.9 * strength);
        context.fillRect(x, y, this.cellWidth - space, this.cellHeight - space);
        if (!numbers || share === null) continue;
        context.font = `10.5px ${MAP_FONT}`;
        context.fillStyle = strength > 0.85 && kind !== "prefix" ? color("on-strong") : color("ink");
        context.fillText(twoDecimals(share), x + this.cellWidth / 2, y + this.cellHeight / 2);
      }
    }
  }

  /** Frames around the chosen row or column, and the row and column under the pointer. */
  frames(color) {
    const { context } = this;
    const [rows, columns] = [this.level.places.length, this.columns];
    const frame = (row, input, strong) => {
      context.lineWidth = strong ? 2 : 1;
      context.strokeStyle = color("ink", strong ? 0.9 : 0.55);
      const end = this.x(columns - 1) + this.cellWidth - this.left;
      if (row !== null) context.strokeRect(this.left - 0.5, this.y(row) - 0.5, end, this.cellHeight);
      if (input !== null) {
        context.strokeRect(this.x(input) - 0.5, this.top - 0.5, this.cellWidth, rows * this.cellHeight);
      }
    };
    frame(this.chosen.row, this.chosen.input, true);
    if (this.cursor) frame(this.cursor.row, this.cursor.input, false);
  }

  /** Names of rows and columns: all where there is room, else as many as fit, and always those that are framed. */
  names(color) {
    const { context, level } = this;
    const lit = this.cursor || this.chosen;
    const draw = (text, x, y, room, strong, turned, size) => {
      context.save();
      context.translate(x, y);
      if (turned) context.rotate(-Math.PI / 2);
      context.font = `${strong ? "600 " : ""}${size}px ${MAP_FONT}`;
      context.textAlign = turned ? "left" : "right";
      context.textBaseline = "middle";
      const shown = this.fit(text, room);
      if (strong) {
        const width = context.measureText(shown).width;
        context.fillStyle = color("page-rgb");
        context.fillRect(turned ? -1 : -width - 1, -size / 2 - 1, width + 2, size + 2);
      }
      context.fillStyle = color("ink", strong ? 1 : 0.8);
      context.fillText(shown, 0, 0);
      context.restore();
    };
    const list = (count, cell, framed, place) => {
      const every = Math.ceil(11 / cell);
      const size = Math.min(12, Math.max(cell, 10));
      const near = (i) => framed !== null && framed !== undefined && Math.abs(i - framed) < every && i !== framed;
      const named = Math.ceil(count / every);
      if (place === column) this.unnamed.textContent = named < count ? `Of ${count} columns, ${named} are named: point at a cell for the others.` : "";
      for (let i = 0; i < count; i += every) if (!near(i) && i !== framed) place(i, false, size);
      if (framed !== null && framed !== undefined) place(framed, true, Math.max(size, 11));
    };
    const column = (input, strong, size) =>
      draw(level.label(input), this.x(input) + this.cellWidth / 2, this.top - 5, this.top - 8, strong, true, size);
    list(level.places.length, this.cellHeight, lit.row, (row, strong, size) =>
      draw(this.level.name(row), this.left - 5, this.y(row) + this.cellHeight / 2, this.left - 8, strong, false, size));
    list(this.columns, this.cellWidth, lit.input, column);
  }

  fit(text, room) {
    if (this.context.measureText(text).width <= room) return text;
    let letters = Array.from(text);
    while (letters.length > 1 && this.context.measureText(letters.join("") + "…").width > room) letters = letters.slice(0, -1);
    return letters.join("") + "…";
  }

  tell() {
    const at = this.cursor || this.chosen;
    if (at.row === null || at.row === undefined) return this.readout.replaceChildren("Choose a cell to read its share.");
    if (at.input === null || at.input === undefined || this.value(at.row, at.input) === null) {
      return this.readout.replaceChildren(word(this.level.name(at.row)), ": choose a cell to read its share.");
    }
    const share = make("b", "", format(this.value(at.row, at.input)));
    this.readout.replaceChildren(word(this.level.inputOf(at.row, at.input)), " → ", word(this.level.name(at.row)), ": ", share);
  }

  pointed(event, choose) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const row = Math.floor((y - this.top) / this.cellHeight);
    const inside = this.left + this.level.width * this.cellWidth;
    const input = Math.floor((x - this.left - (x > inside ? GAP : 0)) / this.cellWidth);
    const [isRow, isInput] = [row >= 0 && row < this.level.places.length, input >= 0 && input < this.columns];
    const at = { row: isRow ? row : null, input: isInput ? input : null };
    this.move(isRow || isInput ? at : null, choose);
    if (!choose) return;
    if (isRow) this.choose({ place: this.level.places[row] });
    else if (isInput && input < this.level.width) this.choose({ source: input });
  }

  move(cursor) {
    if (this.cursor?.row === cursor?.row && this.cursor?.input === cursor?.input) return;
    this.cursor = cursor;
    this.redraw();
  }

  pressed(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    const at = this.cursor || { row: this.chosen.row ?? 0, input: this.chosen.input ?? -1 };
    const row = Math.min(Math.max((at.row ?? 0) + move[0], 0), this.level.places.length - 1);
    const input = Math.min(Math.max((at.input ?? 0) + move[1], 0), this.columns - 1);
    this.move({ row, input });
    if (row !== this.chosen.row) this.choose({ place: this.level.places[row] });
  }
}

/** A share as cells have room for: .12, −.05, 1.20. */
function twoDecimals(share) {
  const text = Math.abs(share).toFixed(2);
  return (share < 0 && text !== "0.00" ? "−" : "") + text.replace(/^0\./, ".");
}

/** What the colours of a map mean: for each [kind, name] a ramp from 0 to the scale's end. */
function colorKey(scale, kinds, more = " or more") {
  const limit = scale.limit.toFixed(scale.limit < 0.1 ? 3 : 2) + more;
  const ramps = kinds.map(([kind, name]) => {
    const ramp = make("i", "ramp");
    ramp.style.background = `linear-gradient(to right, rgb(var(--${kind}) / .04), rgb(var(--${kind}) / .94))`;
    return make("span", "key", name, " 0 ", ramp, kind === "negative" ? ` −${limit}` : ` ${limit}`);
  });
  return make("p", "keys", ...ramps);
}
