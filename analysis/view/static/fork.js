// Forks of a match: played again from a turn with another player or act, compared with unchanged replays.
import { api, ask, Complaint, focused, html, number, short, signed, useEffect, useState, visible } from "./lib.js";

const WHO = ["random", "noop"];

const interval = (ends) => (ends[0] === null ? "–" : ends[1] === null ? number(ends[0])
  : html`${number(ends[0])} <span class="quiet">${number(ends[1])} to ${number(ends[2])}</span>`);

function Verdict({ ends }) {
  if (ends[0] === null) return "–";
  const sure = ends[1] !== null && (ends[1] > 0 || ends[2] < 0);
  return html`<b class=${sure ? (ends[0] > 0 ? "gain" : "loss") : ""}>${sure ? (ends[0] > 0 ? "▲ " : "▼ ") : "≈ "}${signed(ends[0])}</b>${
    ends[1] !== null && html` <span class="quiet">${number(ends[1])} to ${number(ends[2])}</span>`}`;
}

function Result({ answer }) {
  return html`<p class="quiet">${answer.act ? `after “${visible(answer.act)}”` : `with ${Object.entries(answer.others).map((pair) => pair.join(" = ")).join(", ")}`}, compared with as many replays by the original players (95 % intervals)${
    Object.keys(answer.failed).length ? `; failed: ${Object.keys(answer.failed).join(", ")}` : ""}</p>
    <div class="scroll"><table class="forked"><thead><tr><th></th><th class="n">Logged</th><th class="n">Replayed</th><th class="n">Forked</th><th class="n">Difference</th></tr></thead>
    <tbody>${Object.entries(answer.figures).map(([name, told]) => html`<tr><th scope="row">${short(name.replaceAll("_", " "), 40)}</th><td class="n">${number(told.logged)}</td>
      <td class="n">${interval(told.unchanged)}</td><td class="n">${interval(told.forked)}</td><td class="n"><${Verdict} ends=${told.difference} /></td></tr>`)}</tbody></table></div>`;
}

export function Fork({ run, match, turn, close }) {
  const [act, setAct] = useState(""), [seat, setSeat] = useState(turn.seat), [who, setWho] = useState(""), [n, setN] = useState(20);
  const [job, setJob] = useState(""), [state, setState] = useState({}), [error, setError] = useState("");
  useEffect(() => {
    if (!job) return undefined;
    let timer = 0, open = true;
    const look = async () => {
      try {
        const told = await ask(`/api/jobs/${job}`);
        if (!open) return;
        setState(told);
        if (told.running) timer = setTimeout(look, 700);
        else { setJob(""); setError(told.error || ""); }
      } catch (problem) { setError(problem.message); setJob(""); }
    };
    look();
    return () => { open = false; clearTimeout(timer); };
  }, [job]);
  const send = async (event) => {
    event.preventDefault();
    setState({});
    try { setJob((await ask(`${api(run)}/matches/${encodeURIComponent(match.id)}/fork`, { turn: turn.index, act, seat, who, n })).job); setError(""); } catch (problem) { setError(problem.message); }
  };
  const known = [...new Set([...match.seats.map((one) => one.policy), ...WHO])];
  return html`<section class="sheetlike fork" aria-label="Fork"><form onSubmit=${send}>
    <h2>Fork ${match.id} from turn ${turn.index + 1} (${short(turn.seat, 24)})</h2>
    <div class="filters">
      <label class="field wide"><span>Another act, in place of “${short(turn.action || turn.raw, 40)}”</span><input id="fork-act" value=${act} ref=${focused} onInput=${(e) => setAct(e.target.value)} /></label>
      <label class="field"><span>or another player at</span><select value=${seat} onChange=${(e) => setSeat(e.target.value)}>${match.seats.map((one) => html`<option value=${one.seat}>${short(one.seat, 30)}</option>`)}</select></label>
      <label class="field"><span>who</span><input id="fork-who" list="who" size="16" value=${who} placeholder="random, …" onInput=${(e) => setWho(e.target.value)} /><datalist id="who">${known.map((name) => html`<option value=${name} />`)}</datalist></label>
      <label class="field"><span>forks</span><input id="fork-n" type="number" min="1" max="1000" value=${n} onInput=${(e) => setN(Number(e.target.value))} /></label>
      <button class="strong" disabled=${Boolean(job) || !(act.trim() || who.trim())}>${job ? "playing …" : "Play on"}</button> <button type="button" onClick=${close}>Close</button>
    </div></form>
    <${Complaint} line=${error} />
    ${state.answer && html`<${Result} answer=${state.answer} />`}</section>`;
}
