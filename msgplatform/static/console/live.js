// Renews the parts of a page that have `data-live`, without reloading it.
//
// An element with `data-live-seconds` says that the page wants it, and how often; an answer without
// one ends it. The page has a button with `data-live-button` and a message with
// `data-live-trouble`. Its own address with `live=1` answers with the parts alone; each is found by
// its id. With `data-live-list` the rows of the page's list are a part too, and the whole page is
// asked for. It waits while it is paused, while nobody sees the tab, and while somebody types,
// presses or has selected text in one of the parts. The page is loaded anew when a part, a chart or
// the list is missing in the answer, or a chart or the list is new.
"use strict";

(() => {
  const wish = document.querySelector("[data-live-seconds]");
  if (!wish) return;
  const button = document.querySelector("[data-live-button]");
  const trouble = document.querySelector("[data-live-trouble]");
  // What each part was given: other scripts add to it. The token of a form differs in each answer.
  const written = (part) => part.innerHTML.replace(/(csrfmiddlewaretoken" value=")[^"]*/g, "$1");
  const isList = "liveList" in wish.dataset;
  const parts = new Map();
  for (const part of document.querySelectorAll(isList ? "[data-live], #result_list" : "[data-live]")) {
    parts.set(part, written(part));
  }
  let seconds = Number(wish.dataset.liveSeconds);
  let paused = false;
  let timer = 0;

  const address = () => {
    const url = new URL(location.href);
    if (!isList) url.searchParams.set("live", "1");
    return url;
  };

  function plan() {
    clearTimeout(timer);
    if (seconds && !paused && !document.hidden) timer = setTimeout(renew, seconds * 1000);
  }

  function end() {
    seconds = 0;
    button.hidden = true;
  }

  async function renew() {
    clearTimeout(timer);
    if (isBusy()) return plan();
    try {
      const answer = await fetch(address(), { signal: AbortSignal.timeout(20000) });
      // The session has ended: session.js says so, with a link to the login that leads back here.
      if (answer.status === 401) return end();
      if (answer.redirected) return location.reload(); // there is something to do first
      if (!answer.ok) throw new Error(String(answer.status));
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      // It may have been paused meanwhile: then what is shown stays.
      if (!paused && !isBusy()) show(fresh);
      trouble.hidden = true;
    } catch {
      trouble.hidden = false;
    }
    plan();
  }

  function isBusy() {
    const selection = getSelection();
    return [...parts.keys()].some((part) =>
      part.matches(":active")
      || part.querySelector("input:focus, select:focus, textarea:focus, [tabindex]:focus-visible")
      || (!selection.isCollapsed && selection.containsNode(part, true)));
  }

  // The first row or numbers of something have come, or its last ones are gone.
  function isOther(fresh) {
    const list = (page) => page.getElementById("result_list");
    if (isList && !list(fresh) !== !list(document)) return true;
    const charts = (page) =>
      [...page.querySelectorAll("canvas[data-chart]")].map((canvas) => canvas.id).join();
    return charts(fresh) !== charts(document)
      || [...parts.keys()].some((part) => !fresh.getElementById(part.id));
  }

  // Not while somebody types: then with a later answer.
  function reload() {
    const fields = [...document.querySelectorAll("input, textarea")];
    const isTyping = fields.some((field) => field.value !== field.defaultValue);
    if (!isTyping) location.reload();
  }

  function show(fresh) {
    const again = fresh.querySelector("[data-live-seconds]"); // before it moves into this page
    if (isOther(fresh)) return reload();
    for (const [part, before] of parts) {
      const next = fresh.getElementById(part.id);
      if (written(next) === before) continue;
      parts.set(part, written(next));
      swap(part, next);
    }
    for (const next of fresh.querySelectorAll("canvas[data-chart]")) {
      const canvas = document.getElementById(next.id);
      canvas.dataset.chart = next.dataset.chart;
      canvas.setAttribute("aria-label", next.getAttribute("aria-label"));
    }
    document.dispatchEvent(new Event("console:renewed"));
    if (again) seconds = Number(again.dataset.liveSeconds);
    else end();
  }

  // An id, address, or name and value, by which an element is found in the new part.
  const identity = (element) => element.id || element.href
    || (element.name && `${element.name}=${element.value}`)
    || (element.matches("details[id] > summary") && `summary of ${element.parentElement.id}`);

  // Whoever was on a link, a button or a summary of the part is on the same one of the new part, its
  // boxes stay scrolled to where they were, and details with an id stay open or closed.
  function swap(part, next) {
    const active = part.contains(document.activeElement) ? document.activeElement : null;
    const boxes = () => [...part.querySelectorAll(".scroll, .tall")];
    const scrolled = boxes().map((box) => [box.scrollLeft, box.scrollTop]);
    const details = [...part.querySelectorAll("details[id]")].map((one) => [one.id, one.open]);
    part.replaceChildren(...document.adoptNode(next).childNodes);
    for (const [id, open] of details) {
      const same = document.getElementById(id);
      if (same) same.open = open;
    }
    boxes().forEach((box, place) => box.scrollTo(...(scrolled[place] || [0, 0])));
    if (!active) return;
    const same = [...part.querySelectorAll("a[href], button, summary")].find((element) =>
      identity(active) && identity(element) === identity(active));
    (same || button).focus({ preventScroll: true });
  }

  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? button.dataset.goOn : button.dataset.pause;
    button.closest(".live").classList.toggle("paused", paused);
    if (paused) clearTimeout(timer);
    else renew();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else if (seconds && !paused) renew();
  });
  plan();
})();
