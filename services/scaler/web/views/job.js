// One job: what it is, how far it is, what one can do to it, and its views as tabs.
import { html, useEffect, useRef } from "../vendor/preact.js";
import { usePoll } from "../lib/api.js";
import { count, number, seconds } from "../lib/format.js";
import { roundsLeft, useRounds } from "../lib/rounds.js";
import { Budget, Heading, Status, Tile, Waiting, isLive, link, useBillName } from "../lib/ui.js";
import { Actions } from "./actions.js";
import { Actors } from "./actors.js";
import { Cost } from "./cost.js";
import { Curves } from "./curves.js";
import { Detector } from "./detector.js";
import { Events } from "./events.js";
import { Film } from "./film.js";
import { Files } from "./files.js";
import { scalingOf } from "./scaling.js";

const TABS = {
  curves: ["Curves", Curves],
  cost: ["Cost", Cost],
  actors: ["Actors", Actors],
  film: ["Film", Film],
  detector: ["Detector", Detector],
  events: ["Events and logs", Events],
  files: ["Setup and files", Files],
};

function Tabs({ id, current }) {
  const box = useRef();
  useEffect(() => {
    // A narrow page shows some of them: the current one is among these.
    box.current.querySelector("[aria-current]").scrollIntoView({ block: "nearest" });
  }, [current]);
  return html`<nav ref=${box} class="tabs" aria-label="Views of the job">${Object.entries(TABS).map(([key, [name]]) => html`<a href=${link("jobs", id, key)} aria-current=${current === key ? "page" : undefined}>${name}</a>`)}</nav>`;
}

export function Job({ parts: [id, tab] }) {
  const { data: job, error } = usePoll(`v1/jobs/${encodeURIComponent(id)}`, 3000);
  const live = !job || isLive(job.status);
  const { rounds, error: lost } = useRounds(id, live);
  const bill = useBillName();
  if (!job)
    return html`<div><div class="bar spread"><${Heading} name=${id} /></div><${Waiting} error=${error} /></div>`;
  const [, View] = TABS[tab] || TABS.curves;
  const { spec, progress } = job;
  const actors = rounds?.columns.actors?.at(-1);
  const title = spec.name || job.job_id;
  const end = job.finished_at || Date.now() / 1000;
  return html`<div>
    <div class="bar spread"><${Heading} name=${title}>${title} <${Status} job=${job} /><//><${Actions} job=${job} rounds=${rounds} /></div>
    <p class="quiet">${[title === job.job_id ? "" : job.job_id, spec.env_id, spec.algorithm, `preset ${spec.preset}`, `scaling ${scalingOf(job, progress.rounds).policy}`, `seed ${spec.seed}`].filter(Boolean).join(" · ")}
      ${(spec.tags || []).map((tag) => html` <span class="tag">${tag}</span>`)}</p>
    ${spec.note && html`<p class="remark">${spec.note}</p>`}
    <${Waiting} data=${job} error=${error || (rounds && lost)} />
    ${job.error && html`<pre class="note bad" role="alert">${job.error}</pre>`}
    ${job.waits_for && html`<p class="note">Waits: ${job.waits_for.reason}</p>`}
    <dl class="tiles">
      <${Tile} name="Return">${number(progress.last_return)} <small class="quiet">best ${number(progress.best_return)}</small><//>
      <${Tile} name="Round">${count(progress.rounds)} <small class="quiet">of ${count(progress.rounds + roundsLeft(job))}</small><//>
      <${Tile} name=${bill}><${Budget} spent=${job.spent_usd} budget=${spec.stop.budget_usd} /><//>
      <${Tile} name=${isLive(job.status) ? "Actors, newest round" : "Actors, last round"}>${count(actors)} <small class="quiet">may be ${spec.actors.min} to ${spec.actors.max}</small><//>
      <${Tile} name="Steps">${count(progress.env_steps)}${spec.stop.max_env_steps && html` <small class="quiet">of ${count(spec.stop.max_env_steps)}</small>`}<//>
      <${Tile} name=${job.finished_at ? "Took" : "Age"}>${seconds(Math.round(end - (job.started_at || job.created_at)))}<//>
    </dl>
    <${Tabs} id=${id} current=${TABS[tab] ? tab : "curves"} />
    <${View} job=${job} rounds=${rounds} error=${lost} live=${live} /></div>`;
}
