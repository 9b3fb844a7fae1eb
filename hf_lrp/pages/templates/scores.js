"use strict";
// The page of hf-lrp score: pairs in another order, and those that a search finds.

const ORDERS = {
  coverage: (a, b) => a.dataset.coverage - b.dataset.coverage,
  probability: (a, b) => a.dataset.probability - b.dataset.probability,
  flags: (a, b) => b.dataset.flags - a.dataset.flags,
  number: () => 0,
};
const list = document.querySelector(".pairs");
const items = [...list.children];
const order = document.getElementById("order");
const search = document.getElementById("search");

function arrange() {
  const wanted = search.value.trim().toLowerCase();
  const found = items.filter((item) => item.textContent.toLowerCase().includes(wanted));
  found.sort((a, b) => ORDERS[order.value](a, b) || a.dataset.number - b.dataset.number);
  list.replaceChildren(...found);
}

document.querySelector(".tools").hidden = false;
order.addEventListener("change", arrange);
search.addEventListener("input", arrange);
