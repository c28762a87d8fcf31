// Keeps what is marked data-live up to date, filters while one types, and offers tables.
// Every page works without it: then it is loaded again by hand, and each form is sent by its button.
"use strict";

(() => {
  const pause = Number(document.body.dataset.every || 0) * 1000;
  const news = document.getElementById("news");

  function tell(words) {
    if (news && news.textContent !== words) {
      news.textContent = words;
      news.hidden = !words;
    }
  }

  function busy(part) {
    const focus = document.activeElement;
    return focus && part.contains(focus) && focus.matches("input, select, textarea");
  }

  function put(part, fresh) {
    if (part.innerHTML === fresh.innerHTML || busy(part)) return;
    const focus = part.contains(document.activeElement) ? document.activeElement.id : "";
    const open = new Set([...part.querySelectorAll("details[open][id]")].map((details) => details.id));
    part.replaceChildren(...fresh.cloneNode(true).childNodes);
    for (const details of part.querySelectorAll("details[id]")) {
      if (open.has(details.id)) details.open = true;
    }
    if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
  }

  let asking = false;
  async function refresh() {
    if (asking) return;
    asking = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.redirected && new URL(answer.url).pathname === "/login") {
        tell("The session has ended. Load the page again to sign in.");
        return;
      }
      if (answer.status >= 500) throw new Error(String(answer.status));
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live]")) {
        const same = fresh.getElementById(part.id);
        if (same) put(part, same);
      }
      tell("");
    } catch {
      tell("The server does not answer. What is shown may be old; it is asked again.");
    } finally {
      asking = false;
    }
  }

  if (pause) {
    setInterval(() => document.hidden || refresh(), pause);
    document.addEventListener("visibilitychange", () => document.hidden || refresh());
  }

  const filter = document.querySelector("form[data-filter]");
  if (filter) {
    let waiting;
    filter.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        const chosen = new URLSearchParams(new FormData(filter));
        for (const [name, value] of [...chosen]) if (!value) chosen.delete(name);
        history.replaceState(null, "", `${location.pathname}${chosen.size ? `?${chosen}` : ""}`);
        refresh();
      }, 250);
    });
  }

  const tables = document.querySelector("datalist[data-from]");
  if (tables) {
    fetch(tables.dataset.from)
      .then((answer) => (answer.ok ? answer.json() : []))
      .then((names) => tables.replaceChildren(...names.map((name) => Object.assign(document.createElement("option"), { value: name }))))
      .catch(() => {}); // without them one writes the name
  }
})();
