// What the theme and its widgets leave unnamed for people who listen to a page: landmarks that look
// alike, fields made by scripts, and boxes that scroll but take no focus.
(() => {
  function name(element, text) {
    if (element && text) element.setAttribute("aria-label", text.trim());
  }

  function complete() {
    name(document.getElementById("nav-sidebar-inner"), document.title.split("|").pop());
    document.querySelectorAll("nav.tabs:not([aria-label])").forEach((nav) => {
      name(nav, (nav.querySelector(".on") || nav.querySelector("a"))?.textContent);
    });
    document.querySelectorAll(".simplebar-content-wrapper").forEach((box, number) => {
      name(box, `${document.getElementById("page").dataset.scrollName} ${number + 1}`);
    });
    document.querySelectorAll("span.help-tooltip").forEach((mark) => mark.setAttribute("role", "img"));
    document.querySelectorAll(".console .scroll, .console .tall, .console pre").forEach((box) => {
      box.tabIndex = 0;
    });
    document.querySelectorAll("select.select2-hidden-accessible").forEach((select) => {
      const label = document.querySelector(`label[for="${select.id}"]`)?.textContent || select.name;
      const box = select.nextElementSibling;
      const parts = "[role=combobox], [role=textbox], [role=searchbox]";
      box?.querySelectorAll(parts).forEach((part) => {
        part.removeAttribute("aria-labelledby");
        name(part, label);
      });
    });
  }

  document.addEventListener("DOMContentLoaded", complete);
  document.addEventListener("console:renewed", complete); // parts of the page are new
  // After the widgets, which wait for the same event.
  window.addEventListener("load", () => setTimeout(complete));
})();
