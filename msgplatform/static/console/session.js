// A part of a page that could not be fetched because the session has ended: say so once, with a
// link to the login that leads back here. Nothing on the page is lost.
(() => {
  let shown = false;

  function say(text) {
    if (shown) return;
    shown = true;
    const link = document.createElement("a");
    link.href = "/admin/login/?next=" + encodeURIComponent(location.pathname + location.search);
    link.textContent = text;
    const bar = document.createElement("div");
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
