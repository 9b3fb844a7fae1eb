"use strict";
// Drawings of flow.js: dots for shares at positions of layers, lines from place to place, cells for heads.

const ROW = 30, LABEL = 76, LEFT = 58, RIGHT = 40, LONGEST = 14;

function short(text) {
  const letters = [...text];
  return letters.length > LONGEST ? `${letters.slice(0, LONGEST - 1).join("")}…` : text;
}

/** How wide a panel may be, and its columns. */
function columns(flow, number, two) {
  const whole = flow.sides.clientWidth || 700;
  const width = two && innerWidth >= 960 ? (whole - 38) / 2 : whole;
  return { width, cell: Math.min(42, (width - LEFT - RIGHT) / number) };
}

/** A row of dots: shares at positions. */
function dots(flow, shares, y, size, say, mark = false) {
  return shares.map((share, i) => {
    const dot = draw("circle", { class: "at", cx: size.x(i), cy: y, r: Math.max(0, size.radius(share)).toFixed(2) });
    dot.append(draw("title", {}, say(i, share)));
    dot.addEventListener("pointerenter", () => flow.point(say(i, share)));
    dot.addEventListener("pointerleave", () => flow.point(""));
    if (mark) dot.addEventListener("click", () => flow.mark(i));
    return dot;
  });
}

