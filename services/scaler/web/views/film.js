// The agent at work: the films of a run, the newest one first.
import { html, useEffect, useState } from "../vendor/preact.js";
import { fetchedFile, usePoll } from "../lib/api.js";
import { Choice, Waiting } from "../lib/ui.js";

const FILM = /(^|\/)videos\/.+\.gif$/;

/** Return `{url, error}` of a file as an address inside the page, which ends with the view. */
function useFetched(file) {
  const [seen, set] = useState({});
  useEffect(() => {
    const stop = new AbortController();
    let url;
    fetchedFile(file, stop.signal).then(
      (blob) => {
        if (!stop.signal.aborted) set({ url: (url = URL.createObjectURL(new Blob([blob], { type: "image/gif" }))) });
      },
      (error) => stop.signal.aborted || set({ error }),
    );
    return () => {
      stop.abort();
      if (url) URL.revokeObjectURL(url);
    };
  }, [file.url, file.modified_at]);
  return seen;
}

function Picture({ file }) {
  const { url, error } = useFetched(file);
  if (!url) return html`<${Waiting} error=${error} />`;
  return html`<figure class="film"><img src=${url} alt="The agent, following its policy" /><figcaption class="quiet">${file.name}</figcaption></figure>`;
}

export function Film({ job, live }) {
  const { data, error } = usePoll(`v1/jobs/${job.job_id}/artifacts`, live ? 15000 : 0);
  const [chosen, choose] = useState("");
  const films = (data?.files || []).filter(({ name }) => FILM.test(name));
  films.sort((a, b) => b.modified_at - a.modified_at);
  const film = films.find(({ name }) => name === chosen) || films[0];
  if (!film)
    return html`<${Waiting} data=${data} error=${error} empty=${html`<p class="note">No film yet. <code>nitro video ${job.job_id}</code> makes one of the newest policy.</p>`} />`;
  return html`<div>
    ${films.length > 1 && html`<div class="bar"><${Choice} label="Film" value=${film.name} options=${films.map(({ name }) => [name, name.split("/").at(-1)])} onChange=${choose} /></div>`}
    ${film.presigned ? html`<p class="note">The film lies in a bucket, from which this page loads nothing. <code>nitro jobs pull ${job.job_id}</code> fetches it.</p>` : html`<${Picture} key=${film.name} file=${film} />`}</div>`;
}
