// A whole session with the TypeScript SDK, which most hosts embed. Arguments: "stdio" COMMAND..., or a URL.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import path from "node:path";

const load = async (name) => import(pathToFileURL(path.join(process.env.TS_SDK, name)).href);
const { Client } = await load("client/index.js");
const { StdioClientTransport } = await load("client/stdio.js");
const { StreamableHTTPClientTransport } = await load("client/streamableHttp.js");
const { ResourceUpdatedNotificationSchema } = await load("types.js");

const [kind, ...words] = process.argv.slice(2);
const transport =
  kind === "stdio"
    ? new StdioClientTransport({ command: words[0], args: words.slice(1), stderr: "ignore", env: process.env })
    : new StreamableHTTPClientTransport(new URL(kind));
const client = new Client({ name: "ts-session", version: "1" }, { capabilities: {} });
await client.connect(transport);

const ok = (condition, what) => {
  if (!condition) throw new Error(`expected ${what}`);
};
const call = async (name, args = {}, options = {}) => {
  const result = await client.callTool({ name, arguments: args }, undefined, options);
  ok(!result.isError, `${name} to succeed: ${JSON.stringify(result.content)}`);
  return result.structuredContent;
};

await client.listTools(); // compiles the output schemas: results are checked against them below
const { session_id } = await call("open_session", { workload: "mixtral_8x22B_v0.1-BF16-pretrain", gpu: "mi355x", nodes: 4 });
let updates = 0;
client.setNotificationHandler(ResourceUpdatedNotificationSchema, () => { updates += 1; });
await client.subscribeResource({ uri: `primus://sessions/${session_id}/trials` });
const baseline = await call("evaluate_simulate", { session_id });
ok(baseline.tokens_per_s_per_gpu === null, "null for what was not computed");
const progress = [];
const seeds = await call("seed_trials", { session_id }, { onprogress: (p) => progress.push(p), resetTimeoutOnProgress: true });
ok(seeds.priced === 12, "twelve seeds");
ok(progress.length > 0, "progress");
const best = await call("get_best", { session_id });
ok(best.tokens_per_s_per_gpu > 0, "a best trial");
const exported = await call("export_best", { session_id });
ok(exported.exports.some((line) => line.startsWith("export PRIMUS_TP=")), "exports");
const { contents } = await client.readResource({ uri: `primus://sessions/${session_id}/best` });
ok(JSON.parse(contents[0].text).trial_id === best.trial_id, "the resource to say the same as the tool");
const { prompts } = await client.listPrompts();
ok(prompts.length === 4, "four prompts");
const wrong = await client.callTool({ name: "evaluate_simulate", arguments: { session_id, config_json: { tpp: 1 } } });
ok(wrong.isError === true, "an error result for a wrong knob");
await new Promise((resolve) => setTimeout(resolve, 300));
ok(updates > 0, "update notifications");
await client.close();
console.log(JSON.stringify({ best: best.tokens_per_s_per_gpu, progress: progress.length, updates }));
process.exit(0);