/** A drawing of rows of dots, the top row first, with words below. */
function panel(flow, side, rows, words, kind) {
  const { width, cell } = columns(flow, words.length, Boolean(flow.data.sent));
  const height = rows.length * ROW + LABEL + 6;
  const most = Math.max(...rows.flatMap((row) => (row.scaled === false ? [] : row.shares)), 1e-9);
  const size = {
    x: (i) => LEFT + cell * (i + 0.5),
    y: (row) => ROW * (row + 0.5),
    radius: (share) => 0.5 * Math.min(ROW, Math.max(cell, 12)) * Math.sqrt(Math.min(Math.max(share, 0) / most, 1)),
  };
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${side}: relevance by layer and word` });
  const group = draw("g", { class: kind });
  rows.forEach((row, number) => {
    group.append(draw("line", { class: "rule", x1: LEFT, x2: LEFT + cell * words.length, y1: size.y(number), y2: size.y(number) }));
    svg.append(draw("text", { class: "dim", x: LEFT - 8, y: size.y(number) + 4, "text-anchor": "end" }, row.label));
  });
  words.forEach((word, i) => {
    if (kind === "encoder") {
      const chosen = flow.column === i ? "column chosen" : "column";
      const column = draw("rect", { class: chosen, x: size.x(i) - cell / 2, y: 0, width: cell, height, rx: 4, tabindex: 0, role: "button", "aria-label": `source word ${word}`, "aria-pressed": String(flow.column === i) });
      column.addEventListener("click", () => flow.mark(i));
      column.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          flow.mark(i);
        }
      });
      svg.append(column);
    }
    const y = rows.length * ROW + 8;
    svg.append(draw("text", { x: size.x(i), y, transform: `rotate(-60 ${size.x(i)} ${y})`, "text-anchor": "end", dy: 4, "pointer-events": "none" }, short(word)));
  });
  svg.append(group);
  return { svg, group, size };
}

/** Lines of what goes from row to row: to other positions, and the rest, which stays at its own. */
function lines(group, size, side, view, top) {
  const pairs = view.pairs[side];
  if (!pairs) return;
  const layers = view.positions[side].length - 1;
  const rest = view.positions[side].slice(0, layers).map((shares) => [...shares]);
  const add = (layer, from, to, share) => {
    const y = top + layers - layer - 1;
    group.append(draw("line", { x1: size.x(from), x2: size.x(to), y1: size.y(y), y2: size.y(y + 1), "stroke-width": (14 * Math.sqrt(share) * share ** 0.25).toFixed(2) }));
  };
  for (const [layer, from, to, share] of pairs) {
    rest[layer][to] -= share;
    add(layer, from, to, share);
  }
  rest.forEach((shares, layer) => shares.forEach((share, i) => share > 0.004 && add(layer, i, i, share)));
}

function decoderPanel(flow, view) {
  const words = flow.data.tokens.decoder, positions = view.positions.decoder, layers = positions.length - 1;
  const rows = [...positions.keys()].reverse().map((border) => ({
    label: border === layers ? "output" : border ? `layer ${border + 1}` : "words",
    shares: positions[border],
    scaled: border !== layers || view.own === null,
  }));
  const { svg, group, size } = panel(flow, "decoder", rows, words, "decoder");
  lines(group, size, "decoder", view, 0);
  rows.forEach((row, number) => group.append(...dots(flow, row.shares, size.y(number), size, (i, share) => `decoder, ${row.label}: “${words[i]}” ${percent(share)}`)));
  return make("section", "decoder", make("h2", "", "Decoder ", make("small", "", "what is at the words written before, at the input of each layer")), svg);
}

function encoderPanel(flow, view) {
  const words = flow.data.tokens.encoder, positions = view.positions.encoder, layers = positions.length - 1;
  const sent = [...view.sent.keys()].reverse().map((layer) => ({ label: `from ${layer + 1}`, shares: view.sent[layer], sent: true }));
  const own = [...positions.keys()].reverse().map((border) => ({ label: border === layers ? "output" : border ? `layer ${border + 1}` : "words", shares: positions[border] }));
  const rows = [...sent, ...own];
  const { svg, group, size } = panel(flow, "encoder", rows, words, "encoder");
  lines(group, size, "encoder", view, sent.length);
  const entering = draw("g", { class: "sent" });
  group.append(entering);
  rows.forEach((row, number) => {
    const name = row.sent ? `sent by decoder layer ${row.label.slice(5)}` : `encoder, ${row.label}`;
    (row.sent ? entering : group).append(...dots(flow, row.shares, size.y(number), size, (i, share) => `${name}: “${words[i]}” ${percent(share)}`, true));
    if (row.sent) svg.append(draw("text", { class: "dim", x: size.x(words.length - 0.5) + 6, y: size.y(number) + 4 }, percent(sum(row.shares))));
  });
  return make("section", "encoder", make("h2", "", "Source ", make("small", "", "above: what each decoder layer sends to it; below: through the encoder")), svg);
}

const KINDS = [
  ["cross", "Attention to the source", "decoder.cross", null],
  ["self", "Attention to the words before", "decoder.self", "decoder.feed_forward"],
  ["encoder", "Attention in the encoder", "encoder.self", "encoder.feed_forward"],
];

/** A cell for each head of each layer; beside them what goes through the feed-forward block. */
function headPanels(flow, view) {
  const grids = KINDS.filter(([kind]) => view.heads[kind]).map(([kind, title, name, block]) => {
    const layers = view.heads[kind], heads = layers[0].length, extra = block ? 1 : 0;
    const most = Math.max(...layers.flat(), 1e-9);
    const cell = 34, height = 26, width = LEFT + cell * heads + extra * (cell + 14) + 4;
    const svg = draw("svg", { viewBox: `0 0 ${width} ${(layers.length + 1) * height}`, role: "img", "aria-label": title });
    svg.style.maxWidth = `${width}px`;
    layers.forEach((shares, layer) => {
      const y = (layers.length - 1 - layer) * height;
      svg.append(draw("text", { class: "dim", x: LEFT - 8, y: y + 17, "text-anchor": "end" }, `layer ${layer + 1}`));
      const cells = shares.map((share, i) => [LEFT + i * cell, share, share / most, `head ${i + 1}`, ""]);
      if (block) cells.push([LEFT + heads * cell + 14, view.blocks[block][layer], Math.min(view.blocks[block][layer] / 0.6, 1), "feed-forward", " plain"]);
      for (const [x, share, strength, what, look] of cells) {
        const say = `${title}, layer ${layer + 1}, ${what}: ${percent(share)}`;
        const rect = draw("rect", { class: `cell${look}`, x, y, width: cell, height, "fill-opacity": Math.max(0, strength).toFixed(3) }, draw("title", {}, say));
        rect.addEventListener("pointerenter", () => flow.point(say));
        rect.addEventListener("pointerleave", () => flow.point(""));
        svg.append(draw("rect", { class: "ground", x, y, width: cell, height }), rect);
        svg.append(draw("text", { class: strength > 0.55 ? "strong" : "", x: x + cell / 2, y: y + 17, "text-anchor": "middle", "pointer-events": "none" }, (100 * share).toFixed(1)));
      }
    });
    for (let i = 0; i < heads; i++) svg.append(draw("text", { class: "dim", x: LEFT + (i + 0.5) * cell, y: layers.length * height + 15, "text-anchor": "middle" }, `${i + 1}`));
    if (block) svg.append(draw("text", { class: "dim", x: LEFT + heads * cell + 14 + cell / 2, y: layers.length * height + 15, "text-anchor": "middle" }, "feed"));
    return make("section", "", make("h2", "", `${title} `, make("small", "", block ? "% through each head and the feed-forward block" : "% through each head")), svg);
  });
  return make("section", "heads", make("div", "grids", ...grids));
}
