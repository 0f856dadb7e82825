// A certified OpenID provider (npm: oidc-provider), with its own pages for development: any
// password is right. Arguments: the folder of npm's modules, the port, and a client as JSON.
// An account's name is its groups: `anna.ops.staff` has the groups ops and staff.
const [modules, port, client] = process.argv.slice(2);
const { default: Provider } = await import(`${modules}/oidc-provider/lib/index.js`);

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [JSON.parse(client)],
  claims: { openid: ["sub"], profile: ["name", "preferred_username"], email: ["email"], groups: ["groups"] },
  scopes: ["openid", "profile", "email", "groups"],
  cookies: { keys: ["only for tests"] },
  features: { backchannelLogout: { enabled: true }, rpInitiatedLogout: { enabled: true } },
  // Its guard against special addresses, which this machine's own is.
  fetch: (url, { dispatcher, ...options }) => fetch(url, options),
  findAccount: (_context, id) => ({
    accountId: id,
    claims: () => {
      const [name, ...groups] = id.split(".");
      return { sub: id, preferred_username: name, name, email: `${name}@example.com`, groups };
    },
  }),
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
