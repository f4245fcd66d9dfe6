// Keeps the inbox up to date: when the mock takes or refuses something, the list is fetched again.
"use strict";

const isList = location.pathname === "/" && !new URLSearchParams(location.search).has("after");

if (isList) {
  let waiting = false;
  const refresh = async () => {
    waiting = false;
    const answer = await fetch(location.href);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.querySelector("main").replaceWith(page.querySelector("main"));
  };
  const soon = () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => refresh().catch(() => {}), 300); // many mails in a moment are one refresh
  };
  const stream = new EventSource("/api/stream");
  stream.addEventListener("message", soon);
  stream.addEventListener("attempt", soon);
}
