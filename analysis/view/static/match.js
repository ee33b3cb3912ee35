// One match as its players saw it: the deal, a lane per seat, credit under any estimator, tokens, replay.
import { api, ask, Complaint, count, FROZEN, go, html, matchAt, number, Picture, Said, short, Shown, signed, to, useData, useEffect, useKeys, useMemo, useRef, useState, visible } from "./lib.js";
import { Tokens, OVERLAYS, byTurn, Legend } from "./tokens.js";
import { shade } from "./charts.js";
import { Tree } from "./tree.js";
import { Note, Writer } from "./notes.js";
import { Fork } from "./fork.js";
import { keep } from "./kept.js";
import { Copy } from "./copy.js";

const EVERY = 1000; // milliseconds between polls of a match in progress
const SPEEDS = [["1", "×1"], ["4", "×4"], ["16", "×16"], ["0", "steps"]];

// -- credit ----------------------------------------------------------------------------------------------------------

/** Advantages by turn under the chosen estimator; the logged ones if none is chosen. */
export function useCredit(run, match, estimator, version) {
  const [state, set] = useState({ estimator: "", turns: {}, name: "", waiting: false, error: "" });
  useEffect(() => {
    let open = true, timer = 0;
    const load = async () => {
      try {
        const told = await ask(`${api(run)}/matches/${encodeURIComponent(match.id)}/credit?${new URLSearchParams({ estimator })}`);
        if (!open) return;
        if (told.waiting) { set((old) => ({ ...old, waiting: true, error: "" })); timer = setTimeout(load, 300); }
        else set({ estimator, turns: told.turns, name: told.name, scale: told.scale, waiting: false, error: "" });
      } catch (problem) { if (open) set({ estimator, turns: {}, name: "", waiting: false, error: problem.message }); }
    };
    if (match && estimator) load();
    else set({ estimator: "", turns: {}, name: "", waiting: false, error: "" });
    return () => { open = false; clearTimeout(timer); };
  }, [run, match?.id, estimator, match?.turns.length, version]);
  return state;
}

function Estimators({ named, estimator, choose, credit }) {
  const [own, setOwn] = useState("");
  return html`<label class="field"><span>Advantage by  ( e )</span><select id="estimator" value=${named.some((e) => e.estimator === estimator) || !estimator ? estimator : "…"}
      onChange=${(e) => (e.target.value === "…" ? setOwn(estimator || "mars: {gamma: 0.9}") : (setOwn(""), choose(e.target.value)))}>
      <option value="">the run's, as logged</option>
      ${named.map((e) => html`<option value=${e.estimator} title=${e.what} selected=${e.estimator === estimator}>${e.estimator}</option>`)}
      <option value="…">with settings …</option></select></label>
    ${own && html`<label class="field"><span>YAML, as --estimators '[…]'</span><input value=${own} size="24" id="own-estimator" onInput=${(e) => setOwn(e.target.value)}
      onKeyDown=${(e) => e.key === "Enter" && choose(`[{${own.replace(/^\s*\[?\s*\{?|\}?\s*\]?\s*$/g, "")}}]`)} /></label>`}
    ${credit.waiting && html`<span class="quiet" role="status">computing …</span>`}`;
}

// -- turns -----------------------------------------------------------------------------------------------------------

function Seen({ run, messages }) {
  if (!messages.length) return null;
  return html`<div class="seen"><span class="tag">saw</span>${messages.map((message) => html`<p><b><bdi>${short(message.sender, 30)}</bdi></b> <${Shown} from=${api(run)} ...${message} most=${600} /></p>`)}</div>`;
}

const Rewards = ({ turn }) => {
  const parts = Object.entries(turn.rewards).filter(([, value]) => value);
  return html`<span class="figure" title="weighted sum of its named rewards">reward <b>${signed(turn.reward)}</b></span>${
    parts.map(([name, value]) => html`<span class="chip">${short(name, 24)} ${signed(value)}</span>`)}`;
};

