// A human player's seat: what the player may know, what is said, and the requested act.
import { api, ask, Complaint, count, focused, go, html, number, Said, short, Shown, signed, useEffect, useKeys, useRef, useState, visible } from "./lib.js";

const MOST = 60; // maximum number of acts shown as buttons

/** Running matches, of this or another window; each can be continued or ended. */
function Played({ begun, ended }) {
  const [all, setAll] = useState([]), [asked, setAsked] = useState(0);
  useEffect(() => {
    let live = true;
    const look = () => ask("/api/play").then((told) => live && setAll(told), () => {});
    look();
    const timer = setInterval(look, 2000);
    return () => { live = false; clearInterval(timer); };
  }, [asked]);
  const end = (one) => ask(`/api/play/${one.id}/end`, {}).then(ended, () => {}).then(() => setAsked(asked + 1));
  if (!all.length) return null;
  return html`<section class="sheetlike" id="played"><h2>Matches in progress</h2><ul class="hits">${all.map((one) => html`<li>${short(one.title, 60)} <button onClick=${() => begun(one.id)}>go on</button> <button class="ends" onClick=${() => end(one)}>end</button></li>`)}</ul></section>`;
}

function Begin({ query, begun }) {
  const [game, setGame] = useState(query.game || "kuhn_poker"), [place, setPlace] = useState(0), [who, setWho] = useState("random"), [error, setError] = useState("");
  const begin = async (event) => {
    event?.preventDefault();
    const from = query.match ? { run: query.run, match: query.match, turn: Number(query.turn), seat: query.seat } : { game, place, who };
    try { begun((await ask("/api/play", from)).id); } catch (problem) { setError(problem.message); }
  };
  const rest = html`<${Played} begun=${begun} ended=${() => setError("")} />`;
  if (query.match) return html`<section class="sheetlike"><p>Play ${query.match} of ${short(query.run, 40)} on from turn ${Number(query.turn) + 1} as <b>${short(query.seat, 30)}</b>, against the original players.
    Earlier turns stay as they are. For comparison, the original players also play the match on once.</p><button class="strong" id="begin" ref=${focused} onClick=${begin}>Sit down</button> <${Complaint} line=${error} /></section>${rest}`;
  return html`<form class="sheetlike filters" onSubmit=${begin}>
    <label class="field"><span>Game of two seats</span><input id="game" value=${game} onInput=${(e) => setGame(e.target.value)} /></label>
    <label class="field"><span>Your place</span><select value=${String(place)} onChange=${(e) => setPlace(Number(e.target.value))}><option value="0">first</option><option value="1">second</option></select></label>
    <label class="field"><span>Against (a policy, or a run here)</span><input id="who" value=${who} onInput=${(e) => setWho(e.target.value)} /></label>
    <button class="strong" id="begin">Sit down</button><${Complaint} line=${error} /></form>${rest}`;
}

const Facts = ({ facts }) => html`<dl class="facts">${facts.filter(([, value]) => !["none", "[]", "{}", '""', ""].includes(value)).map(([name, value]) => html`<div><dt class="quiet">${short(name, 40)}</dt>
  <dd class=${value.includes("\n") ? "code board" : ""}><${Said} text=${value} /></dd></div>`)}</dl>`;

function End({ told }) {
  if (told.figures) return html`<section class="sheetlike" id="end"><h2>How it ended</h2><div class="scroll"><table><thead><tr><th></th><th class="n">In the log</th><th class="n">Played on without you</th><th class="n">With you</th></tr></thead>
    <tbody>${Object.entries(told.figures).map(([name, one]) => html`<tr><th scope="row">${short(name.replaceAll("_", " "), 40)}</th><td class="n">${number(one.logged)}</td><td class="n">${number(one.unchanged[0])}</td><td class="n"><b>${number(one.forked[0])}</b></td></tr>`)}</tbody></table></div></section>`;
  return html`<section class="sheetlike" id="end"><h2>${told.status === "finished" ? "How it ended" : `Not finished: ${short(told.reason, 200)}`}</h2>
    <p>${Object.entries(told.payoffs).map(([seat, value]) => html`<span class="figure">${short(seat, 30)} <b>${signed(value)}</b></span>`)}</p>
    <ol class="hits">${told.turns.map((turn) => html`<li><b>${short(turn.seat, 30)}</b> <${Said} text=${turn.raw} />${turn.valid ? "" : html` <span class="chip bad">not valid</span>`}</li>`)}</ol></section>`;
}

