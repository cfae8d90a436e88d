// Plots over time: uPlot with the page's colours, a legend that toggles, a tooltip, arrow keys, "Copy SQL", and the
// same figures as a table behind it.

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { onTheme, resolved } from "./colours.js";
import { fill, h } from "./dom.js";
import { CLOCK, count, NOTHING } from "./format.js";
import { copiesSql } from "./figures.js";
import { behind, dataTable } from "./table.js";

const EDGE_PX = 4;
const SECONDS_PX = 72; // of a clock with its seconds, and some room
const DRAG_PX = 5; // a hand that clicks moves by less
const ROWS_BEHIND = 1000; // of the table, newest first

/**
 * Make a plot. `data`: {t: [unix_s], span: [from, to], series: [{label, colour, values, group, dashed, bars, width}], bands, sql}.
 * `span` is what the axis of time shows, by default from the first of `t` to the last.
 * `label` names a line everywhere; lines of one `group` (by default their label) have one button in the legend;
 * `colour` is a CSS colour (`colourOf(deployment)`); null in `values` is a gap. `bands` are times to mark:
 * [{from, to, label, colour, edged}] in unix seconds, `to` null while it lasts; `edged`: with a line along the top.
 * Options: `over(u)` (draws on top, with uPlot's own instance), `title` (what it shows, for screen readers and the table), `format` (value → text), `axis` (the same, short,
 * for the axis), `log`, `least` and `most` (bounds of the axis), `height` in pixels, `sync` (plots of one key share
 * their cursor), `zoomed(from, to)` (somebody dragged over this time, in unix seconds; without it the plot itself zooms).
 * Returns {element, update(data), toggle(group, shown), close()}.
 */
