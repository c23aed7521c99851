// Owners as a tree, and the tokens of TCP clients.

import { useState } from "preact/hooks";
import { get, send, useLoaded } from "../api";
import { ago, moment } from "../text";
import type { Owner, Token } from "../types";
import { Act, confirm, copy, Empty, mayAct, ownerAddress, Problem } from "../ui";

export function OwnersView() {
  const owners = useLoaded((abort) => get<{ owners: Owner[] }>("/v1/owners", {}, abort), 4000, []);
  const list = owners.value?.owners ?? [];
  const known = new Set(list.map((owner) => owner.owner));
  const roots = list.filter((owner) => !owner.parent || !known.has(owner.parent));
  const rows: [Owner, number][] = [];
  const walk = (owner: Owner, depth: number) => {
    if (rows.length >= 2000 || depth > 50) return;
    rows.push([owner, depth]);
    list.filter((child) => child.parent === owner.owner).forEach((child) => walk(child, depth + 1));
  };
  roots.forEach((owner) => walk(owner, 0));
  const end = (owner: Owner) => async () => {
    const text = <p>Its processes, and those of the owners below it, are stopped, kept or handed over, as each was started.</p>;
    if (!(await confirm(`End owner ${owner.owner}?`, text, "End it"))) return;
    await send("POST", `/v1/owners/${encodeURIComponent(owner.owner)}/end`);
    owners.reload();
  };
  return (
    <>
      <section aria-labelledby="owners-title">
        <h1 id="owners-title">Owners</h1>
        <Problem text={owners.error} />
        {owners.value && rows.length === 0 && <Empty>No owner is known yet.</Empty>}
        {rows.length > 0 && (
          <div class="scroll" tabIndex={0} role="group" aria-label="Owners">
            <table>
              <thead><tr><th>Owner</th><th class="number">Live processes</th><th>Last contact</th><th><span class="sr">Actions</span></th></tr></thead>
              <tbody>
                {rows.map(([owner, depth]) => (
                  <tr key={owner.owner} data-row>
                    <td><span style={{ paddingLeft: `${depth * 1.2}em` }}>{depth > 0 && "└ "}<a href={ownerAddress(owner.owner)}>{owner.owner}</a></span></td>
                    <td class="number">{owner.live}</td>
                    <td>{ago(owner.last_contact)}</td>
                    <td class="number"><Act do={end(owner)} class="danger" label={`End ${owner.owner}`}>End</Act></td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </section>
      <Tokens />
    </>
  );
}

function Tokens() {
  const tokens = useLoaded((abort) => get<{ tokens: Token[] }>("/v1/tokens", {}, abort), 10000, []);
  const [owner, setOwner] = useState("");
  const [label, setLabel] = useState("");
  const [expires, setExpires] = useState("30d");
  const [made, setMade] = useState<string>();
  const add = async () => {
    const answer = await send<{ token: string }>("POST", "/v1/tokens", { ...(owner && { owner }), ...(label && { label }), ...(expires && { expires }) });
    setMade(answer.token);
    tokens.reload();
  };
  const revoke = (token: Token) => async () => {
    if (!(await confirm(`Revoke token ${token.label ?? token.id}?`, <p>What it has opened is closed at once.</p>, "Revoke it"))) return;
    await send("DELETE", `/v1/tokens/${token.id}`);
    tokens.reload();
  };
  return (
    <section aria-labelledby="tokens-title">
      <h2 id="tokens-title">Tokens</h2>
      <p class="hint">For clients over TCP. A token acts as one owner, or as the operator.</p>
      <Problem text={tokens.error} />
      {tokens.value && tokens.value.tokens.length === 0 && <Empty>There is no token.</Empty>}
      {tokens.value && tokens.value.tokens.length > 0 && (
        <div class="scroll" tabIndex={0} role="group" aria-label="Tokens">
          <table>
            <thead><tr><th>Token</th><th>Acts as</th><th>Made</th><th>Expires</th><th><span class="sr">Actions</span></th></tr></thead>
            <tbody>
              {tokens.value.tokens.map((token) => (
                <tr key={token.id} data-row>
                  <td>{token.label ?? ""} <span class="mono hint">{token.id}</span></td>
                  <td>{token.owner ?? "operator"}</td>
                  <td class="nowrap">{moment(token.created_at)}</td>
                  <td class="nowrap">{token.expires_at ? moment(token.expires_at) : "never"}</td>
                  <td class="number"><Act do={revoke(token)} class="danger" label={`Revoke ${token.label ?? token.id}`}>Revoke</Act></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {mayAct() && !tokens.error && (
        <form class="row fields" onSubmit={(event) => event.preventDefault()}>
          <label>Owner <input value={owner} placeholder="operator" onInput={(event) => setOwner(event.currentTarget.value)} /></label>
          <label>Label <input value={label} onInput={(event) => setLabel(event.currentTarget.value)} /></label>
          <label>Expires after <input value={expires} placeholder="never" onInput={(event) => setExpires(event.currentTarget.value)} /></label>
          <Act do={add}>Make a token</Act>
        </form>
      )}
      {made && (
        <p class="made" role="status">
          This is shown once: <code>{made}</code> <button type="button" onClick={() => void copy(made)}>Copy</button> <button type="button" onClick={() => setMade(undefined)}>Hide</button>
        </p>
      )}
    </section>
  );
}
