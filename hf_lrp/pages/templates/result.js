// One result: source and translation as texts, what the chosen word was made from, and R(source).

const TARGET_NAMES = { model: "Translation", reference: "Target", random: "Unrelated prefix" };
const PART_KINDS = ["part1", "part2", "part3", "part4", "part5"];
const LONG_PART = 12; // tokens; longer parts of a prompt are opened on request
const TOP = 6;

class ResultView {
  /**
   * @param result from the data
   * @param other a result with the same target to draw R(source) of as well, or null
   * @param signed whether the page has negative shares
   * @param choose called with { place } or { source }
   */
  constructor(result, levelName, scale, { other = null, kinds = ["source", "source"], signed = false, choose }) {
    Object.assign(this, { result, scale, choose });
    const level = (this.level = readLevel(result, levelName));
    this.source = new RunningText(level.source, "Source", { sound: level.sound, choose: (source) => choose({ source }) });
    this.target = new RunningText(level.target, TARGET_NAMES[result.prefix], {
      choose: (place) => choose({ place }),
      can: (place) => level.rows.has(place),
    });
    this.facts = make("div", "facts");
    this.facts.setAttribute("aria-live", "polite");
    this.parts = level.parts.map((part, i) => this.part(part, PART_KINDS[i % PART_KINDS.length]));
    this.curve = new Curve(level, { other: other && readLevel(other, levelName), kinds, choose: (place) => choose({ place }) });
    this.map = new HeatMap(level, scale, (row, input) => level.share(row, input), ["source", "prefix", "negative"], choose);
    const ramps = [["source", "source"], ["prefix", "prefix"], ...(signed ? [["negative", "negative"]] : [])];
    const rOfSource = result.sizes
      ? "R(source): the source's part of all shares' sizes, whatever their signs"
      : "R(source): how much of each word comes from the source";
    this.element = make(
      "div",
      "result",
      make("div", "prompt", ...this.parts.map((part) => part.element)),
      this.labelled(level.sound ? "Source (sound)" : "Source", this.source.element),
      this.labelled(TARGET_NAMES[result.prefix], this.target.element),
      this.facts,
      level.places.length > 1 ? this.labelled(rOfSource, this.curveKey(), this.curve.element) : make("div"),
      this.labelled("All shares: a row per predicted word, a column per word it was made from", colorKey(scale, ramps), this.map.element),
    );
  }

  labelled(name, ...elements) {
    return make("div", "block", make("h3", "", name), ...elements);
  }

  curveKey() {
    if (!this.level.usual) return null;
    return make("p", "keys", make("span", "key", make("i", "swatch usual"), "usual for this model: mean ± 2 standard deviations"));
  }

  /** A part of the prompt: short ones as text, long ones as one element that opens. */
  part(part, kind) {
    const text = new RunningText(part.tokens, part.name);
    const share = make("b", "part-share");
    const swatch = make("i", "swatch");
    swatch.style.backgroundColor = `rgb(var(--${kind}))`;
    const count = part.tokens.length > 1 ? ` ${part.tokens.length} tokens` : "";
    const summary = make("summary", "", swatch, make("bdi", "", part.name), make("small", "", count), " ", share);
    const element = make("details", "block part", summary, text.element);
    element.open = part.tokens.length <= LONG_PART;
    return { data: part, kind, text, share, element };
  }

  /** Show a state: { place, source }, of which one is set. */
  update({ place, source }) {
    const row = place === null ? -1 : this.level.rows.get(place) ?? -1;
    if (source !== null) this.showSource(source);
    else if (row >= 0) this.showTarget(row);
    this.curve.draw(source === null ? row : -1);
    this.map.draw({ row: source === null && row >= 0 ? row : null, input: source });
  }

  marks = (place) => this.level.rows.has(place) && this.level.isOther(this.level.rows.get(place));

  /** What a target word was made from. */
  showTarget(row) {
    const { level, scale } = this;
    const shares = level.shares[row].map((_, input) => level.share(row, input));
    const place = level.places[row];
    const title = (input) => `${level.inputOf(row, input)} → ${level.predicted(row)}: ${format(shares[input])}`;
    const linked = level.linked("target", place);
    this.source.paint({
      linked: linked?.map(([input]) => input),
      colors: shares.slice(0, level.width).map((share) => scale.color("source", share)),
      titles: level.source.map((_, input) => title(input)),
    });
    this.target.paint({
      colors: shares.slice(level.width).map((share) => scale.color("prefix", share)),
      titles: shares.slice(level.width).map((_, j) => title(level.width + j)),
      chosen: place,
      dim: (other) => other > place,
      marks: this.marks,
    });
    for (const { data, kind, text, share } of this.parts) {
      const own = data.shares[row].map((value) => value * UNIT);
      share.textContent = format(data.total[row]);
      text.paint({ colors: own.map((value) => scale.color(kind, value)), titles: own.map((value, i) => `${data.tokens[i][0]}: ${format(value)}`) });
    }
    const top = largest(shares.map((share, input) => [input, share]), TOP);
    const chips = top.map(([input, share]) => this.chip(level.inputOf(row, input), input < level.width ? "source" : "prefix", share,
      input < level.width ? { source: input } : { place: input - level.width }));
    this.facts.replaceChildren(
      make("p", "lead", ...this.lead(row)),
      shareBar(this.wholes(row)),
      make("div", "chips", ...chips),
      this.linkLine(linked, level.source),
      make("p", "detail", this.detail(row)),
      ...(level.contrasted?.[row][2] ? [make("p", "compared", level.contrasted[row][2] + ".")] : []),
    );
  }

