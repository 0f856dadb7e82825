#!/usr/bin/env node
// The command msgplatform-types: the catalogue of event types as TypeScript.

import { writeFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { Client } from "./client.js";
import { PlatformError } from "./errors.js";
import { loadGenerator, typesOf } from "./event_types.js";

const USAGE = `Usage: msgplatform-types [--system NAME] [--output FILE]

Writes the payloads of the catalogue's event types as TypeScript, to the standard output or to a file.

  --system NAME   with this business system's own event types, before shared ones of the same name
  --output FILE   the file to write, such as src/events.ts

MSGPLATFORM_URL is the platform's address, MSGPLATFORM_KEY a management key with the scope
manage:event-types.`;

/** What the person who called the command has to change. */
class UsageError extends Error {}

async function main(): Promise<void> {
  const { values } = readArguments();
  if (values.help) return console.log(USAGE);
  const { MSGPLATFORM_URL: url, MSGPLATFORM_KEY: key } = process.env;
  if (!url || !key) throw new UsageError("Set MSGPLATFORM_URL and MSGPLATFORM_KEY");
  const generator = await loadGenerator();
  const client = new Client(url, key, { patience: 10 });
  const types = new Map<string, { name: string; schema?: unknown; description?: string | null }>();
  for await (const entry of client.list("/api/v1/event-types")) {
    if (entry.system === null && !types.has(entry.name)) types.set(entry.name, entry);
    if (entry.system !== null && entry.system === values.system) types.set(entry.name, entry);
  }
  if (values.system) await checkSystem(client, values.system);
  const text = await typesOf([...types.values()], generator);
  if (!values.output) return void process.stdout.write(text);
  await writeFile(values.output, text);
  console.error(`${types.size} event types are in ${values.output}`);
}

function readArguments() {
  const options = {
    system: { type: "string" },
    output: { type: "string", short: "o" },
    help: { type: "boolean", short: "h" },
  } as const;
  try {
    return parseArgs({ options });
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

/** Rejects if there is no business system of this name; the list alone would be of the shared ones. */
async function checkSystem(client: Client, system: string): Promise<void> {
  const query = { system, limit: 1 };
  await client.api.GET("/api/v1/event-types", { params: { query } });
}

try {
  await main();
} catch (error) {
  if (error instanceof UsageError) {
    console.error(`${error.message}\n\n${USAGE}`);
    process.exitCode = 2;
  } else if (error instanceof PlatformError || (error as { code?: unknown }).code) {
    console.error((error as Error).message);
    process.exitCode = 1;
  } else throw error;
}
