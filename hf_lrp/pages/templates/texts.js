// Running text whose words can be chosen by mouse, touch and arrow keys.

const MANY_TIMES = 100; // positions of a sound; more have no room for their times

class RunningText {
  /**
   * @param parts [text, space before, special] of each token
   * @param name what the text is called, for readers who listen
   * @param choose called with the number of the token that the reader chooses
   */
  constructor(parts, name, { sound = false, choose = null, can = () => true } = {}) {
    this.choose = choose;
    this.can = can;
    this.element = make("div", sound ? `text sound ${parts.length > MANY_TIMES ? "dense" : ""}` : "text");
    this.element.dir = !sound && isRightToLeft(parts) ? "rtl" : "ltr";
    this.tokens = parts.map((part, i) => this.token(part, i, sound));
    parts.forEach((part, i) => this.element.append(...(i && part[1] && !sound ? [" "] : []), this.tokens[i]));
    if (choose === null) return;
    this.element.setAttribute("role", "listbox");
    this.element.setAttribute("aria-orientation", "horizontal");
    this.element.setAttribute("aria-label", name);
    this.element.addEventListener("click", (event) => this.clicked(event));
    this.element.addEventListener("keydown", (event) => this.pressed(event));
  }

  token([text, , special], i, sound) {
    const lone = text.trim() === "";
    const element = make("span", "token", lone ? "␣" : text);
    element.classList.toggle("special", special || (lone && !sound));
    if (special) element.dir = "ltr"; // in Arabic, too, </s> is no <s/>
    element.dataset.number = i;
    if (sound) element.title = text;
    if (this.choose !== null && this.can(i)) {
      element.setAttribute("role", "option");
      element.tabIndex = -1;
    } else element.classList.add("fixed");
    return element;
  }

  /** Show shares as tints; colors: a CSS colour per token; titles: what is said on hovering; linked: numbers. */
  paint({ colors, titles = [], chosen = -1, dim = () => false, marks = () => false, linked = [] }) {
    this.tokens.forEach((token, i) => {
      token.style.backgroundColor = colors[i] || "transparent";
      if (titles[i]) token.title = titles[i];
      token.classList.toggle("chosen", i === chosen);
      token.classList.toggle("dim", dim(i));
      token.classList.toggle("other", marks(i));
      token.classList.toggle("linked", linked.includes(i));
      if (!token.hasAttribute("role")) return;
      token.setAttribute("aria-selected", String(i === chosen));
      token.tabIndex = -1;
    });
    const reachable = this.tokens[chosen] || this.tokens.find((token) => token.hasAttribute("role"));
    if (reachable?.hasAttribute("role")) reachable.tabIndex = 0;
  }

  focus(number) {
    this.tokens[number]?.focus({ preventScroll: false });
  }

  clicked(event) {
    const token = event.target.closest("[role=option]");
    if (token) this.choose(Number(token.dataset.number));
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const rtl = this.element.dir === "rtl";
    const moves = { ArrowRight: rtl ? -1 : 1, ArrowLeft: rtl ? 1 : -1, Home: -Infinity, End: Infinity, Enter: 0, " ": 0 };
    const move = moves[event.key];
    const here = event.target.closest("[role=option]");
    if (move === undefined || !here) return;
    event.preventDefault();
    const options = this.tokens.filter((token) => token.hasAttribute("role"));
    const next = Math.min(Math.max(options.indexOf(here) + move, 0), options.length - 1);
    const number = Number(options[next].dataset.number);
    this.choose(number);
    this.focus(number);
  }
}

/** A bar of parts that sum to one, with its legend: parts are { name, kind, share, open }. */
function shareBar(parts) {
  const bar = make("div", "bar");
  const legend = make("div", "legend");
  const whole = parts.reduce((sum, part) => sum + Math.max(part.share, 0), 0) || 1;
  for (const { name, kind, share } of parts) {
    const segment = make("i");
    segment.style.width = `${(100 * Math.max(share, 0)) / whole}%`;
    segment.style.backgroundColor = `rgb(var(--${kind}))`;
    bar.append(segment);
    const swatch = make("i", "swatch");
    swatch.style.backgroundColor = `rgb(var(--${kind}))`;
    legend.append(make("span", "key", swatch, name, " ", make("b", "", format(share))));
  }
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", parts.map((part) => `${part.name} ${format(part.share)}`).join(", "));
  return make("div", "shares", bar, legend);
}
