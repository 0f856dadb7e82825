// Reads cases from standard input (JSON), verifies each with the official library, prints verdicts.
const { Webhook } = require("standardwebhooks");
const cases = JSON.parse(require("fs").readFileSync(0, "utf8"));
const verdicts = cases.map(({ secret, body, headers }) => {
  try {
    new Webhook(secret).verify(Buffer.from(body, "base64").toString("utf8"), headers);
    return "verified";
  } catch (error) {
    return error.constructor.name;
  }
});
console.log(JSON.stringify(verdicts));
