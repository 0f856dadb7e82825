// Verifies deliveries of every format, and that altered ones are refused.
// `client_deliveries.js FILE`: the file has the secret, and headers and a body of each.
import { deepStrictEqual as equal, throws } from "node:assert";
import { readFileSync } from "node:fs";
import { type Delivery, WebhookVerificationError, verify } from "msgplatform-client";

interface Case {
  format: string;
  headers: Record<string, string>;
  body: string;
}

const { secret, deliveries } = JSON.parse(readFileSync(process.argv[2]!, "utf8")) as {
  secret: string;
  deliveries: Case[];
};
const other = `whsec_${Buffer.from("another secret of 32 bytes, or so").toString("base64")}`;
for (const { format, headers, body } of deliveries) {
  const expected: Delivery = {
    id: "7",
    idempotencyKey: "order-7",
    type: "order.paid",
    source: format === "standard" ? "" : "/systems/shop",
    timestamp: new Date("2026-11-23T00:00:00.250Z"),
    data: { 名: "小米" },
  };
  const isBinary = format === "cloudevents-binary";
  const bytes = new TextEncoder().encode(body);
  equal(verify(headers, body, secret, { isBinary }), expected);
  equal(verify(new Headers(headers), bytes, secret, { isBinary }), expected);
  const renamed = Object.entries(headers).map(([name, value]) => [name.replace("Webhook", "Shop"), value]);
  equal(verify(Object.fromEntries(renamed), bytes, secret, { prefix: "shop", isBinary }), expected);
  const altered: [Record<string, string>, string | Uint8Array, string][] = [
    [headers, `${body} `, secret],
    [headers, Uint8Array.of(...bytes, 0xff), secret],
    [headers, body, other],
    [{ ...headers, "Webhook-Id": "8" }, body, secret],
    [{ ...headers, "Webhook-Timestamp": "1" }, body, secret],
    [{ ...headers, "Webhook-Signature": "" }, body, secret],
    [{}, body, secret],
  ];
  for (const values of altered) {
    throws(() => verify(...values, { isBinary }), WebhookVerificationError);
  }
  if (isBinary) throws(() => verify(headers, body, secret), WebhookVerificationError);
  else {
    throws(() => verify(headers, body, secret, { isBinary: true }), WebhookVerificationError);
    // Headers that are not signed change nothing.
    const forged = { ...headers, "ce-specversion": "1.0", "ce-type": "order.refunded" };
    equal(verify(forged, body, secret), expected);
  }
}
console.log(`${deliveries.length} formats`);