function Asked({ asked, wrong, send }) {
  const [act, setAct] = useState(""), [talk, setTalk] = useState(""), [all, setAll] = useState(false);
  useEffect(() => { setAct(""); setTalk(""); document.getElementById("act")?.focus(); }, [asked]);
  const legal = asked.legal || [], shown = all ? legal : legal.slice(0, MOST);
  return html`<form class="sheetlike" onSubmit=${(e) => { e.preventDefault(); if (act.trim()) send(act, talk); }}>
    <h2>Turn ${asked.turn + 1}: you are ${short(asked.seat, 30)}</h2>
    ${asked.words ? html`<p><${Said} text=${asked.words} /></p>` : html`<${Facts} facts=${asked.facts} />`}
    ${shown.length > 0 && html`<p class="legal">${shown.map((one) => html`<button type="button" class="code" onClick=${() => send(one, talk)}>${visible(one)}</button> `)}${
      legal.length > shown.length && html`<button type="button" onClick=${() => setAll(true)}>${count(legal.length - shown.length)} more</button>`}</p>`}
    <div class="filters"><label class="field wide"><span>Act</span><input id="act" autocomplete="off" value=${act} onInput=${(e) => setAct(e.target.value)} /></label>
      <label class="field wide"><span>Talk with it, if the game allows it</span><input id="talk" autocomplete="off" value=${talk} onInput=${(e) => setTalk(e.target.value)} /></label>
      <button class="strong" id="send">Act</button></div>
    <${Complaint} line=${wrong} /></form>`;
}

export function Seat({ route }) {
  const { query } = route, id = query.id || "", [lines, setLines] = useState([]), [open, setOpen] = useState(true), [error, setError] = useState("");
  const known = useRef(0);
  useEffect(() => {
    if (!id) return undefined;
    let timer = 0, live = true;
    known.current = 0;
    setLines([]);
    setOpen(true);
    const look = async () => {
      try {
        const told = await ask(`/api/play/${id}?from=${known.current}`);
        if (!live) return;
        known.current += told.lines.length;
        if (told.lines.length) setLines((old) => [...old, ...told.lines]);
        setOpen(told.open);
        setError(told.error || "");
        if (told.open) timer = setTimeout(look, 350);
      } catch (problem) {
        if (!live) return;
        setError(problem.message);
        setOpen(!problem.refused);
        if (!problem.refused) timer = setTimeout(look, 2000); // the server may be busy; it ends matches that no page polls
      }
    };
    const left = () => { ask(`/api/play/${id}/end`, { soon: true }, true).catch(() => {}); };
    look();
    addEventListener("pagehide", left);
    return () => { live = false; clearTimeout(timer); removeEventListener("pagehide", left); };
  }, [id]);
  const last = [...lines].reverse().find((line) => line.ask || line.took || line.end), wrong = lines.length && lines[lines.length - 1].wrong;
  const first = lines.find((line) => line.ask), end = lines.find((line) => line.end);
  const send = (act, talk) => ask(`/api/play/${id}`, { act, talk }).catch((problem) => setError(problem.message));
  const begin = (given) => { setError(""); setLines([]); go(["play"], { ...query, id: given }); };
  const again = query.match ? () => go(["run", query.run, "match", query.match], { turn: query.turn }) : () => begin("");
  const leave = () => ask(`/api/play/${id}/end`, {}).then(again, (problem) => setError(problem.message));
  return html`<div class="head"><h1>${first ? `You are ${short(first.ask.seat, 30)}` : "Play"}</h1>${id && open && html`<span class="end"><button id="leave" onClick=${leave}>end this match</button></span>`}</div>
    <${Complaint} line=${error} />
    ${!id && html`<${Begin} query=${query} begun=${begin} />`}
    ${first && html`<details class="sheetlike" open=${lines.length < 2}><summary>The rules</summary><p><${Said} text=${first.ask.rules} /></p></details>`}
    <div class="talk" aria-live="polite">${lines.map((line) => (line.ask ? line.ask.messages.map(([sender, text, images]) => html`<p class="k2"><b class="seat"><bdi>${short(sender, 30)}</bdi></b> <${Shown} from=${`/api/play/${id}`} text=${text} images=${images || []} /></p>`)
      : line.took ? html`<p class="k1 own"><b class="seat">you</b> <${Said} text=${line.talk ? `${line.took} | ${line.talk}` : line.took} kind="code" /></p>` : null))}</div>
    ${id && open && !last && html`<p class="quiet" role="status">the others sit down …</p>`}
    ${last?.took && open && html`<p class="quiet" role="status">the others think …</p>`}
    ${last?.ask && open && html`<${Asked} asked=${last.ask} wrong=${wrong} send=${send} />`}
    ${end && html`<${End} told=${end.end} /><p><button onClick=${again}>${query.match ? "Back to the match" : "Again"}</button></p>`}`;
}
