// What happened to a job, newest first, and the newest lines of its logs.
import { html, useRef, useState } from "../vendor/preact.js";
import { call, usePoll, useRepeated } from "../lib/api.js";
import { clock, words } from "../lib/format.js";
import { Choice, Waiting } from "../lib/ui.js";

const KEPT = 500;
const BAD = { actors_lost: 1, lease_lost: 1, refused: 1 };

/** Return a job's events in order, growing while it is live. */
function useEvents(jobId, live) {
  const [seen, set] = useState({});
  const own = useRef({});
  useRepeated(
    async (signal) => {
      if (own.current.jobId !== jobId) own.current = { jobId, last: -1, events: [] };
      const kept = own.current;
      try {
        for (let more = true; more;) {
          const path = `v1/jobs/${jobId}/events?after=${kept.last}&limit=200`;
          const { data, etag } = await call(path, {
            etag: kept.path === path ? kept.etag : undefined,
            signal,
          });
          Object.assign(kept, { path, etag });
          if (data?.events.length) {
            kept.events = [...kept.events, ...data.events].slice(-KEPT);
            kept.last = data.events.at(-1).number;
          }
          more = Boolean(data?.events.length) && kept.last < data.last;
        }
        set({ data: kept.events });
        return !live;
      } catch (error) {
        if (!signal.aborted) set((old) => ({ ...old, error }));
        return error.status === 404;
      }
    },
    3000,
    [jobId, live],
  );
  return seen;
}

export function Events({ job, live }) {
  const [kind, setKind] = useState("");
  const [source, setSource] = useState("");
  const { data: events, error } = useEvents(job.job_id, live);
  const logs = usePoll(
    `v1/jobs/${job.job_id}/logs?limit=300${source && `&source=${source}`}`,
    live ? 5000 : 0,
  );
  const kinds = [...new Set((events || []).map((one) => one.kind))].sort();
  const shown = (events || []).filter((one) => !kind || one.kind === kind).reverse();
  return html`<div><h2 class="hidden">Events</h2>
    <div class="bar"><${Choice} label="Events" value=${kind} options=${[["", "all"], ...kinds.map((one) => [one, words(one)])]} onChange=${setKind} /></div>
    <${Waiting} data=${events} error=${error} />
    ${
      events &&
      (shown.length
        ? html`<ol class="events card" tabindex="0" aria-label="Events, newest first">${shown.map(
            (one) => html`<li key=${one.number}>
      <time class="quiet">${clock(one.at)}</time><b class=${BAD[one.kind] && "bad"}>${words(one.kind)}${one.round === null ? "" : ` · round ${one.round}`}</b><span>${one.text}</span></li>`,
          )}</ol>`
        : html`<p class="note">Nothing has happened yet.</p>`)
    }
    <h2>Log</h2>
    <div class="bar"><${Choice} label="Source" value=${source} options=${[
      ["", "all"],
      ["learner", "learner"],
      ["scaler", "scaler"],
      ["actor", "actors"],
    ]} onChange=${setSource} /></div>
    <${Waiting} data=${logs.data} error=${logs.error} />
    ${logs.data && (logs.data.lines.length ? html`<pre class="log card" tabindex="0" aria-label="Newest lines of the log">${logs.data.lines.map((line) => `${line.source.padEnd(8)}${line.text}`).join("\n")}</pre>` : html`<p class="note">No line of the log names this job.</p>`)}
    ${logs.data?.truncated && html`<p class="quiet">The newest lines are shown. <code>nitro jobs logs ${job.job_id}</code> has more.</p>`}</div>`;
}
