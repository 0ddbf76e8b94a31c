// The official TypeScript client, version 1: it checks structured content against every output schema, and throws.
// node sdk_client.mjs PYTHON DATABASE FILE — prints what it was answered, as JSON.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.env.JUDGES}/`);
const load = (name) => import(pathToFileURL(require.resolve(`@modelcontextprotocol/sdk/${name}`)));
const { Client } = await load("client/index.js");
const { StdioClientTransport } = await load("client/stdio.js");

const [python, database, file] = process.argv.slice(2);
const transport = new StdioClientTransport({
  command: python, args: ["-m", "mcpvectordb_server", "--db", database],
  env: { PATH: process.env.PATH, PYTHONPATH: process.env.PYTHONPATH ?? "" }, stderr: "inherit",
});
const client = new Client({ name: "judge", version: "1" });
await client.connect(transport);
const { tools } = await client.listTools(); // from here on every reply is validated
const call = async (name, args) => (await client.callTool({ name, arguments: args })).structuredContent;

const indexed = await call("ingest_file", { path: file });
const progress = [];
await client.callTool({ name: "ingest_file", arguments: { path: file, library: "second" } }, undefined,
  { onprogress: (each) => progress.push(each) });
const answers = {
  tools: tools.map((tool) => tool.name),
  indexed,
  found: await call("search", { query: "water" }),
  listed: await call("list_documents", {}),
  libraries: await call("list_libraries", {}),
  read: await call("get_document", { doc_id: indexed.doc_id }),
  errors: [
    await call("search", {}),
    await call("search", { query: "tea", top_k: 0 }),
    await call("search", { query: "half a pair: \ud83d" }),
    await call("ingest_file", { path: "/no/such/file.md" }),
    await call("ingest_url", { url: "ftp://example.org" }),
    await call("list_documents", { limit: "many" }),
    await call("get_document", { doc_id: "unknown" }),
    await call("delete_document", { doc_id: " " }),
  ],
  deleted: await call("delete_document", { doc_id: indexed.doc_id }),
};
await client.close();
console.log(JSON.stringify(answers));
