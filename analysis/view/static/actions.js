// Buttons that stop a run and resume it; each asks once more before it acts.
import { api, ask, Complaint, html, useState } from "./lib.js";

export function Controls({ run, about }) {
  const [asked, setAsked] = useState(""), [told, setTold] = useState(""), [error, setError] = useState("");
  const act = about.live ? "stop" : about.planned && about.iterations < about.planned ? "resume" : "";
  const send = async () => {
    setAsked("");
    try {
      const answer = await ask(`${api(run)}/control`, { do: act });
      setTold(act === "stop" ? "it stops after what it is at" : "it begins");
      setError("");
      if (answer.job) setTimeout(() => look(answer.job), 5000);
    } catch (problem) { setError(problem.message); }
  };
  const look = async (job) => { const state = await ask(`/api/jobs/${job}`).catch(() => ({})); if (state.error) { setTold(""); setError(state.error); } };
  if (!act) return null;
  return html`<span class="end">${told && html`<span class="quiet" role="status">${told}</span>`}
    ${asked === act ? html`<span>${act === "stop" ? "Stop this run?" : "Go on with this run?"} <button class="strong" id="sure" onClick=${send}>${act}</button> <button onClick=${() => setAsked("")}>no</button></span>`
      : html`<button id="control" onClick=${() => setAsked(act)}>${act}</button>`}</span><${Complaint} line=${error} />`;
}
