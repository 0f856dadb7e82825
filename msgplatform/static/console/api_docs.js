"use strict";

// The reference: Swagger UI with our samples, a box that finds operations by any of their words,
// and the theme of the console.
(() => {
  const root = document.getElementById("api-docs");
  const filter = document.getElementById("api-filter");
  const number = document.getElementById("api-number");

  // Every word must be somewhere in the operation.
  const matches = (words, tag, entry) => {
    const operation = entry.get("operation");
    const text = [tag, entry.get("method"), entry.get("path"), operation.get("summary"),
      operation.get("operationId"), operation.get("description")].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  };

  const count = (groups) => groups.reduce((sum, group) => sum + group.get("operations").size, 0);

  const opsFilter = (groups, phrase) => {
    const words = phrase.toLowerCase().split(/\s+/).filter(Boolean);
    const left = groups
      .map((group, tag) => group.set("operations",
        group.get("operations").filter((entry) => matches(words, tag, entry))))
      .filter((group) => group.get("operations").size > 0);
    const [found, all] = [count(left), count(groups)];
    // Not while Swagger UI renders.
    queueMicrotask(() => {
      number.textContent = words.length
        ? root.dataset.number.replace("{number}", found).replace("{all}", all) : "";
    });
    return left;
  };

  const ui = SwaggerUIBundle({
    url: root.dataset.schema,
    dom_id: "#swagger-ui",
    presets: [SwaggerUIBundle.presets.apis],
    plugins: [codeSamples(root.dataset), () => ({ fn: { opsFilter }, components: { FilterContainer: () => null } })],
    layout: "BaseLayout",
    deepLinking: true,
    docExpansion: "list",
    defaultModelsExpandDepth: -1,
    filter: true,
    validatorUrl: null,
    onComplete: () => find(filter.value),
  });

  const find = (phrase) => {
    root.classList.toggle("filtered", Boolean(phrase.trim()));
    if (!phrase.trim()) number.textContent = "";
    // Without a phrase `true` is "no filter" for Swagger UI.
    ui.layoutActions.updateFilter(phrase.trim() || true);
  };
  filter.addEventListener("input", () => find(filter.value));

  // Swagger UI renders only operations near the view: the page is scrolled down to the group.
  const reveal = (id, tries = 400) => {
    const group = document.getElementById(id);
    if (group) group.scrollIntoView({ block: "start" });
    else if (tries) {
      window.scrollBy(0, window.innerHeight / 2);
      setTimeout(() => reveal(id, tries - 1), 40);
    }
  };

  // A group: also while a phrase hides it, and again after a click on the same link.
  for (const link of root.querySelectorAll("[data-group]")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      filter.value = "";
      find("");
      history.pushState(null, "", link.hash);
      const id = `operations-tag-${link.dataset.group.replace(/\s/g, "_")}`;
      root.scrollIntoView();
      if (link.dataset.group) setTimeout(() => reveal(id), 40);
    });
  }
  // A link to an operation in this page, or the browser's way back.
  window.addEventListener("hashchange", () => ui.layoutActions.parseDeepLinkHash(location.hash));

  // Swagger UI has a dark mode of its own.
  const page = document.documentElement;
  const follow = () => page.classList.toggle("dark-mode", page.classList.contains("dark"));
  new MutationObserver(follow).observe(page, { attributeFilter: ["class"] });
  follow();
})();
