// A certified OpenID provider on loopback, for tests: `node provider.mjs PORT FOLDER`, its settings as JSON in SETTINGS.

import { generateKeyPairSync } from "node:crypto";
import { createRequire } from "node:module";
import path from "node:path";

const [port, folder] = process.argv.slice(2);
const { default: Provider } = await import(createRequire(path.join(path.resolve(folder), "x.js")).resolve("oidc-provider"));
const { redirect, home, audience, conform } = JSON.parse(process.env.SETTINGS);
const jwk = (kind, options, kid) => ({ ...generateKeyPairSync(kind, options).privateKey.export({ format: "jwk" }), kid, use: "sig" });
const groups = { ann: ["staff"], ops: ["ops", "staff"], guest: [] };

const provider = new Provider(`http://127.0.0.1:${port}`, {
  jwks: { keys: [{ ...jwk("rsa", { modulusLength: 2048 }, "first"), alg: "RS256" }, jwk("ec", { namedCurve: "P-256" }, "curve")] },
  cookies: { keys: ["only-for-tests"] },
  clients: [
    { client_id: "page", client_secret: "secret/of:the page+", redirect_uris: [redirect], post_logout_redirect_uris: [home] },
    { client_id: "app", client_secret: "secret-of-app", redirect_uris: [], response_types: [], grant_types: ["client_credentials"] },
  ],
  claims: { openid: ["sub"], email: ["email"], groups: ["groups"] },
  scopes: ["openid", "profile", "email", "groups"],
  conformIdTokenClaims: conform,
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, email: `${id}@example.com`, groups: groups[id] }) }),
  features: {
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => undefined,
      getResourceServerInfo: () => ({ audience, scope: "call", accessTokenFormat: "jwt", accessTokenTTL: 600, jwt: { sign: { alg: "RS256" } } }),
    },
  },
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
