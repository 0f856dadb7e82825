// Event types of the catalogue as TypeScript: an interface for each, and one of them all.

import type { JSONSchema, compile } from "json-schema-to-typescript";

export interface CatalogueEntry {
  name: string;
  /** A JSON Schema; without one the payload may be anything. */
  schema?: unknown;
  description?: string | null;
}

export interface Generator {
  compile: typeof compile;
}

/** A module with an interface for each payload, and `Events`, which maps event types to them. */
export async function typesOf(entries: CatalogueEntry[], { compile }: Generator): Promise<string> {
  const names = new Set(["Events"]);
  const parts = [
    "// Made by msgplatform-types from the platform's catalogue of event types: do not edit.\n",
  ];
  const events: string[] = [];
  for (const { name, schema, description } of [...entries].sort(byName)) {
    const typeName = unused(pascalCase(name), names);
    events.push(`  ${JSON.stringify(name)}: ${typeName};`);
    const notes = description ? { description } : {};
    parts.push(
      await compile({ ...notes, ...(schema as JSONSchema), title: typeName }, typeName, {
        additionalProperties: false,
        bannerComment: "",
        // One module has the types of all schemas, which know nothing of each other.
        customName: (part, key) => {
          const own = part.title ?? part.$id ?? key;
          if (own === undefined || own === typeName) return own;
          return unused(typeName + pascalCase(own), names);
        },
        $refOptions: { resolve: { external: false } },
      }),
    );
  }
  parts.push(
    "/** The event types and their payloads: `new Client<Events>(…)`, `verify<Events>(…)`. */",
    "export interface Events {",
    ...events,
    "}",
  );
  return `${parts.join("\n")}\n`;
}

/** json-schema-to-typescript, which only those need who call the command. */
export async function loadGenerator(): Promise<Generator> {
  try {
    return await import("json-schema-to-typescript");
  } catch (error) {
    if ((error as { code?: unknown }).code !== "ERR_MODULE_NOT_FOUND") throw error;
    const message = "msgplatform-types needs: npm install --save-dev json-schema-to-typescript";
    throw Object.assign(new Error(message), { code: "MISSING" });
  }
}

function byName(one: CatalogueEntry, other: CatalogueEntry): number {
  return one.name < other.name ? -1 : 1;
}

/** `OrderPaid` for `order.paid`. */
function pascalCase(name: string): string {
  const words = name.split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  const text = words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join("");
  return /^\p{L}/u.test(text) ? text : `_${text}`;
}

/** The name, with a number behind it if it is taken; it is taken from now on. */
function unused(name: string, names: Set<string>): string {
  let free = name;
  for (let number = 2; names.has(free); number += 1) free = `${name}${number}`;
  names.add(free);
  return free;
}
