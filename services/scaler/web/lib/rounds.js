// A job's rounds as columns, fetched once and then only what is new.
import { useMemo, useRef, useState } from "../vendor/preact.js";
import { call, useRepeated } from "./api.js";

const PAGE = 250;
const SHOWN_EVERY_MS = 300;
const GROUPS = ["columns", "cost", "stats"];
/** A job of which no round is known yet. */
export const nothing = (jobId) => ({
  jobId,
  after: -1,
  columns: { round: [] },
  cost: {},
  stats: {},
});

/** Forget the rounds after one, and put the answer's behind those that stay. */
function grow(kept, answer, after) {
  const rounds = kept.columns.round;
  const added = answer.columns.round?.length ?? 0;
  let stay = rounds.length;
  while (stay && rounds[stay - 1] > after) stay -= 1;
  for (const group of GROUPS) {
    const names = new Set([...Object.keys(kept[group]), ...Object.keys(answer[group])]);
    const grown = {};
    for (const name of names) {
      const old = kept[group][name] || new Array(stay).fill(null);
      const fresh = answer[group][name] || new Array(added).fill(null);
      grown[name] = old.slice(0, stay).concat(fresh);
    }
    kept[group] = grown;
  }
  Object.assign(kept, {
    ending: answer.ending,
    after: answer.next_after,
    generation: answer.generation,
  });
}

/** Bring what is known of a job's rounds up to date; `show(more)` is called after every page. */
export async function follow(kept, signal, show = () => {}) {
  // Where the first round lies that may still change: a later page does not tell of it.
  let open = Infinity;
  try {
    for (let more = true; more;) {
      const { after, generation } = kept;
      const path = `v1/jobs/${encodeURIComponent(kept.jobId)}/curves?after=${after}&limit=${PAGE}`;
      const { data, etag } = await call(path, {
        etag: kept.path === path ? kept.etag : undefined,
        signal,
      });
      if (!data) break;
      if (generation !== undefined && generation !== data.generation) {
        Object.assign(kept, nothing(kept.jobId), { generation: undefined, path: undefined });
        open = Infinity;
        continue;
      }
      grow(kept, data, after);
      Object.assign(kept, { path, etag });
      const last = data.columns.round?.at(-1);
      more = data.more && last !== undefined;
      if (more) {
        if (kept.after < last) open = Math.min(open, kept.after);
        kept.after = last;
      }
      show(more);
    }
  } finally {
    kept.after = Math.min(kept.after, open);
  }
}

/** Return `{columns, cost, stats, ending}` of a job, growing while it is live. */
export function useRounds(jobId, live) {
  const own = useRef();
  const [seen, set] = useState({});
  if (own.current?.jobId !== jobId) own.current = nothing(jobId);
  useRepeated(
    async (signal) => {
      try {
        const kept = own.current;
        await follow(kept, signal, (more) => {
          // A long job is drawn at once, then now and then until all of it is here.
          if (more && kept.shownAt && Date.now() - kept.shownAt < SHOWN_EVERY_MS) return;
          kept.shownAt = Date.now();
          set({ jobId, rounds: { ...kept } });
        });
        set((old) => (old.error ? { jobId, rounds: { ...kept } } : old));
        return !live;
      } catch (error) {
        if (!signal.aborted) set((old) => ({ ...(old.jobId === jobId && old), jobId, error }));
        return error.status === 404;
      }
    },
    2000,
    [jobId, live],
  );
  return seen.jobId === jobId ? seen : {};
}

export function running(values, length) {
  let sum = 0;
  return Array.from({ length }, (_, index) => (sum += values?.[index] || 0));
}

export const AXES = [
  ["round", "Round"],
  ["steps", "Environment steps"],
  ["seconds", "Seconds"],
  ["usd", "Dollars"],
];

/** Return the rounds' places on every axis that one can look along: what there was at their ends. */
export function placesOf({ columns, ending }, job) {
  const { round, env_steps: steps, total_s: seconds, spent_usd: spent = [] } = columns;
  // A round's plan tells of the bill before it; the next plan, or the job, of the bill after it.
  const all = Math.max(spent.at(-1) ?? 0, ending?.spent_usd ?? 0, job.spent_usd);
  const usd = round.map((_, index) => spent[index + 1] ?? all);
  return {
    round,
    steps: running(steps, round.length),
    seconds: running(seconds, round.length),
    usd,
  };
}

export const useAxes = (rounds, job) =>
  useMemo(() => rounds && placesOf(rounds, job), [rounds, job.spent_usd]);

/** Return how many rounds a job has left: where steps end it, as many as its rounds so far need. */
export function roundsLeft({ spec: { stop }, progress }) {
  const left = Math.max(0, stop.max_rounds - progress.rounds);
  if (!stop.max_env_steps || !progress.env_steps) return left;
  const steps = Math.max(0, stop.max_env_steps - progress.env_steps);
  return Math.min(left, Math.ceil((steps * progress.rounds) / progress.env_steps));
}

/** Return what one more round is taken to cost: the mean of the newest ones. */
export function usdPerRound(rounds, newest = 20) {
  const spent = rounds?.columns.spent_usd || [];
  const from = Math.max(0, spent.length - 1 - newest);
  return spent.length < 2 ? null : (spent.at(-1) - spent[from]) / (spent.length - 1 - from);
}
