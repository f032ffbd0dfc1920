// <div data-chart="URL">: the URL answers {"times": [seconds], "series": [{"label", "values", "colour"?}], "unit"?}.
// With "daily" each value is of a day in UTC, and drawn as a bar.
"use strict";

const COLOURS = {
  light: ["#c2410c", "#2563eb", "#15803d", "#a21caf", "#a16207", "#0e7490", "#be123c"],
  dark: ["#fb923c", "#60a5fa", "#4ade80", "#e879f9", "#fde047", "#22d3ee", "#fda4af"],
};
const charts = new WeakMap();
const HEIGHT = 220;
const DAY = 86_400;
const AROUND_ONE_SEC = 1800;

// A value without neighbours has no line: it is always drawn as a point.
function isolated(values) {
  const isThere = (index) => (values[index] ?? null) !== null;
  return [...values.keys()].filter((index) => isThere(index) && !isThere(index - 1) && !isThere(index + 1));
}

// As the rest of the page shows times: in the viewer's language and zone; a day's name stands below its first tick.
function nameTicks(ticks, step, timeZone) {
  const shown = (options) => new Intl.DateTimeFormat(undefined, { timeZone, ...options });
  const day = shown({ month: "short", day: "numeric" });
  const clock = shown(step < 60 ? { timeStyle: "medium" } : { timeStyle: "short" });
  let last;
  return ticks.map((tick) => {
    const [date, before] = [day.format(tick * 1000), last];
    last = date;
    if (step >= DAY) return date;
    return clock.format(tick * 1000) + (date === before ? "" : `\n${date}`);
  });
}

function optionsOf(element, { times, series, unit = "", daily = false }) {
  const style = getComputedStyle(element);
  const colours = COLOURS[style.colorScheme === "dark" ? "dark" : "light"];
  const line = { stroke: style.getPropertyValue("--line"), width: 1 };
  const axis = { stroke: style.getPropertyValue("--soft"), font: `12px ${style.fontFamily}`, grid: line, ticks: line };
  const zone = daily ? "UTC" : undefined;
  const number = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 6 });
  const full = new Intl.DateTimeFormat(undefined, daily ? { dateStyle: "medium", timeZone: zone } : { dateStyle: "medium", timeStyle: "medium" });
  const around = daily ? DAY / 2 : times.length === 1 ? AROUND_ONE_SEC : 0;
  const shownTimes = (first, last) => (times.length === 1 ? [times[0] - around, times[0] + around] : [first - around, last + around]);
  const latest = (values) => values.findLast((value) => value !== null) ?? null;
  const told = (value) => (value === null ? "–" : number.format(value) + unit);
  return {
    width: element.clientWidth,
    height: HEIGHT,
    padding: [null, 38, null, null],
    tzDate: daily ? (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : undefined,
    scales: { x: { range: (_plot, first, last) => shownTimes(first, last) } },
    series: [{ value: (_plot, at) => (at === null ? "" : full.format(at * 1000)) }, ...series.map((each, index) => {
      const stroke = colours[(each.colour ?? index) % colours.length];
      return {
        label: each.label, stroke, width: daily ? 0 : 2, spanGaps: false,
        fill: daily ? stroke : series.length === 1 ? `${stroke}22` : undefined,
        paths: daily ? uPlot.paths.bars({ size: [0.7, 40] }) : undefined,
        points: daily ? { show: false } : { filter: (plot, number, isShown) => (isShown ? null : isolated(plot.data[number])) },
        value: (_plot, value, _series, at) => told(at === null ? latest(each.values) : value),
      };
    })],
    hooks: { setScale: [(plot, key) => { if (key === "x") element.dataset.from = plot.scales.x.min; }] },
    axes: [
      { ...axis, space: 80, incrs: daily ? [DAY, 2 * DAY, 7 * DAY] : undefined, values: (_plot, ticks, _axis, _space, step) => nameTicks(ticks, step, zone) },
      { ...axis, size: (_plot, values) => 20 + 7 * Math.max(3, ...(values || []).map((each) => each.length)), values: (_plot, ticks) => ticks.map(told) },
    ],
  };
}

async function drawChart(element) {
  element.drawnAt = Date.now();
  const answer = await fetch(element.dataset.chart, { headers: { Accept: "application/json" } });
  if (!answer.ok) return void (element.textContent = "The chart's data could not be read. Reload the page.");
  const data = await answer.json();
  element.classList.toggle("blank", !data.times.length);
  if (!data.times.length) return void (element.textContent = element.dataset.empty || "Nothing to show yet.");
  const options = optionsOf(element, data);
  charts.get(element)?.destroy();
  element.textContent = "";
  charts.set(element, new uPlot(options, [data.times, ...data.series.map((each) => each.values)], element));
}

// Charts are as wide as the window lets them be, and have the colours of its theme.
window.addEventListener("resize", () => requestAnimationFrame(() => {
  for (const each of document.querySelectorAll("[data-chart]")) {
    charts.get(each)?.setSize({ width: each.clientWidth, height: HEIGHT });
  }
}));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.querySelectorAll("[data-chart]").forEach(drawChart));

function isZoomed(plot) {
  const { min, max } = plot.scales.x;
  return min > plot.data[0][0] || max < plot.data[0].at(-1);
}

// data-every="SECONDS": drawn again so often while somebody looks at the whole of it.
setInterval(() => {
  for (const each of document.querySelectorAll("[data-every]")) {
    const [plot, age] = [charts.get(each), Date.now() - (each.drawnAt || 0)];
    if (age >= 1000 * each.dataset.every && !document.hidden && !(plot && isZoomed(plot))) drawChart(each);
  }
}, 5_000);
