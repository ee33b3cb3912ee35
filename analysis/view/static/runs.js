// All runs, one card each. Ticked runs are shown side by side.
import { Complaint, count, go, html, isShare, number, short, to, useData, useKeys, useState } from "./lib.js";

export function Trail({ values, width = 120, height = 36 }) {
  const known = values.filter((v) => v !== null);
  if (known.length < 2) return null;
  const low = Math.min(...known), high = Math.max(...known), span = high - low || 1;
  const x = (k) => 3 + (k / (values.length - 1)) * (width - 6), y = (v) => height - 4 - ((v - low) / span) * (height - 8);
  const d = values.map((v, k) => (v === null ? "" : `${k ? "L" : "M"}${x(k).toFixed(1)} ${y(v).toFixed(1)}`)).join("");
  return html`<svg class="trail" viewBox="0 0 ${width} ${height}" width=${width} height=${height} aria-hidden="true">
    <path d=${d} /><circle cx=${x(values.length - 1)} cy=${y(values[values.length - 1])} r="3" /></svg>`;
}

function Card({ run, at, ticked, tick }) {
  if (run.error) return html`<article class="card run"><h2>${run.name}</h2><${Complaint} line=${run.error} /></article>`;
  const figure = run.figure, share = figure && isShare(figure.bounds);
  const ends = figure ? [figure.values[0], figure.values[figure.values.length - 1]] : [];
  return html`<article class="card run ${at ? "at" : ""}">
    <header>
      <h2><a href=${to(["run", run.name])}>${short(run.name, 48)}</a></h2>
      ${run.live ? html`<span class="live" title="a process is writing this run">live</span>` : null}
    </header>
    <p class="quiet">${run.game ? `${short(run.game, 40)} · ` : ""}${count(run.iterations)}${run.planned ? ` of ${count(run.planned)}` : ""} ${(run.planned || run.iterations) === 1 ? "iteration" : "iterations"}</p>
    ${figure ? html`<div class="telling"><div><span class="quiet">${figure.words}</span><br />
      <b>${number(ends[0], share)} → ${number(ends[1], share)}</b></div><${Trail} values=${figure.values} /></div>`
      : html`<p class="quiet">no figure has changed yet</p>`}
    <label class="tick"><input type="checkbox" checked=${ticked} onChange=${tick} /> side by side</label>
  </article>`;
}

export function Runs({ versions }) {
  const { data, error } = useData("/api/runs", JSON.stringify(versions));
  const [ticked, setTicked] = useState([]), [at, setAt] = useState(0), [text, setText] = useState("");
  const shown = (data || []).filter((run) => `${run.name} ${run.game} ${run.experiment}`.toLowerCase().includes(text.toLowerCase()));
  const tick = (name) => setTicked((old) => (old.includes(name) ? old.filter((n) => n !== name) : [...old, name]));
  useKeys({
    j: () => setAt(Math.min(at + 1, shown.length - 1)), k: () => setAt(Math.max(at - 1, 0)),
    Enter: (e) => (e.target === document.body || e.target.id === "main") && shown[at] ? go(["run", shown[at].name]) : false,
    c: () => (ticked.length > 1 ? go(["compare", ...ticked]) : shown[at] && tick(shown[at].name)),
    "/": () => document.getElementById("filter").focus(),
  });
  return html`
    <div class="head"><h1>Runs</h1>
      <input id="filter" type="search" placeholder="filter by name or game  ( / )" aria-label="filter runs" value=${text} onInput=${(e) => setText(e.target.value)} />
      <a class="button ${ticked.length > 1 ? "strong" : "off"}" aria-disabled=${ticked.length < 2} href=${ticked.length > 1 ? to(["compare", ...ticked]) : "#/"}>Side by side (${ticked.length})</a>
      <span class="end"><a class="button" href="#/play">Play</a></span>
    </div>
    <${Complaint} line=${error} />
    ${data && !data.length && html`<p class="empty">No run is here yet. <code>arena run selfplay --game negotiation</code> begins one; it appears by itself.</p>`}
    <div class="cards">${shown.map((run, k) => html`<${Card} key=${run.name} run=${run} at=${k === at} ticked=${ticked.includes(run.name)} tick=${() => tick(run.name)} />`)}</div>`;
}
