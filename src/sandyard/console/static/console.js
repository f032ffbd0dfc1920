// What pages need beyond htmx: times and calendars in the viewer's zone, confirmations, the theme.
"use strict";

// On a phone the link to the page that one is on may be out of sight.
function showWhereOneIs() {
  for (const each of document.querySelectorAll("nav [aria-current]")) {
    each.parentElement.scrollLeft = each.offsetLeft - each.parentElement.offsetLeft - 40;
  }
}

function showTimes(root) {
  const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  const ofToday = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  const other = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  const today = new Date().toDateString();
  for (const each of root.querySelectorAll("time[datetime]")) {
    const at = new Date(each.getAttribute("datetime"));
    each.title = full.format(at);
    if ("ago" in each.dataset) each.textContent = ago(at);
    else each.textContent = (at.toDateString() === today ? ofToday : other).format(at);
  }
  for (const each of root.querySelectorAll("[data-zone]")) {
    each.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;
  }
}

// <time data-ago>: how long it is since then.
const UNITS = [["day", 86_400], ["hour", 3_600], ["minute", 60], ["second", 1]];

function ago(at) {
  const seconds = Math.min(0, (at - Date.now()) / 1000);
  const [unit, length] = UNITS.find(([, length]) => -seconds >= length) || ["second", 1];
  return new Intl.RelativeTimeFormat(undefined, { numeric: "auto" }).format(Math.round(seconds / length), unit);
}
setInterval(() => document.querySelector("time[data-ago]") && showTimes(document), 30_000);

// <table data-calendar>: its days are those of the viewer's zone, and a row is busy between data-from and data-to.
function showCalendar(table) {
  const now = new Date();
  const begins = (index) => new Date(now.getFullYear(), now.getMonth(), now.getDate() + index);
  const share = (seconds, index) => (seconds * 1000 - begins(index)) / (begins(index + 1) - begins(index));
  const percent = (value) => `${Math.round(100 * Math.min(1, Math.max(0, value)))}%`;
  const name = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric" });
  table.querySelectorAll("th.day").forEach((each, index) => { each.textContent = name.format(begins(index)); });
  for (const row of table.querySelectorAll("[data-from]")) {
    row.querySelectorAll("td.day").forEach((cell, index) => {
      const [from, to] = [share(row.dataset.from, index), share(row.dataset.to, index)];
      cell.classList.toggle("busy", from < 1 && to > 0);
      cell.firstElementChild.hidden = !cell.matches(".busy");
      cell.style.setProperty("--from", percent(from));
      cell.style.setProperty("--to", percent(to));
    });
  }
}

// A date or time that was entered is one of the viewer's zone; it is sent as an instant.
document.addEventListener("htmx:configRequest", (event) => {
  for (const each of event.detail.elt.querySelectorAll("input[type=date], input[type=datetime-local]")) {
    if (!each.value) continue;
    const local = each.type === "date" ? `${each.value}T00:00` : each.value;
    event.detail.parameters[each.name] = new Date(local).toISOString();
  }
});

// On a phone a row is a list of its cells, each with the name of its column.
function nameCells(table) {
  const names = [...table.querySelectorAll("thead th")].map((each) => each.textContent);
  for (const row of table.tBodies[0].rows) {
    [...row.cells].forEach((cell, index) => { cell.dataset.column = names[index]; });
  }
}

function prepare(root) {
  showTimes(root);
  root.querySelectorAll("[data-calendar]").forEach(showCalendar);
  root.querySelectorAll("table:has(thead)").forEach(nameCells);
  root.querySelectorAll("[data-chart]").forEach(drawChart);
}

// A live refresh waits while nobody looks, while a field is being filled in (it would be empty again), while
// a question is open (its button would do nothing), and while a mouse button or finger is down (the click
// would be lost with its element). What was missed is shown afterwards.
const missed = new Set();
let isPressed = false;
const isLive = (element) => /sse:|every/.test(element.getAttribute("hx-trigger") || "");

