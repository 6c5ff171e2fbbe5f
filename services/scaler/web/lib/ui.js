// Pieces that several views share.
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { usePoll } from "./api.js";
import { usd } from "./format.js";

export const link = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

let entered = false;

/** The name of a view: also the document's, and where the keyboard goes on once the view has changed. */
export function Heading({ name, children }) {
  const box = useRef();
  useEffect(() => {
    document.title = `${name} · Nitro`;
  }, [name]);
  useEffect(() => {
    if (entered) box.current.focus();
    entered = true;
  }, []);
  return html`<h1 ref=${box} tabindex="-1">${children || name}</h1>`;
}

/** What a view shows above what it has, or instead: that it loads, what is wrong, or that it is empty. */
export function Waiting({ data, error, empty, children }) {
  // That the scaler does not answer is told once for the whole page.
  if (error && (error.status || !data))
    return html`<p class="note bad" role="alert">${error.message}</p>`;
  if (data) return empty || null;
  return html`<p class="note" role="status">${children || "Loading …"}</p>`;
}

const LIVE = { checking: 1, queued: 1, running: 1, stopping: 1 };
export const isLive = (status) => status in LIVE;

export const Status = ({ job }) =>
  html`<span class=${`status ${job.status}`}>${job.status}${job.stop_reason && job.stop_reason !== job.status ? html`<small> · ${job.stop_reason.replaceAll("_", " ")}</small>` : ""}</span>`;

/** What the dollars of jobs are called here: on one machine nobody pays them. */
export function useBillName() {
  const { data: session } = usePoll("v1/session", 0);
  return session?.clock === "projected" ? "Would cost on AWS" : "Spent";
}

const NO_CAP_USD = 1e6;

/** Whether a budget limits anything: a job on one machine, where nobody pays, has one of a million. */
export const isCap = (budget) => budget < NO_CAP_USD;

/** Spent of a budget, as a bar with its numbers. */
export function Budget({ spent, budget }) {
  if (!isCap(budget)) return html`<span class="budget">${usd(spent)}</span>`;
  const share = budget ? Math.min(1, spent / budget) : 0;
  return html`<span class="budget"><meter min="0" max="1" value=${share} high="0.8" optimum="0" aria-label="share of the budget that is spent"></meter> ${usd(spent)} <span class="quiet">of ${usd(budget)}</span></span>`;
}

export const Tile = ({ name, children }) =>
  html`<div class="tile"><dt>${name}</dt><dd>${children}</dd></div>`;

export function Choice({ label, value, options, onChange }) {
  return html`<label class="choice"><span>${label}</span>
    <select value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${options.map(([key, name]) => html`<option value=${key} selected=${key === value}>${name}</option>`)}
    </select></label>`;
}

/** A round to type: what is typed stays until it is entered, however often the page is drawn meanwhile. */
export function RoundChoice({ value, last, onChange }) {
  const [typed, type] = useState(null);
  const enter = (event) => {
    type(null);
    if (event.target.value !== "") onChange(Math.max(0, Math.min(last, +event.target.value)));
  };
  return html`<label class="choice"><span>Round</span><input type="number" min="0" max=${last} value=${typed ?? value} onInput=${(event) => type(event.target.value)} onChange=${enter} onBlur=${() => type(null)} /></label>`;
}

/** A table whose columns are `{name, of, sort, number}`; a click on a heading sorts by it. Narrow pages show `cards`, and break words in `pairs` of name and value. */
export function Table({ rows, columns, caption, keyOf, cards, pairs }) {
  const [order, setOrder] = useState({ index: -1, down: true });
  const by = columns[order.index];
  const sorted = by
    ? [...rows].sort((a, b) => compare(by.sort(a), by.sort(b)) * (order.down ? -1 : 1))
    : rows;
  const heading = (column, index) => {
    const on = index === order.index;
    if (!column.sort)
      return html`<th scope="col" class=${column.number && "num"}>${column.name}</th>`;
    return html`<th scope="col" class=${column.number && "num"} aria-sort=${on ? (order.down ? "descending" : "ascending") : "none"}>
      <button class="plain" onClick=${() => setOrder({ index, down: on ? !order.down : true })}>${column.name}${on ? (order.down ? " ↓" : " ↑") : ""}</button></th>`;
  };
  return html`<div class=${`scroll ${cards ? "cards picked" : ""} ${pairs ? "pairs" : ""}`} tabindex="0" role="region" aria-label=${caption}><table>
    <thead><tr>${columns.map(heading)}</tr></thead>
    <tbody>${sorted.map((row) => html`<tr key=${keyOf && keyOf(row)}>${columns.map((c) => html`<td class=${c.number && "num"} data-name=${cards && c.name}>${c.of(row)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return a < b ? -1 : 1;
}

/** A question over the page; `act` does it, and what it throws is shown. */
export function Dialog({ title, verb, danger, act, close, children }) {
  const box = useRef();
  const [state, set] = useState({});
  useEffect(() => box.current.showModal(), []);
  const submit = async (event) => {
    event.preventDefault();
    set({ busy: true });
    try {
      await act();
      close();
    } catch (error) {
      set({ error });
    }
  };
  return html`<dialog ref=${box} aria-label=${title} onClose=${close}><form onSubmit=${submit}>
    <h2>${title}</h2>${children}
    ${state.error && html`<p class="note bad" role="alert">${state.error.message}</p>`}
    <p class="buttons"><button type="button" onClick=${close}>Cancel</button>
      <button class=${danger ? "danger" : "main"} disabled=${state.busy}>${verb}</button></p>
  </form></dialog>`;
}
