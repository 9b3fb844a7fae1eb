// What the app's page does in the browser besides asking: examples, the address, the frame of the answer, busy times.

window.hfLrp = (() => {
  const QUIET = { __type__: "update" }; // a field that stays as it is
  const TALLEST = 20000; // pixels of the frame
  let fields = []; // [name in the address, what it holds at the beginning] of each field, in order
  let view = ""; // what is chosen in the answer, as its page writes it
  let shared = false; // whether the first answer is still to be told what the address had of it

  /** The answer's frame, which an answer to come will replace. */
  const frame = () => document.querySelector("#result iframe.contributions");

  const address = () => new URLSearchParams(location.hash.slice(1));

  /** The values of all fields, as the address has them; a choice that is not known is refused by the server. */
  function recall(given) {
    fields = given;
    const state = address();
    view = state.get("view") ?? "";
    shared = view !== "";
    return fields.map(([name]) => (state.has(name) ? state.get(name) : QUIET));
  }

  /** Ask at once for what an address says. */
  function begin() {
    if (address().has("source")) document.querySelector("#explain").click();
  }

  /** Write what is chosen into the address, if that has a question. */
  function write() {
    const state = address();
    if (!state.has("source")) return;
    if (view) state.set("view", view);
    history.replaceState(null, "", `#${state}`);
  }

  /** A model's own examples; what the visitor wrote stays. */
  function exchange(examples, model, source, unrelated) {
    const [sources, others] = examples[model] ?? [];
    if (!sources) return [QUIET, QUIET, QUIET, QUIET, QUIET];
    const given = Object.values(examples);
    const untouched = given.some(([known]) => known.includes(source));
    const same = given.some(([, known]) => known === unrelated);
    return [untouched ? sources[0] : QUIET, same ? others : QUIET, ...sources];
  }

  /** Write what was asked into the address; a link shows what its sender saw. */
  function remember(values) {
    const state = new URLSearchParams();
    fields.forEach(([name, before], i) => {
      if (name === "source" || (values[i] ?? "") !== before) state.set(name, values[i] ?? "");
    });
    if (state.get("prefix") !== "reference") state.delete("target");
    if (state.get("prefix") !== "random") state.delete("unrelated");
    if (!shared) view = "";
    history.replaceState(null, "", `#${state}`);
    write();
    const shown = document.querySelector("#result");
    const box = shown.getBoundingClientRect();
    if (box.top > 0.3 * innerHeight || box.top < 0) shown.scrollIntoView({ behavior: "smooth", block: "start" });
  }

  // The page in the frame says how high it is, and what is chosen in it.
  addEventListener("message", (event) => {
    const shown = frame();
    if (!shown || event.source !== shown.contentWindow) return;
    const { height, state } = event.data?.hfLrp ?? {};
    if (Number.isFinite(height)) shown.style.height = `${Math.min(Math.max(Math.ceil(height), 200), TALLEST)}px`;
    if (typeof state !== "string" || !state) return;
    if (shared) {
      shared = false;
      shown.contentWindow.postMessage({ hfLrp: { state: view } }, "*");
    } else view = state;
    write();
  });

  // Where too many wait, the server refuses: say so, and ask again.
  const ask = window.fetch;
  window.fetch = async (...request) => {
    for (let times = 1; ; times++) {
      const answer = await ask(...request);
      if (answer.status !== 503 || !String(request[0]?.url ?? request[0]).includes("/queue/join")) {
        document.querySelector("#busy")?.remove();
        return answer;
      }
      const seconds = Math.round(2 + 2 * Math.min(times, 4) * Math.random());
      busy(`The app is busy: many questions wait already. Yours is asked again in ${seconds} seconds.`);
      await new Promise((done) => setTimeout(done, 1000 * seconds));
    }
  };

  function busy(text) {
    let said = document.querySelector("#busy");
    if (!said) {
      said = document.createElement("p");
      said.id = "busy";
      said.className = "message";
      said.setAttribute("role", "status");
      document.querySelector("#result").before(said);
    }
    said.textContent = text;
  }

  return { recall, begin, exchange, remember };
})();
