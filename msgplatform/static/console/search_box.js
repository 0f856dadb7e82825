// "/" goes to the search box, from everywhere but a field that somebody types in.
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  // The page of the search has a box of its own, which comes later in the document.
  const box = [...document.querySelectorAll("[data-find]")].pop();
  if (!box) return;
  event.preventDefault();
  event.stopPropagation(); // lists of the theme go to their own box otherwise
  box.focus();
  box.select();
});
