// A SELECT over the run's tables, as in `arena sql`.
import { ask, Complaint, count, html, matchAt, short, useState } from "./lib.js";

const FIRST = "select role, count(*) as turns, avg(advantage) as advantage, avg(valid) as valid\nfrom turns group by role order by role";

export function Sql({ run }) {
  const [query, setQuery] = useState(sessionStorage.getItem("arena view sql") || FIRST);
  const [answer, setAnswer] = useState(null), [error, setError] = useState(""), [busy, setBusy] = useState(false);
  const send = async () => {
    setBusy(true);
    sessionStorage.setItem("arena view sql", query);
    try { setAnswer(await ask("/api/sql", { runs: [run], query })); setError(""); } catch (problem) { setError(problem.message); }
    setBusy(false);
  };
  const cell = (value, name) => (value === null ? "" : name === "match" && typeof value === "string"
    ? html`<a href=${matchAt(run, value)}>${short(value, 60)}</a>` : typeof value === "number" ? String(Number(value.toPrecision(6))) : short(value, 200));
  return html`<form onSubmit=${(e) => { e.preventDefault(); send(); }}>
    <label class="field wide"><span>One SELECT over runs, iterations, matches, seats, turns, messages, tokens (docs/analysis.md). Ctrl-Enter asks.</span>
      <textarea id="query" rows="5" spellcheck="false" value=${query} onInput=${(e) => setQuery(e.target.value)}
        onKeyDown=${(e) => e.key === "Enter" && (e.ctrlKey || e.metaKey) && send()}></textarea></label>
    <button class="strong" disabled=${busy}>${busy ? "Asking …" : "Ask"}</button></form>
    <${Complaint} line=${error} />
    ${answer && html`<p class="quiet" role="status">${count(answer.total)} rows${answer.total > answer.rows.length ? `, the first ${count(answer.rows.length)}` : ""}</p>
      <div class="scroll"><table><thead><tr>${answer.columns.map((name) => html`<th>${short(name, 60)}</th>`)}</tr></thead>
      <tbody>${answer.rows.map((row) => html`<tr>${row.map((value, k) => html`<td class=${typeof value === "number" ? "n" : ""}>${cell(value, answer.columns[k])}</td>`)}</tr>`)}</tbody></table></div>`}`;
}
