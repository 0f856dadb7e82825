// The scopes of an API key: only those that fit the chosen system are shown, and kept ticked.
for (const scopes of document.querySelectorAll("[data-scopes]")) {
  const system = document.getElementById(scopes.dataset.system);
  const show = () => {
    for (const group of scopes.querySelectorAll("fieldset")) {
      group.hidden = ("withSystem" in group.dataset) !== (system.value !== "");
      if (group.hidden) for (const box of group.querySelectorAll("input")) box.checked = false;
    }
  };
  for (const button of scopes.querySelectorAll("[data-tick]")) {
    button.addEventListener("click", () => {
      for (const name of button.dataset.tick.split(" ")) scopes.querySelector(`input[value="${name}"]`).checked = true;
    });
  }
  if (system) {  // it is fixed after the key was made
    system.addEventListener("change", show);
    show();
  }
}
