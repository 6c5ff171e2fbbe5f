// The REST API to read: every call and every message, out of `openapi.json`. It calls nothing else.
import { html, render, useEffect, useState } from "./vendor/preact.js";

const KINDS = { jobs: "Jobs", learner: "Learners", operator: "Operators" };
const REF = "#/components/schemas/";
const LIMITS = {
  minimum: (n) => `at least ${n}`,
  exclusiveMinimum: (n) => `more than ${n}`,
  maximum: (n) => `at most ${n}`,
  exclusiveMaximum: (n) => `less than ${n}`,
  minLength: (n) => `${n} characters or more`,
  maxLength: (n) => `${n} characters at most`,
  minItems: (n) => `${n} items or more`,
  maxItems: (n) => `${n} items at most`,
  pattern: (form) => `of the form ${form}`,
};

/** Return prose with what stands in backticks as code. */
const prose = (text = "") =>
  text.split("`").map((part, index) => (index % 2 ? html`<code>${part}</code>` : part));

const joined = (parts, by) => parts.flatMap((part, index) => (index ? [by, part] : [part]));

/** Return a schema's type in words; a message is a link to where it is described. */
function typeOf(schema = {}) {
  if (schema.$ref) {
    const name = schema.$ref.replace(REF, "");
    return html`<a href=${`#${name}`}>${name}</a>`;
  }
  const either = schema.anyOf || schema.oneOf;
  if (either) return joined(either.map(typeOf), " or ");
  if (schema.enum) return joined(schema.enum.map((one) => html`<code>${String(one)}</code>`), ", ");
  if ("const" in schema) return html`<code>${String(schema.const)}</code>`;
  if (schema.type === "array") return ["list", schema.items ? [" of ", typeOf(schema.items)] : ""];
  if (schema.type === "object" && typeof schema.additionalProperties === "object")
    return ["by name: ", typeOf(schema.additionalProperties)];
  return schema.type || "anything";
}

/** Return what bounds a value, in words; a value that may be left out is bounded where it is not. */
function limitsOf(schema) {
  const [bounded = schema] = (schema.anyOf || []).filter((one) => one.type !== "null");
  const said = Object.keys(LIMITS)
    .filter((key) => key in bounded)
    .map((key) => LIMITS[key](bounded[key]));
  if (schema.default !== undefined && schema.default !== null)
    said.push(`default ${JSON.stringify(schema.default)}`);
  return said.join(", ");
}

function Fields({ caption, rows }) {
  return html`<div class="scroll cards fields" tabindex="0" role="region" aria-label=${caption}><table>
    <thead><tr>${["Name", "Type", "Meaning"].map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${rows.map(
      ({ name, required, schema, description }) => html`<tr><td><code>${name}</code>${required ? html` <small class="quiet">required</small>` : ""}</td>
        <td>${typeOf(schema)}</td><td>${prose(description || schema.description)} <small class="quiet">${limitsOf(schema)}</small></td></tr>`,
    )}</tbody></table></div>`;
}

const bodyOf = ({ content = {} } = {}) => Object.values(content).find((one) => one.schema)?.schema;

function Call({ method, path, call }) {
  const parameters = (call.parameters || []).map((one) => ({
    ...one,
    name: one.in === "query" ? `?${one.name}` : one.name,
  }));
  const body = bodyOf(call.requestBody);
  const fine = Object.entries(call.responses).filter(([status]) => status < 400);
  const refused = Object.keys(call.responses).filter((status) => status >= 400);
  return html`<section class="card call" id=${call.operationId}>
    <h3><span class="status running">${method.toUpperCase()}</span> <code>${path}</code></h3>
    <p>${prose(call.description || call.summary)}${call.security ? "" : html` <span class="tag">without a token</span>`}</p>
    ${parameters.length > 0 && html`<${Fields} caption=${`Parameters of ${method} ${path}`} rows=${parameters} />`}
    ${body && html`<p>Body: ${typeOf(body)}</p>`}
    <ul>${fine.map(([status, answer]) => html`<li><b>${status}</b> ${prose(answer.description)}${bodyOf(answer) ? [": ", typeOf(bodyOf(answer))] : ""}</li>`)}
      ${refused.length > 0 && html`<li class="quiet">${refused.join(", ")}: <a href="#Problem">Problem</a></li>`}</ul></section>`;
}

function Message({ name, schema }) {
  const rows = Object.entries(schema.properties || {}).map(([field, inner]) => ({
    name: field,
    schema: inner,
    required: schema.required?.includes(field),
  }));
  return html`<section class="card call" id=${name}><h3><code>${name}</code></h3>
    <p>${prose(schema.description)}</p>
    ${rows.length ? html`<${Fields} caption=${`Fields of ${name}`} rows=${rows} />` : html`<p>${typeOf(schema)}</p>`}</section>`;
}

function Docs() {
  const [seen, set] = useState({});
  useEffect(() => {
    fetch("openapi.json")
      .then((answer) => {
        if (!answer.ok) throw new Error(`status ${answer.status}`);
        return answer.json();
      })
      .then(
        (document) => set({ document }),
        (error) => set({ error }),
      );
  }, []);
  useEffect(() => {
    // What the address names is here only now.
    document.getElementById(location.hash.slice(1))?.scrollIntoView();
  }, [seen]);
  if (!seen.document)
    return html`<main><h1>Nitro's API</h1><p class=${`note ${seen.error ? "bad" : ""}`} role="status">${seen.error ? `openapi.json: ${seen.error.message}` : "Loading …"}</p></main>`;
  const { info, paths, components } = seen.document;
  const calls = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, call]) => ({ method, path, call })),
  );
  return html`<header class="top"><a class="logo" href="./">Nitro</a><nav aria-label="Parts">${[...Object.entries(KINDS), ["messages", "Messages"]].map(([id, name]) => html`<a href=${`#${id}`}>${name}</a>`)}</nav></header>
    <main><h1>Nitro's API, version ${info.version}</h1><p class="quiet">${info.summary}</p>
      <p>Programs read the same in <a href="openapi.json"><u>openapi.json</u></a>.</p>
      ${Object.entries(KINDS).map(([tag, name]) => html`<h2 id=${tag}>${name}</h2>${calls.filter(({ call }) => call.tags?.[0] === tag).map((one) => html`<${Call} ...${one} />`)}`)}
      <h2 id="messages">Messages</h2>${Object.entries(components.schemas).map(([name, schema]) => html`<${Message} name=${name} schema=${schema} />`)}</main>`;
}

document.body.replaceChildren();
render(html`<${Docs} />`, document.body);
