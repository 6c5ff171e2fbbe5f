// The bill: what is spent on what, how far the budget reaches, and what is not counted.
import { html, useMemo } from "../vendor/preact.js";
import { usePoll } from "../lib/api.js";
import { Chart } from "../lib/chart.js";
import { count, seconds, usd, words } from "../lib/format.js";
import { roundsLeft, running, usdPerRound } from "../lib/rounds.js";
import { Table, Tile, Waiting } from "../lib/ui.js";

const NAMES = {
  lambda_duration: "actors (Lambda GB-s)",
  gradient_duration: "gradients (Lambda GB-s)",
  gradient_requests: "gradients (Lambda requests)",
  lambda_requests: "Lambda requests",
  provisioned_concurrency: "warm environments",
  pings: "pings",
};
const name = (item) => NAMES[item] || words(item);

/** Return the items as layers, the largest at the bottom, each on top of those below it. `billed` by item, which the newest plan did not know yet, is the last point. */
function stacked({ columns, cost }, billed) {
  const length = columns.round.length;
  const items = Object.keys({ ...cost, ...billed });
  const sums = items.map((item) => {
    const known = running(cost[item], length);
    // It is asked for less often than the rounds, and may be behind them.
    return [item, [...known, Math.max(billed[item] || 0, known.at(-1) || 0)]];
  });
  sums.sort(([, a], [, b]) => b.at(-1) - a.at(-1));
  let below = new Array(length + 1).fill(0);
  return sums.map(([item, own]) => ({
    item,
    own,
    top: (below = below.map((base, index) => base + own[index])),
  }));
}

function lines(rounds, job, forecast, billed) {
  const layers = stacked(rounds, billed);
  const padded = (values) => (forecast ? [...values, null] : values);
  const drawn = layers
    .map(({ item, own, top }, index) => ({
      label: name(item),
      values: padded(top),
      colour: `--c${(index % 8) + 1}`,
      fill: "ff",
      shown: own,
    }))
    .reverse();
  const total = layers.at(-1)?.top || [];
  if (forecast)
    drawn.push({
      label: "forecast",
      values: [...total.map((v, i) => (i === total.length - 1 ? v : null)), forecast.usd],
      dash: true,
      colour: "--quiet",
    });
  const most = Math.max(total.at(-1) || 0, forecast?.usd || 0);
  if (most > job.spec.stop.budget_usd / 5)
    drawn.push({
      label: "budget",
      values: (forecast ? [...total, 0] : total).map(() => job.spec.stop.budget_usd),
      dash: true,
      colour: "--bad",
    });
  return drawn;
}

export function Cost({ job, rounds, live }) {
  const { data: cost, error } = usePoll(`v1/jobs/${job.job_id}/cost?limit=0`, live ? 10000 : 0);
  const each = usdPerRound(rounds);
  const left = roundsLeft(job);
  const next = (rounds?.columns.round.at(-1) ?? -1) + 1;
  const forecast = useMemo(() => {
    const budget = job.spec.stop.budget_usd;
    const end = job.progress.rounds + left;
    if (!live || !each || end <= next) return null;
    return { round: end, usd: Math.min(job.spent_usd + each * left, budget) };
  }, [live, each, left, next, job.spent_usd]);
  const billed = cost?.by_item;
  const shown = useMemo(
    () => (billed && rounds?.columns.round.length ? lines(rounds, job, forecast, billed) : null),
    [rounds, forecast, billed],
  );
  const x = useMemo(
    () => rounds && [...rounds.columns.round, next, ...(forecast ? [forecast.round] : [])],
    [rounds, forecast, next],
  );
  if (!cost) return html`<${Waiting} error=${error} />`;
  const whole = job.spent_usd + (each || 0) * left;
  const items = Object.entries(cost.by_item).sort(([, a], [, b]) => b - a);
  const servers = [
    cost.best_server && { ...cost.best_server, best: true },
    ...cost.serverful,
  ].filter((one) => one?.wall_s > 0);
  return html`<div><${Waiting} data=${cost} error=${error} />
    <dl class="tiles">
      <${Tile} name="Billed">${usd(cost.settled_usd)}<//>
      <${Tile} name="Set aside for what is open">${usd(cost.reserved_usd)}<//>
      <${Tile} name="One more round">${usd(each)} <small class="quiet">by the newest</small><//>
      <${Tile} name="Forecast at the end">${live ? usd(Math.min(whole, job.spec.stop.budget_usd)) : "ended"} ${live && whole > job.spec.stop.budget_usd && html`<small class="bad">the budget ends it first</small>`}<//>
      <${Tile} name="Time on AWS">${seconds(cost.projected_wall_s)}<//>
    </dl>
    ${shown?.length ? html`<${Chart} title="Dollars by item" note="cumulative, stacked" height=${280} x=${x} xLabel="Round" xFormat=${count} format=${usd} lines=${shown} />` : html`<p class="note">Nothing has been billed yet.</p>`}
    <h2>By item</h2>
    <${Table} caption="Bill by item" rows=${items} columns=${[
      { name: "Item", of: ([item]) => name(item) },
      {
        name: "Dollars",
        number: true,
        of: ([, amount]) => usd(amount),
        sort: ([, amount]) => amount,
      },
      {
        name: "Share",
        number: true,
        of: ([, amount]) =>
          `${((100 * amount) / items.reduce((sum, [, one]) => sum + one, 0)).toFixed(1)} %`,
      },
    ]} />
    ${
      servers.length > 0 &&
      html`<h2>The same rounds on servers</h2>
      <${Table} caption="The same rounds on servers" rows=${servers} columns=${[
        {
          name: "Servers",
          of: (s) =>
            s.best
              ? `one ${s.learner_instance}, the cheapest size`
              : `${s.learner_instance} learns, ${s.actor_instance} acts`,
        },
        { name: "Time", number: true, of: (s) => seconds(s.wall_s) },
        { name: "Dollars", number: true, of: (s) => usd(s.total_usd) },
      ]} />`
    }
    <h2>What is counted, and what is not</h2>
    <p class="quiet">Prices: ${cost.price_table}.</p><ul>${cost.assumptions.map((line) => html`<li>${line}</li>`)}</ul></div>`;
}