function Turn({ run, turn, column, lanes, credit, scale, at, choose, seen, overlay, tokens, bounds, noting, notes, note, fork }) {
  const element = useRef();
  useEffect(() => { if (element.current) { element.current.style.gridColumn = lanes > 1 ? `${column + 1}` : "1"; element.current.style.gridRow = `${turn.index + 2}`; } }, [column, lanes, turn.index]);
  const advantage = credit.estimator ? credit.turns[turn.index]?.[1] : turn.advantage;
  const said = turn.public || "", act = turn.action || "";
  return html`<article ref=${element} id="turn-${turn.index}" class="turn k${(column % 6) + 1} ${shade(advantage, scale)} ${at ? "at" : ""} ${turn.valid ? "" : "invalid"}"
      tabindex="0" aria-label="turn ${turn.index + 1}, ${turn.seat}" onClick=${choose} onFocus=${choose}>
    <header><b>${turn.index + 1}</b> <span class="seat"><bdi>${short(turn.seat, 24)}</bdi></span>
      <span class="quiet"><bdi>${short(turn.policy, 24)}</bdi>${turn.version ? ` v${turn.version}` : ""}${turn.source === "policy" ? "" : `, ${turn.source}`} · ${number(turn.seconds)} s${turn.tokens ? ` · ${turn.tokens} tokens` : ""}</span>
      ${!turn.valid && html`<span class="chip bad">not valid</span>`}${turn.finish === "length" && html`<span class="chip">cut off</span>`}</header>
    ${seen && html`<${Seen} run=${run} messages=${turn.messages} />`}
    ${overlay && tokens ? html`<${Tokens} held=${tokens} overlay=${overlay} bounds=${bounds} />` : html`
      ${turn.private && html`<div class="thought"><span class="tag">private thought</span><${Said} text=${turn.private} /></div>`}
      ${said && html`<div class="speech"><span class="tag">said</span><${Said} text=${said} /></div>`}
      ${act && html`<div class="act"><span class="tag">act</span><${Said} text=${act} kind="code" /></div>`}
      ${!turn.private && !said && !act && html`<div class="act"><span class="tag">wrote</span><${Said} text=${turn.raw || "(nothing)"} kind="code" /></div>`}`}
    ${(turn.marks || []).map((one) => html`<div class="act"><span class="tag">where the act points</span><${Picture} from=${api(run)} ...${one} /></div>`)}
    <footer><${Rewards} turn=${turn} />
      <span class="figure" title="undiscounted sum of its seat's rewards from here on">return <b>${signed(turn.return)}</b></span>
      <span class="figure advantage">advantage <b>${signed(advantage)}</b></span></footer>
    ${notes.map((one) => html`<${Note} key=${one.note} run=${run} note=${one} />`)}
    ${at && !noting && !FROZEN && html`<p class="acts"><button class="plain" onClick=${note}>note ( n )</button> ${fork && html`<button class="plain" onClick=${fork}>fork from here ( f )</button>
      <a class="plain" href=${to(["play"], { run, match: bounds.id, turn: turn.index, seat: turn.seat })}>play on as ${short(turn.seat, 20)}</a>`}</p>`}
    ${noting && html`<${Writer} run=${run} match=${bounds.id} turn=${turn.index} done=${note} />`}
  </article>`;
}

/** A bar for each turn's advantage, up or down from zero. */
function Strip({ turns, advantages, scale, columns, at, choose }) {
  if (turns.length < 4 || !scale) return null;
  const wide = Math.max(3, Math.min(26, 900 / turns.length)), tall = 34;
  return html`<svg class="strip" preserveAspectRatio="xMinYMid meet" viewBox="0 0 ${turns.length * wide} ${2 * tall}" role="img" aria-label="advantage by turn">
    <path class="grid" d="M0 ${tall}H${turns.length * wide}" />
    ${turns.map((turn, k) => {
      const value = advantages[k];
      const size = value === null || value === undefined ? 0 : Math.max(1.5, Math.min(1, Math.abs(value) / scale) * (tall - 3));
      return html`<g class="k${(columns.get(turn.seat) % 6) + 1} ${at === turn.index ? "at" : ""}" onClick=${() => choose(turn.index)}>
        <rect class="hit" x=${k * wide} y="0" width=${wide} height=${2 * tall}><title>${`turn ${turn.index + 1}, ${turn.seat}: ${signed(value)}`}</title></rect>
        <rect x=${k * wide + 1} y=${value > 0 ? tall - size : tall} width=${wide - 2} height=${size} /></g>`;
    })}</svg>`;
}

