// Curves. An element with data-chart has the numbers as JSON: {x: [seconds], series: [{name, values, color}], …}.
// Where scripts do not run, the page has the same numbers as a table.
import uPlot from "uplot";

const drawn = new Map();

export function draw(charts) {
  forget();
  for (const each of charts) {
    const numbers = each.dataset.chart;
    const before = drawn.get(each);
    const isThere = before !== undefined && each.contains(before.plot.root);
    if (isThere && before.numbers === numbers) continue;
    const told = JSON.parse(numbers);
    if (isThere && before.shape === shape(told)) {
      before.plot.setData(data(told));
      if (before.plot.cursor.idx == null) showLast(before.plot);
      before.numbers = numbers;
      continue;
    }
    before?.undo();
    drawn.set(each, { numbers, shape: shape(told), ...plotted(each, told) });
  }
}

// Charts whose numbers alone have changed are drawn on: the reader's cursor stays where it is.
function shape(told) {
  return JSON.stringify({ ...told, x: 0, series: told.series.map((each) => ({ ...each, values: 0 })) });
}

function data(told) {
  return [told.x, ...told.series.map((each) => each.values)];
}

function forget() {
  for (const [place, { undo }] of drawn) {
    if (place.isConnected) continue;
    undo();
    drawn.delete(place);
  }
}

function plotted(place, told) {
  const paint = painter(place);
  const line = { stroke: paint("--tblr-border-color"), width: 1 };
  const axis = { stroke: paint("--tblr-secondary"), grid: line, ticks: line, font: "11px sans-serif" };
  const target = place.querySelector("[data-drawn]") ?? place;
  const second = told.series.find((each) => each.scale)?.scale;
  const height = told.height ?? 160;
  const isTime = told.time ?? true;
  const plot = new uPlot({
    width: target.clientWidth,
    height,
    cursor: { points: { size: 6 } },
    legend: { live: true },
    hooks: { setCursor: [(it) => { if (it.cursor.idx === null || it.cursor.idx === undefined) showLast(it); }] },
    scales: { x: { time: isTime }, y: { range: fromZero }, ...(told.scales ?? {}) },
    axes: [
      { ...axis, ...(isTime ? { values: times, space: 70 } : {}) },
      { ...axis, size: 52, values: short },
      ...(second ? [{ ...axis, side: 1, scale: second, grid: { show: false }, values: short }] : []),
    ],
    series: [{ label: told.label ?? "", ...(isTime ? { value: when } : {}) }, ...told.series.map((each, number) => series(each, number, paint))],
    bands: told.bands ?? [],
  }, data(told), target);
  showLast(plot);
  const watching = new ResizeObserver(() => plot.setSize({ width: target.clientWidth, height }));
  watching.observe(target);
  return { plot, undo: () => { watching.disconnect(); plot.destroy(); } };
}

// A canvas knows no variables: an element is asked what colour they come to.
function painter(place) {
  const probe = place.appendChild(document.createElement("i"));
  const paints = new Map();
  const paint = (name) => {
    if (!paints.has(name)) {
      probe.style.color = `var(${name})`;
      paints.set(name, getComputedStyle(probe).color);
    }
    return paints.get(name);
  };
  for (const name of ["--tblr-border-color", "--tblr-secondary", ...COLOURS, ...NAMES.map((each) => `--tblr-${each}`)]) paint(name);
  probe.remove();
  return (name) => paints.get(name) ?? paints.get("--tblr-primary");
}

// Where nobody points at a moment, the numbers are those of the last.
function showLast(plot) {
  plot.setLegend({ idx: plot.data[0].length - 1 }, false);
}

// Counts begin at zero: half of something looks like half of it.
function fromZero(_plot, least, most) {
  if (least === null || most === null) return [0, 1];
  return [Math.min(least, 0), most > 0 ? most * 1.05 : 1];
}

const language = document.documentElement.lang;
const compact = new Intl.NumberFormat(language, { notation: "compact", maximumFractionDigits: 1 });
const number = new Intl.NumberFormat(language);
const clock = new Intl.DateTimeFormat(language, { dateStyle: "short", timeStyle: "medium" });
const SPANS = [
  [120, { hour: "2-digit", minute: "2-digit", second: "2-digit" }],
  [86400, { hour: "2-digit", minute: "2-digit" }],
  [Infinity, { month: "short", day: "numeric" }],
].map(([span, parts]) => [span, new Intl.DateTimeFormat(language, { ...parts, hourCycle: "h23" })]);

function short(_plot, values) {
  return values.map((each) => (each === null ? "" : compact.format(each)));
}

function times(_plot, values) {
  const span = values.length > 1 ? values.at(-1) - values[0] : 0;
  const [, form] = SPANS.find(([longest]) => span <= longest);
  return values.map((each) => form.format(each * 1000));
}

function when(_plot, seconds) {
  return seconds === null || seconds === undefined ? "–" : clock.format(seconds * 1000);
}

const COLOURS = ["--tblr-primary", "--tblr-green", "--tblr-orange", "--tblr-red", "--tblr-purple", "--tblr-cyan"];
const NAMES = ["blue", "green", "orange", "red", "purple", "cyan", "yellow", "pink", "secondary", "azure", "teal", "lime", "indigo"];

// A lone number makes no line; it is a point.
function isLone(plot, place) {
  return plot.data[place].filter((value) => value !== null && value !== undefined).length === 1;
}

function series(each, place, paint) {
  const colour = paint(each.color ? `--tblr-${each.color}` : COLOURS[place % COLOURS.length]);
  return {
    label: each.name,
    stroke: colour,
    width: each.width ?? 1.5,
    ...(each.scale ? { scale: each.scale } : {}),
    fill: each.fill ? `color-mix(in srgb, ${colour} 15%, transparent)` : undefined,
    points: { show: each.points ?? isLone },
    value: (_plot, value) => (value === null || value === undefined ? "–" : number.format(value)),
    spanGaps: true,
  };
}

// In other colours everything is drawn anew.
new MutationObserver(() => {
  const places = [...drawn.keys()];
  for (const { undo } of drawn.values()) undo();
  drawn.clear();
  draw(places.filter((each) => each.isConnected));
}).observe(document.documentElement, { attributes: true, attributeFilter: ["data-bs-theme"] });
