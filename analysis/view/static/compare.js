// Several runs side by side: the same charts, a line for each run.
import { api, ask, Complaint, html, to, useEffect, useState } from "./lib.js";
import { Chart } from "./charts.js";

/** Charts by title, with a line per run. A chart with several lines becomes one chart per line. */
function merged(runs, told) {
  const charts = new Map();
  runs.forEach((run) => (told[run]?.curves || []).forEach((curve) => curve.series.forEach((line, k) => {
    const title = line.label ? `${curve.title}: ${line.label}` : curve.title;
    const chart = charts.get(title) || { title, bounds: curve.bounds, levels: curve.levels, note: "", series: [], words: [] };
    chart.series.push({ label: run, points: line.points });
    charts.set(title, chart);
  })));
  return [...charts.values()].filter((chart) => chart.series.length > 1);
}

export function Compare({ route, versions }) {
  const runs = route.parts.slice(1), [told, setTold] = useState({}), [error, setError] = useState("");
  const stamp = runs.map((run) => versions[run]).join();
  useEffect(() => {
    let open = true, timer = 0;
    const load = async () => {
      try {
        const found = Object.fromEntries(await Promise.all(runs.map(async (run) => [run, await ask(`${api(run)}/curves`)])));
        if (!open) return;
        setTold(found);
        if (Object.values(found).some((one) => one.unread)) timer = setTimeout(load, 300);
      } catch (problem) { if (open) setError(problem.message); }
    };
    load();
    return () => { open = false; clearTimeout(timer); };
  }, [runs.join("/"), stamp]);
  return html`
    <div class="head"><h1>${runs.length} runs side by side</h1></div>
    <p>${runs.map((run, k) => html`<a class="chip k${(k % 6) + 1}" href=${to(["run", run])}><span class="swatch"></span>${run}</a> `)}</p>
    <${Complaint} line=${error} />
    ${Object.keys(told).length > 0 && !merged(runs, told).length && html`<p class="empty">These runs have no common curve yet.</p>`}
    <div class="charts">${merged(runs, told).map((curve) => html`<${Chart} key=${curve.title} curve=${curve} />`)}</div>`;
}
