// The list of a run's matches: filters, text search, an SQL condition and the order, all stored in the address.
import { api, Complaint, count, FROZEN, go, html, matchAt, number, short, signed, to, useData, useEffect, useKeys, useState, visible } from "./lib.js";
import { keep, kept } from "./kept.js";

const PAGE = 50;
const SORTS = [["", "newest first"], ["iteration", "oldest first"], ["low", "largest loss of advantage"], ["-high", "largest gain of advantage"],
  ["-paid", "best paid"], ["paid", "worst paid"], ["-turns", "most turns"], ["turns", "fewest turns"], ["-seconds", "slowest"]];
const BY = [["", "text"], ["regex", "expression (RE2)"], ["words", "words, ranked"], ["meaning", "meaning"]];
const OF = [["", "said"], ["thought", "thought"], ["wrote", "wrote (raw)"], ["seen", "seen"]];

function Choice({ label, value, options, choose, id }) {
  return html`<label class="field"><span>${label}</span><select id=${id} value=${value} onChange=${(e) => choose(e.target.value)}>
    ${options.map(([name, words]) => html`<option value=${name} selected=${name === value}>${short(words, 40)}</option>`)}</select></label>`;
}

/** A text input that submits after a pause in typing, or at once with Enter. */
function Written({ label, value, put, ...more }) {
  const [text, set] = useState(value);
  useEffect(() => set(value), [value]);
  useEffect(() => {
    if (text === value) return undefined;
    const timer = setTimeout(() => put(text), 500);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<label class="field wide"><span>${label}</span><input type="search" value=${text} onInput=${(e) => set(e.target.value)}
    onKeyDown=${(e) => e.key === "Enter" && put(text)} ...${more} /></label>`;
}

export function Outcome({ report }) {
  const words = Object.entries(report).filter(([, value]) => typeof value !== "number")
    .map(([name, value]) => (typeof value === "boolean" ? `${value ? "" : "no "}${visible(name)}` : short(value, 24)));
  return html`${[...new Set(words)].slice(0, 2).map((word) => html`<span class="chip">${word}</span> `)}`;
}

const USUAL = ["seats", "outcome", "turns", "low", "high"];
const COLUMNS = { seats: "Seats and payoffs", outcome: "Outcome", turns: "Turns", low: "Least advantage", high: "Greatest", iteration: "Iteration", paid: "Learners' payoff",
  seconds: "Seconds", game: "Game", status: "Status", source: "Source", parent: "Branch of", group: "Group" };
const TEXTS = ["seats", "outcome", "game", "status", "source", "parent"];

const words = (name) => COLUMNS[name] || visible(name.replace(/^report\./, ""));

function Cell({ row, name }) {
  const value = name.startsWith("report.") ? row.report[name.slice(7)] : row[name];
  if (name === "seats") return html`${row.seats.map((seat) => html`<span class="who"><bdi>${short(seat.policy, 22)}</bdi><b>${number(seat.payoff)}</b></span>`)}`;
  if (name === "outcome") return html`${row.status === "failed" ? html`<span class="chip bad">failed</span> <span class="quiet">${short(row.reason, 60)}</span>` : html`<${Outcome} report=${row.report} />`}${
    row.place && html` <span class="quiet">${row.place}</span>`}`;
  if (name === "low" || name === "high") return html`${signed(value)}`;
  if (value === null || value === undefined || value === "" || (name === "group" && value < 0)) return "–";
  return html`${typeof value === "number" ? number(value) : typeof value === "boolean" ? (value ? "yes" : "no") : html`<bdi>${short(value, 40)}</bdi>`}`;
}

const kind = (row, name) => [TEXTS.includes(name) || (name.startsWith("report.") && typeof row?.report[name.slice(7)] !== "number") ? "" : "n", USUAL.includes(name) ? name : "more",
  name === "low" && row?.low < 0 ? "loss" : "", name === "high" && row?.high > 0 ? "gain" : ""].join(" ").trim();

function Row({ run, row, at, query, open, columns }) {
  const { offset, ...list } = query;
  return html`<tr class=${at ? "at" : ""} id=${at ? "here" : undefined} onClick=${(e) => e.target.tagName !== "A" && e.target.tagName !== "INPUT" && open()}>
    <th scope="row"><a href=${matchAt(run, row.match, list)}>${row.match}</a>${row.parent && html` <span class="quiet" title="branch of ${row.parent}">⑂</span>`}</th>
    ${columns.map((name) => html`<td class=${kind(row, name)} data-label=${words(name)}><${Cell} row=${row} name=${name} /></td>`)}
  </tr>`;
}

/** Choice of the list's columns, which the address stores. They include the matches' own figures. */
function Columns({ rows, columns, choose }) {
  const known = [...new Set([...Object.keys(COLUMNS), ...columns, ...rows.flatMap((row) => Object.keys(row.report).map((name) => `report.${name}`))])].slice(0, 60);
  const tick = (name) => choose(known.filter((each) => (each === name ? !columns.includes(name) : columns.includes(each))));
  return html`<details class="columns"><summary>Columns</summary><p>${known.map((name) => html`<label class="tick"><input type="checkbox" value=${name} checked=${columns.includes(name)} onChange=${() => tick(name)} /> ${words(name)}</label> `)}
    ${columns.join() !== USUAL.join() && html`<button class="plain" onClick=${() => choose(USUAL)}>as at first</button>`}</p></details>`;
}

function Hits({ run, found, query }) {
  return html`<ol class="hits">${found.hits.slice(0, 100).map((hit) => html`<li>
    <a href=${matchAt(run, hit.match, { ...query, offset: "", turn: hit.turn ?? "" })}>${hit.match}${hit.turn === undefined ? "" : `, turn ${hit.turn + 1}`}</a>
    <span class="quiet"> <bdi>${short(hit.seat, 20)}</bdi>${hit.times > 1 ? `, said ${hit.times} times` : ""}${hit.score ? `, ${hit.score.toFixed(2)}` : ""}</span>
    <p><bdi>${short(hit.text, 300)}</bdi></p></li>`)}</ol>`;
}

export function Matches({ run, version, query }) {
  const put = (name, stay = false) => (value) => go(["run", run, "matches"], { ...query, ...(stay ? {} : { offset: "" }), [name]: value });
  const { columns: chosen, ...asked } = query, columns = chosen ? chosen.split(",").filter((name) => Object.hasOwn(COLUMNS, name) || name.startsWith("report.")) : USUAL;
  const path = `${api(run)}/matches?${new URLSearchParams({ ...asked, limit: PAGE })}`;
  const { data, error, loading } = useData(path, version, (told) => (told.unread ? 200 : 0));
  const [at, setAt] = useState(-1), rows = data?.rows || [], offset = Number(query.offset || 0);
  const { offset: _, ...list } = query;
  const open = (row) => { location.hash = matchAt(run, row.match, list); };
  const move = (by) => { setAt((old) => Math.max(0, Math.min(rows.length - 1, old + by))); };
  const turn = (by) => { const next = offset + by * PAGE; if (next >= 0 && next < (data?.total || 0)) go(["run", run, "matches"], { ...query, offset: next || "" }); };
  useEffect(() => document.getElementById("here")?.scrollIntoView({ block: "nearest" }), [at]);
  useKeys({
    j: () => move(1), k: () => move(-1), "]": () => turn(1), "[": () => turn(-1),
    Enter: (e) => (/^(A|BUTTON)$/.test(e.target.tagName) || !rows[at] ? false : open(rows[at])),
    "/": () => document.getElementById("text").focus(), c: () => rows[at] && keep(run, rows[at].match),
  });
  const facets = data?.facets || { game: [], status: [], policy: [] };
  const any = (name) => [["", "any"], ...facets[name].map((value) => [value, value])];
  return html`
    ${!FROZEN && html`<form class="filters" onSubmit=${(e) => e.preventDefault()} aria-label="Filters">
      <${Written} id="text" label="Search  ( / )" placeholder="in all texts" value=${query.text || ""} put=${put("text")} />
      <${Choice} label="by" id="by" value=${query.by || ""} options=${BY} choose=${put("by")} />
      <${Choice} label="in what was" id="of" value=${query.of || ""} options=${OF} choose=${put("of")} />
      <${Written} id="where" label="SQL condition" placeholder='turns > 4 and "report.deal"' value=${query.where || ""} put=${put("where")} />
      <${Written} id="iteration" label="Iterations" placeholder="3 or 3-7" value=${query.iteration || ""} put=${put("iteration")} />
      <${Choice} label="Policy" id="policy" value=${query.policy || ""} options=${any("policy")} choose=${put("policy")} />
      ${facets.game.length > 1 && html`<${Choice} label="Game" id="game" value=${query.game || ""} options=${any("game")} choose=${put("game")} />`}
      ${facets.status.length > 1 && html`<${Choice} label="Status" id="status" value=${query.status || ""} options=${any("status")} choose=${put("status")} />`}
      <${Choice} label="Order" id="sort" value=${query.sort || ""} options=${SORTS} choose=${put("sort")} />
      ${Object.keys(query).length > 0 && html`<a class="button" href=${to(["run", run, "matches"])}>Clear</a>`}
    </form>`}
    <${Complaint} line=${error} />
    ${data?.damaged?.map((line) => html`<${Complaint} line=${line} />`)}
    ${data && html`<p class="quiet" role="status" id="total">${count(data.total)} of ${count(data.of)} matches${
      data.unread ? `, ${count(data.unread)} iterations still to read …` : ""}${loading ? " …" : ""}${
      data.found && !data.found.whole ? "; only the newest: the search ended early" : ""}</p>`}
    ${data?.found && html`<${Hits} run=${run} found=${data.found} query=${list} />`}
    ${data && !FROZEN && html`<${Columns} rows=${rows} columns=${columns} choose=${(names) => put("columns", true)(names.join() === USUAL.join() ? "" : names.join() || "none")} />`}
    <div class="scroll"><table class="matches">
      <thead><tr><th>Match</th>${columns.map((name) => html`<th class=${kind(rows[0], name).split(" ")[0] === "n" ? "n" : ""}>${words(name)}</th>`)}</tr></thead>
      <tbody>${rows.map((row, k) => html`<${Row} key=${row.match} run=${run} row=${row} at=${k === at} query=${query} open=${() => open(row)} columns=${columns} />`)}</tbody>
    </table></div>
    ${data && data.total > PAGE && html`<p class="pages"><button disabled=${!offset} onClick=${() => turn(-1)}>← before</button>
      <span>${count(offset + 1)}–${count(Math.min(offset + PAGE, data.total))} of ${count(data.total)}</span>
      <button disabled=${offset + PAGE >= data.total} onClick=${() => turn(1)}>after →</button></p>`}
    ${kept() && html`<p class="quiet">kept for comparing: ${kept().join(", ")}</p>`}`;
}
