// The token, typed once: it stays in this tab and is sent in a header, never in an address.
import { html, useState } from "../vendor/preact.js";
import { signIn } from "../lib/api.js";

export function SignIn({ refused }) {
  const [token, set] = useState("");
  const submit = (event) => {
    event.preventDefault();
    if (token.trim()) signIn(token.trim());
  };
  return html`<main class="signin"><form class="card" onSubmit=${submit}>
    <h1>Nitro</h1>
    <label for="token">Token of the API</label>
    <input id="token" type="password" autocomplete="off" autofocus value=${token} onInput=${(event) => set(event.target.value)} aria-describedby="where" />
    ${refused && html`<p class="note bad" role="alert">The scaler did not accept the token.</p>`}
    <p id="where" class="quiet"><code>nitro dashboard</code> opens this page with the token filled in. It stays in this tab only.</p>
    <button class="main" disabled=${!token.trim()}>Sign in</button>
  </form></main>`;
}
