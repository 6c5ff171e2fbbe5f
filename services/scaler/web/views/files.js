// What a job was asked to do, and the files it has made.
import { html, useState } from "../vendor/preact.js";
import { call, fetchedFile, lookAgain, usePoll } from "../lib/api.js";
import { ago, count } from "../lib/format.js";
import { Table, Waiting } from "../lib/ui.js";

const size = (bytes) =>
  bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;

/** Return the fields of a value by their dotted path, as `[path, text]`. */
export function flat(value, path = "") {
  if (value === null || typeof value !== "object") return [[path, String(value)]];
  if (Array.isArray(value))
    return [[path, value.length > 8 ? `${value.length} values` : JSON.stringify(value)]];
  return Object.entries(value).flatMap(([key, inner]) =>
    flat(inner, path ? `${path}.${key}` : key),
  );
}

/** Hand a file to the user: from a bucket by a new link, since one is soon void; else fetched with the token, which a link cannot carry. */
async function save(job, file) {
  if (file.presigned) {
    const { data } = await call(`v1/jobs/${job.job_id}/artifacts`);
    const found = data.files.find(({ name }) => name === file.name);
    if (!found) throw new Error(`${file.name}: it is not there any more`);
    Object.assign(document.createElement("a"), { href: found.url, rel: "noreferrer" }).click();
    return;
  }
  const url = URL.createObjectURL(await fetchedFile(file));
  Object.assign(document.createElement("a"), {
    href: url,
    download: file.name.split("/").at(-1),
  }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** The job's note, to read or to write. */
function Note({ job }) {
  const { data: session } = usePoll("v1/session", 0);
  const [typed, type] = useState(null);
  const [failed, fail] = useState(null);
  const note = job.spec.note || "";
  if (session?.role !== "operator") return null;
  const save = async (event) => {
    event.preventDefault();
    try {
      await call(`v1/jobs/${job.job_id}/note`, { method: "PUT", body: { note: typed ?? note } });
      fail(null);
      type(null);
      lookAgain();
    } catch (error) {
      fail(error);
    }
  };
  return html`<form class="noted" onSubmit=${save}>
    <label class="choice"><span>Note</span><textarea rows="2" maxlength="2000" placeholder="why this job exists" value=${typed ?? note} onInput=${(event) => type(event.target.value)}></textarea></label>
    <button disabled=${typed === null || typed === note}>Save the note</button>
    ${failed && html`<p class="note bad" role="alert">${failed.message}</p>`}</form>`;
}

export function Files({ job, live }) {
  const { data, error } = usePoll(`v1/jobs/${job.job_id}/artifacts`, live ? 15000 : 0);
  const [failed, fail] = useState(null);
  const name = (file) =>
    html`<button class="plain" onClick=${() => save(job, file).then(() => fail(null), fail)}>${file.name}</button>`;
  const fields = [
    ...flat({ ...job.spec, note: null }),
    ...Object.entries(job.full_hyperparameters).map(([key, value]) => [
      `hyperparameters.${key}`,
      String(value),
    ]),
  ];
  const unique = [...new Map(fields)].filter(([, text]) => text !== "null");
  return html`<div><${Note} job=${job} />
    <h2>Setup</h2>
    <${Table} caption="Setup of the job" pairs rows=${unique} columns=${[
      { name: "Field", of: ([key]) => key, sort: ([key]) => key },
      { name: "Value", of: ([, text]) => text },
    ]} />
    <h2>Files</h2>
    <${Waiting} data=${data} error=${error} />
    ${failed && html`<p class="note bad" role="alert">${failed.message}</p>`}
    ${
      data &&
      (data.files.length
        ? html`<${Table} caption="Files of the run" rows=${data.files} keyOf=${(file) => file.name} columns=${[
            { name: "File", of: name, sort: (file) => file.name },
            {
              name: "Size",
              number: true,
              of: (file) => size(file.size),
              sort: (file) => file.size,
            },
            {
              name: "Age",
              number: true,
              of: (file) => ago(file.modified_at),
              sort: (file) => file.modified_at,
            },
          ]} />`
        : html`<p class="note">The run has no file yet.</p>`)
    }
    ${data && html`<p class="quiet">In ${data.location}${data.truncated ? `; the first ${count(data.files.length)} are shown` : ""}. <code>nitro jobs pull ${job.job_id}</code> fetches all.</p>`}</div>`;
}
