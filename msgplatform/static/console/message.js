// The page of a message, and Getting started: copies the block above a button, and opens the recipient
// that the address names.
const named = document.getElementById(location.hash.slice(1));
if (named instanceof HTMLDetailsElement) named.open = true;

for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", () => {
    const command = button.previousElementSibling;
    const selection = getSelection();
    const range = document.createRange();
    range.selectNodeContents(command);
    selection.removeAllRanges();
    selection.addRange(range);
    const done = () => { button.textContent = button.dataset.done; };
    // Browsers offer the clipboard over HTTPS only; without it the selection is copied.
    if (navigator.clipboard) navigator.clipboard.writeText(command.textContent).then(done, () => {});
    else if (document.execCommand("copy")) done();
  });
}
