import { createHmac, timingSafeEqual } from "node:crypto";

const TOLERANCE_SECONDS = 300;

// Whether this message is genuine: the three webhook headers, and the body's bytes (a Buffer) as
// they came, before anything parses them.
export function verify(secret, id, timestamp, signature, body) {
  if (!/^[0-9]{1,12}$/.test(timestamp)) return false;
  if (Math.abs(Date.now() / 1000 - Number(timestamp)) > TOLERANCE_SECONDS) return false;
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const mac = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body);
  const expected = Buffer.from("v1," + mac.digest("base64"));
  // While a secret is being rotated there are two signatures: one that fits is enough.
  return signature.split(" ").some((text) => {
    const given = Buffer.from(text);
    return given.length === expected.length && timingSafeEqual(given, expected);
  });
}
