// ioredis with its defaults: node ioredis.js PORT, with NODE_PATH where it is installed.
const assert = require("assert");
const Redis = require("ioredis");

const row = (r) => Buffer.from(new Uint32Array([4 * r, 4 * r + 1, 4 * r + 2, 4 * r + 3]).buffer);

async function main() {
  const client = new (Redis.Redis || Redis)(Number(process.argv[2]));
  assert.equal(await client.ping(), "PONG");
  assert.deepEqual(await client.getBuffer("users:7"), row(7));
  assert.equal(await client.get("users:1000"), null);
  assert.deepEqual(await client.mgetBuffer("users:1", "users:x", "users:2"), [row(1), null, row(2)]);
  const pipelined = await client.pipeline().getBuffer("users:1").type("users:1").exec();
  assert.deepEqual(pipelined, [[null, row(1)], [null, "string"]]);
  const transaction = await client.multi().getBuffer("users:1").strlen("users:1").exec();
  assert.deepEqual(transaction, [[null, row(1)], [null, 16]]);
  let seen = 0;
  for await (const keys of client.scanStream({ match: "users:*", count: 100 })) seen += keys.length;
  assert.equal(seen, 1000);
  assert.match(await client.info(), /redis_version:/);
  assert.match(await client.client("LIST"), /user=default/);
  assert.deepEqual(await client.callBuffer("TC.GATHER", "users", 3, 2), Buffer.concat([row(3), row(2)]));
  await assert.rejects(client.get("items:1"), /must be one of 1: users/);
  await client.quit();
  const admin = new (Redis.Redis || Redis)({ port: Number(process.argv[2]), username: "admin", password: "write" });
  assert.equal(await admin.call("TC.SET", "users", 901, row(901)), "OK");
  admin.disconnect();
  console.log("ok ioredis", require("ioredis/package.json").version);
}
main().catch((error) => { console.error(error); process.exit(1); });
