// An open sentence: one result, or two side by side with their differences, and the heat map.

/** Buttons of which one is pressed. */
function choice(name, options, pressed, choose) {
  const group = make("div", "choice");
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", name);
  for (const [value, text] of options) {
    const button = make("button", "", text);
    button.type = "button";
    button.dataset.value = value;
    button.setAttribute("aria-pressed", String(value === pressed));
    button.addEventListener("click", () => choose(value));
    group.append(button);
  }
  return group;
}

class EntryView {
  /** state: { level, places, source }; set: changes parts of it. */
  constructor(entry, data, state, set) {
    Object.assign(this, { entry, data, set });
    this.element = make("article", entry.results.length > 1 ? "entry pair" : "entry");
    this.build(state);
  }

  /** What depends on the level. */
  build(state) {
    const { entry, data } = this;
    this.level = state.level;
    this.scale = new Scale(data.scale[state.level] ?? Object.values(data.scale)[0]);
    const pair = entry.results.length > 1;
    const kinds = pair ? ["first", "second"] : ["source"];
    this.results = entry.results.map((result, i) => new ResultView(result, state.level, this.scale, {
      other: entry.same ? entry.results[1 - i] : null,
      kinds: pair && entry.same ? [kinds[i], kinds[1 - i]] : [kinds[i], kinds[i]],
      signed: data.signed,
      choose: (chosen) => this.choose(i, chosen),
    }));
    const columns = make("div", "columns", ...this.results.map((view, i) => this.column(view, i)));
    this.differences = make("div", "facts differences");
    this.element.replaceChildren(
      ...this.telling(),
      columns,
      ...(entry.same ? [this.differences, this.differenceMap()] : []),
      this.about(),
    );
  }

  /** One sentence on the most telling place; choosing it leads there. */
  telling() {
    const { entry } = this;
    const level = this.results[0].level;
    const told = entry.telling ? entry.telling[this.level] : entry.results.length > 1 ? null : level.telling;
    if (!told) return [];
    const [row, sentence, name] = told;
    const at = sentence.indexOf("{}");
    const here = make("button", "telling-word", make("bdi", "", name || "␣"));
    here.type = "button";
    here.addEventListener("click", () => this.choose(0, { place: level.places[row] }));
    return [make("p", "telling", sentence.slice(0, at), here, sentence.slice(at + 2))];
  }

  column(view, i) {
    const { entry } = this;
    if (entry.results.length === 1) return view.element;
    const swatch = make("i", "swatch");
    swatch.style.backgroundColor = `rgb(var(--${i ? "second" : "first"}))`;
    const mean = make("small", "", ` mean R(source) ${format(entry.results[i].mean)}`);
    view.element.prepend(make("h2", "", swatch, make("bdi", "", entry.names[i]), mean));
    return view.element;
  }

  choose(i, { place, source }) {
    if (source !== undefined) return this.set({ source });
    const places = this.entry.same || this.entry.results.length === 1 ? [place, place] : [...this.places];
    places[i] = place;
    this.set({ places, source: null });
  }

  update(state) {
    if (state.level !== this.level) this.build(state);
    this.places = state.places;
    this.results.forEach((view, i) => view.update({ place: state.places[i] ?? state.places[0], source: state.source }));
    if (!this.entry.same) return;
    this.showDifferences(state);
    const row = this.results[0].level.rows.get(state.places[0]) ?? null;
    this.map.draw({ row: state.source === null ? row : null, input: state.source });
  }

  /** Inputs whose shares in the chosen word differ most between the two results. */
  showDifferences({ places, source }) {
    const [first, second] = this.results.map((view) => view.level);
    const row = first.rows.get(places[0]) ?? 0;
    const pairs = source === null
      ? first.shares[row].map((_, input) => [first.label(input), second.share(row, input) - first.share(row, input)])
      : first.places.map((_, at) => [first.written(at), second.share(at, source) - first.share(at, source)]);
    const about = source === null ? ["in ", word(first.predicted(row))] : ["of ", word(first.label(source))];
    const chips = largest(pairs, TOP).map(([text, share]) => {
      const chip = make("span", "chip", make("bdi", "", text), " ", make("b", "", (share > 0 ? "+" : "") + format(share)));
      chip.style.backgroundColor = `rgb(var(--${share > 0 ? "second" : "first"}) / ${0.15 + 0.5 * this.scale.strength(share)})`;
      return chip;
    });
    const heading = make("p", "lead", "Largest differences ", ...about, ", ", make("bdi", "", this.entry.names[1]), " − ", make("bdi", "", this.entry.names[0]));
    this.differences.replaceChildren(heading, chips.length ? make("div", "chips", ...chips) : make("p", "detail", "none"));
  }

  /** All differences: second − first. */
  differenceMap() {
    const [first, second] = this.results.map((view) => view.level);
    const value = (row, input) => {
      const share = first.share(row, input);
      return share === null ? null : second.share(row, input) - share;
    };
    const sizes = first.shares.flatMap((shares, row) => shares.map((_, input) => Math.abs(value(row, input))));
    const scale = new Scale(sizes.reduce((a, b) => Math.max(a, b), 0));
    this.map = new HeatMap(first, scale, value, ["second", "second", "first"], (chosen) => this.choose(0, chosen));
    const kinds = [["first", `more in ${this.entry.names[0]}`], ["second", `more in ${this.entry.names[1]}`]];
    return make("div", "block", make("h3", "", "All differences"), colorKey(scale, kinds, ""), this.map.element);
  }

  about() {
    const lists = this.entry.results.map((result) => {
      const rows = [["model", result.model], ...result.about, ["start tokens", result.start_tokens.join(" ")]];
      const terms = rows.filter((row) => row[1]).flatMap(([name, value]) => [make("dt", "", name), make("dd", "", value)]);
      return make("dl", "", ...terms, ...result.notes.flatMap((note) => [make("dt", "", "note"), make("dd", "", note)]));
    });
    return make("details", "about", make("summary", "", "How this was computed"), ...lists);
  }
}