// -- the head --------------------------------------------------------------------------------------------------------

function Deal({ deal }) {
  if (!deal.length) return null;
  return html`<section class="deal" aria-label="The deal"><h2>The deal</h2><dl>${deal.map(([who, facts]) => html`<div><dt><bdi>${short(who, 30)}</bdi></dt>
    ${facts.map(([name, value]) => html`<dd><span class="quiet">${short(name, 40)}</span> <${Said} text=${value} most=${600} /></dd>`)}</div>`)}</dl></section>`;
}

function Outcome({ match }) {
  const told = match.report, words = ([, name, value]) => html`<span class="figure">${short(name, 40)} <b>${
    typeof value === "boolean" ? (value ? "yes" : "no") : typeof value === "number" ? number(value) : short(value, 60)}</b></span>`;
  return html`<div class="outcome">
    ${match.seats.map((seat, k) => html`<span class="seatline k${(k % 6) + 1}"><span class="swatch"></span><b><bdi>${short(seat.seat, 24)}</bdi></b>${" "}
      <span class="quiet"><bdi>${short(seat.policy, 24)}</bdi>${seat.version ? ` v${seat.version}` : ""} as <bdi>${short(seat.role, 24)}</bdi>${seat.trained ? ", learns" : ""}</span>${" "}<b class="paid">${number(seat.payoff)}</b></span>`)}
    ${match.playing && html`<span class="live" role="status">being played, turn ${match.turns.length}</span>`}
    ${match.status === "failed" && html`<p class="complaint">failed: ${short(match.reason, 300)}</p>`}
    ${told.length > 0 && html`<details class="report"><summary>${told.slice(0, 4).map(words)}</summary>${told.slice(4).map(words)}</details>`}</div>`;
}

function Replay({ total, played, setPlayed, playing, setPlaying, speed, setSpeed }) {
  return html`<div class="replay" role="group" aria-label="Replay"><button id="play" onClick=${() => setPlaying(!playing)} title="Space">${playing ? "❚❚ pause" : "▶ replay"}</button>
    <input type="range" min="0" max=${total} value=${played ?? total} aria-label="turns shown" onInput=${(e) => { setPlaying(false); setPlayed(Number(e.target.value)); }} />
    <span class="n quiet">${played ?? total} of ${total}</span>
    <select aria-label="speed" value=${speed} onChange=${(e) => setSpeed(e.target.value)}>${SPEEDS.map(([value, words]) => html`<option value=${value}>${words}</option>`)}</select></div>`;
}

/** Replay of a match: the number of turns shown, each turn after the time it took. */
function useReplay(turns) {
  const [played, setPlayed] = useState(null), [playing, setPlaying] = useState(false), [speed, setSpeed] = useState("1");
  useEffect(() => {
    if (!playing) return undefined;
    const next = played === null || played >= turns.length ? 0 : played;
    const seconds = turns[next]?.seconds || 0, wait = speed === "0" ? 700 : Math.max(120, Math.min(8000, (1000 * seconds) / Number(speed)));
    const timer = setTimeout(() => {
      setPlayed(next + 1);
      if (next + 1 >= turns.length) setPlaying(false);
    }, played === null || played >= turns.length ? 200 : wait);
    return () => clearTimeout(timer);
  }, [playing, played, speed, turns.length]);
  return { played, setPlayed, playing, setPlaying, speed, setSpeed };
}

// -- the whole -------------------------------------------------------------------------------------------------------

