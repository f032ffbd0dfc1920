// What pages need beyond htmx: times in the viewer's zone, charts, confirmations, the theme.
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
    each.textContent = (at.toDateString() === today ? ofToday : other).format(at);
  }
}

// <div data-chart="URL">: the URL answers {"times": [seconds], "series": [{"label", "values"}], "unit"?}.
const COLOURS = {
  light: ["#c2410c", "#2563eb", "#15803d", "#a21caf", "#b45309", "#0e7490"],
  dark: ["#fb923c", "#60a5fa", "#4ade80", "#e879f9", "#fbbf24", "#22d3ee"],
};
const charts = new WeakMap();
const HEIGHT = 220;

async function drawChart(element) {
  element.drawnAt = Date.now();
  const answer = await fetch(element.dataset.chart, { headers: { Accept: "application/json" } });
  if (!answer.ok) return void (element.textContent = "The chart's data could not be read. Reload the page.");
  const { times, series, unit = "", step = 1800 } = await answer.json();
  if (!times.length) return void (element.textContent = element.dataset.empty || "Nothing to show yet.");
  const style = getComputedStyle(element);
  const colours = COLOURS[style.colorScheme === "dark" ? "dark" : "light"];
  const line = { stroke: style.getPropertyValue("--line"), width: 1 };
  const axis = { stroke: style.color, grid: line, ticks: line };
  const around = (first, last) => (times.length === 1 ? [times[0] - step, times[0] + step] : [first, last]);
  const options = {
    width: element.clientWidth,
    height: HEIGHT,
    scales: { x: { range: (_plot, first, last) => around(first, last) } },
    series: [{}, ...series.map((each, index) => ({
      label: each.label, stroke: colours[index % colours.length], width: 2, spanGaps: false,
      fill: series.length === 1 ? `${colours[0]}22` : undefined,
      value: (_plot, value) => value === null ? "–" : `${+value.toFixed(3)}${unit}`,
    }))],
    hooks: { setScale: [(plot, key) => { if (key === "x") element.dataset.from = plot.scales.x.min; }] },
    axes: [axis, { ...axis, size: 60, values: (_plot, ticks) => ticks.map((tick) => `${tick}${unit}`) }],
  };
  charts.get(element)?.destroy();
  element.textContent = "";
  charts.set(element, new uPlot(options, [times, ...series.map((each) => each.values)], element));
}

// Charts are as wide as the window lets them be, and have the colours of its theme.
window.addEventListener("resize", () => requestAnimationFrame(() => {
  showWhereOneIs();
  for (const each of document.querySelectorAll("[data-chart]")) {
    charts.get(each)?.setSize({ width: each.clientWidth, height: HEIGHT });
  }
}));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => prepare(document));

// data-every="SECONDS": drawn again so often while somebody looks.
setInterval(() => {
  for (const each of document.querySelectorAll("[data-every]")) {
    const isDue = Date.now() - (each.drawnAt || 0) >= 1000 * each.dataset.every;
    if (isDue && !document.hidden) drawChart(each);
  }
}, 10_000);

function prepare(root) {
  showTimes(root);
  for (const each of root.querySelectorAll("[data-chart]")) drawChart(each);
}

// A live refresh waits while nobody looks, while a field is being filled in (it would be empty again), and
// while a question is open (its button would do nothing). What was missed is shown afterwards.
const missed = new Set();
const isLive = (element) => /sse:|every/.test(element.getAttribute("hx-trigger") || "");

function isEdited(target) {
  const fields = [...target.querySelectorAll("input:not([type=hidden]), textarea")];
  return fields.some((each) => each === document.activeElement || each.value !== each.defaultValue);
}

document.addEventListener("htmx:beforeRequest", (event) => {
  const { elt, target } = event.detail;
  if (!isLive(elt) || !(document.hidden || isEdited(target))) return;
  event.preventDefault();
  missed.add(elt);
});
document.addEventListener("htmx:beforeSwap", (event) => {
  const { target, requestConfig } = event.detail;
  if (!requestConfig || !isLive(requestConfig.elt)) return;
  if (!document.getElementById("confirm")?.open && !isEdited(target)) return;
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

// hx-confirm asks in the page's own dialog, which can be styled and reached by keyboard.
document.addEventListener("htmx:confirm", (event) => {
  if (!event.detail.question) return;
  event.preventDefault();
  const dialog = document.getElementById("confirm");
  document.getElementById("confirm-text").textContent = event.detail.question;
  dialog.returnValue = "no";
  dialog.addEventListener("close", () => {
    if (dialog.returnValue === "yes") event.detail.issueRequest(true);
    else showMissed();
  }, { once: true });
  dialog.showModal();
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
document.addEventListener("htmx:sseOpen", () => document.getElementById("live")?.classList.add("on"));
document.addEventListener("htmx:sseError", () => document.getElementById("live")?.classList.remove("on"));
// An alert stays until somebody does something; a live refresh does not take it away.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.detail.requestConfig.triggeringEvent?.isTrusted) document.getElementById("alerts").textContent = "";
});
