// The match kept for comparison. Keeping a second one opens both side by side.
import { go } from "./lib.js";

const KEY = "arena view kept";

export const kept = () => { try { return JSON.parse(sessionStorage.getItem(KEY)); } catch { return null; } };

export function keep(run, match) {
  const before = kept();
  if (before && (before[0] !== run || before[1] !== match)) {
    sessionStorage.removeItem(KEY);
    go(["pair", ...before, run, match]);
  } else {
    sessionStorage.setItem(KEY, JSON.stringify([run, match]));
    dispatchEvent(new Event("kept"));
  }
}
