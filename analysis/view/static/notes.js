// Notes on matches and turns: stored in the run's folder, searchable, and saved as one file.
import { api, ask, Complaint, focused, html, matchAt, Said, useData, useState } from "./lib.js";

export function Writer({ run, match, turn, done }) {
  const [text, setText] = useState(""), [error, setError] = useState("");
  const send = async (event) => {
    event.preventDefault();
    try { await ask(`${api(run)}/notes`, { match, turn, text }); setText(""); setError(""); done(); } catch (problem) { setError(problem.message); }
  };
  return html`<form class="note-form" onSubmit=${send}>
    <label class="field wide"><span>Note on ${turn === null ? "the match" : `turn ${turn + 1}`}</span>
      <textarea rows="2" value=${text} ref=${focused} onInput=${(e) => setText(e.target.value)}
        onKeyDown=${(e) => (e.key === "Escape" ? (e.stopPropagation(), done()) : e.key === "Enter" && (e.ctrlKey || e.metaKey) && send(e))}></textarea></label>
    <button class="strong">Keep</button> <button type="button" onClick=${done}>Cancel</button><${Complaint} line=${error} /></form>`;
}

export function Note({ run, note, link = false }) {
  const remove = () => ask(`${api(run)}/notes`, { remove: note.note });
  return html`<div class="note"><p class="quiet">${link && html`<a href=${matchAt(run, note.match, { turn: note.turn ?? "" })}>${note.match}${
    note.turn === null ? "" : `, turn ${note.turn + 1}`}</a>, `}${String(note.time).slice(0, 16).replace("T", " ")}
    <button class="plain" onClick=${remove} title="remove this note">remove</button></p><${Said} text=${note.text} /></div>`;
}

function save(run, notes) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([notes.map((note) => `${JSON.stringify(note)}\n`).join("")], { type: "application/x-ndjson" }));
  link.download = `${run}-notes.jsonl`;
  link.click();
  URL.revokeObjectURL(link.href);
}

export function Notes({ run, version }) {
  const [text, setText] = useState("");
  const { data, error } = useData(`${api(run)}/notes?${new URLSearchParams({ text })}`, version);
  return html`<div class="head"><input type="search" placeholder="search in notes" aria-label="search in notes" value=${text} onInput=${(e) => setText(e.target.value)} />
    <button onClick=${() => save(run, data || [])} disabled=${!data?.length}>Save as JSON lines</button></div>
    <${Complaint} line=${error} />
    ${data && !data.length && html`<p class="empty">No note yet: <kbd>n</kbd> on a turn writes one. They are stored in notes.jsonl in the run's folder.</p>`}
    ${data?.map((note) => html`<${Note} key=${note.note} run=${run} note=${note} link=${true} />`)}`;
}
