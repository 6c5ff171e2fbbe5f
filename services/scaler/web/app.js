// The page: who is signed in, which view the address names, and whether the scaler answers.
import { html, render, useEffect, useState } from "./vendor/preact.js";
import { decoded, signOut, takeToken, useSession } from "./lib/api.js";
import { SignIn } from "./views/sign_in.js";
import { Jobs } from "./views/jobs.js";
import { Job } from "./views/job.js";
import { Compare } from "./views/compare.js";
import { System } from "./views/system.js";

const VIEWS = { "": Jobs, jobs: Job, compare: Compare, system: System };
const NAV = [
  ["", "Jobs"],
  ["compare", "Compare"],
  ["system", "System"],
];

function useAddress() {
  const read = () => location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  const [address, set] = useState(read);
  useEffect(() => {
    const moved = () => {
      takeToken();
      set(read());
    };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return address;
}

function Lost({ since }) {
  const at = new Date(since).toLocaleTimeString("en-GB");
  return html`<p class="banner" role="status">No answer from the scaler since ${at}. The page shows what it said last, and asks again every few seconds.</p>`;
}

function App() {
  const { token, lostAt, refused } = useSession();
  const [name, ...parts] = useAddress();
  const View = VIEWS[name] || Jobs;
  if (!token) return html`<${SignIn} refused=${refused} />`;
  return html`<div>
    <header class="top"><a class="skip" href="#main" onClick=${(e) => (e.preventDefault(), document.querySelector("main").focus())}>Skip to the content</a><a class="logo" href="#/">Nitro</a>
      <nav aria-label="Views">${NAV.map(([key, label]) => html`<a href=${`#/${key}`} aria-current=${(VIEWS[name] && name !== "jobs" ? name : "") === key ? "page" : undefined}>${label}</a>`)}</nav>
      <button class="plain" onClick=${() => signOut()}>Sign out</button></header>
    ${lostAt && html`<${Lost} since=${lostAt} />`}
    <main tabindex="-1"><${View} key=${name + (name === "jobs" ? parts[0] : "")} parts=${parts} /></main></div>`;
}

takeToken();
document.body.replaceChildren();
render(html`<${App} />`, document.body);
