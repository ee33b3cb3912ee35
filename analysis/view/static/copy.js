// Copies of a match for use elsewhere: as text, as JSON with everything that the page received, or as a link.
import { api, ask, Complaint, FROZEN, html, number, short, signed, useEffect, useKeys, useState, visible } from "./lib.js";

const whole = (text) => visible(text);

function turnText(turn) {
  const parts = Object.entries(turn.rewards).filter(([, value]) => value).map(([name, value]) => `${short(name, 24)} ${signed(value)}`);
  const lines = [`${turn.index + 1} ${whole(turn.seat)}${turn.valid ? "" : " (not valid)"}`];
  for (const [name, words] of [["private", "thought"], ["public", "said"], ["action", "act"]]) if (turn[name]) lines.push(`  ${words}: ${whole(turn[name]).replace(/\n/g, "\n    ")}`);
  if (!turn.private && !turn.public && !turn.action) lines.push(`  wrote: ${whole(turn.raw)}`);
  lines.push(`  reward ${signed(turn.reward)}${parts.length ? ` (${parts.join(", ")})` : ""}, return ${signed(turn.return)}, advantage ${signed(turn.advantage)}`);
  return lines.join("\n");
}

/** The match as readable text: seats with policies and payoffs, the deal, and every turn with its credit. */
export function transcript(run, match) {
  const seats = match.seats.map((s) => `${whole(s.seat)}: ${whole(s.policy)}${s.version ? ` v${s.version}` : ""} as ${whole(s.role)}, paid ${number(s.payoff)}`);
  const deal = match.deal.map(([who, facts]) => `${whole(who)}: ${facts.map(([name, value]) => `${whole(name)} ${whole(value)}`).join("; ")}`);
  return [`${whole(run)} ${match.id}: ${whole(match.game)}, iteration ${match.iteration}, ${match.status}${match.reason ? ` (${whole(match.reason)})` : ""}`,
    ...seats, ...(deal.length ? ["", "Dealt", ...deal] : []), "", ...match.turns.map(turnText)].join("\n") + "\n";
}

export function Copy({ run, id }) {
  const [told, tell] = useState(""), [error, setError] = useState("");
  useEffect(() => { const timer = setTimeout(() => tell(""), 2500); return () => clearTimeout(timer); }, [told]);
  const copy = async (kind) => {
    try {
      const match = kind === "link" ? null : await ask(`${api(run)}/matches/${encodeURIComponent(id)}?whole=1`);
      await navigator.clipboard.writeText(kind === "link" ? location.href : kind === "text" ? transcript(run, match) : JSON.stringify(match, null, 1));
      setError("");
      tell(`copied as ${kind}`);
    } catch (problem) { setError(`this cannot be copied: ${problem.message}`); }
  };
  useKeys({ y: () => { copy("text"); } });
  const kinds = FROZEN ? ["text", "JSON"] : ["text", "JSON", "link"];
  return html`<span class="copy" role="group" aria-label="Copy this match"><span class="quiet">${told ? "" : "copy as"}</span><span class="quiet" role="status">${told}</span>
    ${kinds.map((kind) => html`<button class="plain" id=${`copy-${kind}`} title=${kind === "text" ? "y" : undefined} onClick=${() => copy(kind)}>${kind}</button>`)}</span><${Complaint} line=${error} />`;
}
