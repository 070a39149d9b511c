// A person with a browser: opens the address of a device login, logs in as somebody, and confirms. `approve.mjs URL NAME [abort]`

const [url, name, answer] = process.argv.slice(2);
const cookies = new Map();

async function load(target, options = {}) {
  for (let hops = 0; hops < 20; hops += 1) {
    const headers = { cookie: [...cookies].map(([key, value]) => `${key}=${value}`).join('; '), ...options.headers };
    const response = await fetch(target, { ...options, headers, redirect: 'manual' });
    for (const line of response.headers.getSetCookie()) {
      const [pair] = line.split(';');
      const at = pair.indexOf('=');
      cookies.set(pair.slice(0, at), pair.slice(at + 1));
    }
    if (![301, 302, 303, 307].includes(response.status)) return { target, status: response.status, text: await response.text() };
    target = new URL(response.headers.get('location'), target).href;
    options = {};
  }
  throw new Error('too many redirects');
}

function form(page) {
  const found = page.text.match(/<form[^>]*action="([^"]*)"[\s\S]*?<\/form>/);
  if (!found) return undefined;
  const fields = new URLSearchParams();
  for (const [tag] of found[0].matchAll(/<input[^>]*>/g)) {
    const key = tag.match(/name="([^"]*)"/)?.[1];
    if (key) fields.set(key, tag.match(/value="([^"]*)"/)?.[1] ?? '');
  }
  return { action: new URL(found[1].replaceAll('&amp;', '&'), page.target).href, fields };
}

let page = await load(url);
for (let steps = 0; steps < 8; steps += 1) {
  const shown = form(page);
  if (process.env.SHOW) console.error(page.status, page.target, shown?.action, shown && [...shown.fields]);
  if (!shown) break;
  if (shown.fields.has('login')) {
    shown.fields.set('login', name);
    shown.fields.set('password', 'any');
  }
  if (answer === 'abort' && shown.fields.has('user_code')) shown.fields.set('abort', 'yes');
  page = await load(shown.action, {
    method: 'POST',
    body: shown.fields.toString(),
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
  });
}
const title = page.text.match(/<h1>([^<]*)<\/h1>/)?.[1] ?? page.text.slice(0, 200);
console.log(`${page.status} ${title}`);
