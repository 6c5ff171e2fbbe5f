// Numbers, dollars and times as people read them.
const none = "–";
const rounded = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const moments = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});
const missing = (x) => x === null || x === undefined || Number.isNaN(x);

export const count = (x) => (missing(x) ? none : whole.format(x));

/** Write a count short, such as 1.2M: what fits under an axis. */
export const compact = (x) => (missing(x) ? none : short.format(x));

export function number(x) {
  if (missing(x)) return none;
  const size = Math.abs(x);
  if (size >= 1000) return whole.format(x);
  return size > 0 && size < 1e-3 ? x.toExponential(2) : rounded.format(x);
}

export function usd(x) {
  if (missing(x)) return none;
  if (x === 0 || x >= 1) return `$${x.toFixed(x >= 100 ? 0 : 2)}`;
  return x < 1e-6 ? "under $0.000001" : `$${+x.toFixed(x < 0.001 ? 6 : x < 0.1 ? 4 : 3)}`;
}

export function seconds(x) {
  if (missing(x)) return none;
  const ms = Math.round(x * 1000);
  if (ms < 1000) return `${ms} ms`;
  if (x < 100) return `${rounded.format(x)} s`;
  const all = Math.round(x);
  const minutes = Math.floor(all / 60);
  if (minutes < 60) return `${minutes} min ${all % 60} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48
    ? `${hours} h ${minutes % 60} min`
    : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function ago(at, now = Date.now() / 1000) {
  if (missing(at)) return none;
  const s = Math.max(0, now - at);
  if (s < 60) return "now";
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  return s < 172800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
}

export const clock = (at) => (missing(at) ? none : moments.format(at * 1000).replace(",", ""));

/** Say a key of ours as words: `lambda_duration` is `lambda duration`. */
export const words = (key) => String(key).replaceAll("_", " ");
