// Many sentences: a list to search and sort, of which one is open at a time.

class List {
  constructor(explorer) {
    this.explorer = explorer;
    const { entries } = explorer.data;
    this.items = entries.map((entry, number) => this.item(entry, number));
    this.search = make("input");
    this.search.type = "search";
    this.search.placeholder = "Search sentences";
    this.search.setAttribute("aria-label", "Search sentences");
    this.search.addEventListener("input", () => this.arrange());
    this.sort = make("select");
    this.sort.setAttribute("aria-label", "Order");
    for (const [name, [text]] of Object.entries(SORTS)) {
      const option = make("option", "", text);
      option.value = name;
      this.sort.append(option);
    }
    this.sort.value = "lowest";
    this.sort.addEventListener("change", () => this.arrange());
    this.count = make("span", "count");
    this.count.setAttribute("aria-live", "polite");
    this.rows = make("ol", "rows");
    explorer.body.append(make("div", "tools", this.search, this.sort, this.count), this.rows);
    this.arrange();
  }

  item(entry, number) {
    const [result] = entry.results;
    const level = Object.values(result.levels)[0];
    const [source, target] = [level.sound ? "(sound)" : plainText(level.source), plainText(level.target)];
    const button = make("button", "row");
    button.type = "button";
    const gauge = make("i", "gauge", make("i"));
    gauge.firstChild.style.width = `${100 * Math.min(Math.max(result.mean ?? 0, 0), 1)}%`;
    const texts = make("span", "texts", make("bdi", "", source), flaggedText(level));
    button.append(make("span", "number", String(entry.number)), make("span", "value", gauge, format(result.mean)), texts);
    button.setAttribute("aria-expanded", "false");
    button.addEventListener("click", () => this.explorer.open(this.explorer.state.entry === number ? null : number));
    const words = `${source}\n${entry.results.map((r) => plainText(Object.values(r.levels)[0].target)).join("\n")}`.toLowerCase();
    return { number, mean: result.mean, length: level.target.length, words, button, element: make("li", "", button) };
  }

  /** Show what is searched for, in order. */
  arrange() {
    const wanted = this.search.value.trim().toLowerCase();
    const found = this.items.filter((item) => item.words.includes(wanted)).sort(SORTS[this.sort.value][1]);
    this.rows.replaceChildren(...found.map((item) => item.element));
    this.count.textContent = found.length === this.items.length ? `${found.length} sentences` : `${found.length} of ${this.items.length}`;
  }

  /** Put the open sentence below its row. */
  hold(number, element) {
    this.items[number].element.append(element);
  }

  mark(number) {
    for (const item of this.items) {
      const open = item.number === number;
      if (item.open !== open) {
        item.open = open;
        item.button.setAttribute("aria-expanded", String(open));
      }
    }
  }

  reveal(number) {
    this.items[number].element.scrollIntoView({ block: "start" });
  }
}

/** The text of a translation, its flagged words underlined. */
function flaggedText(level) {
  if (!level.flagged?.some(Boolean)) return make("bdi", "", plainText(level.target));
  const flagged = new Set(level.steps.filter((_, row) => level.flagged[row]).map((step) => step - 1));
  const text = make("bdi");
  level.target.forEach(([part, spaced, special], place) => {
    if (special) return;
    if (spaced && text.textContent) text.append(" ");
    text.append(flagged.has(place) ? make("mark", "", part) : part);
  });
  return text;
}
