// What a page of the inbox does by itself: it stays up to date, and answers to keys. Without it, everything still works.
"use strict";

// ---- Live: when the mock says that something changed, the page is asked for again and brought up to date in place.

const RETRY_MS = 1000;
const state = document.getElementById("link-state");
let stream = null;
let asking = false;
let askAgain = false;

function connect() {
  stream = new EventSource("/api/stream?only=changes");
  stream.onopen = () => {
    say("live", "Live");
    refresh(); // what happened before, or while the line was down
  };
  stream.onerror = () => {
    say("lost", "Reconnecting…");
    if (stream.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    disconnect();
    setTimeout(() => stream ?? connect(), RETRY_MS);
  };
  stream.addEventListener("change", refresh);
  stream.addEventListener("in_flight", (event) => {
    document.getElementById("in-flight").textContent = JSON.parse(event.data).in_flight;
  });
}

function disconnect() {
  stream?.close();
  stream = null;
}

function say(name, text) {
  if (state.className === name) return;
  state.hidden = false;
  state.className = name;
  state.textContent = text;
}

function refresh() {
  askAgain = asking;
  if (asking) return;
  asking = true;
  const request = new XMLHttpRequest(); // fetch() would need a sink that the trusted types policy forbids
  request.open("GET", location.href);
  request.responseType = "document";
  request.timeout = 10_000;
  request.onload = () => {
    if (request.status < 500 && request.responseXML) show(request.responseXML);
  };
  request.onloadend = () => {
    asking = false;
    if (askAgain) refresh();
  };
  request.send();
}

// A mail that somebody is looking at or stands on stays where it is, though newer ones have pushed it off the page.
function show(page) {
  document.title = page.title;
  const rows = scrollY > 0 ? [...document.querySelectorAll("[data-row]")].filter(isInView) : [];
  const kept = new Set([...rows, document.activeElement].map((row) => row?.closest("li")));
  const fixed = rows.includes(document.activeElement) ? document.activeElement : rows[0];
  const before = fixed?.getBoundingClientRect().top;
  const callbacks = { beforeNodeRemoved: (node) => !kept.has(node), afterNodeAdded: welcome };
  for (const part of document.querySelectorAll("[data-live]")) {
    const now = page.getElementById(part.id);
    if (now) Idiomorph.morph(part, now, { callbacks });
  }
  if (fixed?.isConnected) scrollBy({ top: fixed.getBoundingClientRect().top - before, behavior: "instant" });
}

function isInView(element) {
  const { top, bottom } = element.getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
}

function welcome(node) {
  if (node.nodeName === "LI") node.classList.add("new");
}

// A hidden page keeps no line open: a browser has six of them for all pages of one server.
document.addEventListener("visibilitychange", () => {
  disconnect();
  if (!document.hidden) connect();
});
addEventListener("pagehide", disconnect);
addEventListener("pageshow", () => document.hidden || stream || connect());

// ---- Dialogs

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-dialog]");
  if (!opener) return;
  event.preventDefault();
  document.getElementById(opener.dataset.dialog).showModal();
});
document.querySelector("button.keys").hidden = false;

// ---- Keys. What has a data-key is clicked by it, a field is entered.

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (document.querySelector("dialog[open], :popover-open")) return;
  const field = event.target.closest("input, textarea, select");
  if (field ? leave(field, event.key) : act(event.key)) event.preventDefault();
});

function leave(field, key) {
  if (key === "Escape") field.blur();
  return field.type === "search" && key === "ArrowDown" && step(1);
}

function act(key) {
  if (key === "?") return open("keys");
  const target = document.querySelector(`[data-key~="${CSS.escape(key)}"]`);
  if (target) return target.matches("input") ? enter(target) : press(target);
  if (key === "j" || key === "ArrowDown") return step(1);
  if (key === "k" || key === "ArrowUp") return step(-1);
  if (key === "ArrowRight") return press(document.querySelector(".tabs [aria-current]")?.nextElementSibling);
  if (key === "ArrowLeft") return press(document.querySelector(".tabs [aria-current]")?.previousElementSibling);
  return false;
}

function open(id) {
  document.getElementById(id).showModal();
  return true;
}

function enter(field) {
  field.focus();
  field.select();
  return true;
}

function press(target) {
  target?.click();
  return Boolean(target);
}

function step(by) {
  const rows = [...document.querySelectorAll("[data-row]")];
  const at = rows.indexOf(document.activeElement);
  const next = rows[at < 0 ? 0 : at + by];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
  return rows.length > 0;
}
