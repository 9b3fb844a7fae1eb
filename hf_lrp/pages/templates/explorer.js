// The page: its state, which lives in the address, and the list of sentences, of which only the open one is drawn.

const SORTS = {
  lowest: ["lowest R(source) first", (a, b) => (a.mean ?? Infinity) - (b.mean ?? Infinity) || a.number - b.number],
  highest: ["highest R(source) first", (a, b) => (b.mean ?? -Infinity) - (a.mean ?? -Infinity) || a.number - b.number],
  order: ["as given", (a, b) => a.number - b.number],
  longest: ["longest first", (a, b) => b.length - a.length || a.number - b.number],
};

class Explorer {
  constructor(root) {
    this.root = root;
    this.data = JSON.parse(root.querySelector("script").textContent);
    this.many = this.data.entries.length > 1;
    this.levels = [...new Set(this.data.entries.flatMap((entry) => Object.keys(entry.results[0].levels)))];
    this.state = { entry: this.many ? null : 0, level: this.levels.includes("word") ? "word" : "token" };
    this.head = make("div", "head");
    this.body = make("div", "body");
    root.append(this.head, this.body);
    this.views = new Map();
    this.written = ""; // the state as the address has it
    this.drawHead();
    if (this.many) this.list = new List(this);
    this.follow();
    window.addEventListener("hashchange", () => this.follow());
    new ResizeObserver(() => this.resized()).observe(this.body);
    if (window.parent !== window) this.meetParent();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
  }

  drawHead() {
    const names = [["word", "words"], ["token", "pieces"]];
    const switches = this.levels.length > 1 ? [choice("Level", names, this.state.level, (level) => this.changeLevel(level))] : [];
    const models = [...new Set(this.data.entries.flatMap((entry) => entry.results.map((result) => result.model)))];
    const about = make("p", "summary", make("bdi", "model", models.slice(0, 3).join(", ")), ...this.meaning());
    this.head.replaceChildren(about, ...switches);
  }

  meaning() {
    if (this.many) return [` · ${this.data.entries.length} sentences`];
    const [result] = this.data.entries[0]?.results || [];
    return result && this.data.entries[0].results.length === 1 ? [` · mean R(source) ${format(result.mean)}`] : [];
  }

  // ---- state

  /** Words and pieces have other numbers: what is chosen stays near. */
  changeLevel(level) {
    if (level === this.state.level) return;
    const changes = { level };
    if (this.state.entry !== null) {
      const { results } = this.data.entries[this.state.entry];
      const near = (number, side, result) => {
        const [from, to] = [readLevel(result, this.state.level), readLevel(result, level)];
        return nearest(from[side], to[side], number);
      };
      changes.places = this.state.places.map((place, i) => near(place, "target", results[i] ?? results[0]));
      if (this.state.source !== null) changes.source = near(this.state.source, "source", results[0]);
    }
    this.set(changes);
  }

  set(changes) {
    Object.assign(this.state, changes);
    this.show();
    this.remember();
  }

  open(entry) {
    this.set({ entry, ...this.beginning(entry) });
  }

  /** What is chosen when a sentence is opened. */
  beginning(entry) {
    if (entry === null) return { places: [0, 0], source: null };
    const { results, telling, same } = this.data.entries[entry];
    const levels = results.map((result) => readLevel(result, this.state.level));
    const first = telling?.[this.state.level]?.[0] ?? levels[0].first;
    return { places: levels.map((level) => level.places[same ? first : level.first]), source: null };
  }

  /** Write the state into the address; a link shows what its sender saw. */
  remember() {
    const { entry, level, places, source } = this.state;
    const parts = [];
    if (this.many && entry !== null) parts.push(`s=${entry + 1}`);
    if (entry !== null) {
      if (source !== null) parts.push(`x=${source + 1}`);
      else parts.push(`t=${places[0] + 1}`);
      if (source === null && places.length > 1 && places[1] !== places[0]) parts.push(`u=${places[1] + 1}`);
    }
    if (this.levels.length > 1) parts.push(`l=${level}`);
    this.written = parts.join("&");
    try {
      history.replaceState(null, "", `#${this.written}`);
    } catch {
      // A frame without an address of its own, as in notebooks.
    }
    this.tell?.();
  }

  /** In a frame: tell the page around it how high this one is and what is chosen, and choose what it asks for. */
  meetParent() {
    this.tell = () => window.parent.postMessage({ hfLrp: { height: this.height(), state: this.written } }, "*");
    window.addEventListener("message", (event) => {
      const state = event.source === window.parent ? event.data?.hfLrp?.state : null;
      if (typeof state === "string") this.follow(state);
    });
    new ResizeObserver(() => this.tell()).observe(document.body);
  }

  /** Of the whole page, in pixels. */
  height() {
    return Math.ceil(document.body.getBoundingClientRect().height) + 4;
  }

  /** Read the state from the address; what it does not say, or says of what is not there, begins as usual. */
  follow(text = location.hash.slice(1)) {
    const given = new URLSearchParams(text);
    const number = (name, count) => {
      const value = Number(given.get(name)) - 1;
      return Number.isInteger(value) && value >= 0 && value < count ? value : null;
    };
    if (this.levels.includes(given.get("l"))) this.state.level = given.get("l");
    const entry = this.many ? number("s", this.data.entries.length) : this.data.entries.length ? 0 : null;
    Object.assign(this.state, { entry }, this.beginning(entry));
    if (entry !== null) {
      const levels = this.data.entries[entry].results.map((result) => readLevel(result, this.state.level));
      const place = (name, level) => {
        const value = number(name, level.target.length);
        return value !== null && level.rows.has(value) ? value : null;
      };
      const first = place("t", levels[0]);
      if (first !== null) this.state.places = levels.map((level) => (level.rows.has(first) ? first : level.places[0]));
      if (levels[1] && place("u", levels[1]) !== null) this.state.places[1] = place("u", levels[1]);
      this.state.source = number("x", levels[0].width);
    }
    this.show();
    if (this.many && entry !== null) this.list.reveal(entry);
    if (window.parent !== window) this.remember();
  }

  // ---- drawing

  show() {
    for (const button of this.head.querySelectorAll(".choice button")) {
      button.setAttribute("aria-pressed", String(button.dataset.value === this.state.level));
    }
    if (this.state.entry !== this.shown) {
      this.view?.element.remove();
      this.view = null;
      this.shown = this.state.entry;
      if (this.state.entry !== null) {
        this.view = new EntryView(this.data.entries[this.state.entry], this.data, this.state, (changes) => this.set(changes));
        if (this.many) this.list.hold(this.state.entry, this.view.element);
        else this.body.append(this.view.element);
      }
    }
    this.list?.mark(this.state.entry);
    this.redraw();
  }

  redraw() {
    this.width = this.body.clientWidth;
    this.view?.update(this.state);
  }

  resized() {
    if (this.body.clientWidth !== this.width) this.redraw();
  }
}

/** The number in other parts of the text where part number begins, counted in letters. */
function nearest(from, to, number) {
  const letters = (part) => (part[2] ? 1 : Math.max(part[0].replace(/\s/g, "").length, 0));
  const before = from.slice(0, number).reduce((sum, part) => sum + letters(part), 0);
  let sum = 0;
  for (let i = 0; i < to.length; i++) {
    sum += letters(to[i]);
    if (sum > before) return i;
  }
  return to.length - 1;
}

for (const root of document.querySelectorAll(".hf-lrp")) new Explorer(root);
