// Buttons that stop and resume a run; each asks for confirmation first.
import { api, ask, Complaint, html, useEffect, useState } from "./lib.js";

const EVERY = 1500;

export function Controls({ run, about }) {
  const [asked, setAsked] = useState(""), [told, setTold] = useState(""), [error, setError] = useState(""), [job, setJob] = useState("");
  const act = about.live ? "stop" : about.planned && about.iterations < about.planned ? "resume" : "";
  const send = async () => {
    setAsked("");
    try {
      const answer = await ask(`${api(run)}/control`, { do: act });
      setTold(act === "stop" ? "stopping after the current step" : "starting");
      setError("");
      setJob(answer.job || "");
    } catch (problem) { setTold(""); setError(problem.message); }
  };
  useEffect(() => setTold(""), [act]);
  useEffect(() => { // a run takes seconds to start, and may then report why it cannot
    if (!job) return undefined;
    let timer = 0, open = true;
    const look = async () => {
      const state = await ask(`/api/jobs/${job}`).catch(() => ({ running: true }));
      if (!open) return;
      if (state.running) timer = setTimeout(look, EVERY);
      else { setJob(""); setTold(""); setError(state.error || ""); }
    };
    look();
    return () => { open = false; clearTimeout(timer); };
  }, [job]);
  if (!act) return html`<${Complaint} line=${error} />`;
  return html`<span class="end">${told && html`<span class="quiet" role="status">${told}</span>`}
    ${asked === act ? html`<span>${act === "stop" ? "Stop this run?" : "Resume this run?"} <button class="strong" id="sure" onClick=${send}>${act}</button> <button onClick=${() => setAsked("")}>no</button></span>`
      : html`<button id="control" disabled=${Boolean(job) && act === "resume"} onClick=${() => setAsked(act)}>${act}</button>`}</span><${Complaint} line=${error} />`;
}
