// node-redis with its defaults: node noderedis.js PORT, with NODE_PATH where it is installed.
const assert = require("assert");
const redis = require("redis");

const row = (r) => Buffer.from(new Uint32Array([4 * r, 4 * r + 1, 4 * r + 2, 4 * r + 3]).buffer);

async function main() {
  for (const RESP of [undefined, 2, 3]) {
    const client = redis.createClient({ url: `redis://127.0.0.1:${process.argv[2]}`, ...(RESP ? { RESP } : {}) });
    client.on("error", (error) => { throw error; });
    await client.connect();
    const buffers = client.withTypeMapping({ [redis.RESP_TYPES.BLOB_STRING]: Buffer });
    assert.deepEqual(await buffers.get("users:7"), row(7));
    assert.equal(await client.get("users:1000"), null);
    assert.deepEqual(await buffers.mGet(["users:1", "users:x", "users:2"]), [row(1), null, row(2)]);
    assert.deepEqual(await client.multi().strLen("users:1").type("users:1").exec(), [16, "string"]);
    const many = await Promise.all(Array.from({ length: 200 }, (_, r) => buffers.get(`users:${r}`)));
    many.forEach((value, r) => assert.deepEqual(value, row(r)));
    let seen = 0;
    for await (const keys of client.scanIterator({ MATCH: "users:*", COUNT: 100 })) seen += [].concat(keys).length;
    assert.equal(seen, 1000);
    assert.match(await client.info(), /redis_version:/);
    assert.equal((await client.clientInfo()).user, "default");
    assert.ok((await client.command()).find((c) => c.name === "get").categories.has("@read"));
    assert.ok((await client.configGet("maxclients")).maxclients);
    await assert.rejects(client.get("items:1"), /must be one of 1: users/);
    assert.deepEqual(await buffers.sendCommand(["TC.GATHER", "users", "3", "2"]), Buffer.concat([row(3), row(2)]));
    client.destroy();
  }
  console.log("ok node-redis", require("redis/package.json").version);
}
main().catch((error) => { console.error(error); process.exit(1); });
