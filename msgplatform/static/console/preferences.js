// Offers the zone that the browser knows, if the list has it and another one is chosen.
(() => {
  const found = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const select = document.querySelector("[name=time_zone]");
  const offer = document.getElementById("browser-zone");
  const known = [...select.options].some((option) => option.value === found);
  if (!known || select.value === found) return;
  offer.querySelector("b").textContent = found;
  offer.hidden = false;
  offer.querySelector("button").addEventListener("click", () => {
    select.value = found;
    offer.hidden = true;
  });
})();