export function plot(data, { title, format = count, axis = format, log = false, least = null, most = null, height = 220, sync = null, over = null, zoomed = null } = {}) {
  const drawing = h("div", { class: "drawing", tabindex: "0", role: "img", "aria-label": title, onkeydown: step, onblur: () => hide() });
  drawing.style.setProperty("--height", `${height}px`);
  const tip = h("div", { class: "tip", hidden: true });
  const legend = h("div", { class: "legend", role: "group", "aria-label": `Lines of ${title}` });
  const copy = h("div");
  const rows = behind(table);
  const element = h("div", { class: "plot" }, drawing, h("div", { class: "foot" }, legend, copy, rows));
  const hidden = new Set(); // groups
  let chart = null;
  let drawn = ""; // the lines that the chart was made for

  const resizing = new ResizeObserver(() => {
    const width = Math.floor(drawing.clientWidth);
    if (!width) return;
    if (chart === null) make();
    else if (chart.width !== width) chart.setSize({ width, height });
  });
  const stop = onTheme(() => chart?.redraw());
  resizing.observe(drawing);
  update(data);

  function update(next) {
    data = next;
    const lines = JSON.stringify(data.series.map(({ label, colour, group, dashed, bars }) => [label, colour, group, dashed, bars]));
    if (lines !== drawn) {
      drawn = lines;
      label();
      chart?.destroy();
      chart = null;
      if (drawing.clientWidth) make();
    } else if (chart !== null) {
      const { min, max } = chart.scales.x;
      const whole = chart.data[0];
      const isZoomed = zoomed === null && whole.length > 0 && (min > whole[0] || max < whole.at(-1));
      chart.setData(columns(), !isZoomed);
    }
    fill(copy, copiesSql(data.sql));
    if (rows.open) fill(rows.lastChild, table());
  }

  function columns() {
    return [data.t, ...data.series.map((each) => each.values)];
  }

  function make() {
    chart = new uPlot({
      width: Math.floor(drawing.clientWidth),
      height,
      legend: { show: false },
      cursor: { sync: sync ? { key: sync } : undefined, points: { size: 6 }, drag: { x: true, y: false, dist: DRAG_PX, setScale: zoomed === null } },
      scales: { x: { time: true, ...(zoomed ? { range: (_, low, high) => data.span ?? [low, high] } : {}) }, y: log ? { distr: 3 } : { range: (_, low, high) => bounds(low, high) } },
      axes: [axes({ space: SECONDS_PX, values: (_, splits, at, space, step) => days(splits, step) }), axes({ size: 58, values: (_, splits) => splits.map((each) => (each === null ? "" : axis(each))) })],
      series: [{}, ...data.series.map((each) => ({
        label: each.label,
        show: !hidden.has(groupOf(each)),
        stroke: () => resolved(each.colour),
        fill: each.bars ? () => resolved(each.colour) : undefined,
        width: each.width ?? 1.5,
        dash: each.dashed ? [4, 3] : undefined,
        points: { show: !each.bars, size: 4, filter: (u, line) => lonely(u.data[line]) },
        paths: each.bars ? uPlot.paths.bars({ size: [0.7, 24] }) : undefined,
      }))],
      hooks: { drawClear: [bands], draw: over ? [over] : [], setCursor: [show], setSelect: zoomed ? [dragged] : [] },
    }, columns(), drawing);
    chart.root.append(tip);
    chart.ctx.canvas.setAttribute("role", "img");
    chart.ctx.canvas.setAttribute("aria-label", title);
  }

  function dragged(u) {
    const { left, width } = u.select;
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (width < DRAG_PX) return;
    zoomed(u.posToVal(left, "x"), u.posToVal(left + width, "x"));
  }

  function bounds(low, high) {
    if (low === null || high === null) return [least ?? 0, most ?? 1];
    const [from, to] = uPlot.rangeNum(low, high, 0.1, true);
    return [least ?? from, most ?? to];
  }

  function bands(u) {
    const { ctx, bbox } = u;
    for (const { from, to, colour = "var(--bad)", edged = false } of data.bands ?? []) {
      const left = Math.max(bbox.left, u.valToPos(from, "x", true));
      const right = Math.min(bbox.left + bbox.width, to === null ? Infinity : u.valToPos(to, "x", true));
      if (right <= bbox.left || left >= bbox.left + bbox.width) continue;
      ctx.save();
      ctx.globalAlpha = edged ? 0.08 : 0.13;
      ctx.fillStyle = resolved(colour);
      ctx.fillRect(left, bbox.top, Math.max(right - left, 2), bbox.height);
      if (edged) {
        ctx.globalAlpha = 1;
        ctx.fillRect(left, bbox.top, Math.max(right - left, 2), EDGE_PX * devicePixelRatio);
      }
      ctx.restore();
    }
  }

  function show(u) {
    const at = u.cursor.idx;
    if (at === null || at === undefined || u.cursor.left < 0) return hide();
    const lines = data.series.filter((each) => !hidden.has(groupOf(each)) && isKnown(each.values[at]));
    const out = marked(at);
    fill(tip, h("strong", {}, moment(data.t[at])),
      h("table", {}, h("tbody", {}, lines.map((each) => h("tr", {},
        h("th", {}, h("span", { class: "swatch", style: { color: each.colour } }), each.label), h("td", { class: "right" }, format(each.values[at])))))),
      lines.length ? null : h("p", { class: "soft" }, "nothing"), out.map((each) => h("p", { class: "bad" }, each.label)));
    tip.hidden = false;
    const left = u.over.offsetLeft + u.cursor.left;
    const flips = left + tip.offsetWidth + 24 > u.width;
    tip.style.left = `${Math.max(0, flips ? left - tip.offsetWidth - 12 : left + 12)}px`;
    tip.style.top = "8px";
    return undefined;
  }

  /** The bands that a step is in, or that are in it. */
  function marked(at) {
    const [begin, end] = [data.t[at], data.t[at + 1] ?? data.t[at] + (data.t[at] - (data.t[at - 1] ?? data.t[at]))];
    return (data.bands ?? []).filter(({ from, to }) => from < Math.max(end, begin + 1) && (to === null || begin <= to));
  }

  function hide() {
    tip.hidden = true;
  }

  function step(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") hide();
    if (moves === undefined || chart === null || !data.t.length) return;
    event.preventDefault();
    const from = chart.cursor.idx ?? (moves > 0 ? -1 : data.t.length);
    const at = Math.min(data.t.length - 1, Math.max(0, from + moves));
    chart.setCursor({ left: chart.valToPos(data.t[at], "x"), top: 10 });
  }

  function label() {
    const groups = new Map();
    for (const each of data.series) if (!groups.has(groupOf(each))) groups.set(groupOf(each), each);
    fill(legend, [...groups].map(([name, each]) => h("button", {
      type: "button",
      "aria-pressed": String(!hidden.has(name)),
      "data-group": name,
      onclick: () => toggle(name, hidden.has(name)),
    }, h("span", { class: "swatch", style: { color: each.colour } }), name)));
  }

  function toggle(group, shown) {
    if (shown) hidden.delete(group);
    else hidden.add(group);
    for (const button of legend.children) if (button.dataset.group === group) button.setAttribute("aria-pressed", String(shown));
    data.series.forEach((each, at) => {
      if (groupOf(each) === group) chart?.setSeries(at + 1, { show: shown });
    });
  }

  function table() {
    const first = Math.max(0, data.t.length - ROWS_BEHIND);
    const marks = Boolean(data.bands?.length);
    const lines = data.t.slice(first).map((at, offset) => [moment(at), ...data.series.map((each) => {
      const value = each.values[first + offset];
      return isKnown(value) ? format(value) : NOTHING;
    }), ...(marks ? [marked(first + offset).map((each) => each.label).join(", ")] : [])]);
    return dataTable(title, ["Time", ...data.series.map((each) => each.label), ...(marks ? ["Marks"] : [])], lines.reverse());
  }

  function close() {
    resizing.disconnect();
    stop();
    chart?.destroy();
  }

  return { element, update, toggle, close };
}

function axes(more) {
  const line = () => resolved("var(--line)");
  return { stroke: () => resolved("var(--soft)"), font: "11px system-ui, sans-serif", grid: { stroke: line, width: 1 }, ticks: { show: false }, gap: 6, ...more };
}

/** Labels of the time axis, in the viewer's zone: the clock, and the day below where it changes. */
function days(splits, stepS) {
  let day = "";
  return splits.map((each) => {
    const at = new Date(each * 1000);
    const date = at.toLocaleDateString([], { day: "numeric", month: "short" });
    if (stepS >= 86_400) return date;
    const clock = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: stepS < 60 ? "2-digit" : undefined, ...CLOCK });
    const text = date === day ? clock : `${clock}\n${date}`;
    day = date;
    return text;
  });
}

function groupOf(series) {
  return series.group ?? series.label;
}

/** Where a line would not be seen: values without a neighbour. */
function lonely(values) {
  const found = [];
  for (let at = 0; at < values.length; at += 1) {
    if (isKnown(values[at]) && !isKnown(values[at - 1]) && !isKnown(values[at + 1])) found.push(at);
  }
  return found;
}

function isKnown(value) {
  return value !== null && value !== undefined;
}

function moment(unixS) {
  return new Date(unixS * 1000).toLocaleString([], { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", ...CLOCK });
}
