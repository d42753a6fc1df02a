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
  const styles = getComputedStyle(place);
  const ink = styles.getPropertyValue("--tblr-secondary").trim() || "#666";
  const line = styles.getPropertyValue("--tblr-border-color").trim() || "#ddd";
  const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "11px sans-serif" };
  const target = place.querySelector("[data-drawn]") ?? place;
  const second = told.series.find((each) => each.scale)?.scale;
  const height = told.height ?? 160;
  const plot = new uPlot({
    width: target.clientWidth,
    height,
    cursor: { points: { size: 6 } },
    legend: { live: true },
    scales: { x: { time: told.time ?? true }, y: { range: fromZero }, ...(told.scales ?? {}) },
    axes: [axis, { ...axis, size: 52, values: short }, ...(second ? [{ ...axis, side: 1, scale: second, grid: { show: false }, values: short }] : [])],
    series: [{ label: told.label ?? "", value: when(told) }, ...told.series.map((each, number) => series(each, number, styles))],
    bands: told.bands ?? [],
  }, data(told), target);
  const watching = new ResizeObserver(() => plot.setSize({ width: target.clientWidth, height }));
  watching.observe(target);
  return { plot, undo: () => { watching.disconnect(); plot.destroy(); } };
}

// Counts begin at zero: half of something looks like half of it.
function fromZero(_plot, least, most) {
  if (least === null || most === null) return [0, 1];
  return [Math.min(least, 0), most > 0 ? most * 1.05 : 1];
}

const compact = new Intl.NumberFormat(document.documentElement.lang, { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(document.documentElement.lang, { timeStyle: "medium" });

function short(_plot, values) {
  return values.map((each) => (each === null ? "" : compact.format(each)));
}

function when(told) {
  if (told.time === false) return "{}";
  return (_plot, seconds) => (seconds === null || seconds === undefined ? "–" : clock.format(seconds * 1000));
}

const COLOURS = ["--tblr-primary", "--tblr-green", "--tblr-orange", "--tblr-red", "--tblr-purple", "--tblr-cyan"];

function series(each, number, styles) {
  const colour = styles.getPropertyValue(each.color ? `--tblr-${each.color}` : COLOURS[number % COLOURS.length]).trim();
  return {
    label: each.name,
    stroke: colour,
    width: each.width ?? 1.5,
    scale: each.scale,
    fill: each.fill ? `color-mix(in srgb, ${colour} 15%, transparent)` : undefined,
    points: { show: each.points ?? false },
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
