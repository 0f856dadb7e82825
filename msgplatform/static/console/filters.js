// Fields of filters: names are offered while one types, and periods are filled in by a click.
for (const input of document.querySelectorAll("[data-options]")) {
  const list = document.createElement("datalist");
  list.id = `${input.id}-options`;
  input.after(list);
  input.setAttribute("list", list.id);
  let asked = null;
  const offer = async () => {
    const typed = input.value;
    const answer = await fetch(`${input.dataset.options}?${new URLSearchParams({ q: typed })}`);
    if (!answer.ok || answer.redirected || input.value !== typed) return;
    const { options } = await answer.json();
    list.replaceChildren(...options.map(({ value, label }) => {
      const option = document.createElement("option");
      option.value = value;
      option.label = label ? `${label} · ${value}` : value;
      return option;
    }));
  };
  const soon = () => { clearTimeout(asked); asked = setTimeout(() => offer().catch(() => {}), 150); };
  input.addEventListener("input", soon);
  input.addEventListener("focus", soon, { once: true });
}

for (const button of document.querySelectorAll("[data-since]")) {
  button.addEventListener("click", () => {
    for (const name of ["since", "until"]) {
      const field = button.form.elements.namedItem(name);
      field.type = "datetime-local"; // a text that was no time is shown in a plain field
      field.value = button.dataset[name];
    }
  });
}

// Leave empty fields out of the address.
for (const form of document.querySelectorAll("form[data-short]")) {
  form.addEventListener("formdata", ({ formData }) => {
    for (const [name, value] of [...formData]) if (value === "") formData.delete(name);
  });
}

// The box in the head of a list ticks all of the page.
for (const all of document.querySelectorAll("[data-tick-all]")) {
  all.addEventListener("change", () => {
    for (const one of all.form.querySelectorAll("input[name=id]")) one.checked = all.checked;
  });
}