  /** Which words a chosen one is linked to; empty where links are not known. */
  linkLine(linked, parts) {
    if (linked === null) return "";
    const named = linked.flatMap(([number, strength], i) => [i ? ", " : "", make("bdi", "linked", parts[number][0] || "␣"), ` ${strength.toFixed(2)}`]);
    return make("p", "links", ...(named.length ? ["linked with ", ...named] : ["linked with no word"]));
  }

  lead(row) {
    const { level, result } = this;
    if (result.contrast) {
      const [one, another] = level.contrasted?.[row] ?? level.explained[row].split(" vs ");
      return ["Why ", word(one), " and not ", word(another ?? ""), ": what speaks for the first"];
    }
    const made = result.sizes ? ": what speaks for it and, with a minus, against it; the bar shows sizes" : " was made from";
    if (level.explained[row] === null) return [word(level.written(row)), made];
    return [word(level.explained[row]), " (explained; written is ", word(level.written(row)), ")", made];
  }

  /**
   * Shares that sum to one: source and prefix, with the start token where it is kept, or with the parts of a prompt.
   * Of shares with signs, sizes.
   */
  wholes(row) {
    const { level, result } = this;
    const counted = result.sizes ? Math.abs : (share) => share;
    const left = result.left_out && this.parts.length ? 1 - counted(level.start[row]) : 1;
    const whole = [
      { name: "source", kind: "source", share: level.total[row] * left },
      { name: "prefix", kind: "prefix", share: level.prefix[row] * left },
    ];
    if (!this.parts.length) {
      return result.left_out ? whole : [...whole, { name: "start", kind: "start", share: counted(level.start[row]) }];
    }
    return [...whole, ...this.parts.map(({ data, kind }) => ({ name: data.name, kind, share: counted(data.total[row]) }))];
  }

  detail(row) {
    const { level, result } = this;
    const chance = level.probability[row];
    const total = this.parts.length && result.left_out ? `R(source) ${format(level.total[row])} of source and prefix alone · ` : "";
    const start = !this.parts.length && result.left_out ? `the start token's share, ${format(level.start[row])}, is left out · ` : "";
    return `${total}${start}probability ${chance === null ? "–" : chance.toPrecision(2)} · step ${level.steps[row]}`;
  }

  chip(text, kind, share, chosen) {
    const chip = make("button", "chip", make("bdi", "", text), " ", make("b", "", format(share)));
    chip.type = "button";
    chip.style.backgroundColor = this.scale.color(kind, share);
    chip.disabled = chosen.place !== undefined && !this.level.rows.has(chosen.place);
    chip.addEventListener("click", () => this.choose(chosen));
    return chip;
  }

  /** Where a source word went. */
  showSource(input) {
    const { level, scale } = this;
    const shares = level.target.map((_, place) => (level.rows.has(place) ? level.share(level.rows.get(place), input) : null));
    const linked = level.linked("source", input);
    this.source.paint({ colors: [], chosen: input });
    this.target.paint({
      linked: linked?.map(([place]) => place),
      colors: shares.map((share) => scale.color("source", share)),
      titles: shares.map((share, place) => `${level.label(input)} → ${level.target[place][0]}: ${format(share)}`),
      marks: this.marks,
    });
    for (const { text, share } of this.parts) {
      share.textContent = "";
      text.paint({ colors: [] });
    }
    const known = shares.filter((share) => share !== null);
    const mean = known.reduce((sum, share) => sum + share, 0) / known.length;
    const chips = largest(shares.map((share, place) => [place, share]), TOP)
      .map(([place, share]) => this.chip(level.target[place][0] || "␣", "source", share, { place }));
    this.facts.replaceChildren(
      make("p", "lead", word(level.label(input)), " went to"),
      make("div", "chips", ...chips),
      this.linkLine(linked, level.target),
      make("p", "detail", `its mean share over ${known.length} steps is ${format(mean)}`),
    );
  }
}
