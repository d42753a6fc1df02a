// Curves. An element with data-chart has the numbers as JSON: {x: [seconds], series: [{name, values, color}], …}.
// Where scripts do not run, the page has the same numbers as a table.
import uPlot from "uplot";

const drawn = new WeakMap();

export function draw(charts) {
  for (const each of charts) {
    const numbers = each.dataset.chart;
    const before = drawn.get(each);
    if (before?.numbers === numbers && each.contains(before.plot.root)) continue;
    before?.plot.destroy();
    drawn.set(each, { numbers, plot: plotted(each, JSON.parse(numbers)) });
  }
}

function plotted(place, told) {
  const styles = getComputedStyle(place);
  const ink = styles.getPropertyValue("--tblr-secondary") || "#666";
  const line = styles.getPropertyValue("--tblr-border-color") || "#ddd";
  const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "11px sans-serif" };
  const target = place.querySelector("[data-drawn]") ?? place;
  const plot = new uPlot({
    width: target.clientWidth,
    height: told.height ?? 160,
    cursor: { points: { size: 6 } },
    legend: { live: true },
    scales: { x: { time: told.time ?? true }, ...(told.scales ?? {}) },
    axes: [axis, { ...axis, size: 56 }, ...(told.series.some((each) => each.scale) ? [{ ...axis, side: 1, scale: told.series.find((each) => each.scale).scale, grid: { show: false } }] : [])],
    series: [{ label: told.label ?? "" }, ...told.series.map((each, number) => series(each, number, styles))],
    bands: told.bands ?? [],
  }, [told.x, ...told.series.map((each) => each.values)], target);
  new ResizeObserver(() => plot.setSize({ width: target.clientWidth, height: told.height ?? 160 })).observe(target);
  return plot;
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
