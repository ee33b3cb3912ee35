// Shared by all parts of the page: the UI library, server requests, safe texts, numbers, addresses.
import { h } from "./vendor/preact.js";
import { useCallback, useEffect, useMemo, useRef, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";

export { useCallback, useEffect, useMemo, useRef, useState };
export const html = htm.bind(h);

// -- the server ------------------------------------------------------------------------------------------------------

const KEY = "arena view token";

/** In a report file, which has no server: the run's name, and the answers by request. Otherwise null. */
const held = document.getElementById("answers");
export const FROZEN = held ? JSON.parse(held.textContent) : null;

function fromFile(path) {
  const [, , , run, ...rest] = path.split("?")[0].split("/");
  const key = rest.map(decodeURIComponent).join("/");
  if (!run) return path === "/api/changes" ? { [FROZEN.run]: "1" } : [];
  if (!(key in FROZEN.answers)) throw new Error("this file does not contain that: arena view shows everything of a run");
  return FROZEN.answers[key];
}

/** Move the token from the link to local storage, so that copied addresses do not contain it. */
export function takeToken() {
  const found = /^#token=([\w-]+)(.*)$/.exec(location.hash);
  if (!found) return;
  localStorage.setItem(KEY, found[1]);
  history.replaceState(null, "", location.pathname + (found[2] ? `#${found[2]}` : "#/"));
}

/** Return the server's JSON answer. A `lasting` request is sent even if the page is closed meanwhile. */
export async function ask(path, body, lasting = false) {
  if (FROZEN) return fromFile(path);
  const headers = { Authorization: `Bearer ${localStorage.getItem(KEY) || ""}` };
  const posted = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { headers, keepalive: lasting, ...posted });
  } catch {
    throw new Error("the server does not answer: is arena view still running?");
  }
  const told = await answer.json().catch(() => ({ error: `status ${answer.status}` }));
  if (!answer.ok) throw Object.assign(new Error(told.error || `status ${answer.status}`), { refused: true });
  return told;
}

/** Return an image as an address that only this page can use, with the type that the server detected. */
async function image(path) {
  if (FROZEN) return fromFile(path);
  const headers = { Authorization: `Bearer ${localStorage.getItem(KEY) || ""}` };
  const answer = await fetch(path, { headers });
  if (!answer.ok) throw new Error("no image");
  return URL.createObjectURL(await answer.blob());
}

const LEAST = 96, WIDEST = 320; // pixels on the page: small crops are enlarged

/** An image of a run or of a human player's match (`from`), with points and boxes drawn over it. */
export function Picture({ from, hash, width, height, boxes = [] }) {
  const [source, set] = useState("");
  useEffect(() => {
    let url = "", gone = false;
    image(`${from}/images/${encodeURIComponent(hash)}`).then((found) => { url = found; if (gone) URL.revokeObjectURL(url); else set(found); }, () => set(""));
    return () => { gone = true; URL.revokeObjectURL(url); };
  }, [from, hash]);
  const name = `image ${width} × ${height} ${hash.slice(0, 8)}`, wide = Math.max(LEAST, Math.min(width, WIDEST)), unit = width / wide;
  if (!source) return html`<span class="chip">${name}</span>`;
  return html`<span class="picture"><img class=${`shown ${width < wide ? "pixels" : ""}`} src=${source} alt=${name} title=${name} width=${wide} />${boxes.length > 0 &&
    html`<svg class="marks" viewBox="0 0 ${width} ${height}" role="img" aria-label="${boxes.length} marked">${boxes.map(([left, top, right, bottom]) =>
      (left === right && top === bottom ? html`<circle cx=${left} cy=${top} r=${5 * unit} />` : html`<rect x=${left} y=${top} width=${Math.max(0, right - left)} height=${Math.max(0, bottom - top)} />`))}</svg>`}</span>`;
}

/** A message's text with its images at their positions. */
export function Shown({ from, text, images, most }) {
  const whole = typeof text === "string" ? text : text.text, rest = images.length ? Math.min(images[images.length - 1].place, whole.length) : 0;
  let at = 0;
  const parts = images.map((one) => { const before = whole.slice(at, one.place); at = Math.max(at, one.place); return html`${before && html`<${Said} text=${before} most=${most} />`}<${Picture} from=${from} ...${one} />`; });
  const end = whole.slice(rest), tail = typeof text === "string" ? end : { text: end, of: text.of - rest };
  return html`${parts}${(end || typeof text !== "string") && html`<${Said} text=${tail} most=${most} />`}`;
}