export function MatchView({ run, id, version, query = {}, single = false, alone = true }) {
  const path = `${api(run)}/matches/${encodeURIComponent(id)}`;
  const { data: match, error } = useData(path, version, (told) => (told.playing || told.unread ? EVERY : 0));
  const { data: named } = useData("/api/estimators");
  const [estimator, setEstimator] = useState(query.estimator || ""), [overlay, setOverlay] = useState("");
  const [seen, setSeen] = useState(true), [at, setAt] = useState(query.turn === undefined ? 0 : Number(query.turn) || 0);
  const [noting, setNoting] = useState(null), [forking, setForking] = useState(false);
  const { data: tokens, error: untold } = useData(overlay ? `${path}/tokens` : null, version);
  const credit = useCredit(run, match, estimator, version), replay = useReplay(match?.turns || []);
  const columns = useMemo(() => new Map((match?.seats || []).map((seat, k) => [seat.seat, k])), [match]);
  const shown = (match?.turns || []).slice(0, replay.played ?? undefined);
  const advantages = (match?.turns || []).map((turn) => (credit.estimator ? credit.turns[turn.index]?.[1] : turn.advantage));
  const scale = (credit.estimator ? credit.scale : match?.scale) || Math.max(0, ...advantages.map((v) => Math.abs(v ?? 0)));
  const held = useMemo(() => (tokens ? byTurn(tokens) : null), [tokens]);
  const choose = (index) => {
    setAt(index);
    if (alone) history.replaceState(null, "", matchAt(run, id, { ...query, turn: index, estimator }));
  };
  const move = (by) => { const next = Math.max(0, Math.min(shown.length - 1, at + by)); choose(next); document.getElementById(`turn-${next}`)?.focus(); };
  useEffect(() => { if (match && query.turn !== undefined) document.getElementById(`turn-${at}`)?.scrollIntoView({ block: "center" }); }, [match?.id]);
  const last = match?.playing ? match.turns.length - 1 : -1;
  useEffect(() => { if (last > 0 && at === last - 1) { setAt(last); document.getElementById(`turn-${last}`)?.scrollIntoView({ block: "nearest" }); } }, [last]);
  useEffect(() => { if (replay.playing) document.getElementById(`turn-${replay.played - 1}`)?.scrollIntoView({ block: "nearest" }); }, [replay.played]);
  const cycle = () => setOverlay((old) => { const kinds = ["", ...(tokens?.kept?.length || old ? OVERLAYS.map(([name]) => name) : ["logprob"])]; return kinds[(kinds.indexOf(old) + 1) % kinds.length]; });
  useKeys(!alone ? {} : {
    j: () => move(1), k: () => move(-1), " ": () => replay.setPlaying(!replay.playing), s: () => setSeen(!seen), o: FROZEN ? null : cycle,
    ArrowRight: () => replay.setPlayed(Math.min(match.turns.length, (replay.played ?? match.turns.length) + 1)),
    ArrowLeft: () => replay.setPlayed(Math.max(0, (replay.played ?? match.turns.length) - 1)),
    e: () => document.getElementById("estimator")?.focus(), n: () => setNoting(FROZEN ? null : at), f: () => setForking(!match.playing && !FROZEN), c: () => FROZEN || keep(run, id),
  });
  if (!match) return html`<${Complaint} line=${error} />${!error && html`<p class="quiet">reading …</p>`}`;
  const bounds = { id, scale, ...(held ? held.bounds : {}) }, lanes = single ? 1 : columns.size;
  const notesOf = (index) => match.notes.filter((note) => note.turn === index);
  return html`
    <${Complaint} line=${error} />
    <${Outcome} match=${match} />
    ${match.notes.filter((note) => note.turn === null).map((note) => html`<${Note} key=${note.note} run=${run} note=${note} />`)}
    <${Deal} deal=${match.deal} />
    <div class="tools">
      ${!FROZEN && html`<${Estimators} named=${named || []} estimator=${estimator} choose=${setEstimator} credit=${credit} />`}
      ${!FROZEN && html`<label class="field"><span>Tokens  ( o )</span><select id="overlay" value=${overlay} onChange=${(e) => setOverlay(e.target.value)}>
        <option value="">as text</option>${OVERLAYS.map(([name, words]) => html`<option value=${name} selected=${overlay === name} disabled=${tokens && name !== "mask" && !tokens.kept.includes(name)}>${words}${
          tokens && name !== "mask" && !tokens.kept.includes(name) ? " (not logged)" : ""}</option>`)}</select></label>`}
      <label class="tick"><input type="checkbox" checked=${seen} onChange=${() => setSeen(!seen)} /> what seats saw</label>
      <${Replay} total=${match.turns.length} ...${replay} />
    </div>
    <${Complaint} line=${credit.error || untold} />
    ${overlay && !tokens && !untold && html`<p class="quiet" role="status">reading the tokens …</p>`}
    ${overlay && tokens && html`<${Legend} overlay=${overlay} tokens=${tokens} bounds=${bounds} />`}
    <${Strip} turns=${match.turns} advantages=${advantages} scale=${scale} columns=${columns} at=${at} choose=${(index) => { choose(index); document.getElementById(`turn-${index}`)?.focus(); }} />
    ${forking && match.turns[at] && html`<${Fork} run=${run} match=${match} turn=${match.turns[at]} close=${() => setForking(false)} />`}
    <div class="lanes lanes-${Math.min(lanes, 6)}" data-estimator=${credit.estimator ? credit.name : ""}>
      ${lanes > 1 && match.seats.map((seat, k) => html`<h2 class="lane k${(k % 6) + 1}"><span class="swatch"></span><bdi>${short(seat.seat, 30)}</bdi></h2>`)}
      ${shown.map((turn) => html`<${Turn} key=${turn.index} run=${run} turn=${turn} column=${columns.get(turn.seat) ?? 0} lanes=${lanes} credit=${credit} scale=${scale}
        at=${at === turn.index} choose=${() => choose(turn.index)} seen=${seen} overlay=${overlay} tokens=${held?.turns.get(`${turn.seat}\n${turn.index}`)} bounds=${bounds}
        noting=${noting === turn.index} notes=${notesOf(turn.index)} note=${() => setNoting(noting === turn.index ? null : turn.index)} fork=${!match.playing && (() => { choose(turn.index); setForking(true); })} />`)}
    </div>
    ${match.left_out > 0 && html`<p class="quiet">${count(match.left_out)} later turns are not shown.</p>`}
    ${match.turns.length === 0 && !match.playing && html`<p class="empty">Nobody moved in this match.</p>`}
    <${Tree} run=${run} family=${match.family} at=${id} />
    <details class="small"><summary>About this match</summary><p class="quiet">iteration ${match.iteration}, ${visible(match.game)} with rules ${match.rules}, seed ${match.seed}, began ${visible(match.started)}, took ${number(match.seconds)} s${
      match.parent ? `, branch of ${match.parent} at turn ${match.parent_turn + 1}` : ""}${match.group >= 0 ? `, group ${match.group}` : ""}. Options: ${
      Object.entries(match.options).map(([name, value]) => `${visible(name)} = ${short(value, 80)}`).join(", ") || "none"}.</p></details>`;
}

export function Match({ route, versions }) {
  const [, run, , id] = route.parts, { turn, estimator, ...list } = route.query;
  const near = useData(FROZEN ? null : `${api(run)}/matches/${encodeURIComponent(id)}/near?${new URLSearchParams(list)}`, "", (told) => (told.unread ? 300 : 0)).data || {};
  const step = (place) => { if (near[place]) location.hash = matchAt(run, near[place], list); };
  useKeys({ "[": () => step("before"), "]": () => step("after") });
  return html`<div class="head"><h1>${id}</h1><${Copy} run=${run} id=${id} />
      <span class="end">${near.before && html`<a class="button" href=${matchAt(run, near.before, list)} title="[">← ${near.before}</a>`}
      ${near.after && html`<a class="button" href=${matchAt(run, near.after, list)} title="]">${near.after} →</a>`}
      <a class="button" href=${to(["run", run, "matches"], list)}>list</a></span></div>
    <${MatchView} run=${run} id=${id} version=${versions[run]} query=${route.query} />`;
}
