// Reads AsyncAPI documents from standard input (a JSON array), and prints what the official parser
// says of each.
const { Parser } = require("@asyncapi/parser");
const documents = JSON.parse(require("fs").readFileSync(0, "utf8"));

const read = (operation) => ({
  id: operation.id(),
  action: operation.action(),
  channels: operation.channels().all().map((channel) => channel.address()),
  security: operation.security().flatMap((each) => each.all()).map((each) => each.scheme().type()),
  messages: operation.messages().all().map((message) => ({
    id: message.id(),
    contentType: message.contentType(),
    required: message.payload()?.required() ?? null,
    headers: Object.keys(message.headers()?.properties() ?? {}),
  })),
});

const judged = async (text) => {
  const { document, diagnostics } = await new Parser().parse(JSON.stringify(text));
  const problems = diagnostics
    .filter(({ severity }) => severity <= 1) // errors and warnings
    .map(({ code, message, path }) => `${code}: ${message} at ${path.join("/")}`);
  return { problems, operations: (document?.operations().all() ?? []).map(read) };
};

Promise.all(documents.map(judged)).then((verdicts) => console.log(JSON.stringify(verdicts)));
