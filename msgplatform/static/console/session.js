// A part of a page that could not be fetched because the session has ended: say so once, with a
// link to the login in another tab. Nothing on the page is lost.
(() => {
  let shown = false;

  function say(text) {
    if (shown) return;
    shown = true;
    const link = document.createElement("a");
    link.href = "/admin/login/?next=" + encodeURIComponent(location.pathname + location.search);
    link.textContent = text;
    link.target = "_blank";
    const bar = document.createElement("div");
    link.addEventListener("click", () => { bar.remove(); shown = false; });
    bar.className = "session-ended";
    bar.setAttribute("role", "alert");
    bar.append(link);
    document.body.prepend(bar);
  }

  const fetched = window.fetch;
  window.fetch = async (...given) => {
    const answer = await fetched(...given);
    if (answer.headers.get("X-Session") === "ended") say(await answer.clone().text());
    return answer;
  };

  const send = XMLHttpRequest.prototype.send;
  XMLHttpRequest.prototype.send = function (...given) {
    this.addEventListener("load", () => {
      if (this.getResponseHeader("X-Session") === "ended") say(this.responseText);
    });
    return send.apply(this, given);
  };
})();

// A login in another tab changes the token of forms: a page from before sends the browser's own.
// Of two cookies of that name, one of them another application's, Django takes the last.
document.addEventListener("formdata", ({ formData }) => {
  const token = document.cookie.match(/(?:^|.*; )csrftoken=([^;]+)/)?.[1];
  if (token && formData.has("csrfmiddlewaretoken")) formData.set("csrfmiddlewaretoken", token);
});

// A form is sent once for a double click: of two answers a browser shows the second alone, and the
// secret in the first one would stay unseen. Buttons stay enabled, since a disabled one sends no
// value, and after some seconds a click counts again: the page stays when the answer is a file.
(() => {
  const MILLISECONDS = 5000;
  const sentAt = new Map(); // button (a form without one: the form) → time of its last click

  document.addEventListener("submit", (event) => {
    const { target: form, submitter: button } = event;
    if (event.defaultPrevented || !/post/i.test(form.getAttribute("method"))) return;
    if (button?.formTarget) return; // the answer comes in another tab
    if (event.timeStamp - sentAt.get(button || form) < MILLISECONDS) event.preventDefault();
    else sentAt.set(button || form, event.timeStamp);
  });
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) sentAt.clear(); // somebody came back to the page
  });
})();
