"use strict";
// The way of one prediction's relevance: what is chosen, and what is said of it. Drawing: flow_panels.js.

const SVG = "http://www.w3.org/2000/svg";

/** An element with a class and children: elements or texts. */
function make(tag, kind = "", ...children) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** An element of a drawing. */
function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function percent(share) {
  const value = 100 * share;
  return `${Math.abs(value) < 9.95 ? value.toFixed(1) : value.toFixed(0)} %`.replace("-", "−");
}

function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}

/** Tensors by step as the mean over all steps. */
function mean(parts) {
  if (!Array.isArray(parts[0])) return sum(parts) / parts.length;
  return parts[0].map((_, i) => mean(parts.map((part) => part[i])));
}

/** The flow of one step, or of the mean over all. */
class View {
  constructor(data, step) {
    const take = (tensor) => (tensor ? (step === null ? mean(tensor) : tensor[step]) : null);
    const each = (group) => Object.fromEntries(Object.entries(group).map(([name, tensor]) => [name, take(tensor)]));
    this.positions = each(data.positions);
    this.sent = take(data.sent);
    this.heads = each(data.heads);
    this.blocks = each(data.blocks);
    this.past = each(data.past);
    this.pairs = step === null ? {} : Object.fromEntries(Object.entries(data.pairs).map(([side, of]) => [side, of[step]]));
    this.own = step;
  }
}

class Flow {
  constructor(root) {
    this.data = JSON.parse(root.querySelector("script").textContent);
    this.step = null;
    this.column = null; // a source word
    this.words = make("div", "words");
    this.words.setAttribute("role", "group");
    this.words.setAttribute("aria-label", "Predicted words");
    this.buttons = [null, ...this.data.predicted.keys()].map((step) => this.button(step));
    this.words.append(...this.buttons.map((entry) => entry.element));
    this.telling = make("p", "telling");
    this.telling.setAttribute("aria-live", "polite");
    this.sides = make("div", this.data.sent ? "sides two" : "sides");
    root.append(this.words, this.telling, this.sides);
    const wanted = Number(new URLSearchParams(location.hash.slice(1)).get("step"));
    const found = this.data.steps.indexOf(wanted);
    this.choose(found < 0 ? null : found);
    let width = this.sides.clientWidth;
    addEventListener("resize", () => {
      if (this.sides.clientWidth !== width) {
        width = this.sides.clientWidth;
        this.show();
      }
    });
  }

  button(step) {
    const element = make("button", step === null ? "all" : "", step === null ? "all words" : make("bdi", "", this.data.predicted[step]));
    element.type = "button";
    const bar = make("i");
    element.append(bar);
    element.addEventListener("click", () => this.choose(step));
    return { element, bar, step };
  }

  /** Show the way of one prediction, or the mean of all. */
  choose(step) {
    this.step = step;
    const hash = step === null ? "" : `step=${this.data.steps[step]}`;
    if (location.hash.slice(1) !== hash && location.protocol !== "about:") history.replaceState(null, "", `#${hash}`);
    this.show();
  }

  /** Mark a source word, and show its share in each prediction; the same word again: none. */
  mark(column) {
    this.column = this.column === column ? null : column;
    this.show();
  }

  show() {
    const view = new View(this.data, this.step);
    const largest = this.column === null ? 1 : Math.max(...this.data.predicted.map((_, t) => this.share(t)), 1e-9);
    for (const { element, bar, step } of this.buttons) {
      element.setAttribute("aria-pressed", String(step === this.step));
      bar.style.width = this.column === null || step === null ? "0" : `${(100 * this.share(step)) / largest}%`;
    }
    this.tell(view);
    const panels = [decoderPanel(this, view), view.sent ? encoderPanel(this, view) : null, headPanels(this, view)];
    this.sides.replaceChildren(...panels.filter((panel) => panel !== null));
  }

  /** The marked source word's share in a prediction. */
  share(step) {
    return this.data.positions.encoder[step][0][this.column];
  }

  tell(view) {
    const name = this.step === null ? "all words (mean)" : `“${this.data.predicted[this.step]}”`;
    const lines = [`Relevance of ${name}: `];
    if (view.sent) {
      const sent = view.sent.map(sum);
      const most = sent.indexOf(Math.max(...sent));
      lines.push(`${percent(sum(sent))} goes to the source, most of it (${percent(sent[most])}) from decoder layer ${most + 1}; `);
      lines.push(`${percent(1 - sum(sent))} stays with what was written before and the start.`);
    } else {
      lines.push(`by position of the prompt and of what was written before.`);
    }
    this.detail = make("small", "", this.about());
    this.telling.replaceChildren(make("bdi", "", lines.join("")), this.detail);
  }

  about() {
    if (this.column === null) return "Point at a dot or a cell for its number; choose a source word to see where it matters.";
    const share = this.step === null ? mean(this.data.predicted.map((_, t) => this.share(t))) : this.share(this.step);
    return `Source word “${this.data.tokens.encoder[this.column]}”: ${percent(share)} of this prediction; bars show its share in each.`;
  }

  /** Say what is pointed at; nothing: what is chosen. */
  point(text) {
    this.detail.textContent = text || this.about();
  }
}

addEventListener("DOMContentLoaded", () => document.querySelectorAll("main.flow").forEach((root) => new Flow(root)));
