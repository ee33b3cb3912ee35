// Curves with their intervals and theory values, drawn by uPlot.
import uPlot from "./vendor/uplot.js";
import { html, isShare, number, useEffect, useRef, useState } from "./lib.js";

const HEIGHT = 190, FEW = 6;
const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [4, 2], [1, 2]];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const soften = (hex, share) => hex + Math.round(255 * share).toString(16).padStart(2, "0");

/** The class of a colour: c1 to c5 for better than expected, m1 to m5 for worse, c0 for neither. */
export function shade(value, scale) {
  if (value === null || value === undefined) return "none";
  const step = scale > 0 ? Math.round(5 * Math.min(1, Math.abs(value) / scale)) : 0;
  return step ? `${value > 0 ? "c" : "m"}${step}` : "c0";
}

/** Columns for uPlot: x, then each line's values, highs and lows, then the theory values. */
function columns(curve) {
  const xs = [...new Set(curve.series.flatMap((line) => line.points.map((p) => p[0])))].sort((a, b) => a - b);
  const data = [xs];
  for (const line of curve.series) {
    const by = new Map(line.points.map((p) => [p[0], p]));
    for (const place of [1, 3, 2]) data.push(xs.map((x) => by.get(x)?.[place] ?? null));
  }
  for (const level of curve.levels) data.push(xs.map(() => level.value));
  return data;
}

/** Draw vertical lines at the marks' positions on the x axis. */
function mark(u, marks, ink) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.strokeStyle = ink;
  ctx.setLineDash([4, 4]);
  for (const { x } of marks) {
    const at = Math.round(u.valToPos(x, "x", true));
    ctx.beginPath();
    ctx.moveTo(at, bbox.top);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function options(curve, width, point, chosen) {
  const share = isShare(curve.bounds), few = curve.series.every((line) => line.points.length < FEW);
  const ink = colour("--soft"), grid = { stroke: colour("--line"), width: 1 }, font = "12px system-ui, sans-serif";
  const series = [{}], bands = [];
  curve.series.forEach((line, k) => {
    const stroke = colour(`--s${(k % 6) + 1}`), at = series.length, scale = curve.own_scales && k ? "right" : "y";
    series.push({ label: line.label, scale, stroke, width: 2, dash: DASHES[k % 6], points: { show: few, size: 6, fill: stroke }, spanGaps: true });
    series.push({ scale, stroke: "transparent", points: { show: false } }, { scale, stroke: "transparent", points: { show: false } });
    bands.push({ series: [at + 1, at + 2], fill: soften(stroke, 0.15) });
  });
  curve.levels.forEach(() => series.push({ stroke: colour("--ink"), width: 1.2, dash: [5, 4], points: { show: false } }));
  const format = (_, values) => values.map((v) => (v === null ? "" : number(v, share)));
  const sides = [{ stroke: ink, grid, ticks: { show: false }, font, values: format, size: 52 }];
  if (curve.own_scales) sides.push({ stroke: ink, grid: { show: false }, ticks: { show: false }, font, values: format, size: 52, side: 1, scale: "right" });
  return {
    width, height: HEIGHT, series, bands, legend: { show: false }, padding: [10, 10, 0, 0],
    cursor: { sync: { key: curve.along || "iterations", setSeries: false }, points: { size: 7 }, drag: { x: true, y: false } },
    scales: { x: { time: false }, y: share ? { range: [-0.02, 1.02] } : {} },
    axes: [
      { stroke: ink, grid: { show: false }, ticks: grid, font, values: (_, v) => v.map((x) => (curve.along ? number(x) : Number.isInteger(x) ? x : "")), size: 32 },
      ...sides,
    ],
    hooks: {
      setCursor: [(u) => point(u.cursor.idx)],
      draw: [(u) => mark(u, curve.marks || [], ink)],
      ready: [(u) => u.over.addEventListener("dblclick", () => u.cursor.idx !== null && chosen && !curve.along && chosen(u.data[0][u.cursor.idx]))],
    },
  };
}

export function Chart({ curve, chosen }) {
  const box = useRef(), plot = useRef(), shape = useRef("");
  const [idx, point] = useState(null), [theme, setTheme] = useState(0);
  useEffect(() => {
    const changed = () => setTheme((n) => n + 1);
    const media = matchMedia("(prefers-color-scheme: dark)");
    addEventListener("theme", changed);
    media.addEventListener("change", changed);
    return () => { removeEventListener("theme", changed); media.removeEventListener("change", changed); };
  }, []);
  useEffect(() => {
    const now = JSON.stringify([curve.series.map((l) => l.label), curve.levels, curve.bounds, curve.marks, curve.along, theme, curve.series.every((l) => l.points.length < FEW)]);
    if (plot.current && shape.current === now) {
      plot.current.setData(columns(curve));
      return;
    }
    plot.current?.destroy();
    shape.current = now;
    plot.current = new uPlot(options(curve, box.current.clientWidth, point, chosen), columns(curve), box.current);
  }, [curve, theme]);
  useEffect(() => {
    const watch = new ResizeObserver(() => box.current && plot.current?.setSize({ width: box.current.clientWidth, height: HEIGHT }));
    watch.observe(box.current);
    return () => { watch.disconnect(); plot.current?.destroy(); };
  }, []);
  const share = isShare(curve.bounds);
  const xs = columns(curve)[0], x = idx === null || idx === undefined ? xs[xs.length - 1] : xs[idx];
  return html`<figure class="chart">
    <figcaption><b>${curve.title}</b><span class="quiet"> · ${curve.along ? `${curve.along} ${number(x)}` : `iteration ${x}`}</span></figcaption>
    <ul class="legend">${curve.series.map((line, k) => {
      const at = line.points.find((p) => p[0] === x);
      return html`<li class="k${(k % 6) + 1}"><span class="swatch"></span>${line.label || curve.words?.[k] || ""} <b>${at ? number(at[1], share) : "–"}</b>${
        at && at[2] !== null && html` <span class="quiet">${number(at[2], share)} to ${number(at[3], share)}</span>`}</li>`;
    })}${curve.levels.map((level) => html`<li class="level"><span class="swatch"></span>${level.label} <b>${number(level.value, share)}</b></li>`)}${
      (curve.marks || []).map((at) => html`<li class="level"><span class="swatch"></span>${at.label}</li>`)}</ul>
    <div ref=${box} class="plot" role="img" aria-label="${curve.title}, by ${curve.along || "iteration"}"></div>
    ${curve.note && html`<p class="quiet">${curve.note}</p>`}
  </figure>`;
}
