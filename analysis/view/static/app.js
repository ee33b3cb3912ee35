// The page: routing, polling for changes in the runs, and global keys.
import { render } from "./vendor/preact.js";
import { ask, Complaint, focused, FROZEN, go, html, parse, takeToken, to, useEffect, useKeys, useState } from "./lib.js";
import { Runs } from "./runs.js";
import { Run } from "./run.js";
import { Match } from "./match.js";
import { Pair } from "./pair.js";
import { Compare } from "./compare.js";
import { Seat } from "./seat.js";

const EVERY = 1500; // milliseconds between polls for changes
const KEYS = [
  ["?", "these keys"], ["Esc", "close, or up one level"], ["j  k", "next and previous match, turn or run"], ["Enter", "open it"],
  ["/", "search"], ["1 – 7", "parts of a run's page"], ["[  ]", "match before and after in the list"],
  ["Space", "replay, and pause"], ["← →", "replay: a turn back or on"], ["e", "choose the estimator"],
  ["o", "next overlay on the tokens"], ["s", "show or hide what seats saw"], ["n", "note on the turn"],
  ["f", "fork from the turn"], ["c", "keep this match to compare it, then compare"], ["y", "copy the match as text"], ["t", "dark, light or system theme"], ["p", "print"],
];

function useRoute() {
  const [route, set] = useState(parse(location.hash));
  useEffect(() => {
    const changed = () => { set(parse(location.hash)); };
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return FROZEN && !route.parts.length ? { ...route, parts: ["run", FROZEN.run] } : route;
}

/** A text per run that changes with the run's files; polled while the page is visible. */
function useVersions() {
  const [state, set] = useState({ versions: null, error: "" });
  useEffect(() => {
    let timer = 0, open = true;
    const look = async () => {
      clearTimeout(timer);
      if (!document.hidden) {
        try {
          const versions = await ask("/api/changes");
          set((old) => (JSON.stringify(old.versions) === JSON.stringify(versions) && !old.error ? old : { versions, error: "" }));
        } catch (error) {
          set((old) => ({ versions: old.versions, error: error.message }));
        }
      }
      if (open && !FROZEN) timer = setTimeout(look, EVERY);
    };
    look();
    document.addEventListener("visibilitychange", look);
    return () => { open = false; clearTimeout(timer); document.removeEventListener("visibilitychange", look); };
  }, []);
  return state;
}

function useTheme() {
  const [theme, set] = useState(localStorage.getItem("arena view theme") || "");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("arena view theme", theme);
    dispatchEvent(new Event("theme"));
  }, [theme]);
  return [theme, () => set({ "": "dark", dark: "light", light: "" }[theme])];
}

function Crumbs({ parts }) {
  const [kind, run, sub, id] = parts;
  return html`<nav class="crumbs" aria-label="Where you are">
    <a class="home" href="#/">${!FROZEN && html`<img src="/mark.svg" alt="" width="20" height="20" />`} arena</a>
    ${kind === "run" && html`<span aria-hidden="true">/</span><a href=${to(["run", run])}>${run}</a>`}
    ${sub === "match" && html`<span aria-hidden="true">/</span><a href=${to(["run", run, "match", id])}>${id}</a>`}
    ${kind === "pair" && html`<span aria-hidden="true">/</span><b>two matches</b>`}
    ${kind === "compare" && html`<span aria-hidden="true">/</span><b>side by side</b>`}
    ${kind === "play" && html`<span aria-hidden="true">/</span><b>play</b>`}
  </nav>`;
}

function Help({ close }) {
  return html`<div class="veil" onClick=${close}><section class="sheet" role="dialog" aria-modal="true" aria-label="Keys" onClick=${(e) => e.stopPropagation()}>
    <h2>Keys</h2>
    <dl class="keys">${KEYS.map(([key, does]) => html`<dt><kbd>${key}</kbd></dt><dd>${does}</dd>`)}</dl>
    <button onClick=${close} ref=${focused}>Close</button>
  </section></div>`;
}

function App() {
  const route = useRoute(), { versions, error } = useVersions(), [theme, turn] = useTheme();
  const [help, setHelp] = useState(false);
  const { parts } = route;
  const up = () => {
    if (help) return setHelp(false);
    if (document.activeElement && /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) return document.activeElement.blur();
    if (parts[0] === "run" && parts[2] === "match") return go(["run", parts[1], "matches"]);
    if (parts[0]) go([]);
    return undefined;
  };
  useKeys({ "?": () => setHelp(true), Escape: up, t: turn, p: () => print() });
  useEffect(() => { document.title = parts[0] === "run" ? `${parts[3] || parts[1]} – arena` : "arena"; }, [route]);
  const page = { run: Run, pair: Pair, compare: Compare, play: Seat }[parts[0]] || Runs;
  const shown = parts[0] === "run" && parts[2] === "match" ? Match : page;
  return html`
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.getElementById("main").focus(); }}>To the content</a>
    <header class="bar">
      <${Crumbs} parts=${parts} />
      <span class="end">
        <button class="plain" onClick=${turn} title="dark, light or system theme (t)">${theme || "auto"}</button>
        <button class="plain" onClick=${() => setHelp(true)} title="keys (?)" aria-label="keys">?</button>
      </span>
    </header>
    <main id="main" tabindex="-1">
      <${Complaint} line=${error} />
      ${versions && html`<${shown} key=${[parts[0], parts[1], parts[2] === "match" ? parts[3] : ""].join("/")} route=${route} versions=${versions} />`}
    </main>
    ${help && html`<${Help} close=${() => setHelp(false)} />`}`;
}

takeToken();
const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
