// R(source) at each step, with what is usual behind it.

const SVG = "http://www.w3.org/2000/svg";
const CURVE_HEIGHT = 132;

function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

class Curve {
  /** other: the level of a result with the same steps, whose curve is drawn as well; kinds: names of the colours. */
  constructor(level, { other = null, kinds = ["source", "source"], choose }) {
    Object.assign(this, { level, other, kinds, choose });
    this.element = make("div", "curve");
    this.element.addEventListener("click", (event) => this.clicked(event));
  }

  draw(chosen) {
    const { level } = this;
    const width = Math.max(this.element.clientWidth, 160);
    const totals = [...level.total, ...(this.other ? this.other.total : [])].filter((value) => value !== null);
    const low = Math.min(0, ...totals);
    const high = Math.max(1, ...totals);
    this.left = 30;
    this.step = (width - this.left - 8) / level.total.length;
    const x = (row) => this.left + (row + 0.5) * this.step;
    const y = (value) => 8 + ((high - value) / (high - low)) * (CURVE_HEIGHT - 34);
    const picture = svg("svg", { width, height: CURVE_HEIGHT, role: "img", "aria-label": this.spoken() });
    for (const value of [0, 0.5, 1]) {
      picture.append(
        svg("line", { class: "grid", x1: this.left, x2: width - 8, y1: y(value), y2: y(value) }),
        svg("text", { class: "tick", x: this.left - 5, y: y(value) + 4, "text-anchor": "end" }, String(value)),
      );
    }
    if (level.usual) picture.append(...this.band(x, y));
    if (this.other) picture.append(this.line(this.other, x, y, this.kinds[1], true));
    picture.append(this.line(level, x, y, this.kinds[0], false));
    level.total.forEach((value, row) => value !== null && picture.append(this.point(row, x(row), y(value), chosen)));
    if (chosen >= 0) {
      picture.prepend(svg("line", { class: "here", x1: x(chosen), x2: x(chosen), y1: 4, y2: CURVE_HEIGHT - 22 }));
    }
    picture.append(...this.labels(x, chosen, width));
    this.element.replaceChildren(picture);
  }

  spoken() {
    const { level } = this;
    return "R(source): " + level.total.map((value, row) => `${level.written(row)} ${format(value)}`).join(", ");
  }

  /** The usual range: mean and two standard deviations on both sides. */
  band(x, y) {
    const known = this.level.usual.map(([mean, deviation], row) => [row, mean, deviation]).filter(([, mean]) => mean !== null);
    const above = known.map(([row, mean, deviation]) => `${x(row)},${y(Math.min(mean + 2 * deviation, 1))}`);
    const below = known.map(([row, mean, deviation]) => `${x(row)},${y(Math.max(mean - 2 * deviation, 0))}`).reverse();
    const middle = known.map(([row, mean]) => `${x(row)},${y(mean)}`);
    return [
      svg("polygon", { class: "usual", points: [...above, ...below].join(" ") }),
      svg("polyline", { class: "usual-mean", points: middle.join(" ") }),
    ];
  }

  /** From the second step on: at the first, R(source) is 1 whatever the model does. */
  line(level, x, y, kind, faint) {
    const points = level.total.flatMap((value, row) =>
      value === null || level.steps[row] === 1 ? [] : [`${x(row)},${y(value)}`]);
    const line = svg("polyline", { class: faint ? "line faint" : "line", points: points.join(" ") });
    line.style.stroke = `rgb(var(--${kind}))`;
    return line;
  }

  point(row, x, y, chosen) {
    const unusual = this.level.flagged?.[row] ?? false;
    const radius = row === chosen ? 5 : Math.min(3, Math.max(1.5, this.step / 3));
    const kinds = ["point"];
    if (row === chosen) kinds.push("chosen");
    if (unusual) kinds.push("unusual");
    if (this.level.steps[row] === 1) kinds.push("first");
    const point = svg("circle", { class: kinds.join(" "), cx: x, cy: y, r: radius });
    if (!unusual) point.style.fill = `rgb(var(--${this.kinds[0]}))`;
    return point;
  }

  /** Words below, as many as fit; the chosen one always. */
  labels(x, chosen, width) {
    const taken = [];
    const drawn = [];
    const rows = this.level.total.map((_, row) => row);
    rows.sort((a, b) => (b === chosen) - (a === chosen));
    for (const row of rows) {
      const text = shorten(this.level.written(row), 14);
      const half = 3.6 * wideness(text) + 3;
      const center = Math.min(Math.max(x(row), half), width - half);
      if (taken.some(([a, b]) => center - half < b && center + half > a)) continue;
      taken.push([center - half, center + half]);
      const kind = row === chosen ? "name chosen" : "name";
      drawn.push(svg("text", { class: kind, x: center, y: CURVE_HEIGHT - 6, "text-anchor": "middle" }, text));
    }
    return drawn;
  }

  clicked(event) {
    const x = event.clientX - this.element.getBoundingClientRect().left;
    const row = Math.floor((x - this.left) / this.step);
    if (row >= 0 && row < this.level.total.length) this.choose(this.level.places[row]);
  }
}

function shorten(text, length) {
  const letters = Array.from(text);
  return letters.length <= length ? text : letters.slice(0, length - 1).join("") + "…";
}

/** Letters of a text, where wide ones such as Chinese count as almost two. */
function wideness(text) {
  return Array.from(text).reduce((sum, letter) => sum + (letter.codePointAt(0) > 0x2e7f ? 1.8 : 1), 0);
}
