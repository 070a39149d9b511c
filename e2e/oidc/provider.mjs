// An OpenID Connect provider for the end-to-end tests: oidc-provider with the device flow, and people who can be removed.
//
// Prints its issuer on one line. `POST /control {"remove": "ann"}`, `{"groups": {"ann": ["a"]}}` and `{"down": true}` change it;
// the reply lists the secrets that it has issued. The client's secret is in the file OIDC_SECRET_FILE.

import { generateKeyPairSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

// The package is installed below target/, not beside this file.
const packages = createRequire(process.env.OIDC_PACKAGES + '/package.json');
const { Provider } = await import(pathToFileURL(packages.resolve('oidc-provider')));

const people = new Map([
  ['ann', { email: 'ann@example.org', email_verified: true, groups: ['vision', 'everyone'] }],
  ['bob', { email: 'bob@example.org', email_verified: true, groups: ['everyone'] }],
  ['eve', { email: 'ann@example.org', email_verified: false, groups: [] }],
]);
let down = false;
const issued = [];

// Notes the secrets of a reply, by name.
function note(body) {
  let reply = {};
  try {
    reply = JSON.parse(body);
  } catch {
    return;
  }
  for (const name of ['device_code', 'access_token', 'id_token', 'refresh_token']) {
    if (typeof reply[name] === 'string') issued.push([name, reply[name]]);
  }
}

const jwk = (pair, alg) => ({ ...pair.privateKey.export({ format: 'jwk' }), alg, use: 'sig', kid: alg });
const keys = [
  jwk(generateKeyPairSync('rsa', { modulusLength: 2048 }), 'RS256'),
  jwk(generateKeyPairSync('ec', { namedCurve: 'P-256' }), 'ES256'),
];

const server = http.createServer();
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'paddlecloud',
      client_secret: readFileSync(process.env.OIDC_SECRET_FILE, 'utf8').trim(),
      grant_types: ['urn:ietf:params:oauth:grant-type:device_code', 'refresh_token'],
      redirect_uris: [],
      response_types: [],
      id_token_signed_response_alg: process.env.OIDC_ALG ?? 'RS256',
    },
  ],
  jwks: { keys },
  scopes: ['openid', 'email', 'groups', 'offline_access'],
  claims: { openid: ['sub'], email: ['email', 'email_verified'], groups: ['groups'] },
  // Groups are only at the userinfo endpoint, as at most providers.
  conformIdTokenClaims: true,
  features: { deviceFlow: { enabled: true }, devInteractions: { enabled: true } },
  findAccount: (_, sub) => {
    const person = people.get(sub);
    return person && { accountId: sub, claims: () => ({ sub, ...person }) };
  },
  rotateRefreshToken: true,
  ttl: { DeviceCode: 600, RefreshToken: 86400 },
});

const callback = provider.callback();
server.on('request', async (request, response) => {
  if (request.url === '/control') {
    let text = '';
    for await (const piece of request) text += piece;
    const change = JSON.parse(text);
    if (change.remove) people.delete(change.remove);
    for (const [sub, groups] of Object.entries(change.groups ?? {})) people.get(sub).groups = groups;
    if (change.down !== undefined) down = change.down;
    return response.end(JSON.stringify(issued));
  }
  if (down) {
    response.statusCode = 503;
    return response.end('down');
  }
  const end = response.end.bind(response);
  response.end = (body, ...rest) => {
    if (body) note(body.toString());
    return end(body, ...rest);
  };
  return callback(request, response);
});
console.log(issuer);