export const api = (run) => `/api/runs/${encodeURIComponent(run)}`;

/** Data from the server. The last answer stays until the next one arrives. Requested again when `version` changes. */
export function useData(path, version = "", again = () => 0) {
  const [state, set] = useState({ path: null, data: null, error: "" });
  const repeat = useRef(again);
  repeat.current = again;
  useEffect(() => {
    if (!path) return undefined;
    let open = true, timer = 0;
    const load = () => ask(path).then(
      (data) => {
        if (!open) return;
        set({ path, data, error: "" });
        const wait = repeat.current(data);
        if (wait) timer = setTimeout(load, document.hidden ? 10 * wait : wait);
      },
      (error) => open && set((old) => ({ path, data: old.path === path ? old.data : null, error: error.message })),
    );
    load();
    return () => { open = false; clearTimeout(timer); };
  }, [path, version]);
  const same = state.path === path || (state.path && path && state.path.split("?")[0] === path.split("?")[0]);
  return { data: same ? state.data : null, error: state.error, loading: state.path !== path };
}

// -- texts -----------------------------------------------------------------------------------------------------------

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]/g;
const PAIR = /[\ud800-\udbff][\udc00-\udfff]/g;

/** The text with invisible characters, and those that change the reading order, as visible codes. */
export function visible(text) {
  const whole = typeof text === "string" ? text : text && text.text !== undefined ? text.text : String(text ?? "");
  const kept = [];
  const held = whole.replace(PAIR, (pair) => { kept.push(pair); return "\ue000"; });
  const shown = held.replace(HIDDEN, (c) => `⟨${c.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}⟩`);
  let place = 0;
  return shown.replace(/\ue000/g, () => kept[place++] ?? "\ue000");
}

/** A model's text, isolated in its reading direction. Long texts are cut, with a button for the rest. */
export function Said({ text, kind = "", most = 4000 }) {
  const [all, setAll] = useState(false);
  const whole = visible(text), long = whole.length > most && !all;
  const more = text && text.of ? text.of - text.text.length : 0;
  return html`<bdi class="said ${kind}">${long ? whole.slice(0, most) : whole}${
    long && html`<button class="more" onClick=${() => setAll(true)}>… ${count(whole.length - most)} more characters</button>`}${
    !long && more > 0 && html`<span class="quiet">… ${count(more)} more characters (see arena show)</span>`}</bdi>`;
}

export const short = (text, most = 60) => {
  const shown = visible(text).replace(/\s+/g, " ");
  return shown.length > most ? `${shown.slice(0, most - 1)}…` : shown;
};

// -- numbers ---------------------------------------------------------------------------------------------------------

const MINUS = "\u2212";
export const count = (n) => n.toLocaleString("en-US");

export function number(value, share = false) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (share) return `${(100 * value).toFixed(Math.abs(value) < 0.0995 && value !== 0 ? 1 : 0)}\u00a0%`.replace("-", MINUS);
  const size = Math.abs(value);
  const text = size >= 1000 ? count(Math.round(value)) : size >= 100 ? value.toFixed(0)
    : size && size < 0.005 ? value.toPrecision(2) : String(Number(value.toFixed(size < 1 ? 3 : 2)));
  return (text === "-0" ? "0" : text).replace("-", MINUS);
}

export const signed = (value) =>
  value === null || value === undefined ? "–" : value > 0 ? `+${number(value)}` : number(value);

export const isShare = (bounds) => bounds && bounds[0] === 0 && bounds[1] === 1;

// -- addresses -------------------------------------------------------------------------------------------------------

/** Parse the part of an address after `#` into path parts and a query. */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  return { parts, query: Object.fromEntries(new URLSearchParams(query)) };
}

export function to(parts, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  const text = new URLSearchParams(kept).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export const go = (parts, query) => { location.hash = to(parts, query); };

export const matchAt = (run, id, query = {}) => to(["run", run, "match", id], query);

/** Bind one key per action; the page's help lists them. In inputs only Escape is bound. */
export function useKeys(keys) {
  const held = useRef(keys);
  held.current = keys;
  useEffect(() => {
    const press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const within = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
      if (within && event.key !== "Escape") return;
      if (event.key === " " && event.target.tagName === "BUTTON") return;
      const act = held.current[event.key];
      if (act && act(event) !== false) event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

/** A `ref` that focuses an element once it exists; browsers apply `autofocus` only while loading a page. */
export const focused = (element) => element?.focus();

export const Complaint = ({ line }) => line ? html`<p class="complaint" role="alert">${visible(line)}</p>` : null;
