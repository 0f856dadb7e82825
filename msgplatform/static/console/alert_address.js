// The address of a new alert channel: the inputs are those of the kind that is chosen.
for (const address of document.querySelectorAll("[data-address]")) {
  const kinds = JSON.parse(address.querySelector("script").textContent);
  const select = address.querySelector("select");
  const inputs = [...address.querySelectorAll("input")];
  const labels = [...address.querySelectorAll("[data-label]")];
  const show = () => {
    const [hint, ...parts] = kinds[select.value];
    inputs.forEach((input, index) => {
      const [label, example] = parts[index] ?? ["", ""];
      labels[index].textContent = label;
      input.placeholder = example;
      input.hidden = labels[index].hidden = !label;
    });
    address.querySelector("[data-hint]").textContent = hint;
  };
  select.addEventListener("change", show);
  show();
}
