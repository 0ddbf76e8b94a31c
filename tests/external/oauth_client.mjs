// The official TypeScript client, version 1, is let in by OAuth: it registers, asks, refreshes, and asks for more.
// node oauth_client.mjs URL PASSPHRASE — prints what it was answered, as JSON.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.env.JUDGES}/`);
const load = (name) => import(pathToFileURL(require.resolve(`@modelcontextprotocol/sdk/${name}`)));
const { Client } = await load("client/index.js");
const { StreamableHTTPClientTransport } = await load("client/streamableHttp.js");
const { UnauthorizedError } = await load("client/auth.js");

const [url, passphrase] = process.argv.slice(2);
const kept = {};
const provider = {
  redirectUrl: "http://localhost:9/callback",
  clientMetadata: { client_name: "TypeScript", redirect_uris: ["http://localhost:9/callback"] },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => { kept.client = client; },
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; },
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  codeVerifier: () => kept.verifier,
  redirectToAuthorization: (asked) => { kept.asked = asked; },
};

// What the person's browser does.
async function allowed(...without) {
  const page = await (await fetch(kept.asked)).text();
  const sent = new URLSearchParams({ passphrase, answer: "allow" });
  const value = (text) => text.replaceAll("&amp;", "&");
  for (const [, name, given] of page.matchAll(/type="hidden" name="(\w+)" value="([^"]*)"/g)) sent.set(name, value(given));
  for (const [, name] of page.matchAll(/type="checkbox" name="(\w+)"/g)) if (!without.includes(name)) sent.set(name, "yes");
  const origin = new URL(url).origin;
  const done = await fetch(`${origin}/authorize`, { method: "POST", body: sent, headers: { origin }, redirect: "manual" });
  return new URL(done.headers.get("location")).searchParams.get("code");
}

async function connected(...without) {
  let transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
  try {
    await new Client({ name: "judge", version: "1" }).connect(transport);
    throw new Error("it was let in without being asked for anything");
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
    await transport.finishAuth(await allowed(...without));
  }
  const client = new Client({ name: "judge", version: "1" });
  transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
  await client.connect(transport);
  return client;
}

const client = await connected("write", "ingest");
const answers = { client: kept.client, scope: kept.tokens.scope, tools: (await client.listTools()).tools.length };
try {
  await client.callTool({ name: "add", arguments: { note: "refused" } });
} catch (error) {
  answers.refused = error.constructor.name;
  answers.asksFor = new URL(kept.asked).searchParams.get("scope");
}
kept.tokens = { ...kept.tokens, access_token: "expired" };
answers.again = (await client.listTools()).tools.length; // by its refresh token
console.log(JSON.stringify(answers));
process.exit(0);
