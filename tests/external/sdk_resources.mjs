// The official TypeScript client, version 1, with resources: lists, reads, completes, subscribes, and waits for a change.
// node sdk_resources.mjs PYTHON DATABASE — prints what it was answered, as JSON.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.env.JUDGES}/`);
const load = (name) => import(pathToFileURL(require.resolve(`@modelcontextprotocol/sdk/${name}`)));
const { Client } = await load("client/index.js");
const { StdioClientTransport } = await load("client/stdio.js");
const { ResourceUpdatedNotificationSchema } = await load("types.js");

const [python, database] = process.argv.slice(2);
const transport = new StdioClientTransport({
  command: python, args: ["-m", "mcpvectordb_server", "--db", database, "--surface", "desk"],
  env: { PATH: process.env.PATH, PYTHONPATH: process.env.PYTHONPATH ?? "" }, stderr: "inherit",
});
const client = new Client({ name: "judge", version: "1" });
await client.connect(transport);
const changed = new Promise((resolve) =>
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => resolve(params.uri)));
const call = (name, args) => client.callTool({ name, arguments: args });

await call("ingest", { source: "tea.md", text: "# Tea\n\nWater at 80 degrees.\n" });
const { resources } = await client.listResources();
const { uri } = resources[0];
const { resourceTemplates } = await client.listResourceTemplates();
const answers = {
  uri,
  read: (await client.readResource({ uri })).contents[0].text,
  completed: await client.complete({
    ref: { type: "ref/resource", uri: resourceTemplates[0].uriTemplate },
    argument: { name: "path", value: "default/" },
  }),
};
await client.subscribeResource({ uri });
await call("forget", { place: "default/tea.md" });
answers.changed = await changed;
answers.gone = await client.readResource({ uri }).catch((error) => error.code);
await client.close();
console.log(JSON.stringify(answers));
