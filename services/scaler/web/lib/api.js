// The REST API as the page uses it: the token, one call, and polling that asks only for news.
import { useEffect, useState } from "../vendor/preact.js";

const KEY = "nitro.token";
const SOONEST_MS = 2000;
const listeners = new Set();

/** What the whole page goes by: whether somebody is signed in, and whether the scaler answers. */
export const session = { token: sessionStorage.getItem(KEY), lostAt: null, refused: false };

function change(fields) {
  if (Object.keys(fields).every((name) => session[name] === fields[name])) return;
  Object.assign(session, fields);
  listeners.forEach((tell) => tell({}));
}

export function useSession() {
  const [, tell] = useState();
  useEffect(() => (listeners.add(tell), () => listeners.delete(tell)), []);
  return session;
}

export function signIn(token) {
  // A header carries no other letters, and no token has any.
  if (!/^[!-~]+$/.test(token)) return signOut(true);
  sessionStorage.setItem(KEY, token);
  change({ token, refused: false, lostAt: null });
}

export function signOut(refused = false) {
  sessionStorage.removeItem(KEY);
  change({ token: null, refused });
}

/** Return a part of an address as text; what is no code stays as it is. */
export function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Take the token out of an address such as `#token=…`, and the address out of sight. */
export function takeToken() {
  const found = /^#token=([^&]+)(?:&to=(.*))?$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", `#${found[2] || "/"}`);
  signIn(decoded(found[1]));
}

export class ApiError extends Error {
  constructor(status, problem) {
    const fields = (problem.errors || []).map((one) => `${one.field}: ${one.message}`);
    super(fields.join("\n") || problem.detail || problem.title || `status ${status}`);
    this.status = status;
  }
}

/** Return `{data, etag}` of an answer; data is undefined when nothing is new. */
export async function call(path, { method = "GET", body, etag, signal } = {}) {
  const headers = { Authorization: `Bearer ${session.token}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (etag) headers["If-None-Match"] = etag;
  let answer;
  try {
    const options = { method, headers, signal, cache: "no-store" };
    answer = await fetch(path, { ...options, body: body && JSON.stringify(body) });
  } catch (error) {
    if (!signal?.aborted) change({ lostAt: session.lostAt || Date.now() });
    throw error;
  }
  // What stands between may answer for a scaler that is away; the scaler itself states the problem.
  const stated = answer.headers.get("Content-Type")?.includes("problem");
  if ([502, 503, 504].includes(answer.status) && !stated)
    change({ lostAt: session.lostAt || Date.now() });
  else change({ lostAt: null });
  if (answer.status === 304) return { etag };
  if (answer.status === 401) signOut(true);
  const text = await answer.text();
  let data;
  try {
    data = text ? JSON.parse(text) : null;
  } catch {
    data = { detail: `status ${answer.status}: no JSON came back` };
    if (answer.ok) throw new ApiError(answer.status, data);
  }
  if (!answer.ok) throw new ApiError(answer.status, data || {});
  return { data, etag: answer.headers.get("ETag") };
}

/** Fetch one of a job's files from the scaler, with the token, which a link cannot carry. */
export async function fetchedFile(file, signal) {
  const headers = { Authorization: `Bearer ${session.token}` };
  const answer = await fetch(file.url.replace(/^\//, ""), { headers, signal });
  if (!answer.ok) throw new Error(`${file.name}: status ${answer.status}`);
  return answer.blob();
}

export const post = (path, body = {}) => call(path, { method: "POST", body });

/** Run `look(signal)` now and every so often while the page is seen, until it says that it is done. */
export function useRepeated(look, everyMs, keys) {
  useEffect(() => {
    const stop = new AbortController();
    let timer;
    let busy = false;
    const turn = async () => {
      clearTimeout(timer);
      if (busy || stop.signal.aborted) return;
      busy = true;
      const done = document.hidden ? false : await look(stop.signal).catch(() => false);
      busy = false;
      if (!done && !stop.signal.aborted) timer = setTimeout(turn, Math.max(everyMs, SOONEST_MS));
    };
    const seen = () => !document.hidden && turn();
    document.addEventListener("visibilitychange", seen);
    addEventListener("nitro:again", turn);
    turn();
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
      removeEventListener("nitro:again", turn);
    };
  }, keys);
}

/** Look at every address again at once, such as after an action. */
export const lookAgain = () => dispatchEvent(new Event("nitro:again"));

/** Return `{data, error}` of an address, kept up to date; what was seen stays while it is away. */
export function usePoll(path, everyMs = 5000) {
  const [seen, set] = useState({});
  let etag;
  useRepeated(
    async (signal) => {
      if (!path) return true;
      try {
        const answer = await call(path, { etag, signal });
        etag = answer.etag;
        if (answer.data !== undefined) set({ path, data: answer.data });
        else set((old) => (old.error ? { path, data: old.data } : old));
        return everyMs === 0;
      } catch (error) {
        if (!signal.aborted)
          set((old) => ({ path, data: old.path === path ? old.data : undefined, error }));
        return error.status === 404;
      }
    },
    everyMs,
    [path, everyMs],
  );
  return seen.path === path ? seen : {};
}
