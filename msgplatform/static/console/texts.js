// Searches through texts piece by piece: one short request at a time, the flows in turn, until all is
// looked at or somebody stops it. A piece has rows as HTML, and the cursor of the next.
const panel = document.querySelector("[data-texts]");
// A flow with so many rows waits until somebody wants more: nobody reads thousands, and a browser
// with thousands hardly moves.
const MAX_ROWS = 200;

if (panel) {
  const start = panel.querySelector("[data-start]");
  const stop = panel.querySelector("[data-stop]");
  const outcome = panel.querySelector("[data-outcome]");
  const lanes = [...panel.querySelectorAll("[data-flow]")].map((line) => ({ line, cursor: "", most: MAX_ROWS, ended: false }));
  const waiting = [...lanes];
  const full = [];
  let running = false; // whether somebody wants it to go on
  let active = false; // a stopped one still waits for its last answer

  const say = (lane, text) => { lane.line.querySelector("[data-range]").textContent = text; };

  const append = (lane, rows) => {
    const card = document.getElementById(`found-${lane.line.dataset.flow}`);
    const body = card.querySelector("tbody");
    const piece = document.createElement("template");
    piece.innerHTML = rows;
    for (const row of [...piece.content.querySelectorAll("tr")]) {
      // What an index has found already, or what moved to the archive meanwhile.
      if (body.querySelector(`[data-key="${CSS.escape(row.dataset.key)}"]`)) continue;
      body.append(row);
    }
    card.hidden = !body.rows.length;
    const nothing = document.querySelector("[data-nothing]");
    if (nothing && body.rows.length) nothing.hidden = true;
    return body.rows.length;
  };

  const next = async (lane) => {
    const query = new URLSearchParams({ q: panel.dataset.query, cursor: lane.cursor });
    const answer = await fetch(`${lane.line.dataset.address}?${query}`, {
      headers: { Accept: "application/json" },
    });
    if (answer.redirected) { location.reload(); return false; } // signed out meanwhile
    const piece = await answer.json();
    if (!answer.ok) {
      say(lane, piece.problem);
      running = running && answer.status < 500; // a server that is away comes back: "Go on" asks again
      return answer.status >= 500;
    }
    const rows = append(lane, piece.rows);
    say(lane, piece.range);
    lane.cursor = piece.cursor;
    lane.ended = piece.cursor === "";
    if (piece.cursor && rows >= lane.most) {
      say(lane, `${piece.range} ${panel.dataset.many}`);
      lane.most = rows + MAX_ROWS;
      full.push(lane);
      return false;
    }
    return !lane.ended;
  };

  // Read out by a screen reader, which says nothing of the rows and the lines of the flows.
  const report = () => {
    const text = lanes.every((lane) => lane.ended) ? panel.dataset.ended : panel.dataset.unfinished;
    outcome.textContent = text.replace("{n}", document.querySelectorAll("[data-key]").length);
  };

  const show = () => {
    start.hidden = running || !waiting.length;
    stop.hidden = !running;
    panel.toggleAttribute("data-running", running);
  };

  const run = async () => {
    running = true;
    show();
    if (active) return;
    active = true;
    outcome.textContent = "";
    while (running && waiting.length) {
      const lane = waiting.shift();
      try {
        if (await next(lane)) waiting.push(lane);
      } catch {
        say(lane, panel.dataset.failed);
        waiting.push(lane);
        running = false;
      }
    }
    running = active = false;
    waiting.push(...full.splice(0));
    start.textContent = panel.dataset.goOn;
    show();
    panel.toggleAttribute("data-over", !waiting.length);
    report();
  };

  start.addEventListener("click", run);
  stop.addEventListener("click", () => { running = false; show(); });
  if ("auto" in panel.dataset) run(); else show();
}
