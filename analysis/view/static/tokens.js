// A turn's tokens, coloured by one figure, and the tokens read before them.
import { html, number, useState, visible } from "./lib.js";

export const OVERLAYS = [["logprob", "probability"], ["entropy", "entropy"], ["ratio", "ratio"], ["gap", "sampler–trainer gap"], ["advantage", "advantage"], ["mask", "mask"]];
const MOST = 1500;

/** By seat and turn: the sampled tokens and those read since the seat's previous turn. Also the figures' bounds. */
export function byTurn(told) {
  const turns = new Map(), bounds = { entropy: 0, gap: 0, ratio: 0, tokenAdvantage: 0 };
  for (const stream of told.streams) {
    let read = [], last = null;
    stream.id.forEach((id, k) => {
      const token = { id, text: stream.text.length ? stream.text[k] : null, sampled: stream.sampled[k] };
      for (const name of ["logprob", "entropy", "advantage", "ratio", "gap"]) token[name] = stream[name] ? stream[name][k] : null;
      if (stream.turn[k] === null) { read.push(token); return; }
      const key = `${stream.seat}\n${stream.turn[k]}`;
      if (key !== last) { turns.set(key, { read, own: [] }); read = []; last = key; }
      turns.get(key).own.push(token);
      bounds.entropy = Math.max(bounds.entropy, token.entropy ?? 0);
      bounds.gap = Math.max(bounds.gap, Math.abs(token.gap ?? 0));
      bounds.ratio = Math.max(bounds.ratio, token.ratio > 0 ? Math.abs(Math.log(token.ratio)) : 0);
      bounds.tokenAdvantage = Math.max(bounds.tokenAdvantage, Math.abs(token.advantage ?? 0));
    });
  }
  return { turns, bounds };
}

function tint(token, overlay, bounds) {
  if (overlay === "mask") return token.sampled ? "v4" : "";
  const step = (share) => Math.min(5, Math.round(5 * share));
  const both = (value, most) => (value === null || !most ? "" : `${value > 0 ? "c" : "m"}${step(Math.abs(value) / most)}`);
  if (overlay === "logprob") return token.logprob === null ? "" : `v${step(1 - Math.exp(token.logprob))}`;
  if (overlay === "entropy") return token.entropy === null || !bounds.entropy ? "" : `v${step(token.entropy / bounds.entropy)}`;
  if (overlay === "ratio") return token.ratio === null ? "" : both(Math.log(token.ratio), bounds.ratio);
  if (overlay === "gap") return both(token.gap, bounds.gap);
  return both(token.advantage, bounds.tokenAdvantage);
}

function about(token) {
  const told = [`id ${token.id}`, token.sampled ? "sampled" : "read"];
  if (token.logprob !== null) told.push(`p ${number(Math.exp(token.logprob))}`);
  for (const [name, words] of [["entropy", "entropy"], ["ratio", "ratio"], ["gap", "gap"], ["advantage", "advantage"]]) if (token[name] !== null) told.push(`${words} ${number(token[name])}`);
  return told.join(", ");
}

const Token = ({ token, overlay, bounds }) => html`<span class="token ${tint(token, overlay, bounds)} ${token.sampled ? "" : "read"}" title=${about(token)}>${
  token.text === null ? `${token.id} ` : visible(token.text).replace(/ /g, "\u00b7").replace(/\n/g, "↵\n")}</span>`;

export function Tokens({ held, overlay, bounds }) {
  const [before, show] = useState(overlay === "mask"), [at, point] = useState(null);
  const list = (tokens) => tokens.slice(-MOST).map((token) => html`<${Token} token=${token} overlay=${overlay} bounds=${bounds} />`);
  return html`<div class="tokens" onMouseOver=${(e) => point(e.target.classList.contains("token") ? e.target.title : null)} onMouseLeave=${() => point(null)}>
    ${held.read.length > 0 && (before || overlay === "mask" ? html`<div class="context">${list(held.read)}</div>` : html`<button class="plain" onClick=${() => show(true)}>${held.read.length} tokens read before</button>`)}
    <div>${list(held.own)}</div><p class="quiet about">${at || "point at a token to see its figures"}</p></div>`;
}

const SCALES = { logprob: ["certain", "unlikely", "v"], entropy: ["certain", "open", "v"], ratio: ["less likely after learning", "more likely", ""],
  gap: ["trainer's is lower", "trainer's is higher", ""], advantage: ["worse than expected", "better", ""] };

export function Legend({ overlay, tokens, bounds }) {
  const words = SCALES[overlay], without = tokens.streams.some((s) => !s.text.length) && " The run has no tokenizer: tokens are shown as ids.";
  if (!words) return html`<p class="quiet">Coloured tokens were sampled by the policy and may be learned from; the others it only read.${without}</p>`;
  const steps = words[2] ? ["v0", "v1", "v2", "v3", "v4", "v5"] : ["m5", "m3", "m1", "c1", "c3", "c5"];
  const top = { entropy: bounds.entropy, ratio: Math.exp(bounds.ratio || 0), gap: bounds.gap, advantage: bounds.tokenAdvantage }[overlay];
  return html`<p class="quiet scale">${words[0]} ${steps.map((step) => html`<span class="token ${step}">\u00a0\u00a0</span>`)} ${words[1]}${top ? ` (up to ${number(top)})` : ""}.${without}</p>`;
}