function isEdited(target) {
  const fields = [...target.querySelectorAll("input:not([type=hidden]), textarea")];
  return fields.some((each) => each === document.activeElement || isChanged(each));
}

const isChanged = (field) => (field.type === "checkbox" ? field.checked !== field.defaultChecked : field.value !== field.defaultValue);

document.addEventListener("htmx:beforeRequest", (event) => {
  const { elt, target } = event.detail;
  if (!isLive(elt) || !(document.hidden || isEdited(target))) return;
  event.preventDefault();
  missed.add(elt);
});
document.addEventListener("htmx:beforeSwap", (event) => {
  const { target, requestConfig } = event.detail;
  if (!requestConfig || !isLive(requestConfig.elt)) return;
  if (!document.getElementById("confirm")?.open && !isPressed && !isEdited(target)) return;
  event.detail.shouldSwap = false;
  missed.add(requestConfig.elt);
});

function showMissed() {
  if (document.hidden) return;
  for (const each of [...missed]) {
    missed.delete(each);
    const [trigger] = /sse:\w+/.exec(each.getAttribute("hx-trigger")) || [];
    if (trigger && document.contains(each)) htmx.trigger(each, trigger);
  }
}
document.addEventListener("visibilitychange", showMissed);
document.addEventListener("focusout", () => setTimeout(showMissed));
document.addEventListener("pointerdown", () => { isPressed = true; });
for (const end of ["pointerup", "pointercancel"]) {
  // After the click, which comes next.
  document.addEventListener(end, () => setTimeout(() => { isPressed = false; showMissed(); }));
}

// Questions are asked in the page's own dialog, which can be styled and reached by keyboard.
function ask(question, whenYes, whenNo = () => {}) {
  const dialog = document.getElementById("confirm");
  document.getElementById("confirm-text").textContent = question;
  dialog.returnValue = "no";
  dialog.addEventListener("close", () => (dialog.returnValue === "yes" ? whenYes : whenNo)(), { once: true });
  dialog.showModal();
}
document.addEventListener("htmx:confirm", (event) => {
  const { question, elt, target, issueRequest } = event.detail;
  const loses = !isLive(elt) && target && isUnsaved(target, elt.closest("form"));
  const text = [question, loses && "Your unsaved changes are lost."].filter(Boolean).join(" ");
  if (!text) return;
  event.preventDefault();
  ask(text, () => issueRequest(true), showMissed);
});

// A text that was changed and not saved is not left without a question.
function isUnsaved(root, saved = null) {
  return [...root.querySelectorAll("textarea")].some((each) => isChanged(each) && (!saved || each.form !== saved));
}
window.addEventListener("beforeunload", (event) => { if (isUnsaved(document)) event.preventDefault(); });

// "/" goes to the page's search field.
document.addEventListener("keydown", (event) => {
  const field = document.querySelector("[data-search]");
  if (event.key !== "/" || !field || event.target.closest("input, textarea, select, [data-terminal]")) return;
  event.preventDefault();
  field.focus();
});

document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-theme-toggle]")) return;
  const isDark = getComputedStyle(document.documentElement).colorScheme === "dark";
  document.documentElement.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", document.documentElement.dataset.theme);
  prepare(document);
});

document.addEventListener("htmx:load", (event) => prepare(event.target));
document.addEventListener("DOMContentLoaded", showWhereOneIs);
window.addEventListener("resize", () => requestAnimationFrame(showWhereOneIs));
document.addEventListener("htmx:sseOpen", () => document.getElementById("live")?.classList.add("on"));
document.addEventListener("htmx:sseError", () => document.getElementById("live")?.classList.remove("on"));
// An alert stays until somebody does something; a live refresh does not take it away.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.detail.requestConfig.triggeringEvent?.isTrusted) document.getElementById("alerts").textContent = "";
});
