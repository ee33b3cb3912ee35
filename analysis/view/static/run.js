// One run: its header, alarms, and tabs for curves, matches, league, figures, SQL, notes and settings.
import { api, Complaint, count, FROZEN, go, html, number, short, to, useData, useEffect, useKeys, useState, visible } from "./lib.js";
import { Chart } from "./charts.js";
import { Matches } from "./matches.js";
import { Flight } from "./flight.js";
import { League } from "./league.js";
import { Sql } from "./sql.js";
import { Notes } from "./notes.js";
import { Figures } from "./figures.js";
import { MatchView } from "./match.js";
import { Controls } from "./actions.js";

const PARTS = [["", "Curves"], ["matches", "Matches"], ["league", "League"], ["figures", "Figures"], ["sql", "SQL"], ["notes", "Notes"], ["settings", "Settings"]];

/** Alarms, requested a moment after the rest of the page, which is read first. */
function Alarms({ run, version }) {
  const [ready, set] = useState(false);
  useEffect(() => { const timer = setTimeout(() => set(true), 800); return () => clearTimeout(timer); }, []);
  const { data } = useData(ready ? `${api(run)}/alarms` : null, version);
  if (FROZEN && data && !data.length) return html`<p class="quiet">No alarm was raised: no collapse, repetition, narrowing to few acts, role drift or reward hack was found. That does not prove that nothing is wrong: read some matches.</p>`;
  if (!data || !data.length) return null;
  return html`<section class="alarms" aria-label="Alarms"><h2>Alarms</h2><ul>${data.map((alarm) => html`<li>
    <b>${alarm.name}</b>, ${alarm.who}: ${number(alarm.before[0])} before, ${number(alarm.after[0])} in the last third</li>`)}</ul></section>`;
}

function Curves({ run, version }) {
  const { data, error } = useData(`${api(run)}/curves`, version, (told) => (told.unread ? 300 : 0));
  const chosen = (iteration) => go(["run", run, "matches"], { iteration: String(iteration) });
  if (data && !data.curves.length) return html`<p class="empty">Curves begin with the second iteration; matches are shown as they are played, and listed as they end.</p>`;
  return html`<${Complaint} line=${error} />
    ${data && data.unread > 0 && html`<p class="quiet" role="status">intervals of ${count(data.unread)} more iterations are being read …</p>`}
    <div class="charts">${(data?.curves || []).map((curve) => html`<${Chart} key=${curve.title} curve=${curve} chosen=${chosen} />`)}</div>
    <p class="quiet">Bands are 95 % intervals over matches; dashed lines are theory. A double click on a point lists that iteration's matches; drag to zoom.</p>`;
}

/** All parts of a report in one column, with every turn of its last match. */
function Parts({ run, version, query, about }) {
  const { data } = useData(`${api(run)}/matches`), rows = data?.rows || [], last = rows[rows.length - 1]?.match;
  return html`<${Figures} run=${run} /><${Alarms} run=${run} /><h2>Curves</h2><${Curves} run=${run} />
    <h2>Matches to read</h2><${Matches} run=${run} query=${query} />
    ${last && html`<h2>${last}</h2><${MatchView} run=${run} id=${last} version=${version} alone=${false} />`}
    <h2>League</h2><${League} run=${run} /><h2>Settings</h2>${about && html`<details><summary>${count(about.settings.length)} settings</summary><${Settings} about=${about} /></details>`}
    <p class="quiet">One file, nothing loaded. Made by <code>arena report</code>; <code>arena view</code> shows all matches of the run, and their tokens.</p>`;
}

const Settings = ({ about }) => html`<table class="settings"><tbody>${about.settings.map(([name, value]) =>
  html`<tr><th scope="row">${visible(name)}</th><td>${visible(value)}</td></tr>`)}</tbody></table>`;

export function Run({ route, versions }) {
  const [, run, part = ""] = route.parts, version = versions[run];
  const { data, error } = useData(version ? api(run) : null, version);
  useKeys(Object.fromEntries(PARTS.map(([name], k) => [String(k + 1), () => go(name ? ["run", run, name] : ["run", run])])));
  if (!version) return html`<${Complaint} line="there is no run '${short(run)}' here: go back to all runs" />`;
  const inner = { matches: Matches, league: League, figures: Figures, sql: Sql, notes: Notes }[part];
  return html`
    <div class="head"><h1>${short(run, 60)} ${data?.live && html`<span class="live">live</span>`}</h1>
      ${data && html`<p class="quiet">${data.game ? `${short(data.game, 40)}, ` : ""}${count(data.iterations)}${data.planned ? ` of ${count(data.planned)}` : ""} ${(data.planned || data.iterations) === 1 ? "iteration" : "iterations"}${
        data.started ? `, begun ${String(data.started).slice(0, 16)} UTC` : ""}</p>`}
      ${data && !FROZEN && html`<${Controls} run=${run} about=${data} />`}
    </div>
    <${Complaint} line=${error} />
    ${FROZEN ? html`<div class="parts"><${Parts} run=${run} version=${version} query=${route.query} about=${data} /></div>` : html`
    <${Alarms} run=${run} version=${version} />
    <nav class="tabs" aria-label="Parts of the run">${PARTS.map(([name, words]) => html`<a href=${to(name ? ["run", run, name] : ["run", run])}
      aria-current=${name === part ? "page" : undefined}>${words}</a>`)}</nav>
    ${["", "matches"].includes(part) && html`<${Flight} run=${run} version=${version} />`}
    ${part === "" && html`<${Curves} run=${run} version=${version} />`}
    ${inner && html`<${inner} run=${run} version=${version} query=${route.query} />`}
    ${part === "settings" && data && html`<${Settings} about=${data} />`}`}`;
}
