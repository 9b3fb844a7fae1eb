"use strict";
// The page's data, which hf_lrp/pages/page_data.py describes, read into what drawing asks for.

const UNIT = 1e-5; // of shares

/** An element with a class and children: elements or texts. */
function make(tag, kind = "", ...children) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** A token among other text, whose own direction leaves its surroundings alone. */
function word(text) {
  return make("bdi", "word", text);
}

function format(share) {
  return share === null || share === undefined ? "–" : share.toFixed(3).replace("-", "−");
}

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/gu;
const LETTERS = /\p{L}/gu;

/** Whether most letters of a text are written from right to left. */
function isRightToLeft(parts) {
  const text = parts.filter((part) => !part[2]).map((part) => part[0]).join("");
  return 2 * (text.match(RIGHT_TO_LEFT) || []).length > (text.match(LETTERS) || []).length;
}

/** The text that parts form. */
function plainText(parts) {
  return parts.filter((part) => !part[2]).map((part, i) => (part[1] && i ? " " : "") + part[0]).join("").trim();
}

/** Shares of one result, by word or by piece. Rows are steps; a place is a number in the target, from 0. */
class Level {
  constructor(data) {
    Object.assign(this, data);
    this.width = data.source.length;
    this.places = data.steps.map((step) => step - 1);
    this.rows = new Map(this.places.map((place, row) => [place, row]));
    // Target tokens that no step knows, as the last one, have no column.
    this.known = Math.max(...data.shares.map((row) => row.length - this.width));
  }

  /** The share of an input in a step: inputs are source tokens, then target tokens; null for what is not yet written. */
  share(row, input) {
    const share = this.shares[row][input];
    return share === undefined ? null : share * UNIT;
  }

  /** What an input is called. */
  label(input) {
    const part = input < this.width ? this.source[input] : this.target[input - this.width];
    return part[0] || "␣";
  }

  /** What an input of a step is called: a word's own share is that of the pieces written before. */
  inputOf(row, input) {
    const own = input >= this.width && input - this.width === this.places[row];
    return own ? `beginning of ${this.label(input)}` : this.label(input);
  }

  /** What a source or target word is linked to on the other side, as [number, strength]; null: links are not known. */
  linked(side, number) {
    const [own, other] = side === "source" ? [0, 1] : [1, 0];
    return this.links?.filter((link) => link[own] === number).map((link) => [link[other], link[2]]) ?? null;
  }

  written(row) {
    return this.target[this.places[row]][0] || "␣";
  }

  /** What a step explains: the written token if nothing else is said. */
  predicted(row) {
    return this.contrasted?.[row].slice(0, 2).join(" vs ") ?? this.explained[row] ?? this.written(row);
  }

  /** What a row is called: the explained token, with the written one where it is another. */
  name(row) {
    return this.isOther(row) ? `${this.explained[row]} ≠ ${this.written(row)}` : this.predicted(row);
  }

  /** Whether the explained token is not the written one; of a contrast, its first word. */
  isOther(row) {
    return this.explained[row] !== null && this.explained[row].split(" vs ")[0] !== this.written(row);
  }

  /** The row to begin with: the most telling one. */
  get first() {
    return this.telling ? this.telling[0] : this.places.length - 1;
  }
}

/** Levels of results are read once, when they are first drawn. */
function readLevel(result, name) {
  result.read ??= {};
  const known = result.levels[name] ? name : Object.keys(result.levels)[0];
  return (result.read[known] ??= new Level(result.levels[known]));
}

/** The inputs of a step with the largest shares, as [input, share]. */
function largest(pairs, count) {
  return pairs.filter((pair) => pair[1] !== null && Math.abs(pair[1]) >= 0.0005)
    .sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, count);
}

/** Colours: a share's strength on the page's scale. */
class Scale {
  constructor(limit) {
    this.limit = limit || 1;
  }

  strength(share) {
    return Math.min(Math.abs(share) / this.limit, 1);
  }

  /** A CSS colour; kind is the name of a custom property such as source. */
  color(kind, share) {
    if (share === null || !share) return "transparent";
    return `rgb(var(--${share < 0 ? "negative" : kind}) / ${(0.78 * this.strength(share)).toFixed(3)})`;
  }
}
